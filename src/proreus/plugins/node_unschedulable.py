"""NodeUnschedulable: cordoned nodes accept only pods that tolerate the unschedulable taint."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from proreus.framework.cycle_state import CycleState
from proreus.framework.events import (
    ADD,
    NODE,
    UPDATE_NODE_TAINT,
    UPDATE_POD_TOLERATION,
    ClusterEvent,
)
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import FilterPlugin, PreFilterPlugin
from proreus.framework.pod_events import pod_registrations
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.framework.tolerations import toleration_index
from proreus.framework.verdicts import Verdicts
from proreus.objects.node import Node
from proreus.objects.pod import Pod
from proreus.objects.taints import NO_SCHEDULE, Taint, TolerationIndex

REASON = "node(s) were unschedulable"
TAINT = Taint(key="node.kubernetes.io/unschedulable", effect=NO_SCHEDULE)
"""The taint that a cordon counts as, whether or not the node has it."""


class NodeUnschedulable(PreFilterPlugin, FilterPlugin):
    """Rejects nodes with ``spec.unschedulable``."""

    row_local = True
    looks_at_pods = False
    passes_without_node_name = True

    def sign(self, pod: PodInfo) -> Hashable:
        """Sign the tolerations; the index of equal ones is one object."""
        return toleration_index(pod)

    def events_to_register(self) -> Iterable[ClusterEvent]:
        """Register nodes that are uncordoned, and the pod's own tolerations."""
        return (
            ClusterEvent(NODE, ADD | UPDATE_NODE_TAINT, hint=_is_schedulable_after_node_change),
            *pod_registrations(
                self.handle.feature_gates,
                target=UPDATE_POD_TOLERATION,
                hint=_is_schedulable_after_pod_toleration_change,
            ),
        )

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> None:
        """Pass every pod; from Kubernetes 1.37 on."""

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Filter one node."""
        if not node.unschedulable or toleration_index(pod).tolerates(TAINT):
            return None
        return Status.unresolvable(REASON)

    def filter_all(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable, verdicts: Verdicts
    ) -> None:
        """Filter all nodes."""
        if not toleration_index(pod).tolerates(TAINT):
            verdicts.reject(nodes.unschedulable, REASON, unresolvable=True)


def _is_schedulable_after_node_change(pod: PodInfo, old: Node | None, new: Node | None) -> bool:
    # Read from the spec: the taint follows the cordon, written by the node lifecycle controller.
    if new is None or new.spec.unschedulable:
        return False
    return old is None or old.spec.unschedulable


def _is_schedulable_after_pod_toleration_change(
    pod: PodInfo, old: Pod | None, new: Pod | None
) -> bool:
    # The hint is called for updates of all pods.
    if new is None or new.metadata.uid != pod.uid:
        return False
    return TolerationIndex(new.spec.tolerations).tolerates(TAINT)
