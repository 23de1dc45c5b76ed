"""The cycles of colocation: measure, write the resources for offline pods, evict if configured."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from proreus.base import logs
from proreus.base.errors import ApiError, NotFound
from proreus.client.http.request_headers import MERGE_PATCH
from proreus.client.http.session import ApiClient
from proreus.controller.colocation.batch_resources import (
    BatchResources,
    left_by_online,
    to_write,
    written_on,
)
from proreus.controller.colocation.measurements import (
    NOTHING,
    CpuAndMemory,
    Measured,
    Measurements,
    list_all,
    read_measurements,
)
from proreus.controller.colocation.pressure import (
    OfflinePod,
    Pressure,
    offline_by_node,
    victims,
)
from proreus.controller.controller_metrics import ControllerMetrics
from proreus.controller.evictions.budgets import EvictionBudget
from proreus.controller.evictions.eviction_record import RecordedEviction, UnreadableRecord
from proreus.controller.evictions.pod_evictor import PodEvictor
from proreus.controller.options import ControllerOptions
from proreus.insight.snapshots.cluster_objects import ClusterObjects
from proreus.objects import Node, Pod
from proreus.objects.kinds import NODES
from proreus.objects.meta import key_of
from proreus.workbench.simulation.controllers import Controllers

log = logs.logger(__name__)

_IN_PARALLEL = 8


class ColocationController:
    """Runs cycles until cancelled; ``pods``: returns all pods of the cluster as they are now."""

    def __init__(
        self,
        client: ApiClient,
        options: ControllerOptions,
        pods: Callable[[], Iterable[Pod]],
        evictor: PodEvictor,
        metrics: ControllerMetrics,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._options = options
        self._pods = pods
        self._evictor = evictor
        self._metrics = metrics
        self._now = now
        self._measurements = Measurements()
        self._pressure = Pressure()

    async def run(self) -> None:
        """Run a cycle each period; one that fails is logged, and the next one tries again."""
        while True:
            started = time.monotonic()
            try:
                await self.cycle()
            except (ApiError, UnreadableRecord) as error:
                log.warning("A cycle of colocation failed", err=str(error))
            spent = time.monotonic() - started
            await asyncio.sleep(max(1.0, self._options.colocation_period - spent))

    async def cycle(self) -> None:
        """Run one cycle; raises ``ApiError``."""
        try:
            self._measurements = await read_measurements(self._client)
        except (ApiError, ValueError) as error:
            # ValueError: a quantity that is none, of a source of metrics that checks nothing.
            # Earlier measurements hold until they are too old; then numbers are withdrawn.
            log.warning("Cannot read metrics of nodes and pods", err=str(error))
        nodes = {one.metadata.name: one for one in await list_all(self._client, NODES)}
        offline = {
            name: [OfflinePod(pod, self._used_by(pod)) for pod in pods]
            for name, pods in offline_by_node(self._pods()).items()
        }
        await self._write_all(nodes, offline)
        if self._options.evict_offline:
            leaving = self._pods_to_evict(nodes, offline)
            if leaving:
                await self._evictor.evict(lambda recorded: self._within_budget(leaving, recorded))
            else:
                await self._evictor.finish()

    # ---- measurements --------------------------------------------------------------------------

    def _measured(self, node: str) -> Measured | None:
        """Return the latest measurement of a node, None if that is too old."""
        found = self._measurements.nodes.get(node)
        return found if found is not None and self._is_fresh(found) else None

    def _used_by(self, pod: Pod) -> CpuAndMemory:
        """Return the use of a pod; nothing if it is unknown, so that it counts as use by online
        pods.
        """
        found = self._measurements.pods.get(key_of(pod))
        return found.used if found is not None and self._is_fresh(found) else NOTHING

    def _is_fresh(self, measured: Measured) -> bool:
        return self._now() - measured.at <= self._options.colocation_max_age

    # ---- numbers -------------------------------------------------------------------------------

    async def _write_all(
        self, nodes: Mapping[str, Node], offline: Mapping[str, Sequence[OfflinePod]]
    ) -> None:
        changes: list[tuple[str, BatchResources]] = []
        stale = 0
        for name, node in nodes.items():
            measured = self._measured(name)
            stale += measured is None
            allocatable, computed = CpuAndMemory.of(node.status.allocatable), NOTHING
            if measured is not None:
                used = [one.used for one in offline.get(name, ())]
                margin = self._options.colocation_margin
                computed = left_by_online(allocatable, measured.used, used, margin)
            change = to_write(
                written_on(node), measured, computed, allocatable, self._options, self._now()
            )
            if change is not None:
                changes.append((name, change))
        self._metrics.colocation_nodes.labels("measured").set(len(nodes) - stale)
        self._metrics.colocation_nodes.labels("stale").set(stale)
        for first in range(0, len(changes), _IN_PARALLEL):
            part = changes[first : first + _IN_PARALLEL]
            await asyncio.gather(*(self._write(name, change) for name, change in part))

    async def _write(self, node: str, change: BatchResources) -> None:
        path, body = NODES.path("", node, "status"), msgspec.json.encode(change.patch())
        result = "written"
        try:
            await self._client.request("PATCH", path, body, content_type=MERGE_PATCH)
        except NotFound:
            return
        except ApiError as error:
            # The next cycle computes them again.
            log.warning("Batch resources could not be written", node=node, err=str(error))
            result = "error"
        self._metrics.status_writes_total.labels(NODES.plural, result).inc()

    # ---- evictions -----------------------------------------------------------------------------

    def _pods_to_evict(
        self, nodes: Mapping[str, Node], offline: Mapping[str, Sequence[OfflinePod]]
    ) -> list[Pod]:
        """Return the pods that have to leave the nodes that are under pressure."""
        self._pressure.keep_only(nodes)
        found: list[Pod] = []
        for name, node in nodes.items():
            measured = self._measured(name)
            if measured is None:
                # Nobody is evicted on hearsay.
                self._pressure.forget(name)
                continue
            allocatable = CpuAndMemory.of(node.status.allocatable)
            margin = self._options.colocation_margin
            if self._pressure.note(name, measured, allocatable, margin):
                found += victims(measured.used, allocatable, offline.get(name, ()), self._options)
        return found

    def _within_budget(
        self, pods: Iterable[Pod], recorded: Sequence[RecordedEviction]
    ) -> list[RecordedEviction]:
        now = self._now()
        budget = EvictionBudget(recorded, now - self._options.colocation_period, self._options)
        # Without their ReplicaSets, pods of Deployments are known by their labels.
        controllers = Controllers(ClusterObjects())
        chosen = []
        for pod in pods:
            meta = pod.metadata
            if budget.take(key_of(pod), meta.uid):
                node = pod.spec.node_name
                # Terminating pods are still in the next measurement.
                self._pressure.forget(node)
                workload = str(controllers.workload_of(pod) or key_of(pod))
                planned = RecordedEviction(key_of(pod), meta.uid, workload, node, now)
                chosen.append(planned)
        return chosen
