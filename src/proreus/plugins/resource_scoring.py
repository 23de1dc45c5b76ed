"""Scores by the use of resources, for NodeResourcesFit and NodeResourcesBalancedAllocation.

A ``ScoredRequest`` is a pod's request of one resource. With a node it gives a ``Load``, with a
table a ``ColumnLoad``: what is requested there, the pod's request, the capacity. Strategies turn
loads into scores, by node and over columns, in Go's int64: quotients are rounded towards zero.
Until 1.37 an amount above 9.2e16 overflows when it is multiplied by 100, as in kube-scheduler: the
score of a node with that much is too low then, or invalid. Sums beyond int64 count as its greatest
number.

Worked example: 4000m CPU of which 1000m are requested, a pod with 1000m. LeastAllocated: (4000 -
2000) * 100 // 4000 = 50. MostAllocated: 2000 * 100 // 4000 = 50.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from proreus.base.int64 import MAX_INT64, divide, wrap
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.pod_info import PodInfo
from proreus.framework.verdicts import IntArray
from proreus.objects.resource_names import is_scalar_resource
from proreus.plugins.dynamic_resources.scored_devices import ScoredDevices
from proreus.plugins.resource_scoring_args import ResourceSpec

_WITH_DEFAULTS = frozenset({"cpu", "memory"})
"""Resources for which containers without a request count with a default."""

_MOST_IN_PERCENT = MAX_INT64 // 100
"""The greatest amount of which a hundredfold fits int64."""


class ScoredRequest(NamedTuple):
    """A pod's request of a resource that is scored."""

    resource: str
    wanted: int
    weight: int
    defaults: bool
    """Whether existing pods count with defaults for missing requests."""


Load = tuple[int, int, int, int]
"""The requested amount of a resource, the pod's request, the capacity (not 0), the weight."""


class ColumnLoad(NamedTuple):
    """``Load`` for each row of a table."""

    requested: IntArray
    wanted: int
    capacity: IntArray
    weight: int


def scored_requests_of(
    resources: Iterable[ResourceSpec], amounts: Mapping[str, int], defaults: bool
) -> tuple[ScoredRequest, ...]:
    """Return a pod's requests of the scored resources."""
    # As in kube-scheduler an extended resource that the pod does not request is not scored.
    return tuple(
        ScoredRequest(
            r.name, amounts.get(r.name, 0), r.weight, defaults and r.name in _WITH_DEFAULTS
        )
        for r in resources
        if amounts.get(r.name) or not is_scalar_resource(r.name)
    )


def loads_of(
    scored_requests: Iterable[ScoredRequest], node: NodeInfo, devices: ScoredDevices | None = None
) -> list[Load]:
    """Return the loads on a node, without resources that it does not have."""
    allocatable, exact, nonzero = node.allocatable, node.requested, node.nonzero_requested
    loads = []
    for resource, wanted, weight, defaults in scored_requests:
        capacity = allocatable.get(resource)
        if capacity:
            requested = (nonzero if defaults else exact).get(resource, 0)
            loads.append((requested, wanted, capacity, weight))
        elif devices is not None:
            taken, capacity = devices.at(resource, node)
            if capacity:
                loads.append((taken, wanted, capacity, weight))
    return loads


def placement_loads(
    resources: Iterable[ResourceSpec], pods: Sequence[PodInfo], nodes: NodeTable
) -> list[Load]:
    """Return the loads of several pods on a set of nodes taken as one; see ``loads_of``."""
    loads = []
    for resource in resources:
        name = resource.name
        wanted = sum(pod.resized.scoring.get(name, 0) for pod in pods)
        # Python's sum has no limit: a few nodes may exceed int64 together.
        capacities = nodes.allocatable[name]
        capacity = min(sum(capacities.tolist()), MAX_INT64)
        if not capacity or (not wanted and is_scalar_resource(name)):
            continue
        columns = nodes.nonzero_requested if name in _WITH_DEFAULTS else nodes.requested
        # What runs on a node that no longer has the resource does not count.
        used = sum(columns[name][capacities != 0].tolist())
        loads.append((used, wanted, capacity, resource.weight))
    return loads


