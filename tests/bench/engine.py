"""The cost of the scheduling cycle without a network, by family of constraints.

    PYTHONPATH=tests python -m bench.engine [--nodes N] [--placed N] [--pods N] [FAMILY ...]

The families of ``shapes``, over an API in memory. ``cycle``: the scheduler's own mean of an
attempt, from the pop to the choice of a node, in milliseconds; ``preempt``: of that, PostFilter, a
mean over the attempts that ran it; ``all``: the total per pod, including binding and its
confirmation. Medians of several rounds. ``families`` measures the same on a real apiserver,
compared with kube-scheduler.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
from collections.abc import Iterable
from time import perf_counter

from bench.shapes import FAMILIES, PROFILE, Family, Json, node
from proreus.base.feature_gates import FeatureGates
from proreus.base.metrics.families import Histogram
from proreus.config.load import load
from proreus.engine.runtime.registry import Registry
from proreus.objects.kinds import BY_KIND
from proreus.offline.cluster import OfflineCluster
from proreus.plugins import IN_TREE_PLUGINS

WARM = 50
CONFIGURATION = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [PROFILE],
}
_BACKOFF_SECONDS = 2
_PATIENCE = 20
"""The maximum number of attempts for each pod."""


def fill(cluster: OfflineCluster, family: Family, nodes: int, placed: int) -> None:
    """Return a cluster with all objects but the pending pods."""
    made = [node(number) for number in range(nodes)]
    put(cluster, (*family.once, *made))
    put(cluster, (thing for one in made for thing in family.of_node(one["metadata"]["name"])))
    put(cluster, family.placed(placed, nodes))


def put(cluster: OfflineCluster, objects: Iterable[Json]) -> None:
    """Add objects, except those of kinds that no scheduler watches."""
    for one in objects:
        if one["kind"] in BY_KIND:
            cluster.api.add(one)


async def place(cluster: OfflineCluster, family: Family, names: Iterable[str]) -> None:
    """Add and schedule pods, one after the other."""
    for name in names:
        put(cluster, (*family.belongings(name), family.pending(name)))
        for _ in range(_PATIENCE):
            outcome = await cluster.schedule_next()
            if outcome is not None and outcome[1]:
                break
            cluster.advance(_BACKOFF_SECONDS)
        else:
            raise RuntimeError(f"pod {name} found no place")


def mean_ms(*histograms: Histogram) -> float:
    """Return the mean of a histogram, 0 if it is empty."""
    count = sum(one.count for one in histograms)
    return 1000 * sum(one.sum for one in histograms) / count if count else 0.0


async def measure(family: Family, nodes: int, placed: int, pods: int) -> tuple[float, ...]:
    """Return milliseconds: of a cycle, of PostFilter, of all."""
    gates, registry = FeatureGates(), Registry(IN_TREE_PLUGINS)
    cluster = OfflineCluster(load(CONFIGURATION, registry, gates), registry, gates)
    fill(cluster, family, nodes, placed)
    await place(cluster, family, (f"warm-{number}" for number in range(WARM)))
    metrics = cluster.metrics
    algorithm = metrics.scheduling_algorithm_duration_seconds
    profile = next(iter(cluster.scheduler.profiles))
    points = metrics.framework_extension_point_duration_seconds
    post_filter = points.labels("PostFilter", "Success", profile)
    algorithm.reset()
    post_filter.reset()
    gc.collect()
    gc.freeze()
    started = perf_counter()
    await place(cluster, family, (f"pod-{number}" for number in range(pods)))
    everything = 1000 * (perf_counter() - started) / pods
    gc.unfreeze()
    return mean_ms(algorithm), mean_ms(post_filter), everything


def main() -> None:
    """Measure the families and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=", ".join(FAMILIES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--placed", type=int, default=10_000)
    parser.add_argument("--pods", type=int, default=1_000)
    options = parser.parse_args()
    print(f"{'family':<28}{'cycle, ms':>12}{'preempt, ms':>12}{'all, ms':>12}")
    for name in options.families or FAMILIES:
        rounds = [
            asyncio.run(measure(FAMILIES[name], options.nodes, options.placed, options.pods))
            for _ in range(options.rounds)
        ]
        middle = [statistics.median(column) for column in zip(*rounds, strict=True)]
        print(f"{name:<28}" + "".join(f"{figure:>12.3f}" for figure in middle), flush=True)


if __name__ == "__main__":
    main()
