"""What the plugins of the family share: scores by metrics.

While metrics are missing or stale, all nodes score 0: equally, so that other plugins decide.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from proreus.addons.node_metrics.metrics import WatcherMetrics
from proreus.addons.node_metrics.reader import NodeMetricsReader
from proreus.framework import (
    ClusterEvent,
    CycleState,
    IntArray,
    NodeInfo,
    NodeTable,
    PodInfo,
    ScorePlugin,
)

_DEFAULT_WINDOW_SECONDS = 900.0


class MeasuredScorePlugin(ScorePlugin, NodeMetricsReader):
    """A plugin that scores by ``measured``, None while there are no fresh metrics."""

    def events_to_register(self) -> Iterable[ClusterEvent]:
        """Register nothing: the plugin rejects no pod."""
        return []

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Score one node; 0 without fresh metrics."""
        return 0 if self.measured is None else self.score_measured(self.measured, pod, node)

    def score_measured(self, measured: WatcherMetrics, pod: PodInfo, node: NodeInfo) -> int:
        """Score one node by fresh metrics."""
        raise NotImplementedError

    def score_all(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> IntArray | int:
        """Score all nodes; 0 without fresh metrics."""
        return 0 if self.measured is None else self.score_all_measured(self.measured, pod, nodes)

    def score_all_measured(
        self, measured: WatcherMetrics, pod: PodInfo, nodes: NodeTable
    ) -> IntArray:
        """Score all nodes by fresh metrics; one after the other, unless a plugin does better."""
        scores = [self.score_measured(measured, pod, node) for node in nodes]
        return np.array(scores, dtype=np.int64)

    def is_stale(self, metrics: WatcherMetrics) -> bool:
        """Return whether metrics end more than some of their windows ago."""
        window = metrics.window
        seconds = window.end - window.start
        if seconds <= 0:
            seconds = _DEFAULT_WINDOW_SECONDS
        age = self.handle.clock.now() - window.end
        limit: float = self.args.staleness_windows * seconds
        return age > limit
