"""Keeps which groups of a tree have enough pods, and counts anew where pods come or go.

A tree of a thousand groups is asked about for each pod of it that is queued: counted from the root
each time, one event of its root would cost a million steps.
"""

from __future__ import annotations

from collections.abc import Callable

from proreus.framework.pod_group import PodGroupStates
from proreus.framework.workload_forest import Group, WorkloadForest
from proreus.objects.scheduling import POD_GROUP_TYPE, EntityKey, PodGroup


class ReadyGroups:
    """The groups below roots, each with whether it is ready.

    ``has_enough`` tells so of a PodGroup by its pods; a CompositePodGroup needs enough children.
    """

    # Invariant: where _ready has a CompositePodGroup, it has its children too, and
    # _ready_children[it] is how many of them are ready.

    def __init__(
        self,
        forest: WorkloadForest,
        states: PodGroupStates,
        has_enough: Callable[[PodGroup], bool],
    ) -> None:
        self._forest = forest
        self._states = states
        self._has_enough = has_enough
        self._ready: dict[EntityKey, bool] = {}
        self._ready_children: dict[EntityKey, int] = {}
        self._version = self._position = -1

    def is_ready(self, root: Group) -> bool:
        """Return whether a root has enough pods, or child groups that have."""
        self._follow()
        return self._is_ready(root)

    def _follow(self) -> None:
        """Take in what has changed since the last question."""
        changed = (
            self._states.changed_since(self._position)
            if self._forest.version == self._version
            else None
        )
        self._version, self._position = self._forest.version, self._states.position
        if changed is None:
            self._ready.clear()
            self._ready_children.clear()
            return
        for name in changed:
            self._pods_changed(EntityKey(POD_GROUP_TYPE, *name.split("/", 1)))

    def _pods_changed(self, key: EntityKey) -> None:
        """Judge a group anew, and those above it as far as that makes a difference."""
        current: EntityKey | None = key
        while current in self._ready:
            group = self._forest.get(current)
            assert group is not None
            ready = self._judge(group)
            if ready == self._ready[current]:
                return
            self._ready[current] = ready
            current = self._forest.parent_of(group)
            if current in self._ready_children:
                self._ready_children[current] += 1 if ready else -1

    def _is_ready(self, group: Group) -> bool:
        ready = self._ready.get(group.key)
        if ready is None:
            if not isinstance(group, PodGroup):
                children = self._forest.children_of(group.key)
                self._ready_children[group.key] = sum(map(self._is_ready, children))
            ready = self._ready[group.key] = self._judge(group)
        return ready

    def _judge(self, group: Group) -> bool:
        if isinstance(group, PodGroup):
            return self._has_enough(group)
        return self._ready_children[group.key] >= group.min_count
