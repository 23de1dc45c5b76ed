"""Counters, gauges and histograms as plain Python objects.

Those of prometheus-client take locks and several calls an update, of which a scheduler makes about
twenty a pod. These are a slot and an addition, without a lock: only the scheduler's thread
touches them (docs/adr/0009-metrics-families.md). Callers look a child up once and keep it:

    scheduled = metrics.schedule_attempts_total.labels("scheduled", "default-scheduler")
    scheduled.inc()

Text formats belong to ``exposition``, the list of metrics to ``scheduler_metrics``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, Literal, TypeVar, cast

from msgspec import Struct

from proreus.base.kubernetes_version import Change

Stability = Literal["STABLE", "BETA", "ALPHA"]

UNEXPECTED = "unexpected"
"""The label value that replaces values which ``allow_labels`` does not list."""


class Description(Struct, frozen=True):
    """Name, type, labels and help text of a metric.

    ``buckets`` are upper bounds in rising order without +Inf, empty for other than histograms.
    ``deprecated_version``: the version that deprecated it, "" if none did.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    stability: Stability
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    deprecated_version: str = ""


class NewLabel(Struct, frozen=True):
    """A label, ``name``, that versions ``since`` a change have; ``before``: its name in others.

    Callers give its value in any case. A version without it ("") drops the value.
    """

    name: str
    since: Change
    before: str = ""


Label = str | NewLabel


def exponential(start: float, factor: float, count: int) -> tuple[float, ...]:
    """Return ``count`` bounds from ``start`` on, multiplied one by one.

    A power would round differently from kube-scheduler's bounds (9.999999999999999e-06).
    """
    bounds = [start]
    while len(bounds) < count:
        bounds.append(bounds[-1] * factor)
    return tuple(bounds)


def quantile(share: float, bounds: Sequence[float], counts: Sequence[float]) -> float | None:
    """Return a quantile of a histogram, interpolated as by Prometheus; None without observations.

    ``counts``: of each bucket, that of +Inf last; a quantile in it is the highest bound.
    """
    total = sum(counts)
    if not total:
        return None
    rank, below, lower = share * total, 0.0, 0.0
    for bound, count in zip(bounds, counts, strict=False):
        if count and below + count >= rank:
            return lower + (bound - lower) * (rank - below) / count
        below, lower = below + count, bound
    return bounds[-1]


class Counter:
    """A number that only grows. The hot path may add to ``value`` directly and save a call."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, amount: float = 1.0) -> None:
        """Count ``amount`` more."""
        self.value += amount

    def reset(self) -> None:
        """Start again at 0."""
        self.value = 0.0


class Gauge:
    """A number that goes up and down: ``value``."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def set(self, value: float) -> None:
        """Set the value."""
        self.value = value

    def inc(self, amount: float = 1.0) -> None:
        """Increase by ``amount``."""
        self.value += amount

    def dec(self, amount: float = 1.0) -> None:
        """Decrease by ``amount``."""
        self.value -= amount

    def reset(self) -> None:
        """Do nothing: a gauge shows a state, which a reset of metrics does not change."""


