"""The metrics of remote plugins."""

from __future__ import annotations

from proreus.base.metrics import SchedulerMetrics

_DURATIONS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class RemoteMetrics:
    """The metrics of one plugin; all plugins share the metric families."""

    def __init__(self, metrics: SchedulerMetrics, plugin: str) -> None:
        self._plugin = plugin
        self._requests = metrics.counter(
            "proreus_remote_plugin_requests_total",
            "ALPHA",
            "Requests to out-of-process plugins; result: answered, silent, bad, left_out.",
            "plugin",
            "path",
            "result",
        )
        self._seconds = metrics.histogram(
            "proreus_remote_plugin_request_duration_seconds",
            "ALPHA",
            "Response time of out-of-process plugins.",
            _DURATIONS,
            "plugin",
            "path",
        )
        self.up = metrics.gauge(
            "proreus_remote_plugin_up",
            "ALPHA",
            "Whether an out-of-process plugin responds (1), or gets no requests until it does (0).",
            "plugin",
        ).labels(plugin)
        self.resyncs = metrics.counter(
            "proreus_remote_plugin_resyncs_total",
            "ALPHA",
            "How often all nodes were sent to an out-of-process plugin.",
            "plugin",
        ).labels(plugin)
        self.up.set(1)

    def count(self, path: str, result: str) -> None:
        """Count a request."""
        self._requests.labels(self._plugin, path, result).inc()

    def observe(self, path: str, seconds: float) -> None:
        """Record the duration of a request."""
        self._seconds.labels(self._plugin, path).observe(seconds)
