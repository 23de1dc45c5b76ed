"""A small cluster with the real scheduler, in memory and in virtual time, for tests of plugins.

    def test_keeps_gpu_nodes_free():
        cluster = Harness(plugins=[GpuHeadroom], nodes=[make_node("n0"), make_node("n1")])
        outcome = cluster.schedule(make_pod("web", cpu="1"))
        assert outcome.node == "n1", outcome

Only the apiserver is replaced: queue, cache, profiles and binding cycles are those of ``proreus
run``. The harness has an event loop of its own, so that tests are plain functions.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from proreus.base.clock import Clock
from proreus.base.feature_gates import FeatureGates
from proreus.client.http.http_get import http_get
from proreus.engine.scheduler import Scheduler
from proreus.framework.handle import HttpGet, WaitingPod
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import Plugin
from proreus.framework.pod_info import PodInfo
from proreus.objects.kinds import BY_KIND, PODS
from proreus.objects.meta import Resource
from proreus.objects.node import Node
from proreus.objects.pod import Pod
from proreus.offline.api import InMemoryApi, JsonObject
from proreus.offline.cluster import OfflineCluster, OfflineOptions
from proreus.offline.virtual_time import VirtualTimeLoop
from proreus.testing.blocking_calls import WatchedCall
from proreus.testing.builders import AnyPod, as_node, key_of_pod
from proreus.testing.harness_driver import HarnessDriver, QueueName
from proreus.testing.outcome import Event, Outcome
from proreus.testing.profiles import Configuration, load_with, profile_with, registry_with

P = TypeVar("P", bound=Plugin)
T = TypeVar("T")


@dataclass(frozen=True)
class HarnessOptions:
    """Options of a harness.

    ``gates``: feature gates, as ``Name=true``. ``seed``: of the random choice among nodes with
    equal scores. ``raise_errors``: raise in the test what a plugin raises, its handlers and its
    background work included; otherwise the error is handled as by the scheduler, which logs it.
    ``http_get``: a function that answers for ``Handle.http_get``.
    """

    gates: Sequence[str] = ()
    seed: int = 0
    raise_errors: bool = True
    http_get: HttpGet = http_get


class Harness:
    """A cluster with a scheduler, for tests of plugins.

    ``plugins``: classes, which are added to the default profile after its own plugins; with
    ``alone`` its own plugins are disabled. ``args`` and ``weights``: by plugin name. Instead of
    these, ``config`` may be a whole KubeSchedulerConfiguration: data, YAML text or a ``Path``.

    ``nodes``: from ``make_node``, as in YAML, by name, or how many. ``objects``: pods (from
    ``make_pod`` or as in YAML) and other objects (as in YAML) that exist at the start.

    Raises ``ConfigError`` for a configuration or arguments that are invalid, or a configuration
    that does not enable the plugins; ``TypeError`` for a class that is not a valid plugin;
    ``RuntimeError`` inside a running event loop.
    """

    def __init__(
        self,
        plugins: Sequence[type[Plugin]] = (),
        nodes: int | Iterable[Node | JsonObject | str] = (),
        objects: Iterable[PodInfo | Pod | JsonObject] = (),
        *,
        config: Configuration | None = None,
        args: Mapping[str, Mapping[str, Any]] | None = None,
        weights: Mapping[str, int] | None = None,
        alone: bool = False,
        options: HarnessOptions = HarnessOptions(),
    ) -> None:
        _require_no_running_loop()
        if config is not None and (args or weights or alone):
            raise TypeError("config replaces args, weights and alone: give one or the other")
        registry, feature_gates = registry_with(plugins), FeatureGates.from_list(options.gates)
        if config is None:
            config = profile_with(plugins, args or {}, weights or {}, alone)
        loaded = load_with(config, plugins, registry, feature_gates)
        loop, self._runner = _event_loop()
        self._close = weakref.finalize(self, _close, self._runner)

        async def build() -> OfflineCluster:
            return OfflineCluster(
                loaded,
                registry,
                feature_gates,
                OfflineOptions(options.seed, http_get=options.http_get, current_call=WatchedCall()),
            )

        self._cluster = self._runner.run(build())
        self.scheduler: Scheduler = self._cluster.scheduler
        self.api: InMemoryApi = self._cluster.api
        """The objects of the cluster, in place of an apiserver; ``handle.api`` of plugins is this.

        ``store(resource)`` has the objects of a kind by key; methods may be replaced by failing
        ones, with pytest's ``monkeypatch`` for instance.
        """
        self._driver = HarnessDriver(self._cluster, loop, options.raise_errors)
        if isinstance(nodes, int):
            nodes = [f"node-{number}" for number in range(nodes)]
        self.add(*map(as_node, nodes), *objects)
        self._do(self._driver.begin())

    def __enter__(self) -> Harness:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Cancel all tasks and close the event loop; the garbage collector does it otherwise."""
        self._close()

    # ---- objects -------------------------------------------------------------------------------

    def add(self, *objects: Node | PodInfo | Pod | JsonObject) -> None:
        """Create or replace objects; the queue and plugins get the events of a watch.

        Objects as in YAML get the namespace "default"; raises ``LookupError`` for an unknown kind.
        """
        self._do(self._driver.add(objects))

    def put(self, resource: Resource[T], obj: T) -> None:
        """Create or replace a typed object of any resource, such as a plugin's own."""

        async def put() -> None:
            self.api.put(resource, obj)

        self._do(put())

    def patch(self, kind: str, name: str, patch: JsonObject, namespace: str = "default") -> None:
        """Apply a JSON merge patch to an object; raises ``LookupError`` if it does not exist."""

        async def merge() -> None:
            self.api.merge(kind, self._key(kind, name, namespace), patch)

        self._do(merge())

    def remove(self, kind: str, name: str, namespace: str = "default") -> None:
        """Delete an object; raises ``LookupError`` if it does not exist."""

        async def remove() -> None:
            self.api.remove(kind, self._key(kind, name, namespace))

        self._do(remove())

    @property
    def nodes(self) -> NodeTable:
        """The scheduler's table of nodes, assumed pods included."""
        return self.scheduler.cache.table

    def node(self, name: str) -> NodeInfo:
        """Return a node with its pods, as plugins get it; raises ``LookupError``."""
        if name not in self.nodes:
            raise LookupError(
                f"no node {name!r}; there are: {', '.join(self.nodes.rows) or 'none'}"
            )
        return self.nodes[self.nodes.rows[name]]

    def pod(self, pod: AnyPod) -> Pod:
        """Return a pod as the apiserver has it now; raises ``LookupError``."""
        key, pods = key_of_pod(pod), self.api.store(PODS)
        if key not in pods:
            raise LookupError(f"no pod {key!r}; there are: {', '.join(pods) or 'none'}")
        return pods[key]

    def plugin(self, plugin: type[P], profile: str = "") -> P:
        """Return a profile's instance of a plugin; raises ``LookupError`` if it runs none.

        ``profile``: its schedulerName; "" for the first profile.
        """
        if not isinstance(plugin, type):
            raise TypeError(f"plugin takes the class of a plugin, not {plugin!r}")
        profiles = self.scheduler.profiles
        chosen = profiles[profile] if profile else next(iter(profiles.values()))
        for made in chosen.plugins:
            if isinstance(made, plugin):
                return made
        raise LookupError(f"profile {chosen.name} does not run {plugin.__name__}")

    # ---- scheduling and time -------------------------------------------------------------------

    def schedule(self, pod: AnyPod) -> Outcome:
        """Add a pod, unless it exists, and schedule it once; return the outcome.

        The binding cycle runs too, as far as it gets without time passing. Pods ahead of it in the
        queue are scheduled first. Raises ``LookupError``, with the reason, if the queue would not
        pop the pod now; ``ValueError`` if another pod has its name; and what plugins raise (see
        ``HarnessOptions.raise_errors``).
        """
        return self._do(self._driver.schedule(pod))

    def schedule_all(self) -> list[Outcome]:
        """Schedule pods until the active queue is empty; return their outcomes, in order."""
        return self._do(self._driver.schedule_all())

    def advance(self, seconds: float) -> None:
        """Advance the clock by ``seconds``: back-offs, Permit's timeouts, timers of plugins.

        No pod is scheduled by it; ``schedule_all`` does that.
        """
        self._do(self._driver.advance(seconds))

    def run(self, work: Coroutine[Any, Any, T], seconds: float = 5.0) -> T:
        """Run a coroutine in the harness's event loop, until all tasks are idle; return its result.

        Raises ``TimeoutError`` if it does not end within ``seconds`` of real time. The virtual
        clock stands still meanwhile: a coroutine that waits for it must be started by
        ``handle.spawn`` and be followed by ``advance``.
        """

        async def bounded() -> T:
            task = asyncio.ensure_future(work)
            try:
                await self._driver.wait_until(task.done, seconds)
            finally:
                task.cancel()
            return task.result()

        return self._runner.run(bounded())

    def stop_background(self) -> None:
        """Cancel the background work of plugins, as at the end of a process, and wait for it."""
        self._do(self.scheduler.close())

    def wait_until(self, condition: Callable[[], object], seconds: float = 5.0) -> None:
        """Wait until ``condition()`` is true, at most ``seconds`` of real time.

        For plugins that do real I/O; the virtual clock stands still meanwhile. Raises
        ``TimeoutError``.
        """
        self._runner.run(self._driver.wait_until(condition, seconds))

    # ---- results -------------------------------------------------------------------------------

    def outcome(self, pod: AnyPod) -> Outcome:
        """Return the result of a pod's latest attempt, and the pod's present state.

        Raises ``LookupError`` for a pod that was never here.
        """
        return self._driver.outcome(self._driver.known_key(pod))

    def queue_of(self, pod: AnyPod) -> QueueName:
        """Return the queue that a pod is in: active, backoff, unschedulable, gated, or "".

        Raises ``LookupError`` for a pod that was never here.
        """
        return self._driver.queue_of(self._driver.known_key(pod))

    def waiting(self, pod: AnyPod) -> WaitingPod:
        """Return a pod that waits on Permit, to ``allow`` or ``reject`` it.

        Raises ``LookupError`` if it does not wait.
        """
        found = self.scheduler.waiting_pods.get(self.pod(pod).metadata.uid)
        if found is None:
            raise LookupError(f"{key_of_pod(pod)} does not wait on Permit: {self.outcome(pod)}")
        return found

    def events(self, pod: AnyPod | None = None) -> list[Event]:
        """Return the Events about a pod, or about all pods, oldest first.

        Raises ``LookupError`` for a pod that was never here.
        """
        key = None if pod is None else self._driver.known_key(pod)
        return [Event(*one) for one in self._cluster.events.events if key in (None, one[0])]

    def metric(self, name: str, *labels: str) -> float:
        """Return the value of a counter or gauge with these label values, in their order.

        Raises ``LookupError`` for a metric, or values of labels, that there are not.
        """
        for family in self.scheduler.metrics.families():
            if family.description.name == name:
                series = dict(family.values())
                if labels in series:
                    return series[labels]
                raise LookupError(f"{name} has {sorted(series) or 'no series'}, not {labels}")
        raise LookupError(f"no metric {name!r}")

    @property
    def clock(self) -> Clock:
        """The virtual clock; ``asyncio``'s timers follow it too."""
        return self._cluster.clock

    # ---- the event loop ------------------------------------------------------------------------

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine, then let all tasks become idle, and return its result.

        Only one coroutine at a time may wait for idleness: two would keep each other busy.
        """
        if not self._close.alive:
            work.close()
            raise RuntimeError("this Harness is closed")

        async def done() -> T:
            result = await work
            await self._driver.settle()
            return result

        return self._runner.run(done())

    def _key(self, kind: str, name: str, namespace: str) -> str:
        resources = self.api.resources_of(kind)
        if not resources:
            known = ", ".join(sorted(BY_KIND))
            raise LookupError(f"kind {kind!r} is not known; known are: {known}")
        key = f"{namespace}/{name}" if resources[0].namespaced else name
        if not any(key in self.api.store(resource) for resource in resources):
            raise LookupError(f"there is no {kind} {key}")
        return key


def _require_no_running_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(
        "a Harness has an event loop of its own: use it in a plain `def test_…`, and run what "
        "must be awaited with harness.run(…)"
    )


def _event_loop() -> tuple[VirtualTimeLoop, asyncio.Runner]:
    loop = VirtualTimeLoop()
    return loop, asyncio.Runner(loop_factory=lambda: loop)


def _close(runner: asyncio.Runner) -> None:
    """Cancel all tasks and close the loop; a finalizer, so it must not refer to the harness.

    The garbage collector may call it at any moment, even while another harness's loop is running:
    hence the detour around asyncio's check for a running loop.
    """
    outer = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        runner.close()
    finally:
        asyncio._set_running_loop(outer)
