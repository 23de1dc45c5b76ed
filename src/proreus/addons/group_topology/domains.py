"""How many pods of a group each topology domain holds, and which domains are the best for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from proreus.framework import IntArray, NodeTable, PodInfo


def pods_by_node(nodes: NodeTable, pods: Sequence[PodInfo]) -> IntArray:
    """Return how many pods of the largest size each node has room for, shape ``(len(nodes),)``.

    By resources alone, with the largest request of any pod for each resource: a lower bound where
    the pods differ, so that a domain that should hold the group does.
    """
    room = np.maximum(nodes.allowed_pods - nodes.pod_count, 0)
    for name, amount in _largest_requests(pods).items():
        free = np.maximum(nodes.allocatable[name] - nodes.requested[name], 0)
        room = np.minimum(room, free // amount)
    room[nodes.unschedulable] = 0
    found: IntArray = room.astype(np.int64)
    return found


def _largest_requests(pods: Sequence[PodInfo]) -> Mapping[str, int]:
    largest: dict[str, int] = {}
    # Pods of a gang are alike, most of them share one object.
    for requests in {id(pod.requests): pod.requests for pod in pods}.values():
        for name, amount in requests.amounts.items():
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
