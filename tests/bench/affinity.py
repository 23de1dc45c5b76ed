"""What pods with spread constraints or inter-pod affinity cost, in a cluster that is full of pods.

    python tests/bench/affinity.py [--nodes N] [--placed N] [--pods N] [SCENARIO ...]

5,000 fake nodes in three zones with 10,000 pods on them, half of which are like the pods that are
scheduled then (with required anti-affinity: one in ten). ``cycle``: pop to assume, in milliseconds;
``all``: with binding and its confirmation. The bar is a quarter of kube-scheduler's own algorithm
time on a machine with two cores.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
from collections.abc import Callable
from time import perf_counter
from typing import Any

from proreus.config.load import default_configuration
from proreus.feature_gates import FeatureGates
from proreus.objects.codec import decoder_for
from proreus.objects.kinds import NODES, PODS
from proreus.objects.node import LABEL_HOSTNAME, LABEL_ZONE, Node
from proreus.objects.pod import Pod
from proreus.offline.cluster import OfflineCluster
from proreus.plugins import IN_TREE
from proreus.runtime.registry import Registry

Spec = dict[str, Any]

_ALIKE = {"matchLabels": {"color": "blue"}}


def plain() -> Spec:
    """A pod without wishes."""
    return {}


def spread(action: str) -> Spec:
    """Evenly over zones."""
    constraint = {
        "maxSkew": 5,
        "topologyKey": LABEL_ZONE,
        "whenUnsatisfiable": action,
        "labelSelector": _ALIKE,
    }
    return {"topologySpreadConstraints": [constraint]}


def required(kind: str, key: str) -> Spec:
    """Near, or apart from, its like."""
    term = {"labelSelector": _ALIKE, "topologyKey": key}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def preferred(kind: str, key: str) -> Spec:
    """Rather near, or apart from, its like."""
    term = {"labelSelector": _ALIKE, "topologyKey": key}
    weighted = {"weight": 1, "podAffinityTerm": term}
    return {"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": [weighted]}}}


SCENARIOS: dict[str, tuple[Callable[[], Spec], float, int]] = {
    "plain": (plain, 0.15, 2),
    "hard spread": (lambda: spread("DoNotSchedule"), 0.85, 2),
    "soft spread": (lambda: spread("ScheduleAnyway"), 0.68, 2),
    "required affinity": (lambda: required("podAffinity", LABEL_ZONE), 1.08, 2),
    "required anti-affinity": (lambda: required("podAntiAffinity", LABEL_HOSTNAME), 0.75, 10),
    "preferred affinity": (lambda: preferred("podAffinity", LABEL_HOSTNAME), 0.72, 2),
    "preferred anti-affinity": (lambda: preferred("podAntiAffinity", LABEL_HOSTNAME), 0.7, 2),
}


def node(number: int) -> Node:
    """Return a node of 32 CPUs in one of three zones."""
    name = f"node-{number}"
    allocatable = {"cpu": "32", "memory": "256Gi", "pods": "110"}
    raw = {
        "metadata": {
            "name": name,
            "labels": {LABEL_HOSTNAME: name, LABEL_ZONE: f"zone-{number % 3}"},
        },
        "status": {"allocatable": allocatable, "capacity": allocatable},
    }
    return decoder_for(Node).convert(raw)


def pod(number: int, spec: Spec, blue: bool, node_name: str = "") -> Pod:
    """Return a pod, blue or red."""
    name = f"pod-{number}"
    requests = {"cpu": "100m", "memory": "500Mi"}
    raw = {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": name,
            "labels": {"color": "blue" if blue else "red"},
        },
        "spec": {
            "schedulerName": "default-scheduler",
            "nodeName": node_name,
            "containers": [{"name": "c", "resources": {"requests": requests}}],
            **spec,
        },
    }
    return decoder_for(Pod).convert(raw)


async def measure(scenario: str, nodes: int, placed: int, pods: int) -> tuple[float, float]:
    """Return the milliseconds a pod: of the scheduling cycle, and with all that follows."""
    make, _, one_in = SCENARIOS[scenario]
    gates, registry = FeatureGates(), Registry(IN_TREE)
    cluster = OfflineCluster(default_configuration(registry, gates), registry, gates)
    for number in range(nodes):
        cluster.api.put(NODES, node(number))
    for number in range(placed):
        alike = number % one_in == 0
        where = f"node-{number // one_in % nodes if alike else number % nodes}"
        cluster.api.put(PODS, pod(number, make() if alike else {}, alike, where))
    warm = 50
    for number in range(placed, placed + pods + warm):
        cluster.api.put(PODS, pod(number, make(), blue=True))
    scheduler = cluster.scheduler
    gc.collect()
    gc.freeze()
    cycle = everything = 0.0
    done = 0
    for number in range(pods + warm):
        started = perf_counter()
        queued = scheduler.queue.pop()
        assert queued is not None
        node_name = await scheduler.schedule_one(queued)
        decided = perf_counter()
        await cluster.settle()
        if number >= warm:
            cycle += decided - started
            everything += perf_counter() - started
            done += bool(node_name)
    gc.unfreeze()
    assert done == pods, f"only {done} of {pods} pods were placed"
    return 1e3 * cycle / pods, 1e3 * everything / pods


def main() -> None:
    """Measure the scenarios and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=", ".join(SCENARIOS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--placed", type=int, default=10_000)
    parser.add_argument("--pods", type=int, default=1_000)
    options = parser.parse_args()
    print(f"{'scenario':<28}{'cycle, ms':>10}{'all, ms':>10}{'bar, ms':>10}")
    for name in options.scenarios or SCENARIOS:
        rounds = [
            asyncio.run(measure(name, options.nodes, options.placed, options.pods))
            for _ in range(options.rounds)
        ]
        cycle, everything = (statistics.median(column) for column in zip(*rounds, strict=True))
        print(f"{name:<28}{cycle:>10.3f}{everything:>10.3f}{SCENARIOS[name][1]:>10.2f}", flush=True)


if __name__ == "__main__":
    main()
