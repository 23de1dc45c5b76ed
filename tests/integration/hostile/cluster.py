"""A scheduler behind the decoding of watches: lines in, bindings out, all in one process.

What is left out of a real process is the network alone: lines go through ``EventDecoder`` and the
informers to the scheduler's handlers and plugins.
"""

from __future__ import annotations

import asyncio
import random
from time import thread_time
from typing import Any, cast

import msgspec

from proreus.base.clock import FakeClock
from proreus.base.errors import ApiError
from proreus.base.feature_gates import FeatureGates
from proreus.base.metrics import SchedulerMetrics
from proreus.client.watching.informer_factory import InformerFactory
from proreus.client.watching.watch import ADDED, DELETED, MODIFIED, Batch, EventDecoder
from proreus.config.load import load
from proreus.engine.assembly import Assembly
from proreus.engine.environment import Environment
from proreus.engine.runtime.plugin_health import FailureRules, HealthContext
from proreus.engine.runtime.registry import Registry
from proreus.objects.codec import DecodeError
from proreus.objects.kinds import BY_KIND, PODS
from proreus.objects.meta import Resource, key_of
from proreus.objects.pod import Pod
from proreus.offline.api import InMemoryApi
from proreus.offline.cluster import SpawnedTasks
from proreus.plugins import IN_TREE_PLUGINS

from .objects import Json, event_line

_START = 1_700_000_000.0


class WatchedApi(InMemoryApi):
    """An API in memory whose changes arrive as lines of a watch."""

    def __init__(self, metrics: SchedulerMetrics) -> None:
        super().__init__()
        self.informers = InformerFactory(cast(Any, None), lambda *_: None, metrics=metrics)
        self._decoders: dict[str, EventDecoder[Any]] = {}
        self.own_seconds = 0.0
        """The time in which it did what an apiserver does: merged patches and wrote answers."""
        self._handling_seconds = 0.0
        for resource in BY_KIND.values():
            self._stores[resource.kind] = cast(Any, self.informers.store(resource))

    async def watch(self, kind: str, lines: list[bytes]) -> None:
        """Handle lines as the reflector does; raises ``DecodeError`` and ``ApiError``."""
        informer = self.informers.group.by_kind[kind]
        async for batch in self._decoder(kind).batches(lines):
            if batch.events:
                informer.apply(batch.events)
            if batch.error is not None:
                raise batch.error

    def _feed(self, kind: str, line: bytes) -> None:
        before = thread_time()
        batch: Batch[Any] = Batch([])
        self._decoder(kind)._decode_unusual(line, batch)
        self.informers.group.by_kind[kind].apply(batch.events)
        self._handling_seconds += thread_time() - before

    def _decoder(self, kind: str) -> EventDecoder[Any]:
        decoder = self._decoders.get(kind)
        if decoder is None:
            faults = self.informers.group.by_kind[kind].faults
            decoder = self._decoders[kind] = EventDecoder(BY_KIND[kind].type, faults)
        return decoder

    def put(self, resource: Resource[Any], obj: Any) -> None:
        """Create or replace a typed object."""
        obj = self._stamped(obj)
        known = key_of(obj) in self._stores[resource.kind]
        line = event_line(MODIFIED if known else ADDED, msgspec.json.encode(obj))
        self._feed(resource.kind, line)

    def _remove(self, kind: str, key: str) -> None:
        obj = self._stores[kind].get(key)
        if obj is not None:
            self._feed(kind, event_line(DELETED, msgspec.json.encode(obj)))

    def _merge(self, resource: Resource[Any], obj: Any, patch: Json) -> None:
        before = thread_time() - self._handling_seconds
        super()._merge(resource, obj, patch)
        self.own_seconds += thread_time() - self._handling_seconds - before

    def _response(self, resource: Resource[Any], meta: Json) -> Json:
        before = thread_time()
        response = super()._response(resource, meta)
        self.own_seconds += thread_time() - before
        return response

    async def patch_pod_status(self, pod: Pod, patch: Json) -> None:
        """Drop the patch: an apiserver's work must not count as the scheduler's."""

    def on_change(self, resource: Resource[Any], handler: Any) -> Any:
        """Call ``handler(old, new)`` on each change of a resource, before other handlers."""
        return self.informers.on_change(resource, handler)

    def add_handler(self, resource: Resource[Any], handler: Any) -> None:
        """Call an informer handler on each change from now on."""
        self.informers.add_handler(resource, handler)


class NoEvents:
    """Drops Events: thousands of them would be what takes the memory."""

    def event(self, *_: Any, **__: Any) -> None:
        """Drop an Event."""


