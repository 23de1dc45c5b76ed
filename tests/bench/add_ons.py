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
from collections.abc import Callable
from time import thread_time

from bench.add_on_cases import ALL_NODES, CASES, Case
from bench.own_plugin import TURN, time_cycles
from proreus.base.feature_gates import FeatureGates
from proreus.config.load import load
from proreus.engine.runtime.registry import Registry
from proreus.framework import CycleState, FilterPlugin, ScorePlugin, Verdicts
from proreus.objects import LABEL_ZONE, NODES, PODS
from proreus.offline.cluster import OfflineCluster
from proreus.plugins import IN_TREE_PLUGINS
from proreus.testing import make_node
from proreus.testing.profiles import profile_with


def over_all_nodes(case: Case, nodes: int, rounds: int = 11) -> dict[str, float]:
    """Return the medians of Filter and Score over all nodes, in milliseconds."""
    plugin = case.plugin
    run = Run(case, True, nodes, 0)
    (profile,) = run.cluster.scheduler.profiles.values()
    (made,) = (one for one in profile.plugins if isinstance(one, plugin))
    table, pod, state = run.cluster.scheduler.cache.table, case.pod(nodes, {}), CycleState()
    calls: dict[str, Callable[[], object]] = {}
    if isinstance(made, FilterPlugin):
        filter_plugin = made
        calls["Filter"] = lambda: filter_plugin.filter_all(state, pod, table, Verdicts(len(table)))
    if isinstance(made, ScorePlugin):
        score_plugin = made
        calls["Score"] = lambda: score_plugin.score_all(state, pod, table)
    found = {}
    for point, call in calls.items():
        seconds = []
        for _ in range(rounds):
            started = thread_time()
            call()
            seconds.append(thread_time() - started)
        found[point] = 1e3 * statistics.median(seconds)
    return found


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
        """Schedule some pods."""
        self.seconds += await time_cycles(self.cluster, pods)


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
    parser.add_argument(
        "--all-nodes", action="store_true", help="the first pod of a kind: Filter and Score alone"
    )
    parser.add_argument("names", nargs="*", help="beginnings of names of cases; all by default")
    options = parser.parse_args()
    if options.all_nodes:
        print(f"{options.nodes} nodes, medians of 11, milliseconds for all nodes")
        for name, case in ALL_NODES.items():
            for point, milliseconds in over_all_nodes(case, options.nodes).items():
                print(f"{name:<40}{point:<8}{milliseconds:>10.2f}", flush=True)
        return
    print(f"{options.nodes} nodes, medians of {options.pods} pods, microseconds a pod")
    print(f"{'case':<40}{'without':>10}{'with':>10}{'difference':>12}")
    for name, case in CASES.items():
        if options.names and not name.startswith(tuple(options.names)):
            continue
        without, with_it = asyncio.run(measure(case, options.nodes, options.pods))
        print(f"{name:<40}{without:>10.0f}{with_it:>10.0f}{with_it - without:>12.0f}", flush=True)


if __name__ == "__main__":
    main()
