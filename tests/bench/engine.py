"""What one scheduling cycle costs: microseconds a pod and pods a second, without any network.

    make bench-engine            # or: python tests/bench/engine.py [--nodes N] [--pods N]

A cluster of fake nodes in memory; pods pass the whole cycle (pop, PreFilter … Permit, assume) and
come back as bound. Each scenario is run several times in one process; the median is printed.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
from collections.abc import Callable
from time import perf_counter

from proreus.config.load import default_configuration
from proreus.feature_gates import FeatureGates
from proreus.objects.codec import decoder_for
from proreus.objects.kinds import NODES, PODS
from proreus.objects.node import Node
from proreus.objects.pod import Pod
from proreus.offline.cluster import OfflineCluster
from proreus.plugins import IN_TREE
from proreus.runtime.registry import Registry


def node(number: int) -> Node:
    """Return a node of 32 CPUs in one of three zones."""
    name = f"node-{number}"
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"zone-{number % 3}"}
    allocatable = {"cpu": "32", "memory": "256Gi", "pods": "110"}
    raw = {
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": allocatable, "capacity": allocatable},
    }
    return decoder_for(Node).convert(raw)


def alike(number: int) -> dict[str, str]:
    """Return the same requests for every pod."""
    return {"cpu": "100m", "memory": "500Mi"}


def different(number: int) -> dict[str, str]:
    """Return requests that no other pod has."""
    return {"cpu": f"{100 + number}m", "memory": f"{500 + number % 97}Mi"}


def pod(number: int, requests: dict[str, str]) -> Pod:
    """Return a pending pod."""
    name = f"pod-{number}"
    container = {
        "name": "c",
        "image": "registry.example/app:1",
        "resources": {"requests": requests},
    }
    raw = {
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": "a"}},
        "spec": {"schedulerName": "default-scheduler", "containers": [container]},
    }
    return decoder_for(Pod).convert(raw)


async def measure(nodes: int, pods: int, requests: Callable[[int], dict[str, str]]) -> float:
    """Return the microseconds that a pod's scheduling cycle takes."""
    gates, registry = FeatureGates(), Registry(IN_TREE)
    cluster = OfflineCluster(default_configuration(registry, gates), registry, gates)
    for number in range(nodes):
        cluster.api.put(NODES, node(number))
    warm = 20
    for number in range(pods + warm):
        cluster.api.put(PODS, pod(number, requests(number)))
    scheduler = cluster.scheduler
    gc.collect()
    gc.freeze()
    spent, placed = 0.0, 0
    for number in range(pods + warm):
        queued = scheduler.queue.pop()
        assert queued is not None
        started = perf_counter()
        node_name = await scheduler.schedule_one(queued)
        if number >= warm:
            spent += perf_counter() - started
            placed += bool(node_name)
        await cluster.settle()
    assert placed == pods, f"only {placed} of {pods} pods were placed"
    return 1e6 * spent / pods


def main() -> None:
    """Measure the scenarios and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--nodes", type=int, help="only this many nodes")
    parser.add_argument("--pods", type=int, default=2000)
    options = parser.parse_args()
    scenarios = [
        ("identical pods", 5_000, alike, 150),
        ("all pods different in requests", 5_000, different, 500),
        ("identical pods", 100_000, alike, 1000),
    ]
    print(f"{'scenario':<34}{'nodes':>8}{'us a pod':>10}{'pods/s':>9}{'bar, us':>9}")
    for name, nodes, requests, bar in scenarios:
        size = options.nodes or nodes
        rounds = [asyncio.run(measure(size, options.pods, requests)) for _ in range(options.rounds)]
        micro = statistics.median(rounds)
        print(f"{name:<34}{size:>8}{micro:>10.1f}{1e6 / micro:>9.0f}{bar:>9}")


if __name__ == "__main__":
    main()
