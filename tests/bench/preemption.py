"""What a preemption costs: milliseconds in PostFilter, one preemptor after another.

    python tests/bench/preemption.py [--nodes N ...] [--preemptors N] [VARIANT ...]

Every node is full of 4 to 20 less important pods, so that each of them is a candidate; a tenth of
them, 100 at least, are tried (kube-scheduler's defaults). Victims vanish at once and the preemptor
takes their place before the next one comes; in variant ``nominated`` the preemptors stay nominated,
as they do while victims take their time to end.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import statistics
from time import perf_counter
from typing import Any

from proreus.config.load import default_configuration
from proreus.feature_gates import FeatureGates
from proreus.objects.codec import decoder_for
from proreus.objects.kinds import NODES, PODS
from proreus.objects.node import LABEL_HOSTNAME, LABEL_ZONE, Node
from proreus.objects.pod import Pod
from proreus.objects.policy import POD_DISRUPTION_BUDGETS, PodDisruptionBudget
from proreus.offline.cluster import OfflineCluster
from proreus.plugins import IN_TREE
from proreus.runtime.registry import Registry

Json = dict[str, Any]

VARIANTS = ("plain", "budgets", "spread", "nominated")
APPS = 40
"""Deployments that the less important pods belong to; with budgets, one for each."""
MILLI_CPU = 32_000
PREEMPTOR_MILLI_CPU = 6_000
IMPORTANT = 1_000


def node(number: int) -> Json:
    """Return a node of 32 CPUs in one of three zones."""
    name = f"node-{number}"
    allocatable = {"cpu": f"{MILLI_CPU}m", "memory": "256Gi", "pods": "110"}
    labels = {LABEL_HOSTNAME: name, LABEL_ZONE: f"zone-{number % 3}"}
    return {
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": allocatable, "capacity": allocatable},
    }


def pod(name: str, milli_cpu: int, app: str, priority: int, spec: Json, started: str = "") -> Json:
    """Return a pod; one that has started runs."""
    requests = {"cpu": f"{milli_cpu}m", "memory": "500Mi"}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": app}},
        "spec": {
            "schedulerName": "default-scheduler",
            "priority": priority,
            "containers": [{"name": "c", "resources": {"requests": requests}}],
            **spec,
        },
        "status": {"phase": "Running", "startTime": started} if started else {},
    }


def less_important(nodes: int) -> list[Json]:
    """Return 4 to 20 pods for each node that use it up, as good as."""
    rng, pods = random.Random(7), []
    for number in range(nodes):
        count = rng.randint(4, 20)
        for index in range(count):
            app, priority = f"app-{rng.randrange(APPS)}", rng.randrange(5)
            started = f"2026-01-01T{rng.randrange(24):02}:{rng.randrange(60):02}:00Z"
            spec = {"nodeName": f"node-{number}"}
            name = f"low-{number}-{index}"
            pods.append(pod(name, MILLI_CPU // count, app, priority, spec, started))
    return pods


def preemptor(number: int, variant: str) -> Json:
    """Return a pod that needs a fifth of a node."""
    constraint = {
        "maxSkew": 3,
        "topologyKey": LABEL_ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "high"}},
    }
    spec = {"topologySpreadConstraints": [constraint]} if variant == "spread" else {}
    return pod(f"high-{number}", PREEMPTOR_MILLI_CPU, "high", IMPORTANT, spec)


def budget(number: int) -> Json:
    """Return a budget of one app that allows two disruptions."""
    name = f"app-{number}"
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": name}}, "minAvailable": 1},
        "status": {"disruptionsAllowed": 2},
    }


async def measure(variant: str, nodes: int, preemptors: int) -> list[float]:
    """Return the milliseconds of each preemption."""
    gates, registry = FeatureGates(), Registry(IN_TREE)
    cluster = OfflineCluster(default_configuration(registry, gates), registry, gates)
    api, scheduler = cluster.api, cluster.scheduler
    for number in range(nodes):
        api.put(NODES, decoder_for(Node).convert(node(number)))
    for raw in less_important(nodes):
        api.put(PODS, decoder_for(Pod).convert(raw))
    for number in range(APPS if variant == "budgets" else 0):
        converted = decoder_for(PodDisruptionBudget).convert(budget(number))
        api.put(POD_DISRUPTION_BUDGETS, converted)
    (profile,) = scheduler.profiles.values()
    plugin = next(p for p in profile.post_filter if p.name == "DefaultPreemption")
    spent: list[float] = []
    inner = plugin.post_filter

    async def timed(*args: Any) -> Any:
        started = perf_counter()
        result = await inner(*args)
        spent.append(1e3 * (perf_counter() - started))
        assert result.nominating is not None, result
        return result

    plugin.post_filter = timed  # type: ignore[method-assign]
    gc.collect()
    gc.freeze()
    number = 0
    while len(spent) < preemptors:
        api.put(PODS, decoder_for(Pod).convert(preemptor(number, variant)))
        number += 1
        outcome = await cluster.schedule_next()
        assert outcome is not None
        if variant != "nominated" and not outcome[1]:  # what is left over may do for one more
            cluster.advance(2)
            outcome = await cluster.schedule_next()
            assert outcome is not None
            assert outcome[1], outcome
    gc.unfreeze()
    return spent


def main() -> None:
    """Measure the variants and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("variants", nargs="*", metavar="VARIANT", help=", ".join(VARIANTS))
    parser.add_argument("--nodes", type=int, nargs="*", default=[1_000, 5_000])
    parser.add_argument("--preemptors", type=int, default=60)
    options = parser.parse_args()
    print(f"{'variant':<12}{'nodes':>8}{'median, ms':>12}{'mean, ms':>12}{'worst, ms':>12}")
    for size in options.nodes:
        for variant in options.variants or VARIANTS:
            spent = asyncio.run(measure(variant, size, options.preemptors))
            numbers = (statistics.median(spent), statistics.mean(spent), max(spent))
            columns = "".join(f"{number:>12.2f}" for number in numbers)
            print(f"{variant:<12}{size:>8}{columns}", flush=True)


if __name__ == "__main__":
    main()
