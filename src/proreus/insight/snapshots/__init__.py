"""Files of objects: snapshots of a cluster, and recordings of what arrives."""
