"""The network: list and watch, writes, credentials, the Lease, Events."""
