"""VolumeBinding: place pods where their volumes are or can be provisioned, and bind those.

``plugin`` has the extension points. ``storage`` has volumes and claims, assumed ones included;
``claims`` sorts the claims of a pod. ``matching`` (static), ``provisioning`` (dynamic) and
``accessible_nodes`` find the volumes that a claim can get, and on which nodes; ``pod_volumes``
combines them for one pod, by node and over columns. ``assumed_volumes`` assumes, writes and awaits
the result.
"""

from proreus.plugins.volume_binding.plugin import VolumeBinding

__all__ = ["VolumeBinding"]
