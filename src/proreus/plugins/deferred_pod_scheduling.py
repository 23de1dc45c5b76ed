"""DeferredPodScheduling: let preemption make room for a pod's resize on the node that it is on.

A pod whose resize its kubelet has deferred for lack of room is queued again, and only its own node
counts (KEP-5836). If it does not fit there, preemption evicts less important pods of that node; if
it does, the pod waits in the queue until the kubelet has resized it.

Gate InPlacePodVerticalScalingSchedulerPreemption, Kubernetes 1.37.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from proreus.framework.cycle_state import CycleState
from proreus.framework.events import (
    ADD,
    ASSIGNED_POD,
    NODE,
    TARGET_POD,
    UPDATE_NODE_PREEMPTION_POLICY,
    UPDATE_POD_SCALE_UP,
    ClusterEvent,
)
from proreus.framework.handle import Handle
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import FilterPlugin, PermitPlugin, PreFilterPlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.objects.node import Node
from proreus.objects.pod import Pod
from proreus.objects.requests import is_pod_resize_deferred

OTHER_NODE = "pod assigned to different node"
DISABLED = "node had resize preemption disabled"
WAITING = "pod resize fits, waiting for Kubelet actuation"

_OTHER_NODE = Status.unresolvable(OTHER_NODE)
_DISABLED = Status.unresolvable(DISABLED)
_WAITING = Status.unresolvable(WAITING)
_SKIP = Status.skip()


class DeferredPodScheduling(PreFilterPlugin, FilterPlugin, PermitPlugin):
    """Keeps a pod with a deferred resize to its node, and in the queue while it fits there."""

    row_local = True
    looks_at_pods = False

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self._enabled = handle.feature_gates.enabled("InPlacePodVerticalScalingSchedulerPreemption")

    def sign(self, pod: PodInfo) -> Hashable:
        """Sign the node of a deferred pod."""
        return pod.pod.spec.node_name if self._applies_to(pod) else ""

    def _applies_to(self, pod: PodInfo) -> bool:
        return self._enabled and is_pod_resize_deferred(pod.pod)

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        """Skip pods without a deferred resize."""
        return None if self._applies_to(pod) else _SKIP

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Reject other nodes than the pod's, and that one if it forbids preemption for resizes."""
        if not self._applies_to(pod):
            return None
        own = pod.pod.spec.node_name
        if own and own != node.name:
            return _OTHER_NODE
        return _DISABLED if node.node is not None and _is_disabled(node.node) else None

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Reject a pod whose resize fits: it is its kubelet's turn."""
        return _WAITING if self._applies_to(pod) else None

    def events_to_register(self) -> Iterable[ClusterEvent]:
        """Register the pod's node, and resizes on it, which may take the room that there was."""
        return (
            ClusterEvent(
                NODE, UPDATE_NODE_PREEMPTION_POLICY, self._is_schedulable_after_node_change
            ),
            ClusterEvent(NODE, ADD, self._is_schedulable_after_node_change),
            ClusterEvent(ASSIGNED_POD, UPDATE_POD_SCALE_UP, self._is_retried_after_scale_up),
            ClusterEvent(TARGET_POD, UPDATE_POD_SCALE_UP, self._is_retried_after_scale_up),
        )

    def _is_schedulable_after_node_change(self, pod: PodInfo, old: Node | None, new: Node) -> bool:
        if not self._applies_to(pod) or new.metadata.name != pod.pod.spec.node_name:
            return False
        return not _is_disabled(new) and (old is None or _is_disabled(old))

    def _is_retried_after_scale_up(self, pod: PodInfo, old: Pod | None, new: Pod) -> bool:
        # A resize that fits counts on its node already, so that no new pod takes its room.
        return self._applies_to(pod) and new.spec.node_name == pod.pod.spec.node_name


def _is_disabled(node: Node) -> bool:
    policy = node.spec.pod_preemption_policy
    return policy is not None and bool(policy.disable_resize_preemption)
