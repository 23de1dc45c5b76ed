"""Metrics: kube-scheduler's names, labels and buckets, at a cost that the hot path can afford.

``families`` has counters, gauges and histograms (0.1 microseconds an observation). The table of all
metrics is in ``process_metrics``, ``proreus_metrics`` and ``scheduler_metrics``, each a subclass of
the one before. ``exposition`` hands them to prometheus-client, which writes the text. Nothing here
is global: a process, or a test, makes one ``SchedulerMetrics``.
"""

from proreus.base.metrics.exposition import expose
from proreus.base.metrics.families import (
    Counter,
    Description,
    Family,
    Gauge,
    Histogram,
    MetricsRegistry,
)
from proreus.base.metrics.scheduler_metrics import SchedulerMetrics

__all__ = [
    "Counter",
    "Description",
    "Family",
    "Gauge",
    "Histogram",
    "MetricsRegistry",
    "SchedulerMetrics",
    "expose",
]
