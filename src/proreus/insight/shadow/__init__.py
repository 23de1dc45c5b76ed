"""A candidate configuration decides in parallel with the one in force, without effect."""
