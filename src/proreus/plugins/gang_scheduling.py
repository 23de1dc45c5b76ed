"""GangScheduling: bind the pods of a gang together or not at all (KEP-4671, gate GangScheduling).

PreEnqueue gates a gang's pods until ``minCount`` of them exist, and Permit lets them wait until
``minCount`` of them have a node. The pod group cycle schedules all of them in one attempt.

Worked example: ``minCount`` is 3. Two pods are created and gated; the third ungates all. The first
two to get a node wait on permit, the third allows them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from proreus.framework.cycle_state import CycleState
from proreus.framework.events import ADD, POD, POD_GROUP, ClusterEvent
from proreus.framework.handle import Handle
from proreus.framework.plugin import PermitPlugin, PreEnqueuePlugin
from proreus.framework.pod_group import POD_GROUP_SCHEDULING_CYCLE
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.objects.meta import key_of
from proreus.objects.pod import Pod
from proreus.objects.scheduling import POD_GROUPS, PodGroup, pod_group_key

WAIT_SECONDS = 5 * 60.0

_TOO_FEW = Status.unresolvable(
    "waiting for minCount pods from a gang to appear in scheduling queue"
)
_WAIT = Status.wait(WAIT_SECONDS, "waiting for minCount pods from a gang to be scheduled")


class GangScheduling(PreEnqueuePlugin, PermitPlugin):
    """Gates pods of a gang until there are ``minCount``, then lets them wait for each other."""

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self._enabled = handle.feature_gates.enabled("GangScheduling")
        self._groups = handle.store(POD_GROUPS) if self._enabled else {}
        self._states = handle.pod_group_states

    def events_to_register(self) -> Iterable[ClusterEvent]:
        """Register new pods of the group, and the group itself."""
        if not self._enabled:
            return ()
        return (
            ClusterEvent(POD, ADD, hint=_is_schedulable_after_pod_added),
            ClusterEvent(POD_GROUP, ADD, hint=_is_schedulable_after_pod_group_added),
        )

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        """Gate a pod until its group and enough pods of it exist."""
        key = pod_group_key(pod.pod)
        if not key or not self._enabled:
            return None
        group = self._groups.get(key)
        if group is None:
            name = key.partition("/")[2]
            return Status.unresolvable(
                f'waiting for pods\'s pod group "{name}" to appear in scheduling queue'
            )
        state = self._states.get(key)
        known = 0 if state is None else state.all_pods_count
        return _TOO_FEW if known < _min_count(group) else None

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Let a pod wait until enough pods of its gang have a node, then allow all of them."""
        key = pod_group_key(pod.pod)
        if not key or not self._enabled:
            return None
        group = self._groups.get(key)
        if group is None:
            name = key.partition("/")[2]
            text = f'podgroup.scheduling.k8s.io "{name}" not found'
            return Status.error(f"failed to get podGroup {key}: {text}")
        if group.spec.scheduling_policy.gang is None:
            return None
        gang = self._states.get(key)
        if gang is None:
            return Status.error(f"pod group state not found for pod group {key}")
        # The pod group cycle schedules all pods of the gang itself and decides about them together:
        # none needs to be activated or allowed.
        in_group_cycle = state.get(POD_GROUP_SCHEDULING_CYCLE) is not None
        if gang.scheduled_count < _min_count(group):
            if not in_group_cycle:
                self.handle.activate([other.key for other in gang.unscheduled.values()])
            return _WAIT
        if not in_group_cycle:
            for waiting in self.handle.waiting_pods():
                if waiting.pod.uid in gang.assumed:
                    waiting.allow(self.name)
        return None


def _min_count(group: PodGroup) -> int:
    """Return the minCount of a group; 0 if it is no gang."""
    gang = group.spec.scheduling_policy.gang
    return 0 if gang is None else gang.min_count


def _is_schedulable_after_pod_added(pod: PodInfo, old: Pod | None, new: Pod | None) -> bool:
    return new is not None and pod_group_key(new) == pod_group_key(pod.pod) != ""


def _is_schedulable_after_pod_group_added(
    pod: PodInfo, old: PodGroup | None, new: PodGroup | None
) -> bool:
    return new is not None and key_of(new) == pod_group_key(pod.pod)
