"""The PodGroups and CompositePodGroups of the cluster, linked to trees (gate GenericWorkload).

    root_of(PodGroup) ─► its topmost CompositePodGroup, or itself without a parent
    leaves_of(root)   ─► the PodGroups below, which alone have pods

A child that names a parent is linked to it before the parent is there, so that the order in which
they arrive does not matter. kube-scheduler's ``workloadForest``, which its queue and its cache each
have one of; here both read the same, since nothing changes it while a group is scheduled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice

from proreus.framework.pod_group import PodGroupInfo
from proreus.framework.queued_pod_group import PodsByGroup
from proreus.objects.scheduling import (
    COMPOSITE_POD_GROUP_TYPE,
    CompositePodGroup,
    EntityKey,
    PodGroup,
)

Group = PodGroup | CompositePodGroup

MAX_LEVELS = 100
"""Of a tree that is read at all; kube-scheduler has no limit. From the fifth level on it is
refused, in a condition of its groups."""

MAX_LEVELS_UP_TO_1_37 = 5
"""A PodGroup and four CompositePodGroups above it. In deeper trees kube-scheduler's GangScheduling
finds no root, so that their pods stay gated (``cacheImpl.BuildHierarchySnapshotFromPod``)."""


class WorkloadForest:
    """All groups by key. ``composite``: gate CompositePodGroup; else no group has a parent.

    ``levels``: of the deepest tree that is read.
    ``position``: the number of changes to groups, those of their status left out; ``version``: the
    number of all changes.
    """

    # Invariant: _children[parent] has exactly the keys of _groups that name this parent, and no
    # entry is empty.

    def __init__(self, composite: bool = False, levels: int = MAX_LEVELS_UP_TO_1_37) -> None:
        self.composite = composite
        self._levels = levels
        self.position = self.version = 0
        self._groups: dict[EntityKey, Group] = {}
        self._children: dict[EntityKey, dict[EntityKey, None]] = {}

    def put(self, group: Group) -> None:
        """Add a group, or its new version."""
        self.version += 1
        before = self._groups.get(group.key)
        if before is not None and _is_same(before, group):
            self._groups[group.key] = group
            return
        self.remove(group.key)
        self.position += 1
        self._groups[group.key] = group
        parent = self.parent_of(group)
        if parent is not None:
            self._children.setdefault(parent, {})[group.key] = None

    def remove(self, key: EntityKey) -> None:
        """Forget a group that is gone; its children stay linked to its name."""
        group = self._groups.pop(key, None)
        if group is None:
            return
        self.position += 1
        self.version += 1
        parent = self.parent_of(group)
        if parent is not None:
            siblings = self._children[parent]
            del siblings[key]
            if not siblings:
                del self._children[parent]

    def get(self, key: EntityKey) -> Group | None:
        """Return a group, if it is there."""
        return self._groups.get(key)

    def all(self) -> Iterable[Group]:
        """Return every group, in no order."""
        return self._groups.values()

    def pod_group(self, key: EntityKey | None) -> PodGroup | None:
        """Return a PodGroup, if it is there."""
        group = None if key is None else self._groups.get(key)
        return group if isinstance(group, PodGroup) else None

    def parent_of(self, group: Group) -> EntityKey | None:
        """Return the key of the parent that a group names, whether or not it is there."""
        name = group.spec.parent_composite_pod_group_name if self.composite else None
        if name is None:
            return None
        return EntityKey(COMPOSITE_POD_GROUP_TYPE, group.metadata.namespace, name)

    def ancestors_of(self, key: EntityKey) -> Iterator[Group]:
        """Yield a group and its ancestors, upwards; ends where one is missing, or met again."""
        seen: set[EntityKey] = set()
        current: EntityKey | None = key
        while current is not None and current not in seen:
            seen.add(current)
            group = self._groups.get(current)
            if group is None:
                return
            yield group
            current = self.parent_of(group)

    def root_of(self, key: EntityKey | None) -> Group | None:
        """Return the topmost group above one; None if a group on the way is missing, or a loop.

        None as well for a group that is deeper than ``levels``.
        """
        # The limit bounds the recursion of all that reads trees: anyone may create long chains.
        levels = [] if key is None else list(islice(self.ancestors_of(key), self._levels + 1))
        if not levels or len(levels) > self._levels or self.parent_of(levels[-1]) is not None:
            return None
        return levels[-1]

    def topmost_known(self, key: EntityKey | None) -> Group | None:
        """Return the last of ``ancestors_of``, the root unless a group on the way is missing."""
        ancestors = () if key is None else self.ancestors_of(key)
        return next(iter(deque(ancestors, maxlen=1)), None)

    def children_of(self, key: EntityKey) -> list[Group]:
        """Return the child groups, the oldest first, then by name; none below ``levels``."""
        keys, levels = self._children.get(key), self._levels
        if not keys or len(list(islice(self.ancestors_of(key), levels))) == levels:
            return []
        return sorted((self._groups[child] for child in keys), key=_by_age)

    def leaves_of(self, key: EntityKey) -> list[EntityKey]:
        """Return the PodGroups at or below a group, in the order of ``children_of``."""
        leaves: list[EntityKey] = []
        # Parents may form a loop, which no root is above of.
        seen: set[EntityKey] = set()
        rest = [key]
        while rest:
            current = rest.pop()
            if current in seen:
                continue
            seen.add(current)
            if isinstance(self._groups.get(current), PodGroup):
                leaves.append(current)
            rest += [child.key for child in reversed(self.children_of(current))]
        return leaves

    def pod_group_info(self, key: EntityKey, pods: PodsByGroup) -> PodGroupInfo | None:
        """Return a group with the groups below it and their ``pods``; None if it is not there."""
        group = self._groups.get(key)
        if group is None:
            return None
        if isinstance(group, PodGroup):
            members = tuple(queued.info for queued in pods.get(key, ()))
            return PodGroupInfo(key.namespace, key.name, members, group)
        infos = (self.pod_group_info(child.key, pods) for child in self.children_of(key))
        children = tuple(info for info in infos if info is not None)
        return PodGroupInfo(key.namespace, key.name, (), group, children)

    def validate(self) -> None:
        """Assert that links and groups agree."""
        links: dict[EntityKey, dict[EntityKey, None]] = {}
        for key, group in self._groups.items():
            parent = self.parent_of(group)
            if parent is not None:
                links.setdefault(parent, {})[key] = None
        assert links == self._children, "the links between groups are out of step"


def _is_same(before: Group, after: Group) -> bool:
    """Return whether all but the status of a group has stayed."""
    return before.spec == after.spec and before.metadata.uid == after.metadata.uid


def _by_age(group: Group) -> tuple[float, str]:
    created = group.metadata.creation_timestamp
    return (0.0 if created is None else created.timestamp(), group.metadata.name)
