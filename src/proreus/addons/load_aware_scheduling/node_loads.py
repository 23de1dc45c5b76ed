"""The use of each node by its metrics, and its limits.

A node that is beyond a threshold is *hot*: its limit is some points lower until it is not beyond
that either, so that a node at its threshold is not accepted and rejected in turns.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from math import floor
from typing import Any, NamedTuple

from proreus.addons.load_aware_scheduling.args import AggregatedArgs, LoadAwareSchedulingArgs
from proreus.addons.load_aware_scheduling.estimator import MOST_USED
from proreus.addons.node_metrics.metrics import (
    CPU,
    MEMORY,
    Aggregation,
    Metric,
    WatcherMetrics,
    usage_of,
)
from proreus.addons.pod_amounts import CPU_AND_MEMORY
from proreus.framework import NodeInfo, logger
from proreus.objects import Node, parse_amount
from proreus.objects.codec import UNDECODABLE

log = logger(__name__)

USAGE_THRESHOLDS = "scheduling.koordinator.sh/usage-thresholds"
"""Annotation of a node: its own thresholds, ``{"usageThresholds": {"cpu": 80}}``."""
RAW_ALLOCATABLE = "node.koordinator.sh/raw-allocatable"
"""Annotation of a node: its allocatable before Koordinator amplified it, as a resource list."""

UNKNOWN = -1
"""The use of a resource that was not measured."""
NO_THRESHOLD = 0
_MOST_PERCENT = 2**31

_NO_NODE = Node()

_TYPES = (CPU, MEMORY)

Pair = tuple[int, int]
"""Of cpu and memory: milli-CPU and bytes, or percentages."""


class NodeLoad(NamedTuple):
    """The load of a version of a node: cpu, memory.

    ``filtered_used``, ``scored_used``: the use for Filter and for Score, without pods that metrics
    do not show yet. ``thresholds`` in percent; ``limits``: the same, but lower where a node is hot.
    """

    node: Node
    filtered_used: Pair
    scored_used: Pair
    allocatable: Pair
    thresholds: Pair
    limits: Pair


class NodeLoads:
    """The loads of nodes by the latest metrics."""

    def __init__(self, args: LoadAwareSchedulingArgs) -> None:
        aggregated = args.aggregated or AggregatedArgs()
        self._for_filter, self._for_score = aggregated.for_filter, aggregated.for_score
        self._thresholds = aggregated.usage_thresholds or args.usage_thresholds
        self._hysteresis = args.filter_hysteresis
        self._metrics: WatcherMetrics | None = None
        self._loads: dict[str, NodeLoad] = {}
        """By name of nodes that were read since these metrics came."""
        self._hot: dict[str, tuple[bool, bool]] = {}
        """By name of hot nodes: whether they are hot in cpu, and in memory."""

    def use(self, metrics: WatcherMetrics | None) -> None:
        """Derive loads from these metrics from now on."""
        self._metrics = metrics
        self._loads.clear()

    def of(self, info: NodeInfo) -> NodeLoad:
        """Return the load of a node."""
        node, name = info.node or _NO_NODE, info.name
        load = self._loads.get(name)
        if load is None or load.node is not node:
            load = self._loads[name] = self._load_of(name, node)
        return load

    def note_hot(self, used: Mapping[str, Pair]) -> None:
        """Note the nodes beyond their limits, which become lower for them; ``used``: by node."""
        before, self._hot = self._hot, {}
        for name, pair in used.items():
            load = self._loads[name]
            cpu, memory = (
                exceeds(*one) for one in zip(pair, load.allocatable, load.limits, strict=True)
            )
            if cpu or memory:
                self._hot[name] = cpu, memory
        for name in before.keys() | self._hot.keys():
            if before.get(name) != self._hot.get(name):
                self._loads.pop(name, None)

    def _load_of(self, name: str, node: Node) -> NodeLoad:
        def allocatable(raw: dict[str, Any]) -> Pair:
            return _pair({**node.status.allocatable, **raw})

        def thresholds(own: dict[str, Any]) -> Pair:
            return _thresholds({**self._thresholds, **own.get("usageThresholds", {})})

        metrics = () if self._metrics is None else self._metrics.of(name)
        capacity = _pair(node.status.capacity)
        percents = _from_annotation(node, USAGE_THRESHOLDS, thresholds)
        return NodeLoad(
            node,
            _used(metrics, capacity, self._for_filter),
            _used(metrics, capacity, self._for_score),
            _from_annotation(node, RAW_ALLOCATABLE, allocatable),
            percents,
            self._limits(percents, self._hot.get(name, (False, False))),
        )

    def _limits(self, thresholds: Pair, hot: tuple[bool, bool]) -> Pair:
        cpu, memory = (
            max(threshold - self._hysteresis, 1) if is_hot and threshold else threshold
            for threshold, is_hot in zip(thresholds, hot, strict=True)
        )
        return cpu, memory


def exceeds(used: int, most: int, limit: int) -> bool:
    """Return whether the use of a resource in percent, rounded half up, is beyond a limit."""
    measured = used != UNKNOWN and most > 0
    return limit != NO_THRESHOLD and measured and (200 * used + most) // (2 * most) > limit


def _used(metrics: tuple[Metric, ...], capacity: Pair, aggregation: Aggregation | None) -> Pair:
    used = []
    for type_, most in zip(_TYPES, capacity, strict=True):
        if aggregation is None:
            usage = usage_of(metrics, type_)
            percent = None if usage is None else usage.average
        else:
            wanted = (type_, aggregation.operator)
            found = [one.value for one in metrics if (one.type, one.operator) == wanted]
            percent = found[-1] if found else None
        used.append(UNKNOWN if percent is None else floor(max(percent, 0) * most / 100 + 0.5))
    return used[0], used[1]


def _pair(amounts: Mapping[str, Any]) -> Pair:
    found = (parse_amount(name, amounts.get(name, 0)) for name in CPU_AND_MEMORY)
    cpu, memory = (min(max(amount, 0), MOST_USED) for amount in found)
    return cpu, memory


def _thresholds(percentages: Mapping[str, Any]) -> Pair:
    found = (int(percentages.get(name) or NO_THRESHOLD) for name in CPU_AND_MEMORY)
    cpu, memory = (min(max(percent, -1), _MOST_PERCENT) for percent in found)
    return cpu, memory


def _from_annotation(node: Node, key: str, read: Callable[[dict[str, Any]], Pair]) -> Pair:
    """Read an annotation in JSON by ``read``, which gets {} if there is none, or no valid one.

    An annotation of one node must not keep pods from all others.
    """
    text = node.metadata.annotations.get(key)
    if text is None:
        return read({})
    try:
        return read(json.loads(text))
    except (*UNDECODABLE, TypeError, AttributeError) as error:
        log.warning("Annotation of a node is ignored", annotation=key, err=error)
        return read({})
