"""TopologicalSort: the pods of an application in the order of their dependencies.

Two pods of one AppGroup compare by the index of their workloads, all others by priority and then by
time. That is no total order: with pods of several groups and priorities some cycle may arise, and
the queue then has one of the orders that a heap gives, as in the original.
"""

from __future__ import annotations

from collections.abc import Mapping

from proreus.addons.network_aware.objects import (
    APP_GROUP_LABEL,
    APP_GROUPS,
    WORKLOAD_LABEL,
    AppGroup,
    first_named,
)
from proreus.framework import Handle, PluginArgs, QueuedPodInfo, QueueSortPlugin


class TopologicalSortArgs(PluginArgs):
    """The namespaces of AppGroups."""

    namespaces: tuple[str, ...] = ("default",)


class _Place:
    """The place of a pod in the queue; ``index``: of its workload, at the time of a comparison."""

    __slots__ = ("_find", "_group", "_queued", "_workload")

    def __init__(self, queued: QueuedPodInfo, find: TopologicalSort) -> None:
        labels = queued.info.labels
        self._queued, self._find = queued, find
        self._group = labels.get(APP_GROUP_LABEL, "")
        self._workload = labels.get(WORKLOAD_LABEL, "")

    def __lt__(self, other: _Place) -> bool:
        mine, others = self._queued, other._queued
        if self._group and self._group == other._group:
            index = self._find.index(self._group, self._workload)
            other_index = self._find.index(other._group, other._workload)
            if index != other_index:
                return index < other_index
            # A pod goes before itself, as in the original: no queue asks that.
            return mine.timestamp < others.timestamp or mine.uid == others.uid
        if mine.priority != others.priority:
            return mine.priority > others.priority
        return mine.timestamp < others.timestamp


class TopologicalSort(QueueSortPlugin):
    """Order the pods of an AppGroup by the topological order in its status."""

    Args = TopologicalSortArgs
    args: TopologicalSortArgs
    sort_key_changes = True  # with the status of an AppGroup

    def __init__(self, args: TopologicalSortArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._groups: Mapping[str, AppGroup] = handle.store(APP_GROUPS)

    def sort_key(self, queued: QueuedPodInfo) -> _Place:
        """Return a key that compares pods by group, priority and time."""
        return _Place(queued, self)

    def index(self, group: str, workload: str) -> float:
        """Return the index of a workload; infinite if the group does not list it."""
        found = first_named(self._groups, self.args.namespaces, group)
        index = None if found is None else found.index(workload)
        return float("inf") if index is None else index
