"""Dry runs: where pods would be placed in the cluster as it is now, or with other nodes."""
