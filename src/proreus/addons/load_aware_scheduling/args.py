"""The arguments: the original's, where metrics come from, and the hysteresis of Filter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from proreus.addons.node_metrics.metrics import Aggregation
from proreus.addons.node_metrics.providers import NodeMetricsArgs
from proreus.addons.pod_amounts import CPU_AND_MEMORY
from proreus.framework import ConfigModel, FeatureGates, Seconds, field_errors

AggregationType = Literal["avg", "p50", "p90", "p95", "p99"]
_DEFAULT_AGGREGATION_SECONDS = 300
DEFAULT_ESTIMATOR = "defaultEstimator"


class AggregatedArgs(ConfigModel):
    """Percentiles in place of means for Filter and for Score, None for the mean."""

    usage_thresholds: dict[str, int] = {}
    usage_aggregation_type: AggregationType | None = None
    usage_aggregated_duration: Seconds = 0.0
    score_aggregation_type: AggregationType | None = None
    score_aggregated_duration: Seconds = 0.0

    @property
    def for_filter(self) -> Aggregation | None:
        """The aggregation for Filter."""
        return _aggregation(self.usage_aggregation_type, self.usage_aggregated_duration)

    @property
    def for_score(self) -> Aggregation | None:
        """The aggregation for Score."""
        return _aggregation(self.score_aggregation_type, self.score_aggregated_duration)


class LoadAwareSchedulingArgs(NodeMetricsArgs):
    """Percentages are of a node's allocatable resources.

    ``usage_thresholds``: nodes beyond are rejected; {} or 0: none is. ``filter_hysteresis``: a node
    beyond a threshold is rejected until it is so many points below it.
    ``estimated_scaling_factors``: how much of its requests, or limits, a pod is going to use.
    """

    filter_expired_node_metrics: bool = True
    node_metric_expiration_seconds: int = 180
    enable_schedule_when_node_metrics_expired: bool = True
    resource_weights: dict[str, int] = {"cpu": 1, "memory": 1}
    dominant_resource_weight: int = 0
    usage_thresholds: dict[str, int] = {}
    filter_hysteresis: int = 5
    prod_usage_thresholds: dict[str, int] = {}
    prod_usage_include_sys: bool = False
    score_according_prod_usage: bool = False
    estimator: str = DEFAULT_ESTIMATOR
    estimated_scaling_factors: dict[str, int] = {"cpu": 85, "memory": 70}
    estimated_seconds_after_pod_scheduled: int | None = None
    estimated_seconds_after_initialized: int | None = None
    allow_customize_estimation: bool = False
    supported_resources: tuple[str, ...] = CPU_AND_MEMORY
    aggregated: AggregatedArgs | None = None
    report_interval_seconds: int = 60

    @property
    def aggregations(self) -> tuple[Aggregation, ...]:
        """The percentiles for Filter and Score."""
        aggregated = self.aggregated or AggregatedArgs()
        both = dict.fromkeys((aggregated.for_filter, aggregated.for_score))
        return tuple(one for one in both if one is not None)

    def problems(self, path: str, gates: FeatureGates) -> Iterator[str]:
        """Check resources, ranges, and that the provider has the aggregations."""
        aggregated = self.aggregated or AggregatedArgs()
        for name, percentages in (
            ("usageThresholds", self.usage_thresholds),
            ("estimatedScalingFactors", self.estimated_scaling_factors),
        ):
            yield from _percentage_problems(field_errors.child(path, name), percentages)
        where = field_errors.child(path, "aggregated", "usageThresholds")
        yield from _percentage_problems(where, aggregated.usage_thresholds)
        yield from self._weight_problems(path)
        for name, number in (
            ("nodeMetricExpirationSeconds", self.node_metric_expiration_seconds),
            ("reportIntervalSeconds", self.report_interval_seconds),
        ):
            if number <= 0:
                where = field_errors.child(path, name)
                yield field_errors.invalid(where, number, "must be positive")
        if not 0 <= self.filter_hysteresis <= 100:
            where = field_errors.child(path, "filterHysteresis")
            yield field_errors.invalid(where, self.filter_hysteresis, "must be in [0, 100]")
        if self.estimator != DEFAULT_ESTIMATOR:
            where = field_errors.child(path, "estimator")
            yield field_errors.unsupported(where, self.estimator, [DEFAULT_ESTIMATOR])
        yield from self._provider_problems(path)

    def _weight_problems(self, path: str) -> Iterator[str]:
        where = field_errors.child(path, "resourceWeights")
        yield from _resource_problems(where, self.resource_weights)
        weights = (*self.resource_weights.values(), self.dominant_resource_weight)
        if min(weights) < 0 or not any(weights):
            yield field_errors.invalid(where, weights, "weights must not be negative, nor all be 0")

    def _provider_problems(self, path: str) -> Iterator[str]:
        from_prometheus = not self.watcher_address and self.metric_provider.type == "Prometheus"
        if self.aggregations and not from_prometheus:
            where = field_errors.child(path, "aggregated")
            yield field_errors.forbidden(where, "only Prometheus has percentiles")
        for name, given in (
            ("prodUsageThresholds", self.prod_usage_thresholds),
            ("scoreAccordingProdUsage", self.score_according_prod_usage),
        ):
            if given:
                where = field_errors.child(path, name)
                yield field_errors.forbidden(where, "metrics of nodes do not tell pods apart")


def _aggregation(kind: AggregationType | None, seconds: float) -> Aggregation | None:
    return None if kind is None else Aggregation(kind, int(seconds) or _DEFAULT_AGGREGATION_SECONDS)


def _resource_problems(path: str, names: Iterable[str]) -> Iterator[str]:
    for name in names:
        if name not in CPU_AND_MEMORY:
            yield field_errors.unsupported(path, name, CPU_AND_MEMORY)


def _percentage_problems(path: str, percentages: Mapping[str, int]) -> Iterator[str]:
    yield from _resource_problems(path, percentages)
    for name, percentage in percentages.items():
        if not 0 <= percentage <= 100:
            where = field_errors.child(path, name)
            yield field_errors.invalid(where, percentage, "must be in [0, 100]")
