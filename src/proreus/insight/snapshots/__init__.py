"""Reads and writes files of objects: snapshots of a cluster, and recordings of arrivals."""
