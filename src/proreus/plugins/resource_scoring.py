"""How full nodes are, as scores: what NodeResourcesFit and BalancedAllocation have in common.

A ``ScoredRequest`` is what a pod wants of one resource. Of a node it makes a ``Load``, of a table a
``ColumnLoad``: what is held there, what would come, how much there is. Strategies turn loads into
scores, per node and over columns, with Go's integer division.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import MAX_SCORE
from proreus.framework.pod_info import PodInfo
from proreus.framework.verdicts import IntArray
from proreus.objects.requests import is_scalar_resource

_WITH_DEFAULTS = frozenset({"cpu", "memory"})
"""Resources that nodes count with defaults too, for pods that do not name them."""


class WeightedResource(Protocol):
    """A resource to be scored, as configured."""

    @property
    def name(self) -> str:
        """Name of the resource."""
        ...

    @property
    def weight(self) -> int:
        """How much it counts."""
        ...


class Devices(Protocol):
    """Devices that stand for resources on nodes that have none of their own (KEP-5004)."""

    def at(self, resource: str, node: NodeInfo) -> tuple[int, int]:
        """Return how many are taken on a node, of how many."""
        ...

    def columns(self, resource: str, nodes: NodeTable) -> tuple[IntArray, IntArray] | None:
        """Return the same for each node; None if devices do not stand for the resource."""
        ...


class ScoredRequest(NamedTuple):
    """What a pod wants of a resource that is scored."""

    resource: str
    amount: int
    weight: int
    defaults: bool
    """Whether the pods that are there count with defaults for what they do not name."""


Load = tuple[int, int, int, int]
"""What is held of a resource, what would come, how much there is (not 0), and the weight."""


class ColumnLoad(NamedTuple):
    """The same for each row of a table."""

    accounted_requests: IntArray
    wanted: int
    capacity: IntArray
    weight: int


def scored_requests_of(
    resources: Iterable[WeightedResource], amounts: Mapping[str, int], defaults: bool
) -> tuple[ScoredRequest, ...]:
    """Return a pod's demands; vendors' resources that it does not ask for are left out."""
    return tuple(
        ScoredRequest(
            r.name, amounts.get(r.name, 0), r.weight, defaults and r.name in _WITH_DEFAULTS
        )
        for r in resources
        if amounts.get(r.name) or not is_scalar_resource(r.name)
    )


def loads_of(
    scored_requests: Iterable[ScoredRequest], node: NodeInfo, devices: Devices | None = None
) -> list[Load]:
    """Return what demands meet on a node; resources that it does not have are left out."""
    allocatable, requested, nonzero = node.allocatable, node.requested, node.nonzero_requested
    loads = []
    for resource, amount, weight, defaults in scored_requests:
        capacity = allocatable.get(resource)
        if capacity:
            accounted_requests = (nonzero if defaults else requested).get(resource, 0)
            loads.append((accounted_requests, amount, capacity, weight))
        elif devices is not None:
            accounted_requests, capacity = devices.at(resource, node)
            if capacity:
                loads.append((accounted_requests, amount, capacity, weight))
    return loads


def placement_loads(
    resources: Iterable[WeightedResource], pods: Sequence[PodInfo], nodes: NodeTable
) -> list[Load]:
    """Return what pods meet on a set of nodes taken as one; see ``loads_of``."""
    loads = []
    for resource in resources:
        name = resource.name
        wanted = sum(pod.requests.scoring.get(name, 0) for pod in pods)
        capacity = int(nodes.allocatable[name].sum())
        if not capacity or (not wanted and is_scalar_resource(name)):
            continue
        columns = nodes.nonzero_requested if name in _WITH_DEFAULTS else nodes.requested
        loads.append((int(columns[name].sum()), wanted, capacity, resource.weight))
    return loads


def score_rows(
    scored_requests: Sequence[ScoredRequest],
    nodes: NodeTable,
    score: Callable[[Sequence[ColumnLoad], int], IntArray],
    devices: Devices | None = None,
) -> IntArray:
    """Score all rows with ``score(loads, rows)``, which sees rows that have each resource.

    Rows are scored together with those that have the same resources: as a rule that is all.
    """
    loads = [
        ColumnLoad(
            (nodes.nonzero_requested if scored_request.defaults else nodes.requested)[
                scored_request.resource
            ],
            scored_request.amount,
            nodes.allocatable[scored_request.resource],
            scored_request.weight,
        )
        for scored_request in scored_requests
    ]
    if devices is not None:
        loads = [
            _with_devices(load, devices.columns(scored_request.resource, nodes))
            for scored_request, load in zip(scored_requests, loads, strict=True)
        ]
    size = len(nodes)
    if not size or all(load.capacity.min() > 0 for load in loads):
        return score(loads, size)
    scores = np.empty(size, dtype=np.int64)
    present = np.zeros(size, dtype=np.int64)
    for bit, load in enumerate(loads):
        present |= (load.capacity > 0).astype(np.int64) << bit
    for pattern in np.unique(present).tolist():
        rows = np.flatnonzero(present == pattern)
        group = [
            load._replace(
                accounted_requests=load.accounted_requests[rows], capacity=load.capacity[rows]
            )
            for bit, load in enumerate(loads)
            if pattern >> bit & 1
        ]
        scores[rows] = score(group, len(rows))
    return scores


def _with_devices(load: ColumnLoad, devices: tuple[IntArray, IntArray] | None) -> ColumnLoad:
    """Return a load in which devices stand for what nodes do not have themselves."""
    if devices is None:
        return load
    has_own = load.capacity > 0
    return load._replace(
        accounted_requests=np.where(has_own, load.accounted_requests, devices[0]),
        capacity=np.where(has_own, load.capacity, devices[1]),
    )


class ResourceScorer(ABC):
    """Turns loads into a score from 0 to 100."""

    @abstractmethod
    def score(self, loads: Iterable[Load]) -> int:
        """Score one node; 0 where no resource counts."""

    @abstractmethod
    def score_all(self, loads: Sequence[ColumnLoad], rows: int) -> IntArray:
        """Score rows that have every one of the resources."""


class LeastAllocated(ResourceScorer):
    """The emptier, the better: the weighted average of what stays free, in percent."""

    def score(self, loads: Iterable[Load]) -> int:
        """Score one node."""
        total = weights = 0
        for accounted_requests, wanted, capacity, weight in loads:
            free = capacity - accounted_requests - wanted
            if free > 0:
                total += free * MAX_SCORE // capacity * weight
            weights += weight
        return total // weights if weights else 0

    def score_all(self, loads: Sequence[ColumnLoad], rows: int) -> IntArray:
        """Score rows."""
        total = np.zeros(rows, dtype=np.int64)
        for accounted_requests, wanted, capacity, weight in loads:
            free = capacity - accounted_requests
            free -= wanted
            np.maximum(free, 0, out=free)
            free *= MAX_SCORE
            free //= capacity
            total += _times(free, weight)
        return _divided(total, sum(load.weight for load in loads))


class MostAllocated(ResourceScorer):
    """The fuller, the better: the weighted average of what is taken, in percent."""

    def score(self, loads: Iterable[Load]) -> int:
        """Score one node."""
        total = weights = 0
        for accounted_requests, wanted, capacity, weight in loads:
            total += min(accounted_requests + wanted, capacity) * MAX_SCORE // capacity * weight
            weights += weight
        return total // weights if weights else 0

    def score_all(self, loads: Sequence[ColumnLoad], rows: int) -> IntArray:
        """Score rows."""
        total = np.zeros(rows, dtype=np.int64)
        for accounted_requests, wanted, capacity, weight in loads:
            total += _times(_percent_taken(accounted_requests, wanted, capacity), weight)
        return _divided(total, sum(load.weight for load in loads))


class RequestedToCapacityRatio(ResourceScorer):
    """A function of utilization, given by points; resources that score 0 do not count at all."""

    def __init__(self, shape: Sequence[tuple[int, int]]) -> None:
        """Take points (utilization in percent ascending, score 0 to 100)."""
        self._rates = [broken_linear(shape, percent) for percent in range(101)]
        self._rate_column = np.array(self._rates, dtype=np.int64)

    def score(self, loads: Iterable[Load]) -> int:
        """Score one node."""
        total = weights = 0
        for accounted_requests, wanted, capacity, weight in loads:
            rate = self._rates[min(accounted_requests + wanted, capacity) * 100 // capacity]
            if rate > 0:
                total += rate * weight
                weights += weight
        return (2 * total + weights) // (2 * weights) if weights else 0

    def score_all(self, loads: Sequence[ColumnLoad], rows: int) -> IntArray:
        """Score rows."""
        total = np.zeros(rows, dtype=np.int64)
        weights = np.zeros(rows, dtype=np.int64)
        for accounted_requests, wanted, capacity, weight in loads:
            rates = self._rate_column[_percent_taken(accounted_requests, wanted, capacity)]
            total += _times(rates, weight)
            weights += (rates > 0) * np.int64(weight)
        # Rounded half up, which is what math.Round does to what cannot be negative.
        return (2 * total + weights) // np.maximum(2 * weights, 1)


def broken_linear(shape: Sequence[tuple[int, int]], at: int) -> int:
    """Return the value at a place of the function through points with ascending places.

    Flat before the first and after the last point; in between cut off towards the earlier
    point's value, as Go's division does.
    """
    for index, (place, value) in enumerate(shape):
        if at <= place:
            if index == 0:
                return value
            before, start = shape[index - 1]
            rise, run = (value - start) * (at - before), place - before
            return start + (rise // run if rise >= 0 else -(-rise // run))
    return shape[-1][1]


def _percent_taken(accounted_requests: IntArray, wanted: int, capacity: IntArray) -> IntArray:
    taken: IntArray = accounted_requests + wanted
    np.minimum(taken, capacity, out=taken)
    taken *= 100
    taken //= capacity
    return taken


def _times(rates: IntArray, weight: int) -> IntArray:
    return rates if weight == 1 else rates * weight


def _divided(total: IntArray, weights: int) -> IntArray:
    if weights > 1:
        total //= weights
    return total
