"""NodeVolumeLimits: attach no more volumes of a CSI driver to a node than its CSINode allows.

``volumes`` finds the volumes of a pod that count, ``attached`` counts those of each node,
``plugin`` has the extension points.
"""

from proreus.plugins.node_volume_limits.plugin import NodeVolumeLimits

__all__ = ["NodeVolumeLimits"]
