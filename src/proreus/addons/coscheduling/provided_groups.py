"""Mode ``plan``: the PodGroups and CompositePodGroups that stand for groups in the scheduler.

Each group is provided as a PodGroup; one with tasks as a CompositePodGroup with a PodGroup for each
task, and gangs that start together as PodGroups of one CompositePodGroup.
"""

from __future__ import annotations

from collections.abc import Iterable

from proreus.addons.coscheduling.groups import Group, Membership
from proreus.addons.coscheduling.planned_groups import PlannedGroup
from proreus.framework import Handle
from proreus.objects import ObjectMeta
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

ProvidedGroup = PodGroup | CompositePodGroup


class ProvidedGroups:
    """The objects that are provided for each group."""

    # Invariants: _provided has, by key of a group, the objects that were put and not removed again;
    # _providers, by the key of each, the groups that need it: gangs that start together have one in
    # common.

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._provided: dict[str, dict[EntityKey, ProvidedGroup]] = {}
        self._providers: dict[EntityKey, set[str]] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._provided

    def put(self, key: str, objects: Iterable[ProvidedGroup]) -> None:
        """Provide the objects of a group, parents first, and no others."""
        provided = self._provided.pop(key, {})
        self.add(key, objects)
        wanted = self._provided[key]
        self._take_back(key, [one for one in provided.values() if one.key not in wanted])

    def add(self, key: str, objects: Iterable[ProvidedGroup]) -> None:
        """Provide further objects of a group, or their new versions."""
        objects = list(objects)
        provided = self._provided.setdefault(key, {})
        for one in objects:
            provided[one.key] = one
            self._providers.setdefault(one.key, set()).add(key)
        self._handle.put_pod_group(*objects)

    def remove(self, key: str) -> None:
        """Take back all that is provided for a group."""
        self._take_back(key, list(self._provided.pop(key, {}).values()))

    def _take_back(self, key: str, objects: Iterable[ProvidedGroup]) -> None:
        """Remove objects that a group does not need any more, nor any other."""
        for one in objects:
            providers = self._providers[one.key]
            providers.discard(key)
            if not providers:
                del self._providers[one.key]
                self._handle.remove_pod_group(one)


def objects_of(planned: PlannedGroup, group: Group, priority: int) -> list[ProvidedGroup]:
    """Return the objects that stand for a group, parents first.

    ``priority``: the highest of all gangs that start together.
    """
    membership = planned.membership
    if planned.has_tasks:
        return [_whole(planned, group), *(task_object(planned, group, t) for t in planned.tasks)]
    if not group.gangs:
        return [_pod_group(membership, "", group.min_member, planned.priority)]
    parent = "+".join(group.gangs)
    # Of the same priority for each of its gangs, which all provide it.
    together = _composite(membership.namespace, parent, 0, priority)
    return [together, _pod_group(membership, "", group.min_member, planned.priority, parent)]


def changed_objects(planned: PlannedGroup, before: Group, group: Group) -> list[ProvidedGroup]:
    """Return the objects of a group with tasks that a new version of it may have changed."""
    old, new = before.minimums, group.minimums
    tasks = (task for task in {**old, **new} if old.get(task, 0) != new.get(task, 0))
    known = [task_object(planned, group, task) for task in tasks if planned.has_task(task)]
    return [_whole(planned, group), *known]


def _whole(planned: PlannedGroup, group: Group) -> CompositePodGroup:
    membership = planned.membership
    name = membership.provided_name()
    return _composite(membership.namespace, name, group.min_member, planned.priority)


def task_object(planned: PlannedGroup, group: Group, task: str) -> PodGroup:
    """Return the object that stands for a task of a group."""
    name = planned.membership.provided_name()
    minimum = group.minimums.get(task, 0)
    return _pod_group(planned.membership, task, minimum, planned.priority, name)


def _composite(namespace: str, name: str, minimum: int, priority: int) -> CompositePodGroup:
    """Return a group of groups that needs ``minimum`` pods in all."""
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