class HostileCluster:
    """A scheduler with nodes, and devices on some of them."""

    def __init__(self, nodes: int, attempt_seconds: float = 1.0) -> None:
        gates, registry = FeatureGates(), Registry(IN_TREE_PLUGINS)
        document = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
        }
        self.clock = FakeClock(_START)
        self.metrics = SchedulerMetrics()
        self.api = WatchedApi(self.metrics)
        self._tasks = SpawnedTasks()
        self.longest_cycle = 0.0
        self.misunderstood = 0
        """How many lines would have caused a new list."""
        rules = FailureRules(attempt_seconds=attempt_seconds)
        environment = Environment(
            api=self.api,
            event_recorder=cast(Any, NoEvents()),
            stores=cast(Any, self.api),
            clock=self.clock,
            rng=random.Random(0),
            metrics=self.metrics,
            feature_gates=gates,
            spawn=self._tasks.spawn,
            health_context=HealthContext(self.clock, self.metrics, rules, lambda *_, **__: None),
        )
        configuration = load(document, registry, gates)
        self.assembly = Assembly(configuration, registry, environment)
        self.scheduler = self.assembly.scheduler
        for number in range(nodes):
            self.api.add(_node(number))
        for number in range(min(nodes // 5, 1_000)):
            self.api.add(_namespace(number))
            self.api.add(_pod_of_namespace(number))
        self.api.add({"kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}})
        for number in range(min(nodes, 20)):
            self.api.add(_slice(number))

    def tick(self) -> None:
        """Let a second pass."""
        self.clock.advance_to(self.clock.now() + 1)
        self.assembly.housekeeping.tick()

    async def schedule_all(self, most: int = 10_000) -> None:
        """Make attempts until no pod is active, and let bindings end."""
        while most and (queued := self.scheduler.queue.pop()) is not None:
            most -= 1
            started = thread_time()
            await self.scheduler.schedule_one(queued)
            self.longest_cycle = max(self.longest_cycle, thread_time() - started)
        await self._tasks.settle()

    async def wait_of_another_pod(self, name: str) -> float:
        """Return the seconds until a plain pod, behind whatever is queued, is bound; remove it."""
        started = thread_time() - self.api.own_seconds
        await asyncio.sleep(0)
        self.api.add(plain_pod(name))
        key = f"default/{name}"
        while not self.api.store(PODS)[key].spec.node_name:
            queued = self.scheduler.queue.pop()
            assert queued is not None, f"{key} is neither bound nor queued"
            before = thread_time()
            await self.scheduler.schedule_one(queued)
            self.longest_cycle = max(self.longest_cycle, thread_time() - before)
            await self._tasks.settle()
        waited = thread_time() - self.api.own_seconds - started
        self.api.remove("Pod", key)
        # Its record of bindings would count as memory that is left, and lie where objects were.
        self.api.bound.clear()
        return waited

    async def watch(self, kind: str, lines: list[bytes]) -> bool:
        """Handle lines of a watch; return whether they were understood (if not: a new list)."""
        try:
            await self.api.watch(kind, lines)
        except (DecodeError, ApiError):
            return False
        return True

    async def wait_beside(self, kind: str, number: int, line: bytes) -> float:
        """Return how long a plain pod waits at most, while a line is handled and right after it."""
        watching = asyncio.create_task(self.watch(kind, [line]))
        if kind == "ResourceClaim":
            self.api.add(pod_with_claim(number))
        meanwhile = await self.wait_of_another_pod("meanwhile")
        if not await watching:
            self.misunderstood += 1
        return max(meanwhile, await self.wait_of_another_pod("behind"))

    def remove_all_of(self, kind: str, prefix: str) -> None:
        """Delete the objects whose names begin so."""
        for key in [k for k in self.api._stores[kind] if k.rpartition("/")[2].startswith(prefix)]:
            self.api.remove(kind, key)

    def handler_failures(self) -> float:
        """Return how often a handler has raised."""
        family = self.metrics.informer_handler_failures_total
        return sum(family.labels(resource.plural).value for resource in BY_KIND.values())

    @property
    def failures(self) -> list[BaseException]:
        """The exceptions that tasks raised."""
        return self._tasks.failures


def plain_pod(name: str) -> Json:
    """Return a pod that asks for nothing special."""
    requests = {"cpu": "10m", "memory": "10Mi"}
    containers = [{"name": "c", "resources": {"requests": requests}}]
    meta = {"name": name, "namespace": "default", "uid": name, "labels": {"app": "plain"}}
    spec = {"schedulerName": "default-scheduler", "containers": containers}
    return {"kind": "Pod", "metadata": meta, "spec": spec}


def pod_with_claim(number: int) -> Json:
    """Return a pod that uses a hostile claim."""
    pod = plain_pod(f"resourceclaim-{number}")
    claim = f"resourceclaim-{number}"
    pod["spec"]["resourceClaims"] = [{"name": "c", "resourceClaimName": claim}]
    return pod


def _node(number: int) -> Json:
    labels = {
        "kubernetes.io/hostname": f"n{number}",
        "topology.kubernetes.io/zone": f"z{number % 3}",
    }
    capacity = {"cpu": "64", "memory": "256Gi", "pods": "1000"}
    return {
        "kind": "Node",
        "metadata": {"name": f"n{number}", "uid": f"n{number}", "labels": labels},
        "status": {"allocatable": capacity, "capacity": capacity},
    }


def _namespace(number: int) -> Json:
    name = f"team-{number}"
    return {"kind": "Namespace", "metadata": {"name": name, "uid": name, "labels": {"team": name}}}


def _pod_of_namespace(number: int) -> Json:
    pod = plain_pod(f"web-{number}")
    pod["metadata"] |= {"namespace": f"team-{number}", "labels": {"app": "web", "n": f"{number}"}}
    pod["spec"]["nodeName"] = f"n{number}"
    return pod


def _slice(number: int) -> Json:
    devices = [{"name": f"d{n}", "attributes": {"side": {"int": n % 2}}} for n in range(16)]
    pool = {"name": f"n{number}", "generation": 1, "resourceSliceCount": 1}
    spec = {"nodeName": f"n{number}", "driver": "gpu.example.com", "pool": pool, "devices": devices}
    return {"kind": "ResourceSlice", "metadata": {"name": f"n{number}"}, "spec": spec}
