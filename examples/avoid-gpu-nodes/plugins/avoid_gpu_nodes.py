"""AvoidGpuNodes: pods that ask for no GPU stay off the nodes that have one."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from fnmatch import fnmatchcase

from pydantic import Field

from proreus.framework import (
    ClusterEvent,
    CycleState,
    FilterPlugin,
    NodeInfo,
    PluginArgs,
    PodInfo,
    Status,
    events,
)
from proreus.objects import Node


class AvoidGpuNodes(FilterPlugin):
    """A node has a GPU if it carries a label, or if its name follows a pattern."""

    class Args(PluginArgs):
        """Which nodes have a GPU, and which pods may go there."""

        label: str = Field("accelerator", description="Nodes with this label, whatever its value.")
        names: str = Field("gpu-*", description="Nodes with such a name; * and ? as in a shell.")
        resource: str = Field("nvidia.com/gpu", description="Pods that request it may go anywhere.")

    args: Args
    row_local = True  # the result for a node holds until that node changes
    looks_at_pods = False

    def sign(self, pod: PodInfo) -> Hashable:
        return self._asks_for_gpu(pod)

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        if self._asks_for_gpu(pod) or not self._has_gpu(node.name, node.labels):
            return None
        # Unresolvable: no preemption would make a plain node of it.
        return Status.unresolvable("node(s) are kept for pods that ask for a GPU")

    def events_to_register(self) -> Iterable[ClusterEvent]:
        return (
            ClusterEvent(events.NODE, events.ADD | events.UPDATE_NODE_LABEL, self._is_a_plain_node),
        )

    def _is_a_plain_node(self, pod: PodInfo, old: Node | None, new: Node) -> bool:
        return not self._has_gpu(new.metadata.name, new.metadata.labels)

    def _asks_for_gpu(self, pod: PodInfo) -> bool:
        return pod.requests.amounts.get(self.args.resource, 0) > 0

    def _has_gpu(self, name: str, labels: Mapping[str, str]) -> bool:
        return self.args.label in labels or fnmatchcase(name, self.args.names)
