"""The plugin: queue order, the gates of PreFilter, and the wait at Permit.

Worked example: a group needs 3 members. The first two get nodes and wait; the first one has the
queue move its siblings to the front. The third one completes the quorum, and all are bound. If it
fits nowhere, PostFilter rejects the other two, unless the group is close to its quorum.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from proreus.addons.coscheduling.args import CoschedulingArgs
from proreus.addons.coscheduling.group_objects import GroupObjects
from proreus.addons.coscheduling.groups import Group, group_key, membership_of
from proreus.addons.coscheduling.planning import GroupPlanner
from proreus.addons.coscheduling.queue_order import Place
from proreus.addons.coscheduling.quorum import GroupQuorum
from proreus.addons.coscheduling.ranks import rank_of
from proreus.addons.coscheduling.records import Records
from proreus.addons.coscheduling.resource_gap import resource_gap
from proreus.framework import (
    POD_GROUP_SCHEDULING_CYCLE,
    ClusterEvent,
    CycleState,
    Handle,
    NodeTable,
    PermitPlugin,
    PlacementFeasiblePlugin,
    PlacementProgress,
    PodGroupInfo,
    PodGroupSchedulingCycle,
    PodGroupSourcePlugin,
    PodInfo,
    PostFilterPlugin,
    PostFilterResult,
    PreEnqueuePlugin,
    PreFilterPlugin,
    QueuedPodInfo,
    QueueSortPlugin,
    ReservePlugin,
    Status,
    Verdicts,
    WaitingPod,
    events,
)
from proreus.objects import PODS, Pod, key_of

DEFAULT_WAIT_SECONDS = 60.0
_PERMITTED_SECONDS = 3.0
"""How long a group's resources are not added up again where no wait is configured."""


