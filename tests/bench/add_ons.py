"""What add-ons cost a pod: scheduling cycles with and without each, in microseconds.

    PYTHONPATH=tests python -m bench.add_ons [--nodes N] [--pods N] [NAME …]

Each case has two clusters that differ in the add-on alone; their pods are scheduled in turn, in one
process, and only the cycles are timed, as CPU time. ``distinct`` cases make every pod another one
to the add-on, so that no result is shared.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import thread_time
from typing import Any

from bench.own_plugin import TURN
from proreus.addons.business_weight import BusinessWeight
from proreus.addons.delay_scheduling import DelayScheduling
from proreus.addons.job_barrier import JobBarrier
from proreus.config.load import load
from proreus.feature_gates import FeatureGates
from proreus.framework import Plugin, PodInfo
from proreus.objects import LABEL_ZONE, NODES, PODS
from proreus.offline.cluster import OfflineCluster
from proreus.plugins import IN_TREE_PLUGINS
from proreus.runtime.registry import Registry
from proreus.testing import make_node, make_pod
from proreus.testing.profiles import profile_with

MakePod = Callable[[int, Mapping[str, Any]], PodInfo]


def plain(number: int, more: Mapping[str, Any]) -> PodInfo:
    """Return a pod that asks for nothing special."""
    return make_pod(f"pod-{number}", "100m", "500Mi", **more)


def with_preference(number: int, more: Mapping[str, Any]) -> PodInfo:
    """Return a pod that prefers three nodes with room."""
    names = ",".join(f"node-{number * 7 % 5000 + place}" for place in range(3))
    metadata = {"annotations": {"proreus.dev/prefer-nodes": names}}
    return plain(number, {**more, "metadata": metadata})


@dataclass(frozen=True)
class Case:
    """An add-on, and pods that it has to do with; ``prepare`` fills its cluster."""

    plugin: type[Plugin]
    pod: MakePod = plain
    args: Mapping[str, Any] = field(default_factory=dict)
    prepare: Callable[[OfflineCluster], None] = lambda cluster: None


def elastic(number: int, more: Mapping[str, Any]) -> PodInfo:
    """Return a member of one of ten jobs that need one."""
    return plain(number, {**more, "labels": {"proreus.dev/job": f"job-{number % 10}"}})


def of_business(number: int, more: Mapping[str, Any]) -> PodInfo:
    """Return a pod of one of two lines of business."""
    return plain(number, {**more, "labels": {"proreus.dev/business": "ab"[number % 2]}})


CASES = {
    "JobBarrier, no job": Case(JobBarrier),
    "JobBarrier, elastic members": Case(JobBarrier, elastic),
    "BusinessWeight": Case(
        BusinessWeight,
        of_business,
        {
            "nodeLabel": "example.com/pool",
            "weights": {"a": {"pool-1": 90}, "b": {"pool-2": 100, "pool-3": 20}},
        },
    ),
    "DelayScheduling, no preference": Case(DelayScheduling),
    "DelayScheduling, three nodes": Case(DelayScheduling, with_preference),
}


class Run:
    """A cluster with an add-on or without, and the times of its pods so far."""

    def __init__(self, case: Case, enabled: bool, nodes: int, pods: int) -> None:
        plugins = [case.plugin] if enabled else []
        args = {case.plugin.name: case.args} if enabled and case.args else {}
        gates, registry = FeatureGates(), Registry((*IN_TREE_PLUGINS, *plugins))
        configuration = profile_with(plugins, args, {}, alone=False)
        config = load(configuration, registry, gates)
        self.cluster = OfflineCluster(config, registry, gates)
        self.seconds: list[float] = []
        for number in range(nodes):
            labels = {LABEL_ZONE: f"zone-{number % 9}", "example.com/pool": f"pool-{number % 40}"}
            self.cluster.api.put(NODES, make_node(f"node-{number}", "32", "256Gi", labels=labels))
        case.prepare(self.cluster)
        for number in range(pods):
            self.cluster.api.put(PODS, case.pod(number, {}).pod)

    async def schedule(self, pods: int) -> None:
        """Schedule some pods; only the scheduling cycles are timed."""
        for _ in range(pods):
            queued = self.cluster.scheduler.queue.pop()
            assert queued is not None
            started = thread_time()
            node_name = await self.cluster.scheduler.schedule_one(queued)
            self.seconds.append(thread_time() - started)
            assert node_name, f"{queued.key} was not placed"
            await self.cluster.settle()


async def measure(case: Case, nodes: int, pods: int) -> tuple[float, float]:
    """Return the medians of a scheduling cycle without and with the add-on, in microseconds."""
    runs = [Run(case, enabled, nodes, pods + TURN) for enabled in (False, True)]
    gc.collect()
    for _ in range(0, pods + TURN, TURN):
        for run in runs:
            await run.schedule(TURN)
    without, with_it = (1e6 * statistics.median(run.seconds[TURN:]) for run in runs)
    return without, with_it


def main() -> None:
    """Measure the cases and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=400)
    parser.add_argument("names", nargs="*", help="beginnings of names of cases; all by default")
    options = parser.parse_args()
    print(f"{options.nodes} nodes, medians of {options.pods} pods, microseconds a pod")
    print(f"{'case':<40}{'without':>10}{'with':>10}{'difference':>12}")
    for name, case in CASES.items():
        if options.names and not name.startswith(tuple(options.names)):
            continue
        without, with_it = asyncio.run(measure(case, options.nodes, options.pods))
        print(f"{name:<40}{without:>10.0f}{with_it:>10.0f}{with_it - without:>12.0f}", flush=True)


if __name__ == "__main__":
    main()
