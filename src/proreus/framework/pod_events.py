"""The events of pods, as a version of kube-scheduler names them and tells them apart.

    a pod with a node                    AssignedPod
    a pod without a node                 UnscheduledPod  (1.36: UnschedulablePod)
    the waiting pod that was updated     TargetPod       (1.36: UnschedulablePod)

Resources are those of 1.37 for every version, so that a plugin's registrations mean the same for
all; in 1.36 only the labels differ, and which changes have an action of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from proreus.base.kubernetes_version import Change
from proreus.framework.events import (
    ADD,
    ASSIGNED_POD,
    DELETE,
    POD,
    TARGET_POD,
    UNSCHEDULABLE_POD,
    UNSCHEDULED_POD,
    UPDATE,
    UPDATE_POD_DELETION_TIMESTAMP,
    UPDATE_POD_GENERATED_RESOURCE_CLAIM,
    UPDATE_POD_LABEL,
    UPDATE_POD_SCALE_DOWN,
    UPDATE_POD_SCALE_UP,
    UPDATE_POD_SCHEDULING_GATES_ELIMINATED,
    UPDATE_POD_TOLERATION,
    ClusterEvent,
    QueueingHintFn,
    UngatedPodsFn,
)

if TYPE_CHECKING:
    from proreus.base.feature_gates import FeatureGates

POD_ACTIONS = (
    UPDATE_POD_LABEL,
    UPDATE_POD_SCALE_DOWN,
    UPDATE_POD_SCALE_UP,
    UPDATE_POD_SCHEDULING_GATES_ELIMINATED,
    UPDATE_POD_TOLERATION,
    UPDATE_POD_GENERATED_RESOURCE_CLAIM,
    UPDATE_POD_DELETION_TIMESTAMP,
    UPDATE,
)
"""The changes of a pod that are events; UPDATE is any other."""


class PodEvents:
    """The events of pods. ``target_pods``: see ``Change.TARGET_POD_EVENTS``.

    ``unscheduled_add``, ``unscheduled_update``, ``unscheduled_delete``: of pods without a node.
    ``first_update``: an update by which the queue learns of a pod. ``assigned``, ``target``: the
    updates of a pod with a node and of a waiting pod, by action.
    """

    def __init__(self, target_pods: bool = False) -> None:
        def event(resource: str, action: int) -> ClusterEvent:
            named = resource if target_pods or resource == ASSIGNED_POD else UNSCHEDULABLE_POD
            # kube-scheduler's metrics know this one as an update like others.
            known = UPDATE if action == UPDATE_POD_DELETION_TIMESTAMP else action
            return ClusterEvent(resource, action, label=ClusterEvent(named, known).label)

        def updates(resource: str) -> Mapping[int, ClusterEvent]:
            return {action: event(resource, action) for action in POD_ACTIONS}

        self.target_pods = target_pods
        self.unscheduled_add = event(UNSCHEDULED_POD, ADD)
        self.unscheduled_update = event(UNSCHEDULED_POD, UPDATE)
        self.unscheduled_delete = event(UNSCHEDULED_POD, DELETE)
        self.first_update = self.unscheduled_add if target_pods else self.unscheduled_update
        self.assigned = updates(ASSIGNED_POD)
        self.target = updates(TARGET_POD)

    @staticmethod
    def of(gates: FeatureGates) -> PodEvents:
        """Return the events of the emulated version."""
        return (
            _TARGET_POD_EVENTS if gates.includes(Change.TARGET_POD_EVENTS) else DEFAULT_POD_EVENTS
        )


DEFAULT_POD_EVENTS = PodEvents()
_TARGET_POD_EVENTS = PodEvents(target_pods=True)


def pod_registrations(
    gates: FeatureGates,
    *,
    assigned: int = 0,
    target: int = 0,
    hint: QueueingHintFn | None = None,
    ungated_pods: UngatedPodsFn | None = None,
) -> tuple[ClusterEvent, ...]:
    """Return an in-tree plugin's registrations of actions on assigned pods and on its own pod.

    One that is registered for its own pod alone is asked only about that pod; up to 1.36 it is
    asked about every pod (``Change.TARGET_POD_EVENTS``), so its hint has to compare UIDs.
    """
    if not PodEvents.of(gates).target_pods:
        return (ClusterEvent(POD, assigned | target, hint, ungated_pods=ungated_pods),)
    return tuple(
        ClusterEvent(resource, action, hint, ungated_pods=ungated_pods)
        for resource, action in ((ASSIGNED_POD, assigned), (TARGET_POD, target))
        if action
    )
