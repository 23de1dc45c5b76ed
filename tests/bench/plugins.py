"""The cost of plugins that filter or score single nodes: microseconds a call, both forms.

Run it by hand: ``python tests/bench/plugins.py [NODES]``.
"""

from __future__ import annotations

import random
import sys
import timeit
from collections.abc import Callable
from typing import Any

from proreus.framework.cycle_state import CycleState
from proreus.framework.plugin import FilterPlugin, ScorePlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.verdicts import Verdicts
from proreus.plugins.image_locality import ImageLocality
from proreus.plugins.node_affinity import NodeAffinity
from proreus.plugins.node_name import NodeName
from proreus.plugins.node_ports import NodePorts
from proreus.plugins.node_resources_balanced_allocation import NodeResourcesBalancedAllocation
from proreus.plugins.node_resources_fit import NodeResourcesFit
from proreus.plugins.node_unschedulable import NodeUnschedulable
from proreus.plugins.taint_toleration import TaintToleration
from proreus.testing import FakeHandle, make_node, make_plugin, make_pod

PLUGINS = (
    NodeUnschedulable,
    NodeName,
    TaintToleration,
    NodeAffinity,
    NodePorts,
    NodeResourcesFit,
    NodeResourcesBalancedAllocation,
    ImageLocality,
)
ZONES = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z1", "z2"]}]}
            ]
        },
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {
                "weight": 10,
                "preference": {
                    "matchExpressions": [{"key": "zone", "operator": "In", "values": ["z1"]}]
                },
            }
        ],
    }
}


def microseconds(call: Callable[[], Any]) -> float:
    timer = timeit.Timer(call)
    count = max(1, timer.autorange()[0] // 5)
    return min(timer.repeat(5, count)) / count * 1e6


def cluster(size: int) -> FakeHandle:
    """Return nodes in three zones, half full, one in ten tainted or cordoned, each with images."""
    rng = random.Random(7)
    nodes = [
        make_node(
            f"n{i}",
            "16",
            "64Gi",
            labels={"zone": f"z{i % 3}"},
            taints=["a:PreferNoSchedule"] if i % 10 == 0 else ["b:NoSchedule"] * (i % 10 == 1),
            unschedulable=i % 20 == 2,
            images={f"image{rng.randrange(50)}:v1": rng.randrange(10**9) for _ in range(8)},
        )
        for i in range(size)
    ]
    pods = [
        make_pod(
            f"p{i}",
            f"{rng.randrange(1, 40)}00m",
            f"{rng.randrange(1, 160)}00Mi",
            host_ports=[80] if i % 7 == 0 else (),
            node_name=f"n{i % size}",
        )
        for i in range(2 * size)
    ]
    return FakeHandle(nodes, pods)


def costs(kind: type[FilterPlugin] | type[ScorePlugin], handle: FakeHandle, pod: PodInfo) -> str:
    plugin: Any = make_plugin(kind, handle)
    state, table, node = CycleState(), handle.nodes, handle.nodes[-3]
    found: list[float | None] = [microseconds(lambda: hash(plugin.sign(pod))), *[None] * 4]
    if issubclass(kind, FilterPlugin):

        def evaluate() -> None:
            plugin.filter_all(state, pod, table, Verdicts(len(table), plugin.name))

        found[1] = microseconds(evaluate)
        found[2] = microseconds(lambda: plugin.filter(state, pod, node))
    if issubclass(kind, ScorePlugin):
        found[3] = microseconds(lambda: plugin.score_all(state, pod, table))
        found[4] = microseconds(lambda: plugin.score(state, pod, node))
    return "".join(f"{'':>12}" if cost is None else f"{cost:>12.2f}" for cost in found)


def main() -> None:
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    handle = cluster(size)
    pods = {
        "plain pod": make_pod("pending", "500m", "1Gi"),
        "pod with everything": make_pod(
            "pending",
            "500m",
            "1Gi",
            image="image7:v1",
            host_ports=[80],
            affinity=ZONES,
            tolerations=[{"key": "b", "operator": "Exists"}],
        ),
        "pod that fits nowhere": make_pod("pending", "17", "65Gi"),
    }
    columns = ("sign", "filter_all", "filter", "score_all", "score")
    for title, pod in pods.items():
        print(f"\n{title + f', {size} nodes, µs':<34}" + "".join(f"{c:>12}" for c in columns))
        for kind in PLUGINS:
            print(f"{kind.name:<34}" + costs(kind, handle, pod))


if __name__ == "__main__":
    main()
