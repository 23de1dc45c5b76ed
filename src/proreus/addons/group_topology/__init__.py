"""GroupTopology: a group of pods goes to the tightest topology domain that holds it.

``requests`` reads what a group asks for, ``domains`` counts how many of its pods each domain holds
and orders them, ``hyper_nodes`` are domains as objects of Volcano, ``plugin`` has the extension
points.
"""

from proreus.addons.group_topology.plugin import GroupTopology

__all__ = ["GroupTopology"]
