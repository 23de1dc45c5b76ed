"""What a scheduler is given from outside: an apiserver, a clock, metrics, chance.

A process, ``proreus evaluate`` and tests differ only in the ``Environment`` that they assemble a
scheduler with.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Protocol, TypeVar

from proreus.clock import Clock
from proreus.feature_gates import FeatureGates
from proreus.framework.attempt_budget import Stopwatch
from proreus.framework.handle import ApiWriter, EventRecorder
from proreus.metrics import SchedulerMetrics
from proreus.objects.meta import ApiObject, Resource
from proreus.runtime.plugin_health import HealthContext
from proreus.scheduler.extender_chain import Pausable

T = TypeVar("T", bound=ApiObject)


class Stores(Protocol):
    """Watched objects: informers in a process, plain dicts offline."""

    def store(self, resource: Resource[T]) -> Mapping[str, T]:
        """Return the objects of a resource by key; the first call begins to watch it."""
        ...

    def on_change(
        self, resource: Resource[T], handler: Callable[[T | None, T | None], None]
    ) -> Callable[[], None]:
        """Call ``handler(old, new)`` on each change of a resource; returns what ends that."""
        ...

    def add_handler(self, resource: Resource[Any], handler: Any) -> None:
        """Tell an informer handler (``on_add``, ``on_update``, ``on_delete``) of each change."""
        ...


@dataclass(frozen=True)
class Environment:
    """The world around a scheduler: a real cluster, or one in memory.

    ``informers``: what is to stand still while a scheduling cycle waits for somebody; None where
    nothing moves by itself. ``use_extenders``: whether those that are configured are asked at all.
    ``health_context``: who keeps watch over plugins; None: the usual rules, and nobody is told.
    ``stopwatch``: measures what an attempt computes.
    """

    api: ApiWriter
    event_recorder: EventRecorder
    stores: Stores
    clock: Clock
    rng: random.Random
    metrics: SchedulerMetrics
    feature_gates: FeatureGates
    spawn: Callable[[Coroutine[Any, Any, None]], Awaitable[None]]
    informers: Pausable | None = None
    use_extenders: bool = True
    health_context: HealthContext | None = None
    stopwatch: Stopwatch = perf_counter

    def paused(self) -> AbstractContextManager[None]:
        """Let nothing change for the length of a ``with`` block."""
        return nullcontext() if self.informers is None else self.informers.paused()
