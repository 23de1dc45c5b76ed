"""The order of the queue: by priority, then by the time of the group, then by name."""

from __future__ import annotations

from typing import Protocol

from proreus.framework import QueuedPodInfo


class GroupTimes(Protocol):
    """What the order asks of the plugin."""

    def is_surplus(self, queued: QueuedPodInfo) -> bool:
        """Return whether a pod's group has its minimum."""
        ...

    def time_of(self, queued: QueuedPodInfo) -> float:
        """Return the time by which a pod is sorted."""
        ...


class Place:
    """The place of a pod in the queue.

    Times are looked up at each comparison, as in the original: a group that fails moves back.
    """

    __slots__ = ("_plugin", "_queued")

    def __init__(self, queued: QueuedPodInfo, plugin: GroupTimes) -> None:
        self._queued, self._plugin = queued, plugin

    def __lt__(self, other: Place) -> bool:
        mine, others = self._queued, other._queued
        if mine.priority != others.priority:
            return mine.priority > others.priority
        surplus = self._plugin.is_surplus(mine)
        if surplus != other._plugin.is_surplus(others):
            return not surplus
        time, other_time = self._plugin.time_of(mine), other._plugin.time_of(others)
        if time != other_time:
            return time < other_time
        return mine.key < others.key