def score_rows(
    scored_requests: Sequence[ScoredRequest],
    nodes: NodeTable,
    score: Callable[[Sequence[ColumnLoad], int], IntArray],
    devices: ScoredDevices | None = None,
    score_row: Callable[[Iterable[Load]], int] | None = None,
) -> IntArray:
    """Score all rows with ``score(loads, rows)``, called for rows that have the same resources.

    As a rule that is one call. ``score_row``, if given, scores rows with so much of a resource that
    a hundred times as much overflows.
    """
    loads = [
        ColumnLoad(
            (nodes.nonzero_requested if scored_request.defaults else nodes.requested)[
                scored_request.resource
            ],
            scored_request.wanted,
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
    most = _MOST_IN_PERCENT if score_row is not None else MAX_INT64
    # Unsigned, 0 - 1 is the greatest number.
    if not size or all((load.capacity - 1).view(np.uint64).max() < most for load in loads):
        return score(loads, size)
    # A resource that a row lacks must not count for its weights, nor be divided by: one call for
    # each combination of resources.
    scores = np.empty(size, dtype=np.int64)
    present = np.zeros(size, dtype=np.int64)
    for bit, load in enumerate(loads):
        present |= (load.capacity > 0).astype(np.int64) << bit
    for pattern in np.unique(present).tolist():
        rows = np.flatnonzero(present == pattern)
        group = [
            load._replace(requested=load.requested[rows], capacity=load.capacity[rows])
            for bit, load in enumerate(loads)
            if pattern >> bit & 1
        ]
        scores[rows] = score(group, len(rows))
    if score_row is not None:
        huge = np.logical_or.reduce([load.capacity > _MOST_IN_PERCENT for load in loads])
        for row in np.flatnonzero(huge).tolist():
            scores[row] = score_row(
                (int(load.requested[row]), load.wanted, capacity, load.weight)
                for load in loads
                if (capacity := int(load.capacity[row])) > 0
            )
    return scores


def _with_devices(load: ColumnLoad, devices: tuple[IntArray, IntArray] | None) -> ColumnLoad:
    """Return a load with devices on the rows that have no capacity of their own."""
    if devices is None:
        return load
    has_own = load.capacity > 0
    return load._replace(
        requested=np.where(has_own, load.requested, devices[0]),
        capacity=np.where(has_own, load.capacity, devices[1]),
    )


class ResourceScorer(ABC):
    """Turns loads into a score from 0 to 100.

    ``exact``: amounts of any size, instead of overflows (``Change.EXACT_PERCENTAGES``).
    """

    def __init__(self, exact: bool) -> None:
        self._percent = _exact_percent if exact else _percent

    @abstractmethod
    def score(self, loads: Iterable[Load]) -> int:
        """Score one node; 0 where no resource counts."""

    @abstractmethod
    def score_all(self, loads: Sequence[ColumnLoad], rows: int) -> IntArray:
        """Score rows that have every one of the resources, at most ``_MOST_IN_PERCENT`` of it."""


class LeastAllocated(ResourceScorer):
    """The emptier, the better: the weighted average of the free fractions, in percent."""

    def score(self, loads: Iterable[Load]) -> int:
        """Score one node."""
        total = weights = 0
        for requested, wanted, capacity, weight in loads:
            free = capacity - requested - wanted
            if 0 < free <= _MOST_IN_PERCENT:  # inlined: this runs for every pod
                total += free * 100 // capacity * weight
            elif free > 0:
                total += self._percent(free, capacity) * weight
            weights += weight
        return _average(total, weights)

    def score_all(self, loads: Sequence[ColumnLoad], rows: int) -> IntArray:
        """Score rows."""
        total = np.zeros(rows, dtype=np.int64)
        for requested, wanted, capacity, weight in loads:
            free = capacity - requested
            np.maximum(free, wanted, out=free)  # before the subtraction, which might overflow
            free -= wanted
            total += _times(_percents(free, capacity), weight)
        return _divided(total, sum(load.weight for load in loads))


class MostAllocated(ResourceScorer):
    """The fuller, the better: the weighted average of the used fractions, in percent."""

    def score(self, loads: Iterable[Load]) -> int:
        """Score one node."""
        total = weights = 0
        for requested, wanted, capacity, weight in loads:
            taken = min(requested + wanted, capacity)
            total += self._percent(taken, capacity) * weight
            weights += weight
        return _average(total, weights)

    def score_all(self, loads: Sequence[ColumnLoad], rows: int) -> IntArray:
        """Score rows."""
        total = np.zeros(rows, dtype=np.int64)
        for requested, wanted, capacity, weight in loads:
            taken = taken_of(requested, wanted, capacity)
            total += _times(_percents(taken, capacity), weight)
        return _divided(total, sum(load.weight for load in loads))


class RequestedToCapacityRatio(ResourceScorer):
    """A function of utilization, given by points; a resource that scores 0 has no weight."""

    def __init__(self, shape: Sequence[tuple[int, int]], exact: bool) -> None:
        """Take points (utilization in percent ascending, score 0 to 100)."""
        super().__init__(exact)
        self._rates = [broken_linear(shape, percent) for percent in range(101)]
        self._rate_column = np.array(self._rates, dtype=np.int64)

    def score(self, loads: Iterable[Load]) -> int:
        """Score one node."""
        total = weights = 0
        for requested, wanted, capacity, weight in loads:
            taken = min(requested + wanted, capacity)
            # After an overflow it is below 0, where every shape is as at 0.
            rate = self._rates[max(self._percent(taken, capacity), 0)]
            if rate > 0:
                total += rate * weight
                weights += weight
        return (2 * total + weights) // (2 * weights) if weights else 0

    def score_all(self, loads: Sequence[ColumnLoad], rows: int) -> IntArray:
        """Score rows."""
        total = np.zeros(rows, dtype=np.int64)
        weights = np.zeros(rows, dtype=np.int64)
        for requested, wanted, capacity, weight in loads:
            taken = taken_of(requested, wanted, capacity)
            rates = self._rate_column.take(_percents(taken, capacity), mode="clip")
            total += _times(rates, weight)
            weights += (rates > 0) * np.int64(weight)
        # Half up: Go's math.Round for numbers that are not negative.
        return (2 * total + weights) // np.maximum(2 * weights, 1)


def broken_linear(shape: Sequence[tuple[int, int]], at: int) -> int:
    """Return the value at ``at`` of the piecewise linear function through ``shape``.

    Constant before the first and after the last point.
    """
    for index, (place, value) in enumerate(shape):
        if at <= place:
            if index == 0:
                return value
            before, start = shape[index - 1]
            rise, run = (value - start) * (at - before), place - before
            # Go's division truncates towards zero, hence towards the earlier point.
            return start + (rise // run if rise >= 0 else -(-rise // run))
    return shape[-1][1]


def taken_of(requested: IntArray, wanted: int, capacity: IntArray) -> IntArray:
    """Return, for each row, what is requested with the pod, at most the capacity."""
    taken: IntArray = requested + wanted
    # As unsigned numbers: pods that name their node are not checked against it, so that their
    # requests, and with them this sum, may exceed int64.
    np.minimum(taken.view(np.uint64), capacity.view(np.uint64), out=taken.view(np.uint64))
    return taken


def _average(total: int, weights: int) -> int:
    if total < 0:  # after an overflow
        return divide(total, weights)
    return total // weights if weights else 0


def _exact_percent(part: int, capacity: int) -> int:
    return part * 100 // capacity


def _percent(part: int, capacity: int) -> int:
    hundredfold = part * 100
    if hundredfold <= MAX_INT64:
        return hundredfold // capacity
    return divide(wrap(hundredfold), capacity)


def _percents(parts: IntArray, capacity: IntArray) -> IntArray:
    """Return ``_percent`` for every row; overwrites ``parts``."""
    parts *= 100
    parts //= capacity
    return parts


def _times(rates: IntArray, weight: int) -> IntArray:
    return rates if weight == 1 else rates * weight


def _divided(total: IntArray, weights: int) -> IntArray:
    if weights > 1:
        total //= weights
    return total
