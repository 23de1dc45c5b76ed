"""GroupTopology: a group of pods goes to the tightest topology domain that holds it.

``domains`` counts the pods that each domain holds and orders domains, ``hyper_nodes`` are domains
as objects of Volcano, ``plugin`` reads the request of a group and has the extension points.
"""

from proreus.addons.group_topology.plugin import GroupTopology

__all__ = ["GroupTopology"]
