"""A scheduler's surroundings: an apiserver, a clock, metrics, a source of chance.

A process, ``proreus evaluate`` and tests differ only in the ``Environment`` that they assemble a
scheduler with.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractContextManager, nullcontext
from time import perf_counter
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from proreus.base.clock import Clock
from proreus.base.feature_gates import FeatureGates
from proreus.base.metrics import SchedulerMetrics
from proreus.client.http.http_get import http_get
from proreus.engine.extenders.extender import TransportFactory, new_transport
from proreus.engine.extenders.extender_chain import Pausable
from proreus.engine.guards.avoided_nodes import NEVER_AVOID, AvoidanceRules
from proreus.engine.runtime.plugin_health import HealthContext
from proreus.framework.attempt_budget import CpuTime, Stopwatch
from proreus.framework.handle import ApiWriter, EventRecorder, HttpGet
from proreus.objects.meta import ApiObject, Resource

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
        """Call an informer handler (``on_add``, ``on_update``, ``on_delete``) on each change."""
        ...


class Environment(Struct, frozen=True):
    """Everything a scheduler depends on: a real cluster, or one in memory.

    ``informers``: to pause while a scheduling cycle awaits something; None where no events arrive
    by themselves. ``use_extenders``: False disables the configured ones. ``extender_transport``:
    makes the connections to one. ``polls_only``: whether waits in PreBind look at their intervals
    only, as kube-scheduler's do, instead of at each change too. ``health_context``: rules
    and reports about out-of-tree plugins; None: the default rules, without Events. ``stopwatch``:
    the clock of an attempt's computing time, in seconds; ``cpu_time``: tells it from time in which
    the process was stopped. ``avoidance_rules``: when pods avoid nodes
    whose kubelets reject them. ``shares_nodes``: other schedulers may bind pods to the same nodes,
    and nodes that are over-committed by that are noticed; ``delete_overcommitting_pods``: our
    unstarted pods are deleted from them. ``leads``: whether this instance schedules, or is a
    standby. ``http_get``: what plugins read from other servers with.
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
    extender_transport: TransportFactory = new_transport
    polls_only: bool = False
    health_context: HealthContext | None = None
    stopwatch: Stopwatch = perf_counter
    cpu_time: CpuTime | None = None
    avoidance_rules: AvoidanceRules = NEVER_AVOID
    shares_nodes: bool = False
    delete_overcommitting_pods: bool = False
    leads: Callable[[], bool] = lambda: True
    http_get: HttpGet = http_get

    def paused(self) -> AbstractContextManager[None]:
        """Hold watch events back for the length of a ``with`` block."""
        return nullcontext() if self.informers is None else self.informers.paused()
