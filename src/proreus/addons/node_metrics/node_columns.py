"""Numbers that a plugin derives from a node and its metrics, as columns for ``score_all``."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

import numpy as np
import numpy.typing as npt

from proreus.addons.node_metrics.metrics import Metric, WatcherMetrics
from proreus.framework import NodeInfo, NodeTable
from proreus.objects import Node

FloatArray = npt.NDArray[np.float64]

DeriveFn = Callable[[tuple[Metric, ...], Node], tuple[float, ...]]
"""Returns the numbers of a node with these metrics; NaN for what is not measured."""


class NodeColumns:
    """The numbers of nodes, derived once for each version of the node and of the metrics."""

    def __init__(self, derive: DeriveFn, width: int) -> None:
        """``width``: how many numbers ``derive`` returns."""
        self._derive = derive
        self._width = width
        self._metrics: WatcherMetrics | None = None
        self._known: dict[str, tuple[Node | None, tuple[float, ...]]] = {}

    def of_all(self, metrics: WatcherMetrics, nodes: NodeTable) -> FloatArray:
        """Return the columns, shape (width, nodes)."""
        if metrics is not self._metrics:
            self._metrics = metrics
            self._known.clear()
        # Flattened by itertools: np.array of tuples takes five times as long.
        values = chain.from_iterable(self._of(metrics, node) for node in nodes)
        flat = np.fromiter(values, np.float64, self._width * len(nodes))
        return np.ascontiguousarray(flat.reshape(-1, self._width).T)

    def _of(self, metrics: WatcherMetrics, info: NodeInfo) -> tuple[float, ...]:
        known = self._known.get(info.name)
        if known is None or known[0] is not info.node:
            numbers = self._derive(metrics.of(info.name), info.node or Node())
            known = self._known[info.name] = (info.node, numbers)
        return known[1]
