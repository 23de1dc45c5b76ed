"""Keeps the placed pods of gangs, and finds the surplus among them.

Worked example: a gang needs 2 pods and has 4, started at 10:00, 10:00, 10:05 and 10:10. The last
two are surplus, the one of 10:10 first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from proreus.addons.coscheduling.groups import Group, membership_of
from proreus.objects import Pod


class PlacedGang:
    """A gang that has pods on nodes. ``nodes``: the name of each pod's node, by UID.

    ``generation`` grows with every change of it, or of its PodGroup.
    """

    def __init__(self, key: str) -> None:
        self.key = key
        self.generation = 0
        self.nodes: dict[str, str] = {}
        self._pods: dict[str, Pod] = {}
        self._surplus: frozenset[str] = frozenset()
        self._surplus_found_for: tuple[int, int, Mapping[str, int]] | None = None

    def put(self, pod: Pod, node_name: str) -> None:
        """Add a pod, or its new version."""
        self.generation += 1
        self.nodes[pod.metadata.uid] = node_name
        self._pods[pod.metadata.uid] = pod

    def remove(self, uid: str) -> None:
        """Remove a pod."""
        self.generation += 1
        del self.nodes[uid], self._pods[uid]

    def any_pod(self) -> Pod:
        """Return one of the pods."""
        return next(iter(self._pods.values()))

    def leaves(self, uid: str) -> bool:
        """Return whether a pod is being deleted."""
        return self._pods[uid].metadata.deletion_timestamp is not None

    def surplus(self, group: Group) -> frozenset[str]:
        """Return the UIDs of the pods that the gang does not need: the last that came.

        Of a gang that lacks its minimum none is. A pod that is being deleted counts no more.
        """
        found_for = self.generation, group.min_member, group.minimums
        if self._surplus_found_for != found_for:
            self._surplus = frozenset(self._find_surplus(group))
            self._surplus_found_for = found_for
        return self._surplus

    def _find_surplus(self, group: Group) -> Iterator[str]:
        staying = [pod for pod in self._pods.values() if pod.metadata.deletion_timestamp is None]
        tasks = {pod.metadata.uid: _task_of(pod) for pod in staying}
        left, by_task = len(staying), Counter(tasks.values())
        for pod in sorted(staying, key=_staying_power):
            task = tasks[pod.metadata.uid]
            if left > group.min_member and by_task[task] > group.minimums.get(task, 0):
                left -= 1
                by_task[task] -= 1
                yield pod.metadata.uid


def _staying_power(pod: Pod) -> tuple[int, float, float, str]:
    """Return a key that sorts the less important pods first, then the last ones."""
    started, created = pod.status.start_time, pod.metadata.creation_timestamp
    return (
        pod.spec.priority or 0,
        float("-inf") if started is None else -started.timestamp(),
        0.0 if created is None else -created.timestamp(),
        pod.metadata.uid,
    )


def _task_of(pod: Pod) -> str:
    membership = membership_of(pod)
    return "" if membership is None else membership.task


class PlacedGangs:
    """The gangs that have pods on nodes, by their key and by their pods."""

    # Invariant: _by_uid has each pod of each gang, and _by_key no gang without pods.

    def __init__(self) -> None:
        self._by_key: dict[str, PlacedGang] = {}
        self._by_uid: dict[str, PlacedGang] = {}

    def __iter__(self) -> Iterator[PlacedGang]:
        return iter(self._by_key.values())

    def of_pod(self, uid: str) -> PlacedGang | None:
        """Return the gang of a pod; None if it is of none, or has no node."""
        return self._by_uid.get(uid)

    def put(self, pod: Pod, node_name: str) -> None:
        """Add a pod that has a node, if it is of a gang."""
        membership = membership_of(pod)
        uid, key = pod.metadata.uid, "" if membership is None else membership.key
        known = self._by_uid.get(uid)
        if known is not None and known.key != key:
            self.remove(uid)
        if not key:
            return
        gang = self._by_key.get(key)
        if gang is None:
            gang = self._by_key[key] = PlacedGang(key)
        self._by_uid[uid] = gang
        gang.put(pod, node_name)

    def remove(self, uid: str) -> None:
        """Remove a pod that lost its node, if it is of a gang."""
        gang = self._by_uid.pop(uid, None)
        if gang is None:
            return
        gang.remove(uid)
        if not gang.nodes:
            del self._by_key[gang.key]

    def note_change(self, key: str) -> None:
        """Note that a gang may need another number of pods."""
        gang = self._by_key.get(key)
        if gang is not None:
            gang.generation += 1
