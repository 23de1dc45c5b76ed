"""VolumeBinding: pods go where their volumes are, or can be made.

``storage`` is what is known of volumes and claims, own changes included; ``claims`` sorts the
claims of a pod; ``matching``, ``provisioning`` and ``accessible_nodes`` say which volumes a claim
can get, and from where; ``placement`` puts that together for one pod, a node at a time and over
columns; ``assumed_volumes`` keeps, writes and awaits what was decided; ``plugin`` has the extension
points.
"""

from proreus.plugins.volume_binding.plugin import VolumeBinding

__all__ = ["VolumeBinding"]
