"""The arguments: the original's, where metrics come from, and the hysteresis of Filter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from proreus.addons.node_metrics.metrics import Aggregation
from proreus.addons.node_metrics.providers import NodeMetricsArgs
from proreus.addons.pod_amounts import CPU_AND_MEMORY
from proreus.framework import ConfigModel, FeatureGates, Seconds, field_errors

AggregationType = Literal["avg", "p50", "p90", "p95", "p99"]
Percentage = Annotated[int, Field(ge=0, le=100)]
_DEFAULT_AGGREGATION_SECONDS = 300


class AggregatedArgs(ConfigModel):
    """Percentiles in place of means for Filter and for Score, None for the mean."""

    usage_thresholds: dict[str, Percentage] = {}
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
    node_metric_expiration_seconds: int = Field(180, gt=0)
    enable_schedule_when_node_metrics_expired: bool = True
    resource_weights: dict[str, int] = {"cpu": 1, "memory": 1}
    dominant_resource_weight: int = 0
    usage_thresholds: dict[str, Percentage] = {}
    filter_hysteresis: Percentage = 5
    prod_usage_thresholds: dict[str, int] = {}
    prod_usage_include_sys: bool = False
    score_according_prod_usage: bool = False
    estimator: Literal["defaultEstimator"] = "defaultEstimator"
    estimated_scaling_factors: dict[str, Percentage] = {"cpu": 85, "memory": 70}
    estimated_seconds_after_pod_scheduled: int | None = None
    estimated_seconds_after_initialized: int | None = None
    allow_customize_estimation: bool = False
    supported_resources: tuple[str, ...] = CPU_AND_MEMORY
    aggregated: AggregatedArgs | None = None
    report_interval_seconds: int = Field(60, gt=0)

    @property
    def aggregations(self) -> tuple[Aggregation, ...]:
        """The percentiles for Filter and Score."""
        aggregated = self.aggregated or AggregatedArgs()
        both = dict.fromkeys((aggregated.for_filter, aggregated.for_score))
        return tuple(one for one in both if one is not None)

    def problems(self, path: str, gates: FeatureGates) -> Iterator[str]:
        """Check resources, weights, and that the provider has the aggregations."""
        aggregated = self.aggregated or AggregatedArgs()
        for names, given in (
            (("usageThresholds",), self.usage_thresholds),
            (("estimatedScalingFactors",), self.estimated_scaling_factors),
            (("aggregated", "usageThresholds"), aggregated.usage_thresholds),
            (("resourceWeights",), self.resource_weights),
        ):
            for name in given:
                if name not in CPU_AND_MEMORY:
                    where = field_errors.child(path, *names)
                    yield field_errors.unsupported(where, name, CPU_AND_MEMORY)
        weights = (*self.resource_weights.values(), self.dominant_resource_weight)
        if min(weights) < 0 or not any(weights):
            where = field_errors.child(path, "resourceWeights")
            yield field_errors.invalid(where, weights, "weights must not be negative, nor all be 0")
        yield from self._provider_problems(path)

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
