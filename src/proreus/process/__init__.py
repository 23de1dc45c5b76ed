"""The process: what `proreus run` wires together, from its flags to its end."""
