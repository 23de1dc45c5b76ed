"""Mode ``plan``: a group waits in the queue as one, and is placed as a whole or not at all.

Each group is provided to the scheduler as a PodGroup; one with tasks as a CompositePodGroup with a
PodGroup for each task, and gangs that start together as PodGroups of one CompositePodGroup. What is
enough of it is decided here.

Worked example: 3 members are needed, and 4 exist. The scheduler tries one after another; each that
fits is assumed for the next ones to see. Once 3 fit, the group is bound. The fourth is surplus: it
comes back, and is tried after the groups that lack their minimum.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from proreus.addons.coscheduling.groups import Group, Membership, membership_of
from proreus.addons.coscheduling.koordinator import MatchPolicy
from proreus.framework import (
    Code,
    CycleState,
    Handle,
    PlacementProgress,
    PodGroupInfo,
    PodInfo,
    Status,
)
from proreus.objects import ObjectMeta, Pod
from proreus.objects.scheduling import (
    CompositeGangSchedulingPolicy,
    CompositePodGroup,
    CompositePodGroupSchedulingPolicy,
    CompositePodGroupSpec,
    EntityKey,
    GangSchedulingPolicy,
    PodGroup,
    PodGroupSchedulingPolicy,
    PodGroupSpec,
)

FindGroup = Callable[[Membership], Group | None]
"""Returns the group that a pod names; None while its PodGroup does not exist."""

_SCHEDULED_BEFORE = "Coscheduling/scheduled-before"
"""``CycleState`` key: how many pods of a group had a node when its dry run began."""


class GroupPlanner:
    """Provides groups to the scheduler, and says whether enough of one fits.

    ``find_group``: what is known of a group now.
    """

    # Invariants: _tasks, _priorities and _memberships have the groups that have been asked about,
    # by their key; _provided has the objects that were put and not removed again, and _providers,
    # by the key of each, whose objects they are: gangs that start together have one in common.
    # _satisfied has the groups whose pods may start alone.

    def __init__(self, handle: Handle, find_group: FindGroup) -> None:
        self._handle = handle
        self._find_group = find_group
        self._memberships: dict[str, Membership] = {}
        self._tasks: dict[str, set[str]] = {}
        self._priorities: dict[str, int] = {}
        self._provided: dict[str, list[PodGroup | CompositePodGroup]] = {}
        self._providers: dict[EntityKey, set[str]] = {}
        self._satisfied: set[str] = set()

    # ---- groups --------------------------------------------------------------------------------

    def name_of(self, pod: Pod) -> str:
        """Return the name of the group, or the task of one, that a pod is queued in."""
        membership = membership_of(pod)
        # A member behind a gate must not hold up the others, who may be enough without it.
        if membership is None or (pod.spec.scheduling_gates and not pod.spec.node_name):
            return ""
        return membership.provided_name(membership.task)

    def pod_appeared(self, pod: Pod) -> None:
        """Provide the group of a pod that is new, or has changed."""
        membership = membership_of(pod)
        if membership is None:
            return
        key, priority = membership.key, pod.spec.priority or 0
        tasks = self._tasks.setdefault(key, set())
        if pod.spec.node_name:
            self._note_if_satisfied(membership)
        known = key in self._provided and membership.task in tasks
        if known and priority <= self._priorities[key]:
            return
        tasks.add(membership.task)
        self._memberships[key] = membership
        self._priorities[key] = max(priority, self._priorities.get(key, priority))
        self.provide(key)

    def provide(self, key: str) -> None:
        """Provide a group as it is now; take it back if its PodGroup is gone."""
        membership = self._memberships.get(key)
        if membership is None:
            return
        group = self._find_group(membership)
        wanted = [] if group is None else self._objects(membership, group)
        provided = self._provided.pop(key, [])
        for one in wanted:
            self._providers.setdefault(one.key, set()).add(key)
        self._take_back(key, provided, {one.key for one in wanted})
        for one in wanted:
            self._handle.put_pod_group(one)
        if wanted:
            self._provided[key] = wanted

    def forget(self, key: str) -> None:
        """Forget a group that has no pods."""
        self._take_back(key, self._provided.pop(key, []), ())
        for known in (self._memberships, self._tasks, self._priorities):
            known.pop(key, None)
        self._satisfied.discard(key)

    def _take_back(
        self,
        key: str,
        provided: Iterable[PodGroup | CompositePodGroup],
        kept: Collection[EntityKey],
    ) -> None:
        """Remove objects that a group does not need any more, nor any other."""
        for one in provided:
            if one.key in kept:
                continue
            providers = self._providers[one.key]
            providers.discard(key)
            if not providers:
                del self._providers[one.key]
                self._handle.remove_pod_group(one)

    def _objects(self, membership: Membership, group: Group) -> list[PodGroup | CompositePodGroup]:
        """Return the objects that stand for a group, parents first."""
        key = group.key
        tasks, priority = sorted(self._tasks[key]), self._priorities[key]
        namespace, name = membership.namespace, membership.provided_name()
        if tasks == [""] and not group.gangs:
            return [_pod_group(membership, "", group.min_member, priority)]
        if tasks == [""]:
            # Of the same priority for each of its gangs, which all provide it.
            highest = max(self._priorities.get(one, priority) for one in group.gangs)
            parent = "+".join(group.gangs)
            together = _composite(namespace, parent, 0, highest)
            return [together, _pod_group(membership, "", group.min_member, priority, parent)]
        objects: list[PodGroup | CompositePodGroup] = [
            _composite(namespace, name, group.min_member, priority)
        ]
        for task in tasks:
            minimum = group.minimums.get(task, 0)
            objects.append(_pod_group(membership, task, minimum, priority, name))
        return objects

    # ---- decisions -----------------------------------------------------------------------------

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        """Gate the pods of a group that has too few of them."""
        membership = membership_of(pod.pod)
        if membership is None or (group := self._find_group(membership)) is None:
            return None
        if group.key in self._satisfied:
            return None
        lacking = next((key for key in group.together if not self._is_complete(key)), None)
        return None if lacking is None else Status.unresolvable(self._why_incomplete(lacking))

    def keys_ungated_by(self, pod: Pod) -> Iterable[str]:
        """Return the pods whose group is complete with a new pod: that pod stands for all."""
        membership = membership_of(pod)
        if membership is None or (group := self._find_group(membership)) is None:
            return ()
        if not all(map(self._is_complete, group.together)):
            return ()
        return (f"{pod.metadata.namespace}/{pod.metadata.name}",)

    def surplus(self, pod: PodInfo, is_new: bool) -> Status | None:
        """Reject a pod that its group does not need now.

        ``is_new``: whether the group lacked its minimum when the attempt began.
        """
        membership = membership_of(pod.pod)
        if membership is None or (group := self._find_group(membership)) is None:
            return None
        scheduled = self._scheduled(membership)
        if group.maximum and scheduled >= group.maximum:
            return Status.unresolvable(f"group {group.key} has its {group.maximum} pods")
        # What does not start now would have to wait for as many pods again.
        if group.policy is MatchPolicy.ONLY_WAITING:
            return None
        if is_new and not membership.task and scheduled >= group.min_member > 0:
            return Status.unresolvable(
                f"group {group.key} has its minimum of {group.min_member} pods; others go first"
            )
        return None

    def is_satisfied(self, pod: Pod) -> bool:
        """Return whether a pod's group has its minimum, so that the pod is surplus."""
        membership = membership_of(pod)
        if membership is None or (group := self._find_group(membership)) is None:
            return False
        if group.policy is MatchPolicy.ONLY_WAITING:
            return False
        return self._scheduled(membership) >= group.min_member

    def placement_feasible(
        self, state: CycleState, info: PodGroupInfo, progress: PlacementProgress
    ) -> Status | None:
        """Return whether enough of a group, or of one of its tasks, can still fit."""
        assert info.group is not None
        if info.is_composite:
            return self._children_feasible(info, progress)
        group = self._group_of(info)
        needed, (remaining, scheduled) = info.group.min_count, progress
        if group is not None and group.key in self._satisfied:
            needed = 0
        elif group is not None and group.policy is MatchPolicy.ONLY_WAITING and info.pods:
            before: int | None = state.get(_SCHEDULED_BEFORE)
            if before is None:
                before = scheduled
                state.write(_SCHEDULED_BEFORE, before)
            scheduled -= before
        if scheduled + remaining < needed:
            return Status.unschedulable(f"{needed} pods are needed together, {scheduled} fit")
        if scheduled < needed:
            return Status(Code.WAIT, (f"{scheduled} of {needed} pods fit",))
        return None

    def _group_of(self, info: PodGroupInfo) -> Group | None:
        """Return the group that a PodGroup stands for."""
        assert info.group is not None
        providers = self._providers.get(info.group.key, ())
        membership = next((self._memberships[key] for key in providers), None)
        return None if membership is None else self._find_group(membership)

    def _children_feasible(self, info: PodGroupInfo, progress: PlacementProgress) -> Status | None:
        assert info.group is not None
        if progress.remaining + progress.scheduled < len(info.children):
            return Status.unschedulable("not all tasks have the pods that they need")
        if progress.remaining:
            return Status(Code.WAIT)
        states = (self._handle.pod_group_states.get(leaf.key) for leaf in info.leaves)
        scheduled = sum(state.scheduled_count for state in states if state is not None)
        needed = info.group.min_count
        if scheduled < needed:
            return Status.unschedulable(f"{needed} pods are needed together, {scheduled} fit")
        return None

    def pod_bound(self, pod: Pod) -> None:
        """Note a group that has its minimum, and whose pods may start alone from now on."""
        membership = membership_of(pod)
        if membership is not None:
            self._note_if_satisfied(membership)

    def _note_if_satisfied(self, membership: Membership) -> None:
        """Note a group of which a pod has a node, which it got beside enough others."""
        group = self._find_group(membership)
        # Its last pod may have gone while it was tried.
        if group is None or group.key not in self._tasks:
            return
        if group.policy is MatchPolicy.ONCE_SATISFIED:
            self._satisfied.add(group.key)

    def _is_complete(self, key: str) -> bool:
        """Return whether a group has all pods that it needs."""
        membership = self._memberships.get(key)
        group = None if membership is None else self._find_group(membership)
        if membership is None or group is None:
            return False
        if self._known(membership, group) < group.min_member:
            return False
        return all(self._count(membership, t, group) >= n for t, n in group.minimums.items())

    def _why_incomplete(self, key: str) -> str:
        membership = self._memberships.get(key)
        group = None if membership is None else self._find_group(membership)
        if membership is None or group is None:
            return f"waiting for group {key}"
        known = self._known(membership, group)
        return f"waiting for {group.min_member} pods of group {key}, of which {known} exist"

    def _known(self, membership: Membership, group: Group) -> int:
        tasks = self._tasks.get(membership.key, ())
        return sum(self._count(membership, task, group) for task in tasks)

    def _count(self, membership: Membership, task: str, group: Group) -> int:
        """Return how many pods of a task there are that count to the minimum."""
        state = self._handle.pod_group_states.get(_state_key(membership, task))
        if state is None:
            return 0
        only_waiting = group.policy is MatchPolicy.ONLY_WAITING
        return state.all_pods_count - (state.scheduled_count if only_waiting else 0)

    def _scheduled(self, membership: Membership) -> int:
        keys = (_state_key(membership, task) for task in self._tasks.get(membership.key, ()))
        states = (self._handle.pod_group_states.get(key) for key in keys)
        return sum(state.scheduled_count for state in states if state is not None)


def _state_key(membership: Membership, task: str) -> str:
    return f"{membership.namespace}/{membership.provided_name(task)}"


def _composite(namespace: str, name: str, minimum: int, priority: int) -> CompositePodGroup:
    """Return a group of groups, of which ``minimum`` pods are needed in all."""
    policy = CompositePodGroupSchedulingPolicy(gang=CompositeGangSchedulingPolicy(minimum))
    spec = CompositePodGroupSpec(scheduling_policy=policy, priority=priority)
    return CompositePodGroup(ObjectMeta(name=name, namespace=namespace), spec)


def _pod_group(
    membership: Membership, task: str, minimum: int, priority: int, parent: str | None = None
) -> PodGroup:
    policy = PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(minimum))
    spec = PodGroupSpec(
        scheduling_policy=policy, priority=priority, parent_composite_pod_group_name=parent
    )
    meta = ObjectMeta(name=membership.provided_name(task), namespace=membership.namespace)
    return PodGroup(meta, spec)