class Coscheduling(
    QueueSortPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PostFilterPlugin,
    ReservePlugin,
    PermitPlugin,
    PodGroupSourcePlugin,
    PlacementFeasiblePlugin,
):
    """Binds the pods of a group once enough of them have a node."""

    group_wide = True

    sort_key_changes = True
    reserve_changes_filter = False
    Args = CoschedulingArgs
    args: CoschedulingArgs

    def __init__(self, args: CoschedulingArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._objects = GroupObjects(handle, self._object_changed)
        self._records = Records()
        self._quorum = GroupQuorum(self._records, self.group)
        self._planner = (
            GroupPlanner(handle, self._objects.group_of) if args.mode == "plan" else None
        )
        """Places groups as a whole; None: members wait at Permit."""
        handle.on_change(PODS, self._pod_changed)

    def events_to_register(self) -> Iterable[ClusterEvent]:
        """Register pods that got a node, of whatever group, room, and changes of groups."""
        room = events.ADD | events.UPDATE_NODE_ALLOCATABLE
        if self._planner is None:
            return (
                ClusterEvent(events.ASSIGNED_POD, events.ADD),
                ClusterEvent(events.ASSIGNED_POD, events.DELETE, hint=self._waits_for_room),
                ClusterEvent(events.NODE, room, hint=self._waits_for_room),
                *self._objects.events_to_register(),
            )
        return (
            self._event(events.POD, events.ADD, self._is_of_group),
            self._event(events.ASSIGNED_POD, events.DELETE, self._may_help_of_group),
            self._event(events.NODE, room, self._needs_resources),
            *self._objects.events_to_register(self._is_group_of, self._ungated_pods),
        )

    def _event(self, resource: str, action: int, hint: events.QueueingHintFn) -> ClusterEvent:
        return ClusterEvent(resource, action, hint=hint, ungated_pods=self._ungated_pods)

    def _is_of_group(self, pod: PodInfo, old: Pod | None, new: Pod | None) -> bool:
        return new is not None and group_key(new) == group_key(pod.pod)

    def _may_help_of_group(self, pod: PodInfo, old: Pod | None, new: Pod | None) -> bool:
        """Return whether a pod that goes makes room in a group that is full, or resources."""
        same = old is not None and group_key(old) == group_key(pod.pod)
        return same or self._needs_resources(pod, None, None)

    def _needs_resources(self, pod: PodInfo, old: Any, new: Any) -> bool:
        group = self.group(pod.pod)
        return group is not None and bool(group.min_resources)

    def _waits_for_room(self, pod: PodInfo, old: Any, new: Any) -> bool:
        # As in the original: no room wakes the pods of a PodGroup of scheduler-plugins.
        has_original = self._objects.has_pod_group(group_key(pod.pod))
        return not has_original and self._needs_resources(pod, old, new)

    def _is_group_of(self, pod: PodInfo, key: str) -> bool:
        """Return whether a pod may start, or may not, because of a group that has changed."""
        group = self.group(pod.pod)
        return group is None or key in group.together

    def _ungated_pods(self, old: Any, new: Any) -> Sequence[str]:
        return () if self._planner is None else self._planner.ungated_pods()

    # ---- groups --------------------------------------------------------------------------------

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        before = "" if old is None else group_key(old)
        membership = None if new is None else membership_of(new)
        now = "" if membership is None else membership.key
        if old is not None and before and before != now:
            self._records.remove_member(before, old)
            self._forget_if_empty(before)
            if not self._records.of(before).members:
                self._objects.forget(before)
                if self._planner is not None:
                    self._planner.forget(before)
        if new is not None and membership is not None:
            self._objects.note(membership)
            had_node = old is not None and old.spec.node_name != ""
            self._records.put_member(now, new, is_placed=not had_node and new.spec.node_name != "")
            if self._planner is not None:
                self._planner.pod_appeared(new)

    def _forget_if_empty(self, key: str) -> None:
        """Forget what is remembered of a group that has neither members nor a PodGroup."""
        if not self._objects.has_pod_group(key):
            self._records.forget_if_empty(key)

    def _object_changed(self, key: str, exists: bool) -> None:
        if not exists:
            self._records.forget_if_empty(key)
        if self._planner is not None:
            self._planner.provide(key)

    def group(self, pod: Pod) -> Group | None:
        """Return the group of a pod; None if it has none, or the PodGroup does not exist."""
        membership = membership_of(pod)
        return None if membership is None else self._objects.group_of(membership)

    # ---- queue ---------------------------------------------------------------------------------

    def sort_key(self, queued: QueuedPodInfo) -> Place:
        """Return what compares by priority, then by the time of the group, then by name."""
        return Place(queued, self)

    def is_surplus(self, queued: QueuedPodInfo) -> bool:
        """Return whether a pod's group has its minimum: others go first, in mode ``plan``."""
        return self._planner is not None and self._planner.is_satisfied(queued.pod)

    def time_of(self, queued: QueuedPodInfo) -> float:
        """Return the time by which a pod is sorted: that of its group, failures first."""
        key = group_key(queued.pod)
        own = queued.initial_attempt_timestamp
        first = queued.timestamp if own is None else own
        if not key:
            return first
        failed_at = self._records.of(key).failed_at
        if failed_at is not None:
            return failed_at
        group = self.group(queued.pod)
        return first if group is None else group.created

    # ---- whole groups --------------------------------------------------------------------------

    def pod_group_name(self, pod: Pod) -> str:
        """Return the group that a pod is queued with, in mode ``plan``."""
        return "" if self._planner is None else self._planner.name_of(pod)

    def pod_rank(self, pod: Pod) -> tuple[int, ...]:
        """Return the number that the pod's controller gave it."""
        return rank_of(pod)

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        """Gate the pods of a group that has too few of them, in mode ``plan``."""
        return None if self._planner is None else self._planner.pre_enqueue(pod)

    def placement_feasible(
        self, state: CycleState, group: PodGroupInfo, progress: PlacementProgress
    ) -> Status | None:
        """Return whether enough pods of a group can still fit."""
        if self._planner is None or group.group is None or not group.entity_key.is_provided:
            return None
        return self._planner.placement_feasible(state, group, progress)

    # ---- PreFilter -----------------------------------------------------------------------------

    def pre_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable
    ) -> Status | frozenset[str] | None:
        """Reject the pods of groups that lack members or resources, or failed a moment ago."""
        group = self.group(pod.pod)
        if group is None:
            return None
        if self._planner is not None:
            return self._pre_filter_in_plan(state, pod, group, nodes)
        now, record = self.handle.clock.monotonic(), self._records.of(group.key)
        if now < record.backs_off_until:
            return Status.unresolvable(f"podGroup {group.key} failed recently")
        if self._quorum.may_start_alone(group):
            return None
        if len(record.members) < group.min_member:
            return Status.unresolvable(
                f"pre-filter pod {pod.name} cannot find enough sibling pods, current pods number: "
                f"{len(record.members)}, minMember of group: {group.min_member}"
            )
        gated = len(record.gated)
        if gated and len(record.members) - gated < group.min_member:
            return Status.unresolvable(
                f"pre-filter pod {pod.name} cannot find enough sibling pods, {gated} of "
                f"{len(record.members)} are gated, minMember of group: {group.min_member}"
            )
        if not group.min_resources or now < record.permitted_until:
            return None
        lacking = self._lacking_resources(group, pod, nodes)
        if lacking is not None:
            return lacking
        wait = self.args.permit_waiting_time_seconds or _PERMITTED_SECONDS
        record.permitted_until = now + wait
        return None

    def _pre_filter_in_plan(
        self, state: CycleState, pod: PodInfo, group: Group, nodes: NodeTable
    ) -> Status | None:
        assert self._planner is not None
        cycle: PodGroupSchedulingCycle | None = state.get(POD_GROUP_SCHEDULING_CYCLE)
        before = group.min_member if cycle is None else cycle.scheduled_before
        surplus = self._planner.surplus(pod, before < group.min_member)
        if surplus is not None or not group.min_resources or before:
            return surplus
        if cycle is None:
            return None
        # Once an attempt, before anything of the group is placed; the pods are tried several times.
        found: tuple[Status | None] | None = cycle.state.get(group.key)
        if found is None:
            found = (self._lacking_resources(group, pod, self.handle.nodes),)
            cycle.state.write(group.key, found)
        return found[0]

    def _lacking_resources(self, group: Group, pod: PodInfo, nodes: NodeTable) -> Status | None:
        try:
            gap = resource_gap(group, pod, self._records.of(group.key), nodes, self.handle)
        except ValueError as error:
            return Status.unresolvable(f"podGroup {group.key}: {error}")
        return Status.unresolvable(f"resource gap: {_listed(gap)}") if gap else None

    # ---- Permit --------------------------------------------------------------------------------

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Do nothing: Permit counts the pod, and ``unreserve`` is what the point is for."""
        return None

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Hold the pod until its group has a quorum; in mode ``plan`` it has."""
        key = group_key(pod.pod)
        if not key:
            return None
        if self._planner is not None:
            self._planner.pod_bound(pod.pod)
            return None
        group = self.group(pod.pod)
        if group is None:
            return Status.unschedulable("PodGroup not found")
        record = self._records.kept(key)
        is_first = self._is_first(group)
        if is_first and not record.attempts.may_begin(pod.uid):
            return Status.unschedulable(f"PodGroup {key} failed while pod {pod.name} was queued")
        record.assign(pod.uid)
        if self._quorum.is_reached(group):
            self._quorum.note(group)
            for waiting in self._release(group):
                waiting.allow(self.name)
            return None
        if is_first:
            # Only the first one: for each of them it would be quadratic.
            siblings = [one for one in self._quorum.members(group) if one.metadata.uid != pod.uid]
            record.attempts.begin(pod.uid, siblings)
            state.pods_to_activate.extend(key_of(one) for one in siblings)
        else:
            record.attempts.tried(pod.uid)
        record.held[pod.uid] = None
        wait = group.timeout_seconds or self.args.permit_waiting_time_seconds
        return Status.wait(float(wait or DEFAULT_WAIT_SECONDS))

    def _is_first(self, group: Group) -> bool:
        """Return whether no other pod of a group waits for the siblings that are to come."""
        if self._objects.has_pod_group(group.key) and not group.gangs:
            # As in the original: beside pods that run, siblings wait for an event.
            return not self._records.of(group.key).assigned
        return not self._quorum.has_waiting(group)

    def _release(self, group: Group) -> Iterator[WaitingPod]:
        """Yield the pods that Permit holds, of all groups that start together, each once."""
        for key in group.together:
            record = self._records.of(key)
            held, record.held = record.held, {}
            for uid in held:
                if (waiting := self.handle.get_waiting_pod(uid)) is not None:
                    yield waiting

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Reject the siblings of a pod that lost its node."""
        key = group_key(pod.pod)
        if self._planner is not None or not key:
            return
        record = self._records.of(key)
        if record.is_bound(pod.uid):
            # The answer to its binding was lost, and the watch has it on its node.
            return
        record.unassign(pod.uid)
        group = self.group(pod.pod)
        if group is not None and group.strict:
            self._fail(group, f"rejection in Unreserve: pod {pod.key} of the group lost its node")
        # The pod may have been the last one, and deleted while it waited at Permit.
        self._forget_if_empty(key)

    # ---- PostFilter ----------------------------------------------------------------------------

    async def post_filter(
        self, state: CycleState, pod: PodInfo, verdicts: Verdicts
    ) -> PostFilterResult:
        """Reject the whole group, unless it is close to its quorum."""
        if self._planner is not None:
            return PostFilterResult(Status.unschedulable())
        group = self.group(pod.pod)
        if group is None:
            return PostFilterResult(Status.unschedulable("can not find pod group"))
        record = self._records.of(group.key)
        record.attempts.tried(pod.uid)
        missing = self._quorum.missing(group)
        if not missing or not group.strict:
            return PostFilterResult(Status.unschedulable())
        if missing / group.min_member <= self.args.pod_group_reject_percentage / 100:
            return PostFilterResult(Status.unschedulable())
        text = (
            f"PodGroup {group.key} gets rejected due to Pod {pod.name} is unschedulable even after "
            "PostFilter"
        )
        self._fail(group, text)
        record.attempts.fail()
        if self.args.pod_group_backoff_seconds and len(record.members) >= group.min_member:
            until = self.handle.clock.monotonic() + self.args.pod_group_backoff_seconds
            record.backs_off_until = until
        self._forget_if_empty(group.key)
        return PostFilterResult(Status.unschedulable(text))

    def _fail(self, group: Group, message: str) -> None:
        """Record a failure of a group, and reject the waiting pods of all that start with it."""
        record = self._records.kept(group.key)
        record.permitted_until = 0.0
        record.failed_at = self.handle.clock.now()
        for waiting in self._release(group):
            waiting.reject(self.name, message)


def _listed(gap: dict[str, int]) -> str:
    return ", ".join(f"{name}: {amount}" for name, amount in sorted(gap.items()))
