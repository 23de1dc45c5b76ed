"""How many pods of a group each topology domain holds, and which domains are the best for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from proreus.framework import IntArray, NodeTable, PodInfo, Rows

ProvidedFor = Callable[[PodInfo], Mapping[str, PodInfo]]
"""``Handle.provided_for``."""


def pods_by_node(nodes: NodeTable, pods: Sequence[PodInfo], provided_for: ProvidedFor) -> IntArray:
    """Return how many pods of the largest size each node has room for, shape ``(len(nodes),)``.

    By resources alone, with the largest request of any pod for each resource: a lower bound where
    the pods differ. What is held for the pods, as ``provided_for`` says, is room for them.
    """
    free = _free(nodes, pods, provided_for)
    largest: dict[str, int] = {}
    for pod in _unlike(pods):
        for name, amount in pod.requests.amounts.items():
            largest[name] = max(amount, largest.get(name, 0))
    return _count(nodes, free, largest)


def _free(
    nodes: NodeTable, pods: Sequence[PodInfo], provided_for: ProvidedFor
) -> dict[str, IntArray]:
    """Return what each node has free of the resources that pods request, at least 0."""
    held = {
        one.uid: one
        for pod in _unlike(pods)
        for name, one in provided_for(pod).items()
        if name in nodes.rows
    }
    found: dict[str, IntArray] = {}
    for name in {name for pod in _unlike(pods) for name in pod.requests.amounts}:
        free = nodes.allocatable[name] - nodes.requested[name]
        for one in held.values():
            free[nodes.rows[one.pod.spec.node_name]] += one.requests.amounts.get(name, 0)
        free[nodes.unschedulable] = 0
        found[name] = np.maximum(free, 0)
    return found


def _count(nodes: NodeTable, free: Mapping[str, IntArray], requests: Mapping[str, int]) -> IntArray:
    """Return how many pods with such requests each node has room for."""
    room = np.maximum(nodes.allowed_pods - nodes.pod_count, 0)
    for name, amount in requests.items():
        if amount:
            room = np.minimum(room, free[name] // amount)
    room[nodes.unschedulable] = 0
    found: IntArray = room.astype(np.int64)
    return found


def _unlike(pods: Sequence[PodInfo]) -> Iterable[PodInfo]:
    """Return pods with different requests: those of a gang are alike, most share one object."""
    return {id(pod.requests): pod for pod in pods}.values()


class GroupRoom:
    """What ``needed`` of some pods need, beside what nodes have: which domains cannot hold them.

    A domain that is not named may hold them: taints, selectors and in what portions the resources
    are free are found out by trying. Example: pods of 4, 1 and 1 CPUs, of which 2 are needed, need
    2 CPUs in all and 1 on one node.
    """

    def __init__(
        self, nodes: NodeTable, pods: Sequence[PodInfo], needed: int, provided_for: ProvidedFor
    ) -> None:
        self.needed = needed
        self._free = _free(nodes, pods, provided_for)
        self._least: dict[str, tuple[int, int]] = {}
        """By resource: what the smallest pods that are enough request in all, and the largest."""
        smallest: dict[str, int] = {}
        for name in sorted(self._free):
            amounts = sorted(pod.requests.amounts.get(name, 0) for pod in pods)[:needed]
            self._least[name] = sum(amounts), amounts[-1]
            smallest[name] = amounts[0]
        self._most_pods = _count(nodes, self._free, smallest)

    def of_domains(self, domains: Sequence[Rows]) -> list[tuple[int, str]]:
        """Return of each domain how many pods it holds at most, and what it lacks, "" for nothing.

        ``domains``: the rows of each, at least one.
        """
        if not domains:
            return []
        rows = np.concatenate(domains)
        starts = np.cumsum([0, *(len(one) for one in domains[:-1])])
        counts = np.add.reduceat(self._most_pods[rows], starts).tolist()
        lacking: list[list[str]] = [[] for _ in domains]
        for name, (total, largest) in self._least.items():
            free = self._free[name][rows]
            short = np.add.reduceat(free, starts) < total
            short |= np.maximum.reduceat(free, starts) < largest
            for index in np.flatnonzero(short).tolist():
                lacking[index].append(f"Insufficient {name}")
        for index, count in enumerate(counts):
            if count < self.needed and not lacking[index]:
                lacking[index].append(f"room for {count} pods")
        return [(count, ", ".join(texts)) for count, texts in zip(counts, lacking, strict=True)]


def best_fit(capacities: Sequence[int], needed: int) -> list[int]:
    """Return the indexes of the domains that hold ``needed`` pods: the largest, the last tightly.

    Largest first, so that there are as few as possible; where one holds all that is left, it is the
    smallest that does. All domains with room where they do not suffice. Source: Kueue's BestFit.
    """
    left = sorted((i for i, n in enumerate(capacities) if n > 0), key=lambda i: -capacities[i])
    chosen = []
    while left and needed > 0:
        enough = [index for index in left if capacities[index] >= needed]
        index = min(enough, key=lambda i: capacities[i]) if enough else left[0]
        left.remove(index)
        chosen.append(index)
        needed -= capacities[index]
    return chosen


def least_free(capacities: Sequence[int], needed: int) -> list[int]:
    """Return the indexes of the domains that hold ``needed`` pods, the smallest first."""
    chosen = []
    for index in sorted((i for i, n in enumerate(capacities) if n > 0), key=capacities.__getitem__):
        if needed <= 0:
            break
        chosen.append(index)
        needed -= capacities[index]
    return chosen
