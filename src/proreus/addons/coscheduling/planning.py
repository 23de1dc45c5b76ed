"""Mode ``plan``: a group waits in the queue as one, and is placed as a whole or not at all.

Each group is provided to the scheduler as a PodGroup; one with tasks as a CompositePodGroup with a
PodGroup for each task. What is enough of it is decided here.

Worked example: 3 members are needed, and 4 exist. The scheduler tries one after another; each that
fits is assumed for the next ones to see. Once 3 fit, the group is bound. The fourth is surplus: it
comes back, and is tried after the groups that lack their minimum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from proreus.addons.coscheduling.groups import Group, Membership, membership_of
from proreus.framework import Code, Handle, PlacementProgress, PodGroupInfo, PodInfo, Status
from proreus.objects import ObjectMeta, Pod
from proreus.objects.scheduling import (
    CompositeGangSchedulingPolicy,
    CompositePodGroup,
    CompositePodGroupSchedulingPolicy,
    CompositePodGroupSpec,
    GangSchedulingPolicy,
    PodGroup,
    PodGroupSchedulingPolicy,
    PodGroupSpec,
)

FindGroup = Callable[[Membership], Group | None]
"""Returns the group that a pod names; None while its PodGroup does not exist."""


class GroupPlanner:
    """Provides groups to the scheduler, and says whether enough of one fits.

    ``find_group``: what is known of a group now.
    """

    # Invariants: _tasks, _priorities and _memberships have the groups that have been asked about,
    # by their key; _provided has the objects that were put and not removed again.

    def __init__(self, handle: Handle, find_group: FindGroup) -> None:
        self._handle = handle
        self._find_group = find_group
        self._memberships: dict[str, Membership] = {}
        self._tasks: dict[str, set[str]] = {}
        self._priorities: dict[str, int] = {}
        self._provided: dict[str, dict[str, PodGroup | CompositePodGroup]] = {}
        self._satisfied: set[str] = set()

    # ---- groups --------------------------------------------------------------------------------

    def name_of(self, pod: Pod) -> str:
        """Return the name of the group, or the task of one, that a pod is queued in."""
        membership = membership_of(pod)
        # A member behind a gate must not hold up the others, who may be enough without it.
        if membership is None or (pod.spec.scheduling_gates and not pod.spec.node_name):
            return ""
        return _name(membership, membership.task)

    def pod_appeared(self, pod: Pod) -> None:
        """Provide the group of a pod that is new, or has changed."""
        membership = membership_of(pod)
        if membership is None:
            return
        key, priority = membership.key, pod.spec.priority or 0
        tasks = self._tasks.setdefault(key, set())
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
        wanted = {} if group is None else self._objects(membership, group)
        provided = self._provided.pop(key, {})
        for name, one in provided.items():
            if name not in wanted:
                self._handle.remove_pod_group(one)
        for one in wanted.values():
            self._handle.put_pod_group(one)
        if wanted:
            self._provided[key] = wanted

    def forget(self, key: str) -> None:
        """Forget a group that has no pods."""
        for one in self._provided.pop(key, {}).values():
            self._handle.remove_pod_group(one)
        for known in (self._memberships, self._tasks, self._priorities):
            known.pop(key, None)
        self._satisfied.discard(key)

    def _objects(
        self, membership: Membership, group: Group
    ) -> dict[str, PodGroup | CompositePodGroup]:
        key = group.key
        tasks, priority = sorted(self._tasks[key]), self._priorities[key]
        if tasks == [""]:
            return {"": _pod_group(membership, "", group.min_member, priority)}
        # The root first, which the tasks name as their parent.
        policy = CompositePodGroupSchedulingPolicy(
            gang=CompositeGangSchedulingPolicy(group.min_member)
        )
        meta = ObjectMeta(name=_name(membership, ""), namespace=membership.namespace)
        spec = CompositePodGroupSpec(scheduling_policy=policy, priority=priority)
        composite: dict[str, PodGroup | CompositePodGroup] = {"": CompositePodGroup(meta, spec)}
        parent = meta.name
        for task in tasks:
            minimum = group.minimums.get(task, 0)
            composite["/" + task] = _pod_group(membership, task, minimum, priority, parent)
        return composite

    # ---- decisions -----------------------------------------------------------------------------

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        """Gate the pods of a group that has too few of them."""
        membership = membership_of(pod.pod)
        if membership is None or (group := self._find_group(membership)) is None:
            return None
        if self._may_start_alone(group) or self._is_complete(membership, group):
            return None
        return Status.unresolvable(
            f"waiting for {group.min_member} pods of group {group.key}, "
            f"of which {self._known(membership)} exist"
        )

    def keys_ungated_by(self, pod: Pod) -> Iterable[str]:
        """Return the pods whose group is complete with a new pod: that pod stands for all."""
        membership = membership_of(pod)
        if membership is None or (group := self._find_group(membership)) is None:
            return ()
        if not self._is_complete(membership, group):
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
        return self._scheduled(membership) >= group.min_member

    def placement_feasible(self, info: PodGroupInfo, progress: PlacementProgress) -> Status | None:
        """Return whether enough of a group, or of one of its tasks, can still fit."""
        assert info.group is not None
        needed, (remaining, scheduled) = info.group.min_count, progress
        if info.is_composite:
            return self._tasks_feasible(info, progress)
        if info.key in self._satisfied:
            needed = 0
        if scheduled + remaining < needed:
            return Status.unschedulable(f"{needed} pods are needed together, {scheduled} fit")
        if scheduled < needed:
            return Status(Code.WAIT, (f"{scheduled} of {needed} pods fit",))
        return None

    def _tasks_feasible(self, info: PodGroupInfo, progress: PlacementProgress) -> Status | None:
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
        if membership is None or (group := self._find_group(membership)) is None:
            return
        if group.once and self._scheduled(membership) >= group.min_member:
            self._satisfied.add(f"{membership.namespace}/{_name(membership, '')}")

    def _may_start_alone(self, group: Group) -> bool:
        membership = self._memberships.get(group.key)
        return membership is not None and (
            f"{membership.namespace}/{_name(membership, '')}" in self._satisfied
        )

    def _is_complete(self, membership: Membership, group: Group) -> bool:
        if self._known(membership) < group.min_member:
            return False
        return all(self._count(membership, t) >= n for t, n in group.minimums.items())

    def _known(self, membership: Membership) -> int:
        tasks = self._tasks.get(membership.key, ())
        return sum(self._count(membership, task) for task in tasks)

    def _count(self, membership: Membership, task: str) -> int:
        state = self._handle.pod_group_states.get(_state_key(membership, task))
        return 0 if state is None else state.all_pods_count

    def _scheduled(self, membership: Membership) -> int:
        keys = (_state_key(membership, task) for task in self._tasks.get(membership.key, ()))
        states = (self._handle.pod_group_states.get(key) for key in keys)
        return sum(state.scheduled_count for state in states if state is not None)


def _name(membership: Membership, task: str) -> str:
    name = f"{membership.source}/{membership.name}"
    return f"{name}/{task}" if task else name


def _state_key(membership: Membership, task: str) -> str:
    return f"{membership.namespace}/{_name(membership, task)}"


def _pod_group(
    membership: Membership, task: str, minimum: int, priority: int, parent: str | None = None
) -> PodGroup:
    policy = PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(minimum))
    spec = PodGroupSpec(
        scheduling_policy=policy, priority=priority, parent_composite_pod_group_name=parent
    )
    meta = ObjectMeta(name=_name(membership, task), namespace=membership.namespace)
    return PodGroup(meta, spec)
