"""Mode ``permit``: the gates of PreFilter, and the wait at Permit.

Worked example: a group needs 3 members. The first two get nodes and wait; the first one has the
queue move its siblings to the front. The third one completes the quorum, and all are bound. If it
fits nowhere, PostFilter rejects the other two, unless the group is close to its quorum.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from proreus.addons.coscheduling.base import ROOM, BaseCoscheduling, CoschedulingArgs
from proreus.addons.coscheduling.groups import Group, MatchPolicy, group_key
from proreus.addons.coscheduling.planned import PlannedCoscheduling
from proreus.framework import (
    ClusterEvent,
    CycleState,
    Handle,
    NodeTable,
    PodInfo,
    PostFilterResult,
    Status,
    Verdicts,
    WaitingPod,
    events,
)
from proreus.objects import key_of

DEFAULT_WAIT_SECONDS = 60.0
_PERMITTED_SECONDS = 3.0
"""The time before a group's resources are added up again if no wait is configured."""


class Coscheduling(BaseCoscheduling):
    """Binds the pods of a group once enough of them have a node."""

    def __new__(cls, args: CoschedulingArgs, handle: Handle) -> Any:
        """Return the plugin of the mode that the arguments choose."""
        return PlannedCoscheduling(args, handle) if args.mode == "plan" else super().__new__(cls)

    def events_to_register(self) -> Iterable[ClusterEvent]:
        """Register pods of any group that got a node, new room, and changes of groups."""
        return (
            ClusterEvent(events.ASSIGNED_POD, events.ADD),
            ClusterEvent(events.ASSIGNED_POD, events.DELETE, hint=self._waits_for_room),
            ClusterEvent(events.NODE, ROOM, hint=self._waits_for_room),
            *self._objects.events_to_register(),
        )

    def _waits_for_room(self, pod: PodInfo, old: Any, new: Any) -> bool:
        # As in the original: no room wakes the pods of a PodGroup of scheduler-plugins.
        has_original = self._objects.has_pod_group(group_key(pod.pod))
        return not has_original and self._needs_resources(pod, old, new)

    # ---- PreFilter -----------------------------------------------------------------------------

    def pre_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable
    ) -> Status | frozenset[str] | None:
        """Reject the pods of groups that lack members or resources, or failed a moment ago."""
        group = self.group(pod.pod)
        if group is None:
            return None
        now, record = self.handle.clock.monotonic(), self._records.of(group.key)
        if now < record.backs_off_until:
            return Status.unresolvable(f"podGroup {group.key} failed recently")
        if self._may_start_alone(group):
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

    # ---- Permit --------------------------------------------------------------------------------

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Hold the pod until its group has a quorum."""
        key = group_key(pod.pod)
        if not key:
            return None
        group = self.group(pod.pod)
        if group is None:
            return Status.unschedulable("PodGroup not found")
        record = self._records.kept(key)
        is_first = self._is_first(group)
        if is_first and not record.attempts.may_begin(pod.uid):
            return Status.unschedulable(f"PodGroup {key} failed while pod {pod.name} was queued")
        record.assign(pod.uid)
        if self._has_quorum(group):
            self._note_quorum(group)
            for waiting in self._release(group):
                waiting.allow(self.name)
            return None
        if is_first:
            # Only the first one: for each of them it would be quadratic.
            members = (self._records.of(one).members.values() for one in group.together)
            siblings = [one for one in chain(*members) if one.metadata.uid != pod.uid]
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
        return not any(self._records.of(key).waiting for key in group.together)

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
        if not key:
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
        group = self.group(pod.pod)
        if group is None:
            return PostFilterResult(Status.unschedulable("can not find pod group"))
        record = self._records.of(group.key)
        record.attempts.tried(pod.uid)
        missing = self._missing(group)
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

    # ---- quorum --------------------------------------------------------------------------------

    def _may_start_alone(self, group: Group) -> bool:
        """Return whether a group had its minimum once, and needs it no more."""
        once = group.policy is MatchPolicy.ONCE_SATISFIED
        return once and self._records.of(group.key).satisfied

    def _missing(self, group: Group) -> int:
        """Return the number of pods that a group lacks, 0 if there are enough."""
        if self._may_start_alone(group):
            return 0
        record = self._records.of(group.key)
        only_waiting = group.policy is MatchPolicy.ONLY_WAITING
        return max(0, group.min_member - len(record.waiting if only_waiting else record.assigned))

    def _has_quorum(self, group: Group) -> bool:
        """Return whether a group may start, and so may all gangs that start with it."""
        for key in group.together:
            one = group if key == group.key else self._group_of_key(key)
            if one is None or self._missing(one):
                return False
        return True

    def _note_quorum(self, group: Group) -> None:
        """Record that a group may start, and all that start with it."""
        for key in group.together:
            record = self._records.kept(key)
            record.satisfied = True
            record.failed_at = None

    def _group_of_key(self, key: str) -> Group | None:
        """Return a group by its key; None if none of its pods is known."""
        pod = next(iter(self._records.of(key).members.values()), None)
        return None if pod is None else self.group(pod)
