"""The cost of an out-of-tree plugin in the default profile, in microseconds a pod, by form.

    make bench-own-plugin        # or: PYTHONPATH=tests python -m bench.own_plugin [--nodes N] …

The same plugin (the one of docs/writing-plugins.md) is added to the default profile in four forms,
and the whole scheduling cycle is timed with it and without it, in turn, in one process; a tenth of
the nodes has GPUs. Times are CPU times, since a cycle does not wait. The cost of the
plugin is the difference of the medians.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
from collections.abc import Hashable
from time import thread_time

from proreus.base.feature_gates import FeatureGates
from proreus.config.load import load
from proreus.engine.runtime.registry import Registry
from proreus.framework.cycle_state import CycleState
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import FilterPlugin, Plugin, ScorePlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.framework.verdicts import IntArray, Verdicts
from proreus.objects.kinds import NODES, PODS
from proreus.offline.cluster import OfflineCluster
from proreus.plugins import IN_TREE_PLUGINS
from proreus.testing import make_node, make_pod
from proreus.testing.profiles import profile_with

GPU = "nvidia.com/gpu"
TURN = 20
"""How many pods are scheduled with one form before the next: so noise affects all equally."""


class PerNode(FilterPlugin, ScorePlugin):
    """Called for one node after the other."""

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        if node.allocatable.get(GPU) and not pod.requests.amounts.get(GPU):
            return Status.unresolvable("node(s) are kept for GPU pods")
        return None

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return 100 - 100 * node.requested.get("memory", 0) // node.allocatable["memory"]


class SharedPerNode(PerNode):
    """Called for the nodes that changed since it ran for an equivalent pod."""

    row_local = True

    def sign(self, pod: PodInfo) -> Hashable:
        return bool(pod.requests.amounts.get(GPU))


class Columnar(FilterPlugin, ScorePlugin):
    """Called once for all nodes."""

    def filter_all(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable, verdicts: Verdicts
    ) -> None:
        if not pod.requests.amounts.get(GPU):
            reason = "node(s) are kept for GPU pods"
            verdicts.reject(nodes.allocatable[GPU] > 0, reason, unresolvable=True)

    def score_all(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> IntArray:
        return 100 - 100 * nodes.requested["memory"] // nodes.allocatable["memory"]


class SharedColumnar(Columnar):
    """Called once for all nodes, then only for those that changed."""

    row_local = True

    def sign(self, pod: PodInfo) -> Hashable:
        return bool(pod.requests.amounts.get(GPU))


FORMS: dict[str, type[Plugin] | None] = {
    "no plugin of one's own": None,
    "per node": PerNode,
    "per node, shared (row_local, sign)": SharedPerNode,
    "over columns": Columnar,
    "over columns, shared (row_local, sign)": SharedColumnar,
}
BARS = {PerNode: 5000.0, Columnar: 100.0, SharedColumnar: 100.0}
"""Microseconds a pod at 5,000 nodes."""


class Run:
    """A cluster with one form of the plugin, and the times of its pods so far."""

    def __init__(self, plugin: type[Plugin] | None, nodes: int, pods: int) -> None:
        plugins = [] if plugin is None else [plugin]
        gates, registry = FeatureGates(), Registry((*IN_TREE_PLUGINS, *plugins))
        config = load(profile_with(plugins, {}, {}, alone=False), registry, gates)
        self.cluster = OfflineCluster(config, registry, gates)
        self.seconds: list[float] = []
        for number in range(nodes):
            gpus = {GPU: 8} if number % 10 == 0 else {}
            node = make_node(f"node-{number}", "32", "256Gi", resources=gpus)
            self.cluster.api.put(NODES, node)
        for number in range(pods):
            self.cluster.api.put(PODS, make_pod(f"pod-{number}", "100m", "500Mi").pod)

    async def schedule(self, pods: int) -> None:
        """Schedule some pods."""
        self.seconds += await time_cycles(self.cluster, pods)


async def time_cycles(cluster: OfflineCluster, pods: int) -> list[float]:
    """Schedule some pods; return the seconds of each scheduling cycle, without anything else."""
    seconds = []
    for _ in range(pods):
        queued = cluster.scheduler.queue.pop()
        assert queued is not None
        started = thread_time()
        node_name = await cluster.scheduler.schedule_one(queued)
        seconds.append(thread_time() - started)
        assert node_name, f"{queued.key} was not placed"
        await cluster.settle()
    return seconds


async def measure(nodes: int, pods: int) -> dict[str, float]:
    """Return the median of a scheduling cycle in microseconds, by form."""
    runs = {name: Run(plugin, nodes, pods + TURN) for name, plugin in FORMS.items()}
    gc.collect()
    gc.freeze()
    for _ in range(0, pods + TURN, TURN):
        for run in runs.values():
            await run.schedule(TURN)
    return {name: 1e6 * statistics.median(run.seconds[TURN:]) for name, run in runs.items()}


def main() -> None:
    """Measure the forms and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=1000)
    options = parser.parse_args()
    medians = asyncio.run(measure(options.nodes, options.pods))
    without = medians["no plugin of one's own"]
    print(f"{options.nodes} nodes, medians of {options.pods} pods")
    print(f"{'form':<40}{'us a pod':>10}{'of these its own':>18}{'bar':>8}")
    for name, micro in medians.items():
        bar = BARS.get(FORMS[name], "")  # type: ignore[arg-type]
        print(f"{name:<40}{micro:>10.0f}{micro - without:>18.0f}{bar!s:>8}")


if __name__ == "__main__":
    main()
