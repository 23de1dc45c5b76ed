"""Pods of groups that wait outside of their group's entity (``podGroupMemberPods``).

By PodGroup, since what ends their wait is an event of the group: with a thousand groups of which
the pods came first, each group that appears would otherwise look at the pods of all.
"""

from __future__ import annotations

from collections.abc import Iterator

from proreus.framework.pod_info import QueuedPodInfo
from proreus.objects.scheduling import EntityKey, pod_group_entity_key


class PodGroupMemberPods:
    """Queued pods by PodGroup and ``namespace/name``, in the order in which they came."""

    # Invariant: no entry of _by_group is empty. The key None is for pods whose group has no name.

    def __init__(self) -> None:
        self._by_group: dict[EntityKey | None, dict[str, QueuedPodInfo]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_group.values()))

    def __iter__(self) -> Iterator[QueuedPodInfo]:
        for pods in self._by_group.values():
            yield from pods.values()

    def add(self, queued: QueuedPodInfo) -> None:
        """Add a pod."""
        self._by_group.setdefault(pod_group_entity_key(queued.pod), {})[queued.key] = queued

    def discard(self, queued: QueuedPodInfo) -> bool:
        """Remove a pod; return whether it was here."""
        group = pod_group_entity_key(queued.pod)
        pods = self._by_group.get(group, {})
        if pods.pop(queued.key, None) is None:
            return False
        if not pods:
            del self._by_group[group]
        return True

    def clear(self, group: EntityKey) -> list[QueuedPodInfo]:
        """Remove and return the pods of a group."""
        return list(self._by_group.pop(group, {}).values())

    def validate(self) -> None:
        """Assert that each pod is under its group and key."""
        for group, pods in self._by_group.items():
            assert pods, f"{group} is kept without pods"
            for key, queued in pods.items():
                assert (queued.key, pod_group_entity_key(queued.pod)) == (key, group), (
                    f"{queued.key} is kept as {key} of {group}"
                )
