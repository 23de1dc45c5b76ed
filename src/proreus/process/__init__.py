"""The process wires the rooms together, from the flags of `proreus run` to its end."""
