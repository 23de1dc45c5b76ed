"""The cost of an out-of-process plugin per pod: the examples, with 5,000 nodes.

    python tests/bench/remote_plugin.py [nodes] [pods]

Prints milliseconds a pod of the scheduling cycle, binding included, without the plugin and with it:
for equivalent pods, and for pods that all differ, so that all nodes are filtered and scored anew.
The CPU time of both processes is meaningful even on a busy machine, where most of the time on the
clock is spent waiting for a CPU.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import uvloop

from proreus.base.feature_gates import FeatureGates
from proreus.base.metrics import SchedulerMetrics
from proreus.config.load import load
from proreus.engine.runtime.registry import Registry
from proreus.objects.kinds import NODES, PODS
from proreus.offline.cluster import OfflineCluster
from proreus.plugins import IN_TREE_PLUGINS
from proreus.remote.classes import plugin_class
from proreus.remote.handshake import connect
from proreus.testing.builders import make_node, make_pod

EXAMPLES = Path(__file__).parents[2] / "examples"
COMMANDS = {
    "python": [sys.executable, str(EXAMPLES / "out-of-process-python" / "plugin.py"), "0"],
    "node": ["node", str(EXAMPLES / "out-of-process-node" / "plugin.js"), "0"],
}
KINDS = {True: "equivalent", False: "all different"}
WARM_UP = 20


def cluster_with(plugins: list[type[Any]], nodes: int) -> OfflineCluster:
    registry, gates = Registry((*IN_TREE_PLUGINS, *plugins)), FeatureGates()
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


@dataclass
class Cost:
    """Milliseconds a pod: wall-clock time, and CPU time of this and of the plugin's process."""

    times: list[float]
    cpu_here: float
    cpu_there: float


async def cost_of(cluster: OfflineCluster, pods: int, equivalent: bool, there: int = 0) -> Cost:
    """Schedule pods one by one, and return their cost; ``there``: the plugin's process id."""
    times = []
    begun = (0.0, 0.0)
    for number in range(WARM_UP + pods):
        if number == WARM_UP:
            begun = (process_time(), cpu_seconds_of(there))
        cpu = "100m" if equivalent else f"{100 + number}m"
        labels = {"app": "a" if equivalent else f"a{number}"}
        name = f"{'same' if equivalent else 'each'}-{number}"
        cluster.api.put(PODS, make_pod(name, cpu, "100Mi", labels=labels).pod)
        started = perf_counter()
        outcome = await cluster.schedule_next()
        times.append((perf_counter() - started) * 1000)
        assert outcome is not None
        assert outcome[1], outcome
    here, far = process_time() - begun[0], cpu_seconds_of(there) - begun[1]
    return Cost(times[WARM_UP:], here * 1000 / pods, far * 1000 / pods)


def cpu_seconds_of(process: int) -> float:
    """Return the CPU time of a process so far, in seconds; its resolution is 10 ms."""
    if not process:
        return 0.0
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def report(what: str, cost: Cost) -> None:
    times = sorted(cost.times)
    p99 = times[int(len(times) * 0.99)]
    print(
        f"{what:38} median {statistics.median(times):6.2f} ms   p99 {p99:6.2f} ms   "
        f"CPU {cost.cpu_here:5.2f} ms + {cost.cpu_there:5.2f} ms in the plugin",
        flush=True,
    )


async def measure(nodes: int, pods: int) -> None:
    for equivalent, pods_are in KINDS.items():
        report(
            f"no such plugin, pods {pods_are}",
            await cost_of(cluster_with([], nodes), pods, equivalent),
        )
    for language, command in COMMANDS.items():
        if shutil.which(command[0]) is None:
            print(f"{language}: not installed, skipped")
            continue
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: ASYNC220
            try:
                assert process.stdout is not None
                address = process.stdout.readline().split()[-1]
                endpoint = await connect(address, SchedulerMetrics())
                cluster = cluster_with([plugin_class(endpoint)], nodes)
                for equivalent, pods_are in KINDS.items():
                    cost = await cost_of(cluster, pods, equivalent, process.pid)
                    report(f"{endpoint.descriptor.name} ({language}), pods {pods_are}", cost)
                await endpoint.close()
            finally:
                process.terminate()


if __name__ == "__main__":
    numbers = [int(argument) for argument in sys.argv[1:]]
    print(f"{(numbers or [5000])[0]} nodes")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(measure((numbers or [5000])[0], (numbers[1:] or [300])[0]))
