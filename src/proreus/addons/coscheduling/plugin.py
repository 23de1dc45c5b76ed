"""The plugin: queue order, the gates of PreFilter, and the wait at Permit.

Worked example: a group needs 3 members. The first two get nodes and wait; the first one has the
queue move its siblings to the front. The third one completes the quorum, and all are bound. If it
fits nowhere, PostFilter rejects the other two, unless the group is close to its quorum.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from proreus.addons.coscheduling.groups import GANGS, Gang, Group, group_key, virtual_group
from proreus.addons.coscheduling.records import Records
from proreus.framework import (
    ClusterEvent,
    CycleState,
    FeatureGates,
    Handle,
    NodeTable,
    PermitPlugin,
    PluginArgs,
    PodInfo,
    PostFilterPlugin,
    PostFilterResult,
    PreFilterPlugin,
    QueuedPodInfo,
    QueueSortPlugin,
    ReservePlugin,
    Status,
    Verdicts,
    events,
    field_errors,
)
from proreus.objects import PODS, Pod, key_of

DEFAULT_WAIT_SECONDS = 60.0
_PERMITTED_SECONDS = 3.0
"""How long a group's resources are not added up again where no wait is configured."""


class CoschedulingArgs(PluginArgs):
    """How long pods wait for their group, and what happens to one that fails."""

    permit_waiting_time_seconds: int = 60
    pod_group_backoff_seconds: int = 0
    pod_group_reject_percentage: int = 10

    def problems(self, path: str, gates: FeatureGates) -> Iterator[str]:
        """Check the ranges."""
        for name, value in (
            ("permitWaitingTimeSeconds", self.permit_waiting_time_seconds),
            ("podGroupBackoffSeconds", self.pod_group_backoff_seconds),
        ):
            if value < 0:
                yield field_errors.invalid(field_errors.child(path, name), value, "must be >= 0")
        if not 0 <= self.pod_group_reject_percentage <= 100:
            where = field_errors.child(path, "podGroupRejectPercentage")
            value = self.pod_group_reject_percentage
            yield field_errors.invalid(where, value, "not in valid range [0, 100]")


