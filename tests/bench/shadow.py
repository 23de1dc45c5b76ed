"""The cost of a candidate in the shadow: time a pod with a trial, relative to that without.

    PYTHONPATH=tests python -m bench.shadow [--nodes N] [--placed N] [--pods N] [FAMILY ...]

The candidate is the configuration in force once more. Rounds alternate, so that a busy machine
slows both; medians of the ratios. ``share``: what the trial itself measured of its own time.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
from time import perf_counter

from bench.engine import CONFIGURATION, WARM, fill, place
from bench.shapes import FAMILIES, Family
from proreus.base.feature_gates import FeatureGates
from proreus.config.load import load
from proreus.engine.runtime.registry import Registry
from proreus.insight.shadow.assembly import prepare_shadow
from proreus.insight.shadow.trial import ShadowLimits
from proreus.offline.cluster import OfflineCluster
from proreus.plugins import IN_TREE_PLUGINS


async def seconds(
    family: Family, args: argparse.Namespace, limits: ShadowLimits | None
) -> tuple[float, float, int]:
    """Return seconds in all, seconds of the trial, and how many pods it compared."""
    gates, registry = FeatureGates(), Registry(IN_TREE_PLUGINS)
    config = load(CONFIGURATION, registry, gates)
    cluster = OfflineCluster(config, registry, gates)
    fill(cluster, family, args.nodes, args.placed)
    await place(cluster, family, (f"warm-{number}" for number in range(WARM)))
    trial = None
    if limits is not None:
        trial = prepare_shadow(cluster.assembly, config, registry, limits)
        cluster.scheduler.shadow = trial
    gc.collect()
    began = perf_counter()
    await place(cluster, family, (f"pod-{number}" for number in range(args.pods)))
    took = perf_counter() - began
    if trial is None:
        return took, 0.0, 0
    used, compared = trial.report.seconds, trial.report.compared
    assert trial.report.differing == 0, trial.report.examples
    trial.close()
    return took, used, compared


def measure(family: Family, args: argparse.Namespace, limits: ShadowLimits) -> str:
    """Return pods compared, and both ratios."""
    ratios, shares, compared = [], [], 0
    for _ in range(args.rounds):
        without, _, _ = asyncio.run(seconds(family, args, None))
        took, used, compared = asyncio.run(seconds(family, args, limits))
        ratios.append(took / without)
        shares.append(used / took)
    return f"{compared:>10}{statistics.median(ratios):>10.3f}{statistics.median(shares):>9.3f}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "families", nargs="*", default=["plain", "hard spread", "preferred affinity"]
    )
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--placed", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    print(f"{'family':<24}{'sample':>8}{'compared':>10}{'time':>10}{'share':>9}")
    for name in args.families:
        for sample in (0.01, 0.1, 1.0):
            figures = measure(FAMILIES[name], args, ShadowLimits(sample=sample))
            print(f"{name:<24}{sample:>8.2f}{figures}", flush=True)


if __name__ == "__main__":
    main()
