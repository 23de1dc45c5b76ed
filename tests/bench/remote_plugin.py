"""What a plugin in a process of its own costs a pod: the examples, asked about 5,000 nodes.

    python tests/bench/remote_plugin.py [nodes] [pods]

Prints milliseconds a pod of the scheduling cycle, binding included, without the plugin and with it:
for pods that look alike, and for pods of which no two do, so that all nodes are asked about anew.
"""

from __future__ import annotations

import asyncio
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

import uvloop

from proreus.config.load import load
from proreus.feature_gates import FeatureGates
from proreus.metrics import SchedulerMetrics
from proreus.objects.kinds import NODES, PODS
from proreus.offline.cluster import OfflineCluster
from proreus.plugins import IN_TREE
from proreus.remote.classes import plugin_class
from proreus.remote.meeting import meet
from proreus.runtime.registry import Registry
from proreus.testing.builders import make_node, make_pod

EXAMPLES = Path(__file__).parents[2] / "examples"
COMMANDS = {
    "python": [sys.executable, str(EXAMPLES / "out-of-process-python" / "plugin.py"), "0"],
    "node": ["node", str(EXAMPLES / "out-of-process-node" / "plugin.js"), "0"],
}
WARM_UP = 20


def cluster_with(plugins: list[type[Any]], nodes: int) -> OfflineCluster:
    registry, gates = Registry((*IN_TREE, *plugins)), FeatureGates()
    enabled = [{"name": plugin.name} for plugin in plugins]
    raw = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {"multiPoint": {"enabled": enabled}}}],
    }
    cluster = OfflineCluster(load(raw, registry, gates), registry, gates)
    for number in range(nodes):
        zone = {"topology.kubernetes.io/zone": f"z{number % 10}"}
        labels = {"example.com/rack": f"r{number % 100}", **zone}
        cluster.api.put(NODES, make_node(f"n{number}", "64", "256Gi", labels=labels))
    return cluster


async def milliseconds(cluster: OfflineCluster, pods: int, alike: bool) -> list[float]:
    """Schedule pods one by one; return the time of each."""
    times = []
    for number in range(WARM_UP + pods):
        cpu = "100m" if alike else f"{100 + number}m"
        labels = {"app": "a" if alike else f"a{number}"}
        name = f"{'alike' if alike else 'each'}-{number}"
        cluster.api.put(PODS, make_pod(name, cpu, "100Mi", labels=labels).pod)
        started = perf_counter()
        outcome = await cluster.schedule_next()
        times.append((perf_counter() - started) * 1000)
        assert outcome is not None
        assert outcome[1], outcome
    return times[WARM_UP:]


def report(what: str, times: list[float]) -> None:
    times = sorted(times)
    p99 = times[int(len(times) * 0.99)]
    print(f"{what:42} median {statistics.median(times):6.2f} ms   p99 {p99:6.2f} ms", flush=True)


async def measure(nodes: int, pods: int) -> None:
    for alike in (True, False):
        pods_are = "alike" if alike else "all different"
        report(
            f"no such plugin, pods {pods_are}",
            await milliseconds(cluster_with([], nodes), pods, alike),
        )
    for language, command in COMMANDS.items():
        if shutil.which(command[0]) is None:
            print(f"{language}: not installed, left out")
            continue
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: ASYNC220
            try:
                assert process.stdout is not None
                address = process.stdout.readline().split()[-1]
                endpoint = await meet(address, SchedulerMetrics())
                cluster = cluster_with([plugin_class(endpoint)], nodes)
                for alike in (True, False):
                    pods_are = "alike" if alike else "all different"
                    times = await milliseconds(cluster, pods, alike)
                    report(f"{endpoint.descriptor.name} ({language}), pods {pods_are}", times)
                await endpoint.close()
            finally:
                process.terminate()


if __name__ == "__main__":
    numbers = [int(argument) for argument in sys.argv[1:]]
    print(f"{(numbers or [5000])[0]} nodes")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(measure((numbers or [5000])[0], (numbers[1:] or [300])[0]))
