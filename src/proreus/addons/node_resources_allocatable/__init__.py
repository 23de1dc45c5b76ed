"""NodeResourcesAllocatable: prefer nodes by their size, whatever runs on them.

Source: kubernetes-sigs/scheduler-plugins, ``pkg/noderesources``.
"""

from proreus.addons.node_resources_allocatable.plugin import NodeResourcesAllocatable

__all__ = ["NodeResourcesAllocatable"]
