"""The base of the plugins of the family: Score by metrics of nodes.

While metrics are missing or stale, all nodes score 0: equally, so that other plugins decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import model_validator

from proreus.addons.node_metrics.metrics import WatcherMetrics
from proreus.addons.node_metrics.providers import NodeMetricsArgs
from proreus.addons.node_metrics.reader import NodeMetricsReader
from proreus.framework import ClusterEvent, FeatureGates, field_errors

_DEFAULT_WINDOW_SECONDS = 900.0


class TrimaranArgs(NodeMetricsArgs):
    """``staleness_windows``: metrics older than so many of their windows are not used."""

    staleness_windows: float = 3.0

    @model_validator(mode="before")
    @classmethod
    def _capitals(cls, data: Any) -> Any:
        # The original's Peaks takes its fields in capitals alone, by a malformed tag.
        if isinstance(data, dict):
            return {
                name[:1].lower() + name[1:] if isinstance(name, str) else name: value
                for name, value in data.items()
            }
        return data

    def problems(self, path: str, gates: FeatureGates) -> Iterator[str]:
        """Check that metrics are used for some time at least."""
        if self.staleness_windows <= 0:
            where = field_errors.child(path, "stalenessWindows")
            yield field_errors.invalid(where, self.staleness_windows, "must be positive")


class MeasuredPlugin(NodeMetricsReader):
    """A plugin that scores by ``measured``, None while there are no fresh metrics."""

    def events_to_register(self) -> Iterable[ClusterEvent]:
        """Register nothing: the plugin rejects no pod."""
        return []

    def is_stale(self, metrics: WatcherMetrics) -> bool:
        """Return whether metrics ended more than ``stalenessWindows`` of their windows ago."""
        window = metrics.window
        seconds = window.end - window.start
        if seconds <= 0:
            seconds = _DEFAULT_WINDOW_SECONDS
        age = self.handle.clock.now() - window.end
        limit: float = self.args.staleness_windows * seconds
        return age > limit