class Histogram:
    """Counts of observations by size; ``counts[i]`` belongs to ``bounds[i]``, the last to +Inf.

    ``sum``: of all observations.
    """

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count one observation (seconds, unless the metric's name says otherwise)."""
        # a bound belongs to its own bucket: le means "less or equal"
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def observe_times(self, value: float, times: int) -> None:
        """Count ``times`` observations of the same value."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    @property
    def count(self) -> int:
        """The number of observations."""
        return sum(self.counts)

    def reset(self) -> None:
        """Forget every observation."""
        # in place, for callers keep the child
        self.counts[:] = [0] * len(self.counts)
        self.sum = 0.0


Child = TypeVar("Child", Counter, Gauge, Histogram)


class Family(Generic[Child]):
    """All series of one metric, by label values.

    A family without labels has exactly one child, present from the start. With labels, children
    appear with their first use; calling ``labels`` early exposes a series as 0.
    """

    __slots__ = (
        *("_allowed", "_by_values", "_compute", "_make", "_on_unexpected", "_shown"),
        "description",
    )

    def __init__(
        self,
        description: Description,
        make: Callable[[], Child],
        allowed: Mapping[str, frozenset[str]],
        on_unexpected: Callable[[], None],
        shown: Sequence[bool] | None = None,
    ) -> None:
        """``shown``: which of the values that callers give are of labels in the description.

        None: all of them. See ``NewLabel``.
        """
        self.description = description
        self._shown = shown
        self._make: Callable[[], Child] = make
        self._by_values: dict[tuple[str, ...], Child] = {}
        self._compute: Callable[[], Mapping[tuple[str, ...], float]] | None = None
        self._allowed = tuple(allowed.get(label) for label in description.labels)
        self._on_unexpected = on_unexpected

    def labels(self, *values: str) -> Child:
        """Return the child for label values, in the description's order."""
        if self._shown is not None:
            given = zip(values, self._shown, strict=True)
            values = tuple(value for value, shown in given if shown)
        try:
            return self._by_values[values]
        except KeyError:
            return self._add(values)

    def _add(self, values: tuple[str, ...]) -> Child:
        if len(values) != len(self.description.labels):
            raise ValueError(
                f"{self.description.name} has the labels {self.description.labels}, got {values}"
            )
        shown = tuple(
            UNEXPECTED if allowed is not None and value not in allowed else value
            for value, allowed in zip(values, self._allowed, strict=True)
        )
        if shown != values:
            # not remembered under the true values: the point of a list is to bound memory
            self._on_unexpected()
            if shown in self._by_values:
                return self._by_values[shown]
        child = self._by_values[shown] = self._make()
        return child

    def expose(self) -> None:
        """Expose a family without labels, as 0 until it is counted in."""
        self._add(())

    def remove(self, *values: str) -> None:
        """Expose a series no longer; nothing happens if it is not there."""
        self._by_values.pop(values, None)

    def set_function(self, compute: Callable[[], Mapping[tuple[str, ...], float]]) -> None:
        """Compute all series at each scrape instead of keeping them up to date.

        ``compute`` returns label values (``()`` for no labels) -> value, and must not block.
        """
        if self.description.kind == "histogram":
            raise ValueError(f"{self.description.name} is a histogram: it cannot be computed")
        self._compute = compute

    def values(self) -> Iterator[tuple[tuple[str, ...], float]]:
        """Yield label values and value of each series of a counter or gauge, sorted."""
        if self._compute is not None:
            yield from sorted(self._compute().items())
            return
        for labels, child in sorted(self._by_values.items()):
            if not isinstance(child, Histogram):
                yield labels, child.value

    def histograms(self) -> Iterator[tuple[tuple[str, ...], Histogram]]:
        """Yield label values and child of each series of a histogram, sorted."""
        for labels, child in sorted(self._by_values.items()):
            if isinstance(child, Histogram):
                yield labels, child

    def reset(self) -> None:
        """Set counters and histograms back to 0; the children that callers keep stay valid."""
        for child in self._by_values.values():
            child.reset()


AnyFamily = Family[Counter] | Family[Gauge] | Family[Histogram]


class MetricsRegistry:
    """A set of families with distinct names.

    ``disabled`` metrics are counted and not exposed. ``allow_labels`` maps ``metric,label`` to the
    values that this label may have; any other becomes ``unexpected``.
    """

    def __init__(
        self,
        disabled: Iterable[str] = (),
        allow_labels: Mapping[str, Iterable[str]] | None = None,
    ) -> None:
        self.disabled = frozenset(disabled)
        self.unexpected_categorizations = Counter()
        self._allow_labels = {
            key: frozenset(values) for key, values in (allow_labels or {}).items()
        }
        self._families: dict[str, AnyFamily] = {}

    def has(self, change: Change) -> bool:
        """Return whether the version whose metrics these are has a change."""
        return True

    def counter(
        self, name: str, stability: Stability, help_text: str, *labels: Label
    ) -> Family[Counter]:
        """Describe a counter."""
        description = Description(name, "counter", stability, help_text, self._names(labels))
        return self._register(self._family(description, Counter, labels))

    def gauge(
        self, name: str, stability: Stability, help_text: str, *labels: Label
    ) -> Family[Gauge]:
        """Describe a gauge."""
        description = Description(name, "gauge", stability, help_text, self._names(labels))
        return self._register(self._family(description, Gauge, labels))

    def histogram(
        self,
        name: str,
        stability: Stability,
        help_text: str,
        buckets: tuple[float, ...],
        *labels: Label,
        deprecated_version: str = "",
    ) -> Family[Histogram]:
        """Describe a histogram with these upper bounds (+Inf is implied)."""
        names = self._names(labels)
        description = Description(
            name, "histogram", stability, help_text, names, buckets, deprecated_version
        )
        return self._register(self._family(description, lambda: Histogram(buckets), labels))

    def families(self) -> list[AnyFamily]:
        """Return the families that are exposed, by name."""
        return [self._families[name] for name in sorted(self._families.keys() - self.disabled)]

    def reset(self) -> None:
        """Set every counter and histogram back to 0 (``DELETE /metrics``)."""
        for family in self._families.values():
            family.reset()

    def _name(self, label: Label) -> str:
        """Return the name of a label in the version; "" if it does not have it."""
        if isinstance(label, str):
            return label
        return label.name if self.has(label.since) else label.before

    def _names(self, labels: Sequence[Label]) -> tuple[str, ...]:
        return tuple(filter(None, map(self._name, labels)))

    def _family(
        self, description: Description, make: Callable[[], Child], labels: Sequence[Label]
    ) -> Family[Child]:
        allowed, on_unexpected = self._enforcement(description)
        shown = [bool(self._name(label)) for label in labels]
        return Family(description, make, allowed, on_unexpected, None if all(shown) else shown)

    def _enforcement(
        self, description: Description
    ) -> tuple[dict[str, frozenset[str]], Callable[[], None]]:
        allowed = {
            label: values
            for label in description.labels
            if (values := self._allow_labels.get(f"{description.name},{label}")) is not None
        }
        return allowed, self.unexpected_categorizations.inc

    def _register(self, family: Family[Child]) -> Family[Child]:
        name = family.description.name
        known = self._families.get(name)
        if known is not None:
            # A plugin of two profiles, or one that was loaded anew, goes on counting in its family.
            if known.description != family.description:
                raise ValueError(f"metric {name} is described twice, and differently")
            return cast("Family[Child]", known)
        self._families[name] = family
        if not family.description.labels:
            family.expose()
        return family
