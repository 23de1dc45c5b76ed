"""What is counted of a plugin in a process of its own."""

from __future__ import annotations

from proreus.metrics import SchedulerMetrics

_DURATIONS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class RemoteMetrics:
    """The metric families of one plugin; those of all plugins are the same."""

    def __init__(self, metrics: SchedulerMetrics, plugin: str) -> None:
        self._plugin = plugin
        self._requests = metrics.counter(
            "proreus_remote_plugin_requests_total",
            "ALPHA",
            "Questions to plugins in processes of their own; result: answered, silent, bad, "
            "left_out.",
            "plugin",
            "path",
            "result",
        )
        self._seconds = metrics.histogram(
            "proreus_remote_plugin_request_duration_seconds",
            "ALPHA",
            "How long plugins in processes of their own took to answer.",
            _DURATIONS,
            "plugin",
            "path",
        )
        self.up = metrics.gauge(
            "proreus_remote_plugin_up",
            "ALPHA",
            "Whether a plugin in a process of its own is asked (1), or left alone until it "
            "answers (0).",
            "plugin",
        ).labels(plugin)
        self.resyncs = metrics.counter(
            "proreus_remote_plugin_resyncs_total",
            "ALPHA",
            "How often all nodes were sent to a plugin in a process of its own.",
            "plugin",
        ).labels(plugin)
        self.up.set(1)

    def count(self, path: str, result: str) -> None:
        """Count a question."""
        self._requests.labels(self._plugin, path, result).inc()

    def observe(self, path: str, seconds: float) -> None:
        """Note how long an answer took."""
        self._seconds.labels(self._plugin, path).observe(seconds)
