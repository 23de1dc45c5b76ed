"""Metrics declared in the body of a class, each under its name.

    class Metrics(MetricsRegistry):
        attempts_total = Declarations("scheduler_", "STABLE").counter("Attempts.", "result")

``describe`` gives an instance its own ``scheduler_attempts_total`` as the attribute
``attempts_total``: a ``Family``, or for a metric without labels its one child, as the type checker
knows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar, overload

from proreus.base.metrics.families import (
    Child,
    Counter,
    Family,
    Gauge,
    Histogram,
    Label,
    MetricsRegistry,
    Stability,
)

M = TypeVar("M")


class Declared(Generic[M]):
    """A metric of a class; ``make`` describes it to a registry under the name of its attribute."""

    def __init__(self, part: str, make: Callable[[MetricsRegistry, str], M]) -> None:
        self.part = part
        self.make = make

    @overload
    def __get__(self, instance: None, owner: type) -> Declared[M]: ...
    @overload
    def __get__(self, instance: MetricsRegistry, owner: type) -> M: ...
    def __get__(self, instance: MetricsRegistry | None, owner: type) -> Declared[M] | M:
        """Return the declaration of a class; an instance has its own attribute, once described."""
        if instance is None:
            return self
        raise AttributeError("the metric is not described yet")


def describe(
    registry: MetricsRegistry, part: str = "", into: MetricsRegistry | None = None
) -> None:
    """Describe the metrics of one part that the classes of a registry declare.

    ``into``: the registry that exposes them, if it is another one.
    """
    for cls in type(registry).__mro__:
        for name, declared in vars(cls).items():
            if isinstance(declared, Declared) and declared.part == part:
                setattr(registry, name, declared.make(into or registry, name))


class Declarations:
    """Declares metrics of one stability, whose names are their attributes' with a ``prefix``.

    ``part``: the metrics that are described together, apart from those that all instances have.
    """

    def __init__(self, prefix: str, stability: Stability, part: str = "") -> None:
        self._prefix = prefix
        self._stability = stability
        self._part = part

    @overload
    def counter(self, help_text: str, /) -> Declared[Counter]: ...
    @overload
    def counter(
        self, help_text: str, label: Label, /, *labels: Label
    ) -> Declared[Family[Counter]]: ...
    def counter(
        self, help_text: str, /, *labels: Label
    ) -> Declared[Counter] | Declared[Family[Counter]]:
        """Declare a counter."""

        def make(registry: MetricsRegistry, name: str) -> Family[Counter]:
            return registry.counter(self._prefix + name, self._stability, help_text, *labels)

        return self._declared(make, labels)

    @overload
    def gauge(self, help_text: str, /) -> Declared[Gauge]: ...
    @overload
    def gauge(self, help_text: str, label: Label, /, *labels: Label) -> Declared[Family[Gauge]]: ...
    def gauge(self, help_text: str, /, *labels: Label) -> Declared[Gauge] | Declared[Family[Gauge]]:
        """Declare a gauge."""
        return self._declared(self._gauge(help_text, labels), labels)

    def computed(self, help_text: str, *labels: Label) -> Declared[Family[Gauge]]:
        """Declare a gauge that is computed at each scrape (``Family.set_function``)."""
        return Declared(self._part, self._gauge(help_text, labels))

    @overload
    def histogram(self, help_text: str, buckets: tuple[float, ...], /) -> Declared[Histogram]: ...
    @overload
    def histogram(
        self, help_text: str, buckets: tuple[float, ...], label: Label, /, *labels: Label
    ) -> Declared[Family[Histogram]]: ...
    def histogram(
        self, help_text: str, buckets: tuple[float, ...], /, *labels: Label
    ) -> Declared[Histogram] | Declared[Family[Histogram]]:
        """Declare a histogram with these upper bounds (+Inf is implied)."""

        def make(registry: MetricsRegistry, name: str) -> Family[Histogram]:
            full_name = self._prefix + name
            return registry.histogram(full_name, self._stability, help_text, buckets, *labels)

        return self._declared(make, labels)

    def _gauge(
        self, help_text: str, labels: tuple[Label, ...]
    ) -> Callable[[MetricsRegistry, str], Family[Gauge]]:
        return lambda registry, name: registry.gauge(
            self._prefix + name, self._stability, help_text, *labels
        )

    def _declared(
        self, make: Callable[[MetricsRegistry, str], Family[Child]], labels: tuple[Label, ...]
    ) -> Declared[Child] | Declared[Family[Child]]:
        if labels:
            return Declared(self._part, make)
        return Declared(self._part, lambda registry, name: make(registry, name).labels())
