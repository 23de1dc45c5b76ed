"""A small cluster with the real scheduler, in memory and in virtual time, for tests of plugins.

    def test_keeps_gpu_nodes_free():
        cluster = Harness(plugins=[GpuHeadroom], nodes=[make_node("n0"), make_node("n1")])
        outcome = cluster.schedule(make_pod("web", cpu="1"))
        assert outcome.node == "n1", outcome

Nothing is imitated but the apiserver: queue, cache, profiles, binding cycles are those of ``proreus
run``. The harness has an event loop of its own, so that tests are plain functions.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from proreus.clock import Clock
from proreus.feature_gates import FeatureGates
from proreus.framework.handle import WaitingPod
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import Plugin
from proreus.framework.pod_info import PodInfo
from proreus.objects.kinds import BY_KIND, PODS
from proreus.objects.meta import Resource
from proreus.objects.node import Node
from proreus.objects.pod import Pod
from proreus.offline.api import InMemoryApi, JsonObject
from proreus.offline.cluster import OfflineCluster
from proreus.scheduler.scheduler import Scheduler
from proreus.testing.harness_driver import HarnessDriver
from proreus.testing.inspector import QueueName
from proreus.testing.manifests import AnyPod, as_node, key_of_pod
from proreus.testing.outcome import Event, Outcome
from proreus.testing.profiles import Configuration, load_with, profile_with, registry_with
from proreus.testing.virtual_time import VirtualTimeLoop

P = TypeVar("P", bound=Plugin)
T = TypeVar("T")


class Harness:
    """A cluster to test plugins on.

    ``plugins``: classes. They are added to the default profile, after its own plugins; ``alone``
    leaves those out. ``args`` and ``weights`` are by plugin name. Instead of these, ``config`` may
    be a whole KubeSchedulerConfiguration: data, YAML text or a ``Path``.

    ``nodes``: from ``make_node``, as in YAML, names, or a number of nodes. ``pods``: those that are
    there at the start. ``objects``: others, as in YAML. ``gates``: ``Name=true``. ``seed``: for the
    choice among equally good nodes.

    ``raise_errors``: what a plugin raises is raised here too, where a scheduler would log it and
    try the pod again later.
    """

    def __init__(
        self,
        plugins: Sequence[type[Plugin]] = (),
        nodes: int | Iterable[Node | JsonObject | str] = (),
        pods: Iterable[PodInfo | Pod | JsonObject] = (),
        *,
        config: Configuration | None = None,
        args: Mapping[str, Mapping[str, Any]] | None = None,
        weights: Mapping[str, int] | None = None,
        alone: bool = False,
        objects: Iterable[JsonObject] = (),
        gates: Sequence[str] = (),
        seed: int = 0,
        raise_errors: bool = True,
    ) -> None:
        _require_no_running_loop()
        if config is not None and (args or weights or alone):
            raise TypeError("config says what args, weights and alone would: give one or the other")
        registry, feature_gates = registry_with(plugins), FeatureGates.from_list(gates)
        if config is None:
            config = profile_with(plugins, args or {}, weights or {}, alone)
        loaded = load_with(config, plugins, registry, feature_gates)
        loop, self._runner = _event_loop()
        self._close = weakref.finalize(self, _close, self._runner)

        async def build() -> OfflineCluster:
            return OfflineCluster(loaded, registry, feature_gates, seed=seed)

        self._cluster = self._runner.run(build())
        self.scheduler: Scheduler = self._cluster.scheduler
        self.api: InMemoryApi = self._cluster.api
        """What an apiserver would have; also what plugins write with."""
        self._driver = HarnessDriver(self._cluster, loop, raise_errors)
        if isinstance(nodes, int):
            nodes = [f"node-{number}" for number in range(nodes)]
        self.add(*map(as_node, nodes), *pods, *objects)
        self._do(self._driver.begin())

    def __enter__(self) -> Harness:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Cancel what is still waiting; done by itself once nobody holds the harness."""
        self._close()

    # ---- what there is -------------------------------------------------------------------------

    def add(self, *objects: Node | PodInfo | Pod | JsonObject) -> None:
        """Let objects appear, or change to what is given; plugins and queue hear of it."""
        self._do(self._driver.add(objects))

    def put(self, resource: Resource[T], obj: T) -> None:
        """Let a typed object of any resource appear, or change to this."""

        async def put() -> None:
            self.api.put(resource, obj)

        self._do(put())

    def patch(self, kind: str, name: str, patch: JsonObject, namespace: str = "default") -> None:
        """Change an object by a JSON merge patch; raises ``LookupError`` if it is not there."""

        async def merge() -> None:
            self.api.merge(kind, self._key(kind, name, namespace), patch)

        self._do(merge())

    def remove(self, kind: str, name: str, namespace: str = "default") -> None:
        """Let an object go; raises ``LookupError`` if it is not there."""

        async def remove() -> None:
            self.api.remove(kind, self._key(kind, name, namespace))

        self._do(remove())

    @property
    def nodes(self) -> NodeTable:
        """The nodes as the scheduler sees them: assumed pods are on them."""
        return self.scheduler.cache.table

    def node(self, name: str) -> NodeInfo:
        """Return a node as plugins see it; raises ``LookupError``."""
        if name not in self.nodes:
            raise LookupError(
                f"no node {name!r}; there are: {', '.join(self.nodes.rows) or 'none'}"
            )
        return self.nodes[self.nodes.rows[name]]

    def pod(self, pod: AnyPod) -> Pod:
        """Return a pod as it is now in the apiserver; raises ``LookupError``."""
        key, pods = key_of_pod(pod), self.api.store(PODS)
        if key not in pods:
            raise LookupError(f"no pod {key!r}; there are: {', '.join(pods) or 'none'}")
        return pods[key]

    def plugin(self, plugin: type[P], profile: str = "") -> P:
        """Return the instance of a plugin that a profile (the first one) runs."""
        profiles = self.scheduler.profiles
        chosen = profiles[profile] if profile else next(iter(profiles.values()))
        for made in chosen.plugins:
            if isinstance(made, plugin):
                return made
        raise LookupError(f"profile {chosen.name} does not run {plugin.__name__}")

    # ---- what happens --------------------------------------------------------------------------

    def schedule(self, pod: AnyPod) -> Outcome:
        """Add a pod (unless it is there), and try it once; bind it, if nothing holds it.

        Pods that are before it in the queue are tried first. Raises ``LookupError`` when the queue
        would not have it tried now, and says why; what a plugin raised; see ``raise_errors``.
        """
        return self._do(self._driver.schedule(pod))

    def schedule_all(self) -> list[Outcome]:
        """Try the pods of the active queue until it is empty; return outcomes in order."""
        return self._do(self._driver.schedule_all())

    def advance(self, seconds: float) -> None:
        """Let time pass: back-offs, Permit's time limits, timers of plugins. Tries no pod."""
        self._do(self._driver.advance(seconds))

    def run(self, work: Coroutine[Any, Any, T], seconds: float = 5.0) -> T:
        """Run something in the harness's event loop, let all come to rest, return its result.

        Raises ``TimeoutError`` if it does not end within ``seconds`` of real time. What waits for
        the clock, which stands still meanwhile, is to be spawned: ``handle.spawn``, ``advance``.
        """

        async def guarded() -> T:
            task = asyncio.ensure_future(work)
            try:
                await self._driver.wait_until(task.done, seconds)
            finally:
                task.cancel()
            return task.result()

        return self._runner.run(guarded())

    def wait_until(self, condition: Callable[[], object], seconds: float = 5.0) -> None:
        """Wait, in real time, for what real I/O brings; raises ``TimeoutError``.

        The virtual clock stands still meanwhile.
        """
        self._runner.run(self._driver.wait_until(condition, seconds))

    # ---- what came of it -----------------------------------------------------------------------

    def outcome(self, pod: AnyPod) -> Outcome:
        """Return what is known of a pod's latest attempt, and where the pod is now."""
        return self._driver.inspector.outcome(key_of_pod(pod))

    def queue_of(self, pod: AnyPod) -> QueueName:
        """Return in which queue a pod waits to be tried, "" if in none."""
        return self._driver.inspector.queue_of(key_of_pod(pod))

    def waiting(self, pod: AnyPod) -> WaitingPod:
        """Return a pod that Permit holds, to ``allow`` or ``reject``; raises ``LookupError``."""
        found = self.scheduler.waiting_pods.get(self.pod(pod).metadata.uid)
        if found is None:
            raise LookupError(f"Permit does not hold {key_of_pod(pod)}: {self.outcome(pod)}")
        return found

    def events(self, pod: AnyPod | None = None) -> list[Event]:
        """Return the Events about a pod, or about all, oldest first."""
        key = None if pod is None else key_of_pod(pod)
        return [Event(*one) for one in self._cluster.events.events if key in (None, one[0])]

    @property
    def clock(self) -> Clock:
        """The virtual clock, also of ``asyncio``'s timers."""
        return self._cluster.clock

    # ---- inside the loop -----------------------------------------------------------------------

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        """Do what settles by itself: of two who wait for rest, neither would find it."""

        if not self._close.alive:
            work.close()
            raise RuntimeError("this Harness is closed")

        async def done() -> T:
            result = await work
            await self._driver.settle()
            return result

        return self._runner.run(done())

    def _key(self, kind: str, name: str, namespace: str) -> str:
        if kind not in BY_KIND:
            known = ", ".join(sorted(BY_KIND))
            raise LookupError(f"kind {kind!r} is not known; known are: {known}")
        key = f"{namespace}/{name}" if BY_KIND[kind].namespaced else name
        if key not in self.api.store(BY_KIND[kind]):
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
    """Cancel all tasks and close the loop; must not hold the harness.

    The collector may come here at any moment, also while another harness's loop runs.
    """
    outer = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        runner.close()
    finally:
        asyncio._set_running_loop(outer)
