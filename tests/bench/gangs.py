"""How long a gang is planned: ``python tests/bench/gangs.py [--pods 1000] [--nodes 5000]``.

One gang that fits, and one of which the last pod fits nowhere, each planned by Coscheduling in mode
``plan`` on a cluster in memory: from the pop to the binding, or to the failure, of all its pods.
Prints milliseconds, medians of several.
"""

from __future__ import annotations

import argparse
import gc
import statistics
from time import perf_counter

from proreus.addons.coscheduling import Coscheduling
from proreus.addons.coscheduling.groups import POD_GROUP_LABEL
from proreus.addons.group_topology import GroupTopology
from proreus.framework.queued_pod_group import QueuedPodGroupInfo
from proreus.objects import PODS
from proreus.testing import Harness, make_node, make_pod

RACK = 40
"""Nodes in a rack."""


def gang(name: str, members: int) -> dict:
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minMember": members},
    }


def plan(pods: int, nodes: int, cpu: str, plugins: list, more: dict) -> tuple[float, int]:
    """Return the milliseconds of one attempt, and how many pods it bound."""
    made = [
        make_node(
            f"n{number}",
            "8",
            labels={"rack": f"r{number // RACK}", "block": f"b{number // RACK // 16}"},
        )
        for number in range(nodes)
    ]
    levels = {"levels": ["block", "rack"]}
    args = {"Coscheduling": {"mode": "plan"}} | ({"GroupTopology": levels} if more else {})
    weights = {"GroupTopology": 1000} if more else {}
    cluster = Harness(plugins, made, [gang("g", pods)], args=args, weights=weights)
    for number in range(pods):
        of_this = cpu if number == pods - 1 else "2"
        pod = make_pod(
            f"p{number:04}", of_this, labels={POD_GROUP_LABEL: "g"}, metadata={"annotations": more}
        )
        cluster.add(pod)
    scheduler = cluster.scheduler
    # The test kit's record of every node's score would cost more than the plan.
    scheduler.scheduling_cycle.observer = None
    gc.collect()
    popped = scheduler.queue.pop()
    assert isinstance(popped, QueuedPodGroupInfo)
    assert popped.size == pods

    async def attempt() -> float:
        started = perf_counter()
        await scheduler.schedule_one(popped)
        return perf_counter() - started

    seconds = cluster._do(attempt())
    bound = sum(bool(one.spec.node_name) for one in cluster.api.store(PODS).values())
    return seconds * 1000, bound


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    preferred = {"kueue.x-k8s.io/podset-preferred-topology": "rack"}
    required = {"kueue.x-k8s.io/podset-required-topology": "block"}
    topology = [Coscheduling, GroupTopology]
    for text, cpu, plugins, asked in (
        ("fits", "2", [Coscheduling], {}),
        ("its last pod fits nowhere", "9", [Coscheduling], {}),
        ("a block is required and there", "2", topology, required),
        ("a rack is preferred, a block holds it", "2", topology, preferred),
        ("a rack is preferred, its last pod fits nowhere", "9", topology, preferred),
    ):
        times = []
        for _ in range(args.repeats):
            milliseconds, placed = plan(args.pods, args.nodes, cpu, plugins, asked)
            times.append(milliseconds)
        print(
            f"{args.pods} pods, {args.nodes} nodes, {text}: {statistics.median(times):.0f} ms "
            f"({placed} bound)"
        )


if __name__ == "__main__":
    main()
