"""A pod group in the scheduling queue: its waiting pods are one entity, popped and tried together.

Since Kubernetes 1.37 a pod of a PodGroup is never queued by itself; the entity is its root group,
which has a back-off and a gate of its own.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from proreus.framework.pod_info import PodInfo, QueuedPodInfo, QueueingParams
from proreus.objects.pod import Pod
from proreus.objects.scheduling import EntityKey, pod_group_entity_key


class QueuedPodGroupInfo(QueueingParams, eq=False):
    """A root PodGroup or CompositePodGroup (``root``) and those of its pods that wait.

    ``priority``: of the root group. ``timestamp``: when it last entered the queue. The rest: see
    ``QueueingParams``. Its pods keep rejecting plugins of their own.
    """

    root: EntityKey
    priority: int
    timestamp: float
    pods_by_group: dict[EntityKey, list[QueuedPodInfo]] = msgspec.field(default_factory=dict)
    """By PodGroup, in the order in which they are tried; no list is empty."""
    profiles: dict[str, int] = msgspec.field(default_factory=dict)
    """How many of them each profile schedules, by schedulerName."""
    reported: float | None = None
    """When the pods of a group that a plugin provides were last told why it does not fit."""
    lacking: int = 1
    """How many of its pods the last attempt found no node for and that it needs, if it failed."""
    next_placement: int = 0
    """The place of the placement with which the next attempt begins.

    If not 0, it goes on with a round: several attempts that try all placements together."""
    round_rejectors: frozenset[str] = frozenset()
    """The plugins that rejected pods in the earlier attempts of the round."""
    in_the_way: Mapping[bytes, QueuedPodInfo] = msgspec.field(default_factory=dict)
    """A pod of each kind that took the place of another pod in the last attempt, or the round. The
    group might fit if it had room elsewhere."""
    helped: bool = False
    """Whether something has happened during the round that may help its pods."""
    room_made: int = 0
    """For how many of its pods events may have made room since then."""

    def __post_init__(self) -> None:
        """Count the pods that it is made with."""
        self.profiles = Counter(pod.pod.spec.scheduler_name for pod in self.queued_pods)

    @property
    def type(self) -> str:
        """The type of the root group, ``podgroup`` or ``compositepodgroup``."""
        return self.root.type

    @property
    def key(self) -> str:
        """The root group's key, e.g. ``podgroup/namespace/name``."""
        return str(self.root)

    @property
    def size(self) -> int:
        """How many of its pods wait."""
        return sum(self.profiles.values())

    @property
    def queued_pods(self) -> Sequence[QueuedPodInfo]:
        """All its pods that wait, PodGroup by PodGroup."""
        return [queued for pods in self.pods_by_group.values() for queued in pods]

    @property
    def info(self) -> PodInfo:
        """The first pod, which stands for all where one is asked for, in ``sort_key`` say."""
        return next(iter(self.pods_by_group.values()))[0].info

    @property
    def pod(self) -> Pod:
        """The API object of the first pod."""
        return self.info.pod

    @property
    def uid(self) -> str:
        """UID of the first pod."""
        return self.info.uid

    def add_pod(self, queued: QueuedPodInfo) -> None:
        """Add a pod in its place: by priority, attempts, time of queueing and name."""
        group = pod_group_entity_key(queued.pod)
        assert group is not None
        insort(self.pods_by_group.setdefault(group, []), queued, key=_order)
        profile = queued.pod.spec.scheduler_name
        self.profiles[profile] = self.profiles.get(profile, 0) + 1

    def remove_pod(self, queued: QueuedPodInfo) -> bool:
        """Remove a pod; return whether it was here."""
        group = pod_group_entity_key(queued.pod)
        pods = [] if group is None else self.pods_by_group.get(group, [])
        if queued not in pods:
            return False
        assert group is not None
        pods.remove(queued)
        if not pods:
            del self.pods_by_group[group]
        self._count_removed(queued)
        return True

    def remove_groups(self, groups: Iterable[EntityKey]) -> list[QueuedPodInfo]:
        """Remove and return the pods of some PodGroups."""
        removed = [pod for group in groups for pod in self.pods_by_group.pop(group, ())]
        for queued in removed:
            self._count_removed(queued)
        return removed

    def _count_removed(self, queued: QueuedPodInfo) -> None:
        profile = queued.pod.spec.scheduler_name
        self.profiles[profile] -= 1
        if not self.profiles[profile]:
            del self.profiles[profile]

    def begin_round(self) -> None:
        """Begin the next attempt with the first placement."""
        self.next_placement, self.round_rejectors, self.helped = 0, frozenset(), False

    def begin_attempt(self) -> None:
        """Count an attempt, of the group and of each pod."""
        self.attempts += 1
        for queued in self.queued_pods:
            queued.attempts += 1

    def set_was_flushed_from_unschedulable(self, flushed: bool) -> None:
        """Record whether the next attempt, of the group and of each pod, is due to the flush."""
        self.was_flushed_from_unschedulable = flushed
        for queued in self.queued_pods:
            queued.was_flushed_from_unschedulable = flushed

    def set_initial_attempt_timestamp(
        self, now: float, pods: Iterable[QueuedPodInfo] | None = None
    ) -> None:
        """Set the time of the first attempt of ``pods`` without one, None for all pods."""
        for queued in self.queued_pods if pods is None else pods:
            if queued.initial_attempt_timestamp is None:
                queued.initial_attempt_timestamp = now

    def without_pods(self, priority: int) -> QueuedPodGroupInfo:
        """Return the group with the history of its attempts, a ``priority`` and no pods."""
        return replace(self, priority=priority, pods_by_group={}, profiles={})


QueuedEntityInfo = QueuedPodInfo | QueuedPodGroupInfo
"""An entity of the scheduling queue: a pod or a group."""

PodsByGroup = Mapping[EntityKey, Sequence[QueuedPodInfo]]
"""Queued pods by their PodGroup."""


def _order(queued: QueuedPodInfo) -> tuple[int, int, float, str]:
    """Return the sort key of a pod within its PodGroup."""
    return -queued.info.priority, -queued.attempts, queued.timestamp, queued.info.name
