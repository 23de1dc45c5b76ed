"""Other orders in which the pods of a group are tried, where they do not fit in their own.

Pods are placed one after another, so that the first ones may take what only a later one can use:
four small pods are spread over two nodes, and the large one finds neither empty. The larger pods go
first then; next those that found no node; then random orders, until the limit of tries is reached.

Only groups that plugins provide are tried again: kube-scheduler knows one order.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from itertools import chain

import msgspec
import numpy as np

from proreus.engine.groups.results import Results
from proreus.framework.node_table import NodeTable
from proreus.framework.pod_group import PodGroupInfo
from proreus.framework.pod_info import QueuedPodInfo
from proreus.framework.queued_pod_group import PodsByGroup

MORE_TRIES = 128
"""The limit of pods tried in orders beyond the one with the larger pods first. A group that fits
in none of them costs about twice as much."""

_REPEATED_DRAWS = 20

Order = Mapping[str, int]
"""The places of pods by UID, the first to be tried at 0."""

_encode = msgspec.json.Encoder(enc_hook=repr).encode


class OtherOrders:
    """The orders of one group in one placement.

    ``nodes``: where it may go; None if their room is not known. ``placed``: how many of its pods
    have a node already.
    """

    # Invariant: _tried has the orders that were tried, as the kinds of pods in their places.

    def __init__(
        self,
        root: PodGroupInfo,
        pods: PodsByGroup,
        nodes: NodeTable | None,
        placed: int,
        rng: random.Random,
    ) -> None:
        self._rng = rng
        self._pods = [one for leaf in root.leaves for one in pods.get(leaf.entity_key, ())]
        self._kinds = _kinds(self._pods)
        self._order = list(self._pods)
        self._tried = {self._signature(self._order)}
        self._left = MORE_TRIES
        minimums = [one.group.min_count for one in (root, *root.leaves) if one.group is not None]
        needed = max(minimums[0], sum(minimums[1:])) - placed
        self._hopeless = len(set(self._kinds.values())) < 2 or (
            nodes is not None and _lacks(self._pods, needed, nodes)
        )

    def next(self, results: Results) -> Order | None:
        """Return an order to try after the last one; None to give up.

        ``results``: of the last order.
        """
        tried = list(chain.from_iterable(result.pods for result in results.values()))
        rejected = next((one for one in reversed(tried) if one.failure is not None), None)
        if self._hopeless or rejected is None:
            return None
        # It fits nowhere, not even before all others.
        if not any(one.node_name for one in tried):
            return None
        if len(self._tried) == 1:
            size = _size_of(self._pods)
            found = self._take(sorted(self._order, key=lambda one: -size(one)))
            if found is not None:
                return found
        else:
            self._left -= len(tried)
        if self._left <= 0:
            return None
        kind = self._kinds[rejected.queued.uid]
        return (
            self._take(sorted(self._order, key=lambda one: self._kinds[one.uid] != kind))
            or self._at_random()
        )

    def _at_random(self) -> Order | None:
        order = list(self._order)
        for _ in range(_REPEATED_DRAWS):
            self._rng.shuffle(order)
            found = self._take(order)
            if found is not None:
                return found
        return None

    def _take(self, order: Sequence[QueuedPodInfo]) -> Order | None:
        """Return an order; None if it was tried, with pods that are alike in the same places."""
        signature = self._signature(order)
        if signature in self._tried:
            return None
        self._tried.add(signature)
        self._order = list(order)
        return {one.uid: place for place, one in enumerate(order)}

    def _signature(self, order: Sequence[QueuedPodInfo]) -> tuple[int, ...]:
        return tuple(self._kinds[one.uid] for one in order)


def _kinds(pods: Sequence[QueuedPodInfo]) -> dict[str, int]:
    """Return a number for each pod by UID, equal for pods that may go to the same nodes."""
    numbers: dict[bytes, int] = {}
    kinds = {}
    for one in pods:
        kinds[one.uid] = numbers.setdefault(kind_of(one), len(numbers))
    return kinds


def kind_of(one: QueuedPodInfo) -> bytes:
    """Return a key of the nodes that a pod may use, apart from its volumes and devices."""
    spec, amounts = one.pod.spec, one.info.requests.amounts
    where = (spec.node_selector, spec.affinity, spec.tolerations)
    return _encode((sorted(amounts.items()), where))


def _size_of(pods: Sequence[QueuedPodInfo]) -> Callable[[QueuedPodInfo], float]:
    """Return a function for the size of a pod: its share of the requests of all."""
    totals: dict[str, int] = {}
    for one in pods:
        for name, amount in one.info.requests.amounts.items():
            totals[name] = totals.get(name, 0) + amount

    def size(one: QueuedPodInfo) -> float:
        amounts = one.info.requests.amounts.items()
        return sum(amount / totals[name] for name, amount in amounts if amount)

    return size


def _lacks(pods: Sequence[QueuedPodInfo], needed: int, nodes: NodeTable) -> bool:
    """Return whether the nodes have too little for the smallest pods in whatever order."""
    for name in {name for one in pods for name in one.info.requests.amounts}:
        amounts = sorted(one.info.requests.amounts.get(name, 0) for one in pods)
        free = np.maximum(nodes.allocatable[name] - nodes.requested[name], 0)
        if sum(amounts[:needed]) > int(free.sum()):
            return True
    return False
