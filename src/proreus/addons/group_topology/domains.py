"""How many pods of a group each topology domain holds, and which domains are the best for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from proreus.framework import IntArray, NodeTable, PodInfo

ProvidedFor = Callable[[PodInfo], Mapping[str, PodInfo]]
"""``Handle.provided_for``."""


def pods_by_node(nodes: NodeTable, pods: Sequence[PodInfo], provided_for: ProvidedFor) -> IntArray:
    """Return how many pods of the largest size each node has room for, shape ``(len(nodes),)``.

    By resources alone, with the largest request of any pod for each resource: a lower bound where
    the pods differ, so that a domain that should hold the group does. What is held for the pods, as
    ``provided_for`` says, is room for them.
    """
    room = np.maximum(nodes.allowed_pods - nodes.pod_count, 0)
    held = {
        one.uid: one
        for pod in _unlike(pods)
        for name, one in provided_for(pod).items()
        if name in nodes.rows
    }
    for name, amount in _largest_requests(pods).items():
        free = nodes.allocatable[name] - nodes.requested[name]
        for one in held.values():
            free[nodes.rows[one.pod.spec.node_name]] += one.requests.amounts.get(name, 0)
        room = np.minimum(room, np.maximum(free, 0) // amount)
    room[nodes.unschedulable] = 0
    found: IntArray = room.astype(np.int64)
    return found


def _unlike(pods: Sequence[PodInfo]) -> Iterable[PodInfo]:
    """Return pods with different requests: those of a gang are alike, most share one object."""
    return {id(pod.requests): pod for pod in pods}.values()


def _largest_requests(pods: Sequence[PodInfo]) -> Mapping[str, int]:
    largest: dict[str, int] = {}
    for pod in _unlike(pods):
        for name, amount in pod.requests.amounts.items():
            if amount > largest.get(name, 0):
                largest[name] = amount
    return largest


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