class Coscheduling(QueueSortPlugin, PreFilterPlugin, PostFilterPlugin, ReservePlugin, PermitPlugin):
    """Binds the pods of a group once enough of them have a node."""

    sort_key_changes = True
    Args = CoschedulingArgs
    args: CoschedulingArgs

    def __init__(self, args: CoschedulingArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._gangs = handle.store(GANGS)
        self._records = Records()
        handle.on_change(PODS, self._pod_changed)
        handle.on_change(GANGS, self._gang_changed)

    def events_to_register(self) -> Iterable[ClusterEvent]:
        """Register pods that got a node, of whatever group, and changes of groups."""
        return (
            ClusterEvent(events.ASSIGNED_POD, events.ADD),
            ClusterEvent(GANGS.id, events.ADD | events.UPDATE),
        )

    # ---- groups --------------------------------------------------------------------------------

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        before = "" if old is None else group_key(old)
        now = "" if new is None else group_key(new)
        if old is not None and before and before != now:
            self._records.remove_member(before, old)
            if before not in self._gangs:
                self._records.forget_if_empty(before)
        if new is not None and now:
            self._records.put_member(now, new)

    def _gang_changed(self, old: Gang | None, new: Gang | None) -> None:
        if old is not None and new is None:
            meta = old.metadata
            self._records.forget_if_empty(f"{meta.namespace}/{meta.name}")

    def group(self, pod: Pod) -> Group | None:
        """Return the group of a pod; None if it has none, or the PodGroup does not exist."""
        key = group_key(pod)
        gang = self._gangs.get(key) if key else None
        return virtual_group(pod) if gang is None else Group.of(gang)

    # ---- queue ---------------------------------------------------------------------------------

    def sort_key(self, queued: QueuedPodInfo) -> _Place:
        """Return what compares by priority, then by the time of the group, then by name."""
        return _Place(queued, self)

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
        if len(record.members) < group.min_member:
            return Status.unresolvable(
                f"pre-filter pod {pod.name} cannot find enough sibling pods, current pods number: "
                f"{len(record.members)}, minMember of group: {group.min_member}"
            )
        gated = sum(bool(one.spec.scheduling_gates) for one in record.members.values())
        if gated and len(record.members) - gated < group.min_member:
            return Status.unresolvable(
                f"pre-filter pod {pod.name} cannot find enough sibling pods, {gated} of "
                f"{len(record.members)} are gated, minMember of group: {group.min_member}"
            )
        if not group.min_resources or now < record.permitted_until:
            return None
        gap = self._resource_gap(group, nodes)
        if gap:
            return Status.unresolvable(f"resource gap: {_listed(gap)}")
        wait = self.args.permit_waiting_time_seconds or _PERMITTED_SECONDS
        self._records.kept(group.key).permitted_until = now + wait
        return None

    def _resource_gap(self, group: Group, nodes: NodeTable) -> dict[str, int]:
        """Return what of the group's resources the cluster lacks, those of its members aside."""
        needed = {**group.min_resources, "pods": group.min_member}
        own: dict[int, list[PodInfo]] = {}
        for uid in self._records.of(group.key).assigned:
            for row in self._rows_of(uid, group.key, nodes):
                own.setdefault(row, []).append(nodes[row].pods[uid])
        gap = {}
        for name, amount in needed.items():
            # Node by node only as far as a resource is needed, as in the original: a node that is
            # overfull adds to what is needed, unless it is covered before.
            free = _free(nodes, name)
            for row, pods in own.items():
                one = 1 if name == "pods" else 0
                free[row] += sum(p.requests.amounts.get(name, 0) or one for p in pods)
            left = amount - np.cumsum(free[self.handle.node_order()])
            if amount > 0 and not (left <= 0).any():
                gap[name] = int(left[-1]) if len(left) else amount
        return gap

    def _rows_of(self, uid: str, key: str, nodes: NodeTable) -> Iterator[int]:
        member = self._records.of(key).members.get(uid)
        name = "" if member is None else member.spec.node_name
        waiting = self.handle.get_waiting_pod(uid)
        if not name and waiting is not None:
            rows = [row for row, node in enumerate(nodes) if uid in node.pods]
            yield from rows
        elif name in nodes.rows and uid in nodes[nodes.rows[name]].pods:
            yield nodes.rows[name]

    # ---- Permit --------------------------------------------------------------------------------

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Do nothing: Permit counts the pod, and ``unreserve`` is what the point is for."""
        return None

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Hold the pod until its group has a quorum."""
        key = group_key(pod.pod)
        if not key:
            return None
        group = self.group(pod.pod)
        if group is None:
            return Status.unschedulable("PodGroup not found")
        record = self._records.kept(key)
        is_first = not record.assigned
        record.assigned.add(pod.uid)
        if len(record.assigned) >= group.min_member:
            record.failed_at = None
            for waiting in self._waiting_siblings(key):
                waiting.allow(self.name)
            return None
        if is_first:
            # Only the first one: for each of them it would be quadratic.
            siblings = [one for uid, one in record.members.items() if uid != pod.uid]
            state.pods_to_activate.extend(key_of(one) for one in siblings)
        wait = group.timeout_seconds or self.args.permit_waiting_time_seconds
        return Status.wait(float(wait or DEFAULT_WAIT_SECONDS))

    def _waiting_siblings(self, key: str) -> list[Any]:
        return [one for one in self.handle.waiting_pods() if group_key(one.pod.pod) == key]

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Reject the siblings of a pod that lost its node."""
        key = group_key(pod.pod)
        if not key or self.group(pod.pod) is None:
            return
        record = self._records.kept(key)
        record.assigned.discard(pod.uid)
        self._fail(key, f"rejection in Unreserve: pod {pod.key} of the group lost its node")

    # ---- PostFilter ----------------------------------------------------------------------------

    async def post_filter(
        self, state: CycleState, pod: PodInfo, verdicts: Verdicts
    ) -> PostFilterResult:
        """Reject the whole group, unless it is close to its quorum."""
        group = self.group(pod.pod)
        if group is None:
            return PostFilterResult(Status.unschedulable("can not find pod group"))
        record = self._records.of(group.key)
        missing = group.min_member - len(record.assigned)
        if missing <= 0:
            return PostFilterResult(Status.unschedulable())
        if missing / group.min_member <= self.args.pod_group_reject_percentage / 100:
            return PostFilterResult(Status.unschedulable())
        text = (
            f"PodGroup {group.key} gets rejected due to Pod {pod.name} is unschedulable even after "
            "PostFilter"
        )
        self._fail(group.key, text)
        if self.args.pod_group_backoff_seconds and len(record.members) >= group.min_member:
            until = self.handle.clock.monotonic() + self.args.pod_group_backoff_seconds
            self._records.kept(group.key).backs_off_until = until
        return PostFilterResult(Status.unschedulable(text))

    def _fail(self, key: str, message: str) -> None:
        """Record a failure of a group, and reject its waiting pods."""
        record = self._records.kept(key)
        record.permitted_until = 0.0
        record.failed_at = self.handle.clock.now()
        for waiting in self._waiting_siblings(key):
            waiting.reject(self.name, message)


class _Place:
    """The place of a pod in the queue.

    Times are looked up at each comparison, as in the original: a group that fails moves back.
    """

    __slots__ = ("_plugin", "_queued")

    def __init__(self, queued: QueuedPodInfo, plugin: Coscheduling) -> None:
        self._queued, self._plugin = queued, plugin

    def __lt__(self, other: _Place) -> bool:
        mine, others = self._queued, other._queued
        if mine.priority != others.priority:
            return mine.priority > others.priority
        time, other_time = self._plugin.time_of(mine), other._plugin.time_of(others)
        if time != other_time:
            return time < other_time
        return mine.key < others.key


def _free(nodes: NodeTable, name: str) -> Any:
    if name == "pods":
        return nodes.allowed_pods - nodes.pod_count
    return nodes.allocatable[name] - nodes.requested[name]


def _listed(gap: dict[str, int]) -> str:
    return ", ".join(f"{name}: {amount}" for name, amount in sorted(gap.items()))
