"""How long a preemption takes where gangs run.

    PYTHONPATH=tests python -m bench.gang_preemption [--nodes 1000] [--repeats 3]

Each node runs 8 pods of gangs of 16 that need 12. A pod by itself preempts, and then a gang of 50,
with GangPreemption and with DefaultPreemption in turn. Prints milliseconds, medians of several.
"""

from __future__ import annotations

import argparse
import gc
import statistics
from time import perf_counter

from bench.gangs import gang
from proreus.addons.coscheduling import Coscheduling
from proreus.addons.coscheduling.groups import POD_GROUP_LABEL
from proreus.addons.gang_preemption import GangPreemption
from proreus.framework import Plugin
from proreus.objects import PODS
from proreus.testing import Harness, make_node, make_pod

SIZE, NEEDED = 16, 12


def cluster_of(nodes: int, preemption: str) -> Harness:
    plugins: list[type[Plugin]] = [Coscheduling]
    if preemption == "GangPreemption":
        plugins.append(GangPreemption)
    enabled = [{"name": "Coscheduling"}, {"name": preemption}]
    sort = {"disabled": [{"name": "*"}], "enabled": [{"name": "Coscheduling"}]}
    points = {"disabled": [{"name": "DefaultPreemption"}], "enabled": enabled}
    profile = {
        "plugins": {"queueSort": sort, "multiPoint": points},
        "pluginConfig": [{"name": "Coscheduling", "args": {"mode": "plan"}}],
    }
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [profile],
    }
    pods = [
        make_pod(
            f"p{number}",
            "1",
            labels={POD_GROUP_LABEL: f"g{number // SIZE}"},
            node_name=f"n{number % nodes}",
        )
        for number in range(8 * nodes)
    ]
    groups = [gang(f"g{number}", NEEDED) for number in range(8 * nodes // SIZE + 1)]
    made = [make_node(f"n{number}", "8", pods=110) for number in range(nodes)]
    return Harness(plugins, made, [*groups, gang("urgent", 50), *pods], config=config)


def attempt(cluster: Harness, pods: list) -> tuple[float, int]:
    """Return the milliseconds of one attempt of pods that have to preempt, and how many go."""
    before = len(cluster.api.store(PODS))
    cluster.add(*pods)
    scheduler = cluster.scheduler
    # The test kit's record of every node's score would cost more than the attempt.
    scheduler.scheduling_cycle.observer = None
    gc.collect()
    popped = scheduler.queue.pop()

    async def schedule() -> float:
        started = perf_counter()
        await scheduler.schedule_one(popped)
        return perf_counter() - started

    seconds = cluster._do(schedule())
    return seconds * 1000, before + len(pods) - len(cluster.api.store(PODS))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    label = {POD_GROUP_LABEL: "urgent"}
    alone = [make_pod("urgent", "1", priority=100)]
    group = [make_pod(f"u{n:02}", "1", priority=100, labels=label) for n in range(50)]
    for text, pods in (("a pod", alone), ("a gang of 50", group)):
        found: dict[str, list[tuple[float, int]]] = {}
        for _ in range(args.repeats):
            for preemption in ("DefaultPreemption", "GangPreemption"):
                one = attempt(cluster_of(args.nodes, preemption), pods)
                found.setdefault(preemption, []).append(one)
        for preemption, results in found.items():
            milliseconds = statistics.median(time for time, _ in results)
            gone = results[0][1]
            print(
                f"{text}, {args.nodes} nodes, {preemption}: {milliseconds:.1f} ms ({gone} evicted)"
            )


if __name__ == "__main__":
    main()
