"""Queueing hints: the events that may help a pod that PodTopologySpread rejected."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from proreus.base.feature_gates import FeatureGates
from proreus.framework.events import (
    ADD,
    ALL,
    DELETE,
    NODE,
    UPDATE_NODE_LABEL,
    UPDATE_NODE_TAINT,
    UPDATE_POD_DELETION_TIMESTAMP,
    UPDATE_POD_LABEL,
    UPDATE_POD_TOLERATION,
    ClusterEvent,
)
from proreus.framework.node_affinity import node_affinity
from proreus.framework.pod_events import pod_registrations
from proreus.framework.pod_info import PodInfo
from proreus.objects.node import Node
from proreus.objects.pod import Pod
from proreus.objects.workloads import (
    WORKLOAD_KINDS,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
)
from proreus.plugins.pod_topology_spread.constraints import SpreadConstraint

Workload = Service | ReplicationController | ReplicaSet | StatefulSet
HardConstraints = Callable[[Pod], Sequence[SpreadConstraint]]


class SpreadHints:
    """The queueing hints; ``hard`` returns the hard constraints of a pod.

    ``hard_defaults``: whether there are some for pods without constraints of their own.
    """

    def __init__(self, hard: HardConstraints, hard_defaults: bool, gates: FeatureGates) -> None:
        self._hard = hard
        self._hard_defaults = hard_defaults
        self._gates = gates

    def events(self) -> Iterable[ClusterEvent]:
        """Return the events that the plugin registers."""
        node_actions = ADD | DELETE | UPDATE_NODE_LABEL | UPDATE_NODE_TAINT
        return (
            *pod_registrations(
                self._gates,
                assigned=ADD | UPDATE_POD_LABEL | UPDATE_POD_DELETION_TIMESTAMP | DELETE,
                target=UPDATE_POD_LABEL | UPDATE_POD_TOLERATION,
                hint=self.is_schedulable_after_pod_change,
            ),
            ClusterEvent(NODE, node_actions, self.is_schedulable_after_node_change),
            *(
                ClusterEvent(kind.kind, ALL, _is_schedulable_after_workload_change)
                for kind in (WORKLOAD_KINDS if self._hard_defaults else ())
            ),
        )

    def is_schedulable_after_pod_change(
        self, pod: PodInfo, old: Pod | None, new: Pod | None
    ) -> bool:
        """Return whether an added, deleted or updated pod may help."""
        # Pods of other namespaces, and pods without a node, count for no constraint.
        if any(other is not None and not _is_involved(pod, other) for other in (old, new)):
            return False
        # An added pod may help as well: it may raise the minimum, and with it every limit.
        constraints = self._hard(pod.pod)
        if old is None or new is None:
            known = new if new is not None else old
            assert known is not None
            return any(c.selector.matches(known.metadata.labels) for c in constraints)
        if new.metadata.uid == pod.uid and (
            self._hard(old) is not self._hard(new)
            or (
                old.spec.tolerations != new.spec.tolerations
                and any(c.honor_taints for c in constraints)
            )
        ):
            return True
        before, after = old.metadata.labels, new.metadata.labels
        # A pod that is being deleted counts no more.
        if new.metadata.deletion_timestamp and not old.metadata.deletion_timestamp:
            return any(c.selector.matches(before) for c in constraints)
        if before == after:
            return False
        return any(c.selector.matches(before) != c.selector.matches(after) for c in constraints)

    def is_schedulable_after_node_change(
        self, pod: PodInfo, old: Node | None, new: Node | None
    ) -> bool:
        """Return whether an added, deleted or updated node may help."""
        # A deleted one too: without its domain the minimum may be higher.
        constraints = self._hard(pod.pod)
        was = old is not None and _has_keys(old, constraints)
        is_now = new is not None and _has_keys(new, constraints)
        if old is None or new is None or was != is_now:
            return was or is_now
        if not is_now:
            return False
        before, after = old.metadata.labels, new.metadata.labels
        return (
            old.spec.taints != new.spec.taints
            or any(before[c.topology_key] != after[c.topology_key] for c in constraints)
            or (
                any(c.honor_affinity for c in constraints)
                and node_affinity(pod).matches(before, old.metadata.name)
                != node_affinity(pod).matches(after, new.metadata.name)
            )
        )


def _is_schedulable_after_workload_change(
    pod: PodInfo, old: Workload | None, new: Workload | None
) -> bool:
    # The pods that a default constraint counts are those of the pod's services and owner.
    one = new or old
    assert one is not None
    if one.metadata.namespace != pod.namespace or pod.pod.spec.topology_spread_constraints:
        return False
    return old is None or new is None or old.spec.selector != new.spec.selector


def _is_involved(pod: PodInfo, other: Pod) -> bool:
    placed = other.spec.node_name or other.status.nominated_node_name
    return other.metadata.uid == pod.uid or (
        bool(placed) and other.metadata.namespace == pod.namespace
    )


def _has_keys(node: Node, constraints: Sequence[SpreadConstraint]) -> bool:
    return all(c.topology_key in node.metadata.labels for c in constraints)
