"""NodeVolumeLimits: no node gets more volumes of a CSI driver than the driver can attach there.

``volumes`` says which limited volumes a pod has, ``attached`` keeps count of those on each node,
``plugin`` has the extension points.
"""

from proreus.plugins.node_volume_limits.plugin import NodeVolumeLimits

__all__ = ["NodeVolumeLimits"]
