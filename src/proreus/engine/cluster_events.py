"""Derives cluster events from two versions of an object.

The rules are kube-scheduler's ``PodSchedulingPropertiesChange`` and
``NodeSchedulingPropertiesChange``.
"""

from __future__ import annotations

import msgspec

from proreus.framework.events import (
    NODE,
    UPDATE,
    UPDATE_NODE_ALLOCATABLE,
    UPDATE_NODE_ANNOTATION,
    UPDATE_NODE_CONDITION,
    UPDATE_NODE_DECLARED_FEATURE,
    UPDATE_NODE_LABEL,
    UPDATE_NODE_PREEMPTION_POLICY,
    UPDATE_NODE_TAINT,
    UPDATE_POD_DELETION_TIMESTAMP,
    UPDATE_POD_GENERATED_RESOURCE_CLAIM,
    UPDATE_POD_LABEL,
    UPDATE_POD_SCALE_DOWN,
    UPDATE_POD_SCALE_UP,
    UPDATE_POD_SCHEDULING_GATES_ELIMINATED,
    UPDATE_POD_TOLERATION,
    ClusterEvent,
)
from proreus.framework.pod_events import PodEvents
from proreus.framework.pod_info import PodInfo
from proreus.objects.node import Node
from proreus.objects.pod import Pod
from proreus.objects.quantity import amounts_of

NODE_ACTIONS = (
    UPDATE_NODE_ALLOCATABLE,
    UPDATE_NODE_LABEL,
    UPDATE_NODE_TAINT,
    UPDATE_NODE_CONDITION,
    UPDATE_NODE_ANNOTATION,
    UPDATE_NODE_PREEMPTION_POLICY,
    UPDATE_NODE_DECLARED_FEATURE,
)
"""The changes of a node that are events."""

_NODE_EVENTS = {action: ClusterEvent(NODE, action) for action in NODE_ACTIONS}


def as_assigned(pod: Pod, node_name: str) -> Pod:
    """Return an assumed pod as hints expect a pod that is on a node."""
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=node_name))


def pod_events(
    old: PodInfo, new: PodInfo, events_of: PodEvents, *, queued: bool = False
) -> list[ClusterEvent]:
    """Return the events of an update of a pod, at least a generic Update.

    ``queued``: the queue is told, of a pod that is in it although it has a node.
    """
    before, after = old.pod, new.pod
    assigned = after.spec.node_name and not queued
    events = events_of.assigned if assigned else events_of.target
    found = []
    if before.metadata.labels != after.metadata.labels:
        found.append(events[UPDATE_POD_LABEL])
    if _requests_less(new, than=old):
        found.append(events[UPDATE_POD_SCALE_DOWN])
    if events_of.target_pods and _requests_less(old, than=new):
        found.append(events[UPDATE_POD_SCALE_UP])
    if before.spec.scheduling_gates and not after.spec.scheduling_gates:
        found.append(events[UPDATE_POD_SCHEDULING_GATES_ELIMINATED])
    if len(before.spec.tolerations) != len(after.spec.tolerations):
        found.append(events[UPDATE_POD_TOLERATION])
    was, now = before.status, after.status
    if (
        was.resource_claim_statuses != now.resource_claim_statuses
        or was.extended_resource_claim_status != now.extended_resource_claim_status
    ):
        found.append(events[UPDATE_POD_GENERATED_RESOURCE_CLAIM])
    if after.metadata.deletion_timestamp and not before.metadata.deletion_timestamp:
        found.append(events[UPDATE_POD_DELETION_TIMESTAMP])
    # Any update may matter to a plugin that registered Update as such.
    return found or [events[UPDATE]]


def _requests_less(pod: PodInfo, *, than: PodInfo) -> bool:
    """Return whether a pod requests less of some resource than another version of it."""
    less, more = pod.accounted_requests.amounts, than.accounted_requests.amounts
    if less is more:
        return False
    return any(name not in less or amount > less[name] for name, amount in more.items())


def node_events(old: Node, new: Node, preemption_policy: bool) -> list[ClusterEvent]:
    """Return the events of an update of a node; none if scheduling is not concerned.

    ``preemption_policy``: ``spec.podPreemptionPolicy`` counts (``Change.TARGET_POD_EVENTS``).
    """
    found = []
    # ``unschedulable`` counts as a taint, as in kube-scheduler: TaintToleration reads both.
    if old.spec.unschedulable and not new.spec.unschedulable:
        found.append(_NODE_EVENTS[UPDATE_NODE_TAINT])
    # The texts may differ ("1" and "1000m") where the amounts do not.
    if old.status.allocatable != new.status.allocatable and amounts_of(
        old.status.allocatable
    ) != amounts_of(new.status.allocatable):
        found.append(_NODE_EVENTS[UPDATE_NODE_ALLOCATABLE])
    if old.metadata.labels != new.metadata.labels:
        found.append(_NODE_EVENTS[UPDATE_NODE_LABEL])
    if old.spec.taints != new.spec.taints:
        found.append(_NODE_EVENTS[UPDATE_NODE_TAINT])
    if _conditions(old) != _conditions(new):
        found.append(_NODE_EVENTS[UPDATE_NODE_CONDITION])
    if old.metadata.annotations != new.metadata.annotations:
        found.append(_NODE_EVENTS[UPDATE_NODE_ANNOTATION])
    if preemption_policy and old.spec.pod_preemption_policy != new.spec.pod_preemption_policy:
        found.append(_NODE_EVENTS[UPDATE_NODE_PREEMPTION_POLICY])
    if old.status.declared_features != new.status.declared_features:
        found.append(_NODE_EVENTS[UPDATE_NODE_DECLARED_FEATURE])
    return found


def _conditions(node: Node) -> dict[str, str]:
    return {condition.type: condition.status for condition in node.status.conditions}
