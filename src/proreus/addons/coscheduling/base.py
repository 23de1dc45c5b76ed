"""The base class of both modes of Coscheduling: groups with their members, order of the queue."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
from pydantic import Field

from proreus.addons.coscheduling.group_objects import GroupObjects
from proreus.addons.coscheduling.groups import Group, group_key, membership_of
from proreus.addons.coscheduling.ranks import rank_of
from proreus.addons.coscheduling.records import Record, Records
from proreus.framework import (
    CycleState,
    Handle,
    IntArray,
    NodeTable,
    PermitPlugin,
    PlacementFeasiblePlugin,
    PlacementProgress,
    PluginArgs,
    PodGroupDescription,
    PodGroupInfo,
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
    events,
)
from proreus.objects import PODS, Pod, key_of, parse_amount

ROOM = events.ADD | events.UPDATE_NODE_ALLOCATABLE


class CoschedulingArgs(PluginArgs):
    """The mode, the time that pods wait for their group, and the treatment of a failed group.

    ``mode``: ``permit`` holds members at Permit until there are enough, as the original; ``plan``
    places a group as a whole. The other arguments are of ``permit`` alone.
    """

    # Arguments of Koordinator.
    arguments_without_effect = {
        "defaultTimeout": "permitWaitingTimeSeconds is how long pods wait",
        "controllerWorkers": "`proreus controller` writes the statuses of PodGroups",
        "skipCheckScheduleCycle": "gangs have no schedule cycles",
        "enablePreemption": "the add-on GangPreemption preempts for gangs",
        "awareNetworkTopology": "the add-on GroupTopology places gangs by topology",
    }
    points_without_effect = frozenset({"preScore", "score", "preBind", "postBind"})

    mode: Literal["permit", "plan"] = "permit"
    permit_waiting_time_seconds: int = Field(60, ge=0)
    pod_group_backoff_seconds: int = Field(0, ge=0)
    pod_group_reject_percentage: int = Field(10, ge=0, le=100)


class BaseCoscheduling(
    QueueSortPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PostFilterPlugin,
    ReservePlugin,
    PermitPlugin,
    PodGroupSourcePlugin,
    PlacementFeasiblePlugin,
):
    """Sorts pods by their groups. Every point lets pods pass unless a mode has an opinion."""

    group_wide = True

    sort_key_changes = True
    reserve_changes_filter = False
    Args = CoschedulingArgs
    args: CoschedulingArgs

    def __init__(self, args: CoschedulingArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._objects = GroupObjects(handle, self._object_changed)
        self._records = Records()
        handle.on_change(PODS, self._pod_changed)

    # ---- groups --------------------------------------------------------------------------------

    def group(self, pod: Pod) -> Group | None:
        """Return the group of a pod; None if it has none, or the PodGroup does not exist."""
        membership = membership_of(pod)
        return None if membership is None else self._objects.group_of(membership)

    def describe_group(self, pod: Pod) -> PodGroupDescription | None:
        """Return the group that a pod names."""
        membership = membership_of(pod)
        if membership is None:
            return None
        group, record = self._objects.group_of(membership), self._records.of(membership.key)
        return PodGroupDescription(
            membership.object_key,
            exists=group is not None,
            min_count=0 if group is None else group.min_member,
            pods=tuple(map(key_of, record.members.values())),
            placed=len(record.assigned),
        )

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        before = "" if old is None else group_key(old)
        membership = None if new is None else membership_of(new)
        now = "" if membership is None else membership.key
        if old is not None and before and before != now:
            self._records.remove_member(before, old)
            self._forget_if_empty(before)
            if not self._records.of(before).members:
                self._group_gone(before)
        if new is not None and membership is not None:
            self._objects.note(membership)
            had_node = old is not None and old.spec.node_name != ""
            self._records.put_member(now, new, is_placed=not had_node and new.spec.node_name != "")

    def _group_gone(self, key: str) -> None:
        """Forget a group without members."""
        self._objects.forget(key)

    def _forget_if_empty(self, key: str) -> None:
        """Drop the record of a group that has neither members nor a PodGroup."""
        if not self._objects.has_pod_group(key):
            self._records.forget_if_empty(key)

    def _object_changed(self, key: str, exists: bool) -> None:
        if not exists:
            self._records.forget_if_empty(key)

    def _needs_resources(self, pod: PodInfo, old: object, new: object) -> bool:
        group = self.group(pod.pod)
        return group is not None and bool(group.min_resources)

    def _lacking_resources(self, group: Group, pod: PodInfo, nodes: NodeTable) -> Status | None:
        try:
            gap = resource_gap(group, pod, self._records.of(group.key), nodes, self.handle)
        except ValueError as error:
            return Status.unresolvable(f"podGroup {group.key}: {error}")
        if not gap:
            return None
        listed = ", ".join(f"{name}: {amount}" for name, amount in sorted(gap.items()))
        return Status.unresolvable(f"resource gap: {listed}")

    # ---- queue ---------------------------------------------------------------------------------

    def sort_key(self, queued: QueuedPodInfo) -> Place:
        """Return a key that sorts by priority, then by the time of the group, then by name."""
        return Place(queued, self)

    def is_surplus(self, pod: Pod) -> bool:
        """Return whether a pod's group has its minimum, so that others go first."""
        return False

    def time_of(self, queued: QueuedPodInfo) -> float:
        """Return the sort time of a pod: the failure or creation of its group, else its own."""
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

    def pod_rank(self, pod: Pod) -> tuple[int, ...]:
        """Return the number that the pod's controller gave it."""
        return rank_of(pod)

    # ---- what only one of the modes does -------------------------------------------------------

    def pod_group_name(self, pod: Pod) -> str:
        """Return no group: pods are queued alone."""
        return ""

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        """Gate no pod."""
        return None

    def placement_feasible(
        self, state: CycleState, group: PodGroupInfo, progress: PlacementProgress
    ) -> Status | None:
        """Return whether enough pods of a group can still fit."""
        return None

    async def post_filter(
        self, state: CycleState, pod: PodInfo, verdicts: Verdicts
    ) -> PostFilterResult:
        """Leave the pod as it is."""
        return PostFilterResult(Status.unschedulable())


