"""The engine without an apiserver: pods per second and bytes per object, at any cluster size.

A simulation is the live scheduler (handlers, queue, cache, cycles, the scheduling loop) over an API
in memory. Objects arrive as the JSON that an apiserver sends and are decoded like it; a binding
comes back as a watch event would. Only the network is missing. Each simulation runs in a fresh
process, since memory is measured as the growth of that process.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from string import Template
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from proreus.base.feature_gates import FeatureGates
from proreus.config.load import default_configuration
from proreus.engine.runtime.registry import Registry
from proreus.insight.decisions.retention import DEFAULT_BUDGET_BYTES
from proreus.objects.codec import decoder_for
from proreus.objects.kinds import NODES, PODS
from proreus.objects.meta import Resource
from proreus.offline.cluster import OfflineCluster, OfflineOptions
from proreus.plugins import IN_TREE_PLUGINS
from proreus.process import gc_tuning

_ZONES = 3
_CHUNK = 1000
_LONGEST_SECONDS = 3600.0
"""A simulation that takes longer fails: a pod must have been lost."""


@dataclass(frozen=True)
class Scale:
    """The size of a simulated cluster."""

    nodes: int
    pods: int
    """Pods to schedule, in a cluster that already runs ``placed`` others."""

    placed: int = 0
    alike: bool = True
    """Whether all pods are equivalent; if not, each has requests of its own."""

    recorded: bool = False
    """Whether decisions are recorded, as in a process."""

    @property
    def title(self) -> str:
        """The scale in a few words, for a table."""
        kind = "alike" if self.alike else "all different"
        kind += ", recorded" if self.recorded else ""
        return f"{kind}, {self.placed:,} placed" if self.placed else kind


class SimulationResult(NamedTuple):
    """The time and memory that a simulation took."""

    scale: Scale
    pods_per_second: float
    """From the first pop to the last binding, everything included."""

    start_seconds: float
    """Time to load nodes and placed pods, from JSON to a filled cache."""

    bytes_a_node: float
    bytes_a_pod: float
    peak_bytes: int
    """Of the whole process, interpreter and libraries included."""

    cpu_spread: float
    """Standard deviation of the nodes' requested share of CPU, 0 to 1."""


def simulate(scale: Scale) -> SimulationResult:
    """Run one simulation in a fresh process; raises ``RuntimeError`` if a pod fits on no node."""
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as process:
        return process.submit(_simulate, scale).result()


def _simulate(scale: Scale) -> SimulationResult:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_Simulation(scale).run())


class _Simulation:
    """One simulation; memory is measured after each step."""

    def __init__(self, scale: Scale) -> None:
        self._scale = scale

    async def run(self) -> SimulationResult:
        scale = self._scale
        gates, registry = FeatureGates(), Registry(IN_TREE_PLUGINS)
        options = OfflineOptions(
            decision_record_bytes=DEFAULT_BUDGET_BYTES if self._scale.recorded else 0
        )
        config = default_configuration(registry, gates)
        self._cluster = OfflineCluster(config, registry, gates, options)
        empty = gc_tuning.resident_bytes()
        seconds = self._load(NODES, map(_node, range(scale.nodes)))
        with_nodes = gc_tuning.resident_bytes()
        seconds += self._load(PODS, self._placed())
        self._load(PODS, self._pending())
        gc_tuning.freeze_startup_heap()
        rate = await self._schedule()
        pods = scale.placed + scale.pods
        return SimulationResult(
            scale,
            rate,
            seconds,
            (with_nodes - empty) / scale.nodes,
            (gc_tuning.resident_bytes() - with_nodes) / pods,
            _peak_bytes(),
            self._cpu_spread(),
        )

    def _load(self, kind: Resource[Any], objects: Iterator[str]) -> float:
        """Decode objects and deliver them to the handlers; return the seconds that it took."""
        decode, put = decoder_for(kind.type).decode, self._cluster.api.put
        seconds = 0.0
        while chunk := [obj.encode() for obj in islice(objects, _CHUNK)]:
            started = perf_counter()
            for data in chunk:
                put(kind, decode(data))
            seconds += perf_counter() - started
        return seconds

    async def _schedule(self) -> float:
        """Run the scheduling loop until all pods are bound or rejected; return pods per second."""
        pods = self._scale.pods
        bound, refused = 0, set[str]()
        done = asyncio.Event()

        def watched(old: Any, new: Any) -> None:
            nonlocal bound
            if old is None:
                return  # an addition, from before the loop started
            if new.spec.node_name:
                bound += 1
            else:
                refused.add(new.metadata.uid)
            if bound + len(refused) == pods:
                done.set()

        self._cluster.api.on_change(PODS, watched)
        started = perf_counter()
        loop = asyncio.ensure_future(self._cluster.scheduler.run())
        try:
            await asyncio.wait_for(done.wait(), _LONGEST_SECONDS)
        finally:
            self._cluster.scheduler.stop()
            await loop
        seconds = perf_counter() - started
        if refused:
            raise RuntimeError(f"{len(refused)} of {pods} pods found no node")
        return pods / seconds

    def _placed(self) -> Iterator[str]:
        for number in range(self._scale.placed):
            node = f"node-{number % self._scale.nodes}"
            yield _pod(number, "placed", self._scale.alike, node)

    def _pending(self) -> Iterator[str]:
        for number in range(self._scale.pods):
            yield _pod(number, "pod", self._scale.alike)

    def _cpu_spread(self) -> float:
        table = self._cluster.scheduler.cache.table
        return float(np.std(table.requested["cpu"] / table.allocatable["cpu"]))


def _template(name: str) -> Template:
    return Template(Path(__file__).with_name(name).read_text())


_NODE, _POD = _template("simulated_node.json"), _template("simulated_pod.json")


def _node(number: int) -> str:
    """Return a node of 32 CPUs in one of three zones, with a status as a kubelet writes it."""
    return _NODE.substitute(number=number, zone=number % _ZONES)


def _pod(number: int, prefix: str, alike: bool, node: str = "") -> str:
    """Return a pod with the defaults that an apiserver adds, pending unless it has a node."""
    return _POD.substitute(
        name=f"{prefix}-{number}",
        cpu=100 if alike else 100 + number % 1999,
        memory=500 if alike else 500 + number % 97,
        node=node,
        phase="Running" if node else "Pending",
    )


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
