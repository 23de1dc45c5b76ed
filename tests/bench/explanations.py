"""How long an explanation takes, and what asking costs the scheduler.

    PYTHONPATH=tests python -m bench.explanations [--nodes N] [--placed N] [--asked N]

Medians and maxima over ``--asked`` questions, in milliseconds of the event loop, JSON included: a
placed pod, a pod that waits for cpu (with what would help it), one that waits because of its
spread and affinity, a node, and the queue with ``--waiting`` pods.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
from collections.abc import Callable
from time import perf_counter
from typing import Any

import msgspec

from bench.engine import CONFIGURATION, fill, place, put
from bench.shapes import FAMILIES, Json
from proreus.base.feature_gates import FeatureGates
from proreus.config.load import load
from proreus.engine.runtime.registry import Registry
from proreus.insight.decisions.recorder import DecisionRecorder
from proreus.insight.explain import Explainer
from proreus.objects.kinds import PODS
from proreus.offline.cluster import OfflineCluster
from proreus.plugins import IN_TREE_PLUGINS


def waiting(name: str, **spec: Any) -> Json:
    """Return a pod that fits nowhere."""
    pod = FAMILIES["plain"].pending(name)
    pod["metadata"]["labels"] = {"app": "waiting"}
    requests = {"cpu": "9999", "memory": "1Gi"}
    pod["spec"]["containers"][0]["resources"] = {"requests": requests}
    pod["spec"].update(spec)
    return pod


def constrained() -> Json:
    """Return constraints whose PreFilter looks at all nodes and pods."""
    selector = {"matchLabels": {"app": "waiting"}}
    spread = {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selector,
    }
    term = {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}
    anti = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return {"topologySpreadConstraints": [spread], "affinity": {"podAntiAffinity": anti}}


async def measure(args: argparse.Namespace) -> None:
    """Print a line for each kind of question."""
    gates, registry = FeatureGates(), Registry(IN_TREE_PLUGINS)
    cluster = OfflineCluster(load(CONFIGURATION, registry, gates), registry, gates)
    fill(cluster, FAMILIES["plain"], args.nodes, args.placed)
    recorder = DecisionRecorder.of(cluster.scheduler, cluster.clock)
    await place(cluster, FAMILIES["plain"], (f"asked-{number}" for number in range(500)))
    put(cluster, [waiting("cpu"), waiting("constrained", **constrained())])
    put(cluster, (waiting(f"other-{number}") for number in range(args.waiting)))
    while await cluster.schedule_next() is not None:
        pass
    explainer = Explainer(cluster.scheduler, recorder, cluster.api.store(PODS), cluster.clock)
    placed = next(key for key in cluster.api.store(PODS) if key.endswith("/asked-250"))
    namespace, _, name = placed.partition("/")
    questions: dict[str, Callable[[], Any]] = {
        "placed pod": lambda: explainer.pod(namespace, name),
        "pod waiting for cpu": lambda: explainer.pod(namespace, "cpu"),
        "pod waiting, spread": lambda: explainer.pod(namespace, "constrained"),
        "node": lambda: explainer.node(cluster.scheduler.cache.table[7].name),
        "queue": explainer.queue,
    }
    print(f"{'question':<24}{'median, ms':>12}{'max, ms':>10}{'bytes':>10}")
    for title, ask in questions.items():
        took, size = [], 0
        for _ in range(args.asked):
            began = perf_counter()
            size = len(msgspec.json.encode(ask()))
            took.append(1000 * (perf_counter() - began))
        print(f"{title:<24}{statistics.median(took):>12.2f}{max(took):>10.2f}{size:>10}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--placed", type=int, default=10_000)
    parser.add_argument("--waiting", type=int, default=1000)
    parser.add_argument("--asked", type=int, default=20)
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
