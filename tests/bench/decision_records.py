"""The cost of the record of decisions: time a pod with it, relative to that without.

    PYTHONPATH=tests python -m bench.decision_records [--nodes N] [--pods N] [--rounds N]

Processor time of a pod, from the pop to its binding. Within a run, blocks of pods are recorded and
not recorded in turn, so that what else the machine does meets both; each pair of neighbours makes a
ratio, and the median over all rounds is printed, with the quartiles. ``different``: each pod has
requests of its own, so that no results are shared. A small ``--budget`` shows the cost once the
record is full: until then its memory is new.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
from collections.abc import Iterator
from time import process_time

from bench.engine import CONFIGURATION, fill, place, put
from bench.shapes import FAMILIES, Family, Json
from proreus.base.feature_gates import FeatureGates
from proreus.config.load import load
from proreus.engine.runtime.registry import Registry
from proreus.insight.decisions.recorder import DecisionRecorder
from proreus.insight.decisions.retention import DEFAULT_BUDGET_BYTES
from proreus.offline.cluster import OfflineCluster
from proreus.plugins import IN_TREE_PLUGINS
from proreus.process import gc_tuning

WARM = 50
DIFFERENT = "different"


def _pending(family: Family, name: str, number: int, different: bool) -> Json:
    pod = family.pending(name)
    if different:
        requests = {"cpu": f"{100 + number % 1999}m", "memory": f"{500 + number % 97}Mi"}
        pod["spec"]["containers"][0]["resources"] = {"requests": requests}
    return pod


async def measure(
    name: str, args: argparse.Namespace
) -> tuple[list[tuple[float, float]], DecisionRecorder]:
    """Return seconds a pod without and with the record, for each pair of blocks."""
    gates, registry = FeatureGates(), Registry(IN_TREE_PLUGINS)
    cluster = OfflineCluster(load(CONFIGURATION, registry, gates), registry, gates)
    different = name == DIFFERENT
    family = FAMILIES["plain" if different else name]
    fill(cluster, family, args.nodes, args.placed)
    recorder = DecisionRecorder.of(cluster.scheduler, cluster.clock, args.budget)
    await place(cluster, family, (f"warm-{number}" for number in range(WARM)))

    def pods() -> Iterator[Json]:
        for number in range(args.pods):
            yield from family.belongings(f"pod-{number}")
            yield _pending(family, f"pod-{number}", number, different)

    put(cluster, pods())
    schedule_one, queue = cluster.scheduler.schedule_one, cluster.scheduler.queue

    async def block(recorded: bool) -> float:
        cluster.scheduler.record(recorder if recorded else None)
        began = process_time()
        for number in range(args.block):
            queued = queue.pop()
            assert queued is not None
            await schedule_one(queued)
            if number % 16 == 0:
                await cluster.settle()
        await cluster.settle()
        return (process_time() - began) / args.block

    gc_tuning.freeze_startup_heap()
    pairs = []
    for number in range(args.pods // args.block // 2):
        took = {}
        for recorded in (False, True) if number % 2 else (True, False):
            took[recorded] = await block(recorded)
        pairs.append((took[False], took[True]))
    gc.unfreeze()
    gc.collect()
    return pairs, recorder


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    families = ["plain", DIFFERENT, "hard spread", "preferred affinity"]
    parser.add_argument("families", nargs="*", default=families)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--placed", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=3000)
    parser.add_argument("--block", type=int, default=100, help="pods")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--budget", type=int, default=DEFAULT_BUDGET_BYTES, help="bytes")
    args = parser.parse_args()
    print(f"{'family':<22}{'µs a pod':>10}{'ratio':>8}{'quartiles':>15}{'µs more':>9}{'bytes':>8}")
    for name in args.families:
        pairs, size_bytes = [], 0.0
        for _ in range(args.rounds):
            more_pairs, recorder = asyncio.run(measure(name, args))
            pairs += more_pairs
            size_bytes = recorder.records.size_bytes / max(len(recorder.records), 1)
        low, ratio, high = statistics.quantiles([on / off for off, on in pairs], n=4)
        without = 1e6 * statistics.median(off for off, _ in pairs)
        more = 1e6 * statistics.median(on - off for off, on in pairs)
        print(
            f"{name:<22}{without:>10.1f}{ratio:>8.3f}{low:>9.3f}-{high:.3f}{more:>9.1f}"
            f"{size_bytes:>8.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
