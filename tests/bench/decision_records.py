"""The cost of the record of decisions: time a pod with it, relative to that without.

    PYTHONPATH=tests python -m bench.decision_records [--nodes N] [--pods N] [--rounds N]

Processor time of a pod, from the pop to its binding. Rounds alternate; each makes a ratio, and the
median is printed. ``different``: each pod has requests of its own, so that no results are shared.
A small ``--budget`` shows the cost once the record is full: until then its memory is new.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
from collections.abc import Iterator
from time import process_time
from typing import Any

from bench.engine import CONFIGURATION, fill, place, put
from bench.shapes import FAMILIES, Family, Json
from proreus import gc_tuning
from proreus.config.load import load
from proreus.decisions import DEFAULT_BUDGET_BYTES, DecisionRecorder
from proreus.feature_gates import FeatureGates
from proreus.offline.cluster import OfflineCluster
from proreus.plugins import IN_TREE_PLUGINS
from proreus.runtime.registry import Registry

WARM = 50
DIFFERENT = "different"


def _pending(family: Family, name: str, number: int, different: bool) -> Json:
    pod = family.pending(name)
    if different:
        requests = {"cpu": f"{100 + number % 1999}m", "memory": f"{500 + number % 97}Mi"}
        pod["spec"]["containers"][0]["resources"] = {"requests": requests}
    return pod


async def seconds(name: str, args: argparse.Namespace, recorded: bool) -> tuple[float, Any]:
    """Return seconds a pod, and the recorder."""
    gates, registry = FeatureGates(), Registry(IN_TREE_PLUGINS)
    cluster = OfflineCluster(load(CONFIGURATION, registry, gates), registry, gates)
    different = name == DIFFERENT
    family = FAMILIES["plain" if different else name]
    fill(cluster, family, args.nodes, args.placed)
    recorder = None
    if recorded:
        recorder = DecisionRecorder.of(cluster.scheduler, cluster.clock, args.budget)
    await place(cluster, family, (f"warm-{number}" for number in range(WARM)))

    def pods() -> Iterator[Json]:
        for number in range(args.pods):
            yield from family.belongings(f"pod-{number}")
            yield _pending(family, f"pod-{number}", number, different)

    put(cluster, pods())
    schedule_one, queue = cluster.scheduler.schedule_one, cluster.scheduler.queue
    gc_tuning.freeze_startup_heap()
    began = process_time()
    while (queued := queue.pop()) is not None:
        await schedule_one(queued)
        if queue.scheduling_cycle % 16 == 0:
            await cluster.settle()
    await cluster.settle()
    took = (process_time() - began) / args.pods
    gc.unfreeze()
    gc.collect()
    return took, recorder


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    families = ["plain", DIFFERENT, "hard spread", "preferred affinity"]
    parser.add_argument("families", nargs="*", default=families)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--placed", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--budget", type=int, default=DEFAULT_BUDGET_BYTES, help="bytes")
    args = parser.parse_args()
    print(f"{'family':<24}{'µs a pod':>10}{'ratio':>8}{'µs more':>9}{'bytes a pod':>13}")
    for name in args.families:
        ratios, without, more, size_bytes = [], [], [], 0.0
        for number in range(args.rounds):
            took = {}
            for recorded in (False, True) if number % 2 else (True, False):
                took[recorded], recorder = asyncio.run(seconds(name, args, recorded))
                if recorder is not None:
                    size_bytes = recorder.records.size_bytes / max(len(recorder.records), 1)
            ratios.append(took[True] / took[False])
            without.append(1e6 * took[False])
            more.append(1e6 * (took[True] - took[False]))
        figures = f"{statistics.median(without):>10.1f}{statistics.median(ratios):>8.3f}"
        print(f"{name:<24}{figures}{statistics.median(more):>9.1f}{size_bytes:>13.0f}", flush=True)


if __name__ == "__main__":
    main()
