"""NodeName: reject all nodes but the one that the pod's spec names."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import numpy as np

from proreus.framework.cycle_state import CycleState
from proreus.framework.events import ADD, NODE, ClusterEvent
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import FilterPlugin, PreFilterPlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.framework.verdicts import Verdicts

REASON = "node(s) didn't match the requested node name"

_REJECTED = Status.unresolvable(REASON).with_plugin("NodeName")


class NodeName(PreFilterPlugin, FilterPlugin):
    """Rejects every node but the one in ``spec.nodeName``, if there is one."""

    row_local = True
    looks_at_pods = False
    passes_without_node_name = True

    def sign(self, pod: PodInfo) -> Hashable:
        """Sign the node name."""
        return pod.pod.spec.node_name

    def pre_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable
    ) -> frozenset[str] | None:
        """Name the pod's node; from Kubernetes 1.37 on."""
        wanted = pod.pod.spec.node_name
        return frozenset((wanted,)) if wanted else None

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Filter one node."""
        wanted = pod.pod.spec.node_name
        return _REJECTED if wanted and wanted != node.name else None

    def filter_all(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable, verdicts: Verdicts
    ) -> None:
        """Filter all nodes."""
        wanted = pod.pod.spec.node_name
        if not wanted:
            return
        others = np.ones(len(nodes), dtype=np.bool_)
        row = nodes.rows.get(wanted)
        if row is not None:
            others[row] = False
        verdicts.reject_with(others, _REJECTED)

    def events_to_register(self) -> Iterable[ClusterEvent]:
        """Register new nodes, which may have the name."""
        return (ClusterEvent(NODE, ADD),)
