"""From families to the bytes of a scrape, written by prometheus-client.

The formats differ in one spelling that scrapers compare: a bound of 1 is ``le="1"`` in the
Prometheus text format, as Go prints it, and ``le="1.0"`` in OpenMetrics.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

from proreus.base.metrics.families import AnyFamily, MetricsRegistry

# prometheus-client is imported at the first scrape.
if TYPE_CHECKING:
    from prometheus_client import Metric

Source = Callable[[], "Iterable[Metric]"]
"""Further metrics of a scrape, e.g. the collect() of prometheus-client's ProcessCollector."""


def expose(
    registry: MetricsRegistry, accept: str = "", sources: Iterable[Source] = ()
) -> tuple[bytes, str]:
    """Return body and content type of a scrape, in the format that ``accept`` asks for."""
    from prometheus_client.exposition import choose_encoder

    encode, content_type = choose_encoder(accept)
    openmetrics = content_type.startswith("application/openmetrics-text")
    body = encode(cast(Any, _Scrape(registry, sources, openmetrics)))
    if not openmetrics:
        body = _unsuffixed(registry, body)
    return body, content_type


def bound_text(bound: float, *, openmetrics: bool = False) -> str:
    """Return ``bound`` as Go's shortest form: ``0.0001``, ``1e-05``, ``2``, ``2.592e+06``."""
    if math.isinf(bound):
        return "+Inf"
    text = repr(bound)
    if not bound or 1e-4 <= abs(bound) < 1e6:
        return text if openmetrics else text.removesuffix(".0")
    mantissa, _, exponent = f"{Decimal(text).normalize():e}".partition("e")
    return f"{mantissa}e{int(exponent):+03d}"


class _Scrape:
    """One pass over a registry, with the method ``collect`` of prometheus-client's Collector."""

    def __init__(
        self, registry: MetricsRegistry, sources: Iterable[Source], openmetrics: bool
    ) -> None:
        self._registry = registry
        self._sources = sources
        self._openmetrics = openmetrics

    def collect(self) -> Iterator[Metric]:
        for family in self._registry.families():
            metric = _metric(family, self._openmetrics)
            # As in kube-scheduler, a labelled metric does not appear before its first series.
            if metric.samples:
                yield metric
        for source in self._sources:
            for metric in source():
                if metric.name not in self._registry.disabled:
                    yield metric


def _metric(family: AnyFamily, openmetrics: bool) -> Metric:
    from prometheus_client import Metric

    description = family.description
    text = f"[{description.stability}] {description.help}"
    if description.deprecated_version:
        since = f"(Deprecated since {description.deprecated_version})"
        text = f"[{description.stability}] {since} {description.help}"
    metric = Metric(description.name.removesuffix("_total"), text, description.kind)
    if description.kind == "histogram":
        _add_buckets(metric, family, openmetrics)
        return metric
    if description.kind == "gauge":
        metric.name = description.name
    suffixed = description.name if not openmetrics else _sample_name(metric)
    for values, value in family.values():
        metric.add_sample(suffixed, dict(zip(description.labels, values, strict=True)), value)
    return metric


def _sample_name(metric: Metric) -> str:
    return metric.name + "_total" if metric.type == "counter" else metric.name


def _add_buckets(metric: Metric, family: AnyFamily, openmetrics: bool) -> None:
    description = family.description
    bounds = (*description.buckets, math.inf)
    texts = [bound_text(bound, openmetrics=openmetrics) for bound in bounds]
    for values, child in family.histograms():
        labels = dict(zip(description.labels, values, strict=True))
        total = 0
        for text, count in zip(texts, child.counts, strict=True):
            total += count
            metric.add_sample(f"{description.name}_bucket", {**labels, "le": text}, total)
        metric.add_sample(f"{description.name}_sum", labels, child.sum)
        metric.add_sample(f"{description.name}_count", labels, total)


def _unsuffixed(registry: MetricsRegistry, body: bytes) -> bytes:
    """Remove the _total that prometheus-client appends to counters that have none upstream."""
    for family in registry.families():
        name = family.description.name
        if family.description.kind == "counter" and not name.endswith("_total"):
            for word in ("HELP", "TYPE"):
                wrong, right = f"# {word} {name}_total ", f"# {word} {name} "
                body = body.replace(wrong.encode(), right.encode())
    return body
