"""NodeMetadata: nodes by a number or a time in one of their labels or annotations.

Source: kubernetes-sigs/scheduler-plugins, ``pkg/nodemetadata``.
"""

from proreus.addons.node_metadata.plugin import NodeMetadata

__all__ = ["NodeMetadata"]
