"""Filter and Score: searches over all nodes, and what devices take of a node's resources."""
