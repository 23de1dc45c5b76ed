"""The search for devices that satisfy all requests of some claims on one node."""