class Place:
    """The place of a pod in the queue.

    Times are looked up at each comparison, as in the original: a group that fails moves back.
    """

    __slots__ = ("_plugin", "_queued")

    def __init__(self, queued: QueuedPodInfo, plugin: BaseCoscheduling) -> None:
        self._queued, self._plugin = queued, plugin

    def __lt__(self, other: Place) -> bool:
        mine, others = self._queued, other._queued
        if mine.priority != others.priority:
            return mine.priority > others.priority
        surplus = self._plugin.is_surplus(mine.pod)
        if surplus != other._plugin.is_surplus(others.pod):
            return not surplus
        time, other_time = self._plugin.time_of(mine), other._plugin.time_of(others)
        if time != other_time:
            return time < other_time
        return mine.key < others.key


def resource_gap(
    group: Group, pod: PodInfo, record: Record, nodes: NodeTable, handle: Handle
) -> dict[str, int]:
    """Return the amounts that the cluster lacks of a group's resources, by name.

    The use of its members counts as free, and so does room that is held for ``pod``, a member.
    Raises ``ValueError`` for an invalid quantity.
    """
    needed = {**_amounts(group), "pods": group.min_member}
    own: dict[int, list[PodInfo]] = {
        nodes.rows[name]: [held]
        for name, held in handle.provided_for(pod).items()
        if name in nodes.rows
    }
    for uid in record.assigned:
        for row in _rows_of(uid, record, nodes, handle):
            own.setdefault(row, []).append(nodes[row].pods[uid])
    gap = {}
    for name, amount in needed.items():
        # Node by node only as far as a resource is needed, as in the original: a node that is
        # overfull adds to what is needed, unless it is covered before.
        free = _free(nodes, name)
        for row, pods in own.items():
            one = 1 if name == "pods" else 0
            free[row] += sum(p.requests.amounts.get(name, 0) or one for p in pods)
        left = amount - np.cumsum(free[handle.node_order()])
        if amount > 0 and not (left <= 0).any():
            gap[name] = int(left[-1]) if len(left) else amount
    return gap


def _amounts(group: Group) -> dict[str, int]:
    amounts = {}
    for name, quantity in group.min_resources.items():
        try:
            amounts[name] = parse_amount(name, quantity)
        except ValueError as error:
            raise ValueError(f"spec.minResources.{name}: {error}") from None
    return amounts


def _rows_of(uid: str, record: Record, nodes: NodeTable, handle: Handle) -> Iterator[int]:
    member = record.members.get(uid)
    name = "" if member is None else member.spec.node_name
    if not name and handle.get_waiting_pod(uid) is not None:
        yield from (row for row, node in enumerate(nodes) if uid in node.pods)
    elif name in nodes.rows and uid in nodes[nodes.rows[name]].pods:
        yield nodes.rows[name]


def _free(nodes: NodeTable, name: str) -> IntArray:
    if name == "pods":
        return nodes.allowed_pods - nodes.pod_count
    return nodes.allocatable[name] - nodes.requested[name]
