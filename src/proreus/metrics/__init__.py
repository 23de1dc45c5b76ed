"""Metrics: kube-scheduler's names, labels and buckets, at a price that the hot path can pay.

``families`` holds what callers touch (0.1 microseconds an observation), ``process_metrics`` and
``scheduler_metrics`` are the table of everything this process counts, ``exposition`` is the way to
prometheus-client, which writes the text. Nothing here is global: a process, or a test, makes one
``SchedulerMetrics``.
"""

from proreus.metrics.exposition import expose
from proreus.metrics.families import Counter, Description, Family, Gauge, Histogram, MetricsRegistry
from proreus.metrics.scheduler_metrics import SchedulerMetrics

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
