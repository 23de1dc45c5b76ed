"""Mode ``plan``: a group waits in the queue as one, and is placed as a whole or not at all.

Worked example: 3 members are needed, and 4 exist. The scheduler tries one after another; each that
fits is assumed for the next ones to see. Once 3 fit, the group is bound. The fourth is surplus: it
comes back, and is tried after the groups that lack their minimum.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from proreus.addons.coscheduling.base import ROOM, BaseCoscheduling, CoschedulingArgs
from proreus.addons.coscheduling.groups import MatchPolicy, group_key, membership_of
from proreus.addons.coscheduling.planning import GroupPlanner
from proreus.framework import (
    POD_GROUP_SCHEDULING_CYCLE,
    ClusterEvent,
    Code,
    CycleState,
    Handle,
    NodeTable,
    PlacementProgress,
    PodGroupInfo,
    PodGroupSchedulingCycle,
    PodInfo,
    Status,
    events,
)
from proreus.objects import Pod

_SCHEDULED_BEFORE = "Coscheduling/scheduled-before"
"""``CycleState`` key: how many pods of a group had a node when its dry run began."""


class PlannedCoscheduling(BaseCoscheduling):
    """Places groups as a whole, in the cycle of PodGroups."""

    name = "Coscheduling"

    def __init__(self, args: CoschedulingArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._planner = GroupPlanner(handle, self._objects.group_of)

    def events_to_register(self) -> Iterable[ClusterEvent]:
        """Register pods of the same group, room where resources count, and changes of groups."""
        return (
            self._event(events.POD, events.ADD, self._is_of_group),
            self._event(events.ASSIGNED_POD, events.DELETE, self._may_help_of_group),
            self._event(events.NODE, ROOM, self._needs_resources),
            *self._objects.events_to_register(self._is_group_of, self._ungated_pods),
        )

    def _event(self, resource: str, action: int, hint: events.QueueingHintFn) -> ClusterEvent:
        return ClusterEvent(resource, action, hint=hint, ungated_pods=self._ungated_pods)

    def _is_of_group(self, pod: PodInfo, old: Pod | None, new: Pod | None) -> bool:
        """Return whether another pod is of the same group, or of one that starts with it."""
        if new is None:
            return False
        key, group = group_key(new), self.group(pod.pod)
        return key == group_key(pod.pod) or (group is not None and key in group.together)

    def _may_help_of_group(self, pod: PodInfo, old: Pod | None, new: Pod | None) -> bool:
        """Return whether a pod that goes makes room in a group that is full, or resources."""
        return self._is_of_group(pod, new, old) or self._needs_resources(pod, old, new)

    def _is_group_of(self, pod: PodInfo, key: str) -> bool:
        """Return whether a pod may start, or may not, because of a group that has changed."""
        group = self.group(pod.pod)
        return group is None or key in group.together

    def _ungated_pods(self, old: Any, new: Any) -> Sequence[str]:
        return self._planner.ungated_pods()

    # ---- groups --------------------------------------------------------------------------------

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        super()._pod_changed(old, new)
        if new is not None:
            self._planner.pod_appeared(new)

    def _group_gone(self, key: str) -> None:
        super()._group_gone(key)
        self._planner.forget(key)

    def _object_changed(self, key: str, exists: bool) -> None:
        super()._object_changed(key, exists)
        self._planner.provide(key)

    # ---- queue ---------------------------------------------------------------------------------

    def pod_group_name(self, pod: Pod) -> str:
        """Return the name of the group, or the task of one, that a pod is queued in."""
        membership = membership_of(pod)
        # A gated member must not hold up the others: they may be enough without it.
        if membership is None or (pod.spec.scheduling_gates and not pod.spec.node_name):
            return ""
        return membership.provided_name(membership.task)

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        """Gate the pods of a group that has too few of them."""
        planned = self._planner.planned(pod.pod)
        if planned is None or planned.is_satisfied:
            return None
        lacking = self._planner.lacking(planned)
        return None if lacking is None else Status.unresolvable(lacking)

    def is_surplus(self, pod: Pod) -> bool:
        """Return whether a pod's group has its minimum, so that others go first."""
        planned = self._planner.planned(pod)
        if planned is None or planned.group is None:
            return False
        if planned.group.policy is MatchPolicy.ONLY_WAITING:
            return False
        return planned.scheduled >= planned.group.min_member

    # ---- decisions -----------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        """Reject the pods of groups that have enough, or lack resources."""
        group = self.group(pod.pod)
        if group is None:
            return None
        cycle: PodGroupSchedulingCycle | None = state.get(POD_GROUP_SCHEDULING_CYCLE)
        before = group.min_member if cycle is None else cycle.scheduled_before
        if (surplus := self._surplus(pod, before)) is not None:
            return surplus
        if not group.min_resources or before or cycle is None:
            return None
        # Once an attempt, before anything of the group is placed; the pods are tried several times.
        found: tuple[Status | None] | None = cycle.state.get(group.key)
        if found is None:
            found = (self._lacking_resources(group, pod, self.handle.nodes),)
            cycle.state.write(group.key, found)
        return found[0]

    def _surplus(self, pod: PodInfo, before: int) -> Status | None:
        """Reject a pod that its group does not need now.

        ``before``: how many pods of the group had a node when the attempt began.
        """
        planned = self._planner.planned(pod.pod)
        if planned is None or (group := planned.group) is None:
            return None
        if group.maximum and planned.scheduled >= group.maximum:
            return Status.unresolvable(f"group {group.key} has its {group.maximum} pods")
        # A pod that does not start now would wait for as many pods again.
        if group.policy is MatchPolicy.ONLY_WAITING:
            return None
        membership = membership_of(pod.pod)
        is_of_task = membership is not None and membership.task != ""
        if before < group.min_member <= planned.scheduled and not is_of_task:
            return Status.unresolvable(
                f"group {group.key} has its minimum of {group.min_member} pods; others go first"
            )
        return None

    def placement_feasible(
        self, state: CycleState, group: PodGroupInfo, progress: PlacementProgress
    ) -> Status | None:
        """Return whether enough of a group, or of one of its tasks, can still fit."""
        if group.group is None or not group.entity_key.is_provided:
            return None
        if group.is_composite:
            return self._children_feasible(group, group.group.min_count, progress)
        planned = self._planner.planned_of(group.key)
        known = None if planned is None else planned.group
        needed, scheduled = group.group.min_count, progress.scheduled
        if planned is not None and planned.is_satisfied:
            needed = 0
        elif known is not None and known.policy is MatchPolicy.ONLY_WAITING and group.pods:
            before: int | None = state.get(_SCHEDULED_BEFORE)
            if before is None:
                before = scheduled
                state.write(_SCHEDULED_BEFORE, before)
            scheduled -= before
        if scheduled + progress.remaining < needed:
            return _too_few(needed, scheduled)
        if scheduled < needed:
            return Status(Code.WAIT, (f"{scheduled} of {needed} pods fit",))
        return None

    def _children_feasible(
        self, group: PodGroupInfo, needed: int, progress: PlacementProgress
    ) -> Status | None:
        if progress.remaining + progress.scheduled < len(group.children):
            return Status.unschedulable("not all tasks have the pods that they need")
        if progress.remaining:
            return Status(Code.WAIT)
        states = (self.handle.pod_group_states.get(leaf.key) for leaf in group.leaves)
        scheduled = sum(state.scheduled_count for state in states if state is not None)
        return _too_few(needed, scheduled) if scheduled < needed else None

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Note that the group of the pod has enough pods with a node."""
        if (key := group_key(pod.pod)) != "":
            self._planner.pod_bound(key)
        return None


def _too_few(needed: int, scheduled: int) -> Status:
    return Status.unschedulable(f"{needed} pods are needed together, {scheduled} fit")
