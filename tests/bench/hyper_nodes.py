"""How long the HyperNodes for a gang are found: ``python tests/bench/hyper_nodes.py``.

HyperNodes of 40 nodes each, and of 16 of these, whose members are named, matched by a pattern or
selected by a label. Prints milliseconds of the first gang after a change, and of the next ones.
"""

from __future__ import annotations

import argparse
import statistics
from time import perf_counter
from typing import Any

from proreus.addons.coscheduling import Coscheduling
from proreus.addons.group_topology import GroupTopology
from proreus.framework import CycleState, PodGroupInfo
from proreus.testing import Harness, make_node, make_pod

RACK, BLOCK = 40, 16


def hyper_node(name: str, tier: int, members: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "apiVersion": "topology.volcano.sh/v1alpha1",
        "kind": "HyperNode",
        "metadata": {"name": name},
        "spec": {"tier": tier, "members": members},
    }


def named(names: list[str], kind: str = "Node") -> list[dict[str, Any]]:
    return [{"type": kind, "selector": {"exactMatch": {"name": name}}} for name in names]


def members_of(rack: int, how: str) -> list[dict[str, Any]]:
    names = [f"n{number:05}" for number in range(RACK * rack, RACK * (rack + 1))]
    if how == "named":
        return named(names)
    if how == "by pattern":
        return [{"selector": {"regexMatch": {"pattern": f"^({'|'.join(names)})$"}}}]
    return [{"selector": {"labelMatch": {"matchLabels": {"rack": f"r{rack}"}}}}]


def cluster_of(nodes: int, how: str) -> Harness:
    made = [make_node(f"n{n:05}", "8", labels={"rack": f"r{n // RACK}"}) for n in range(nodes)]
    racks = range(-(-nodes // RACK))
    tree = [hyper_node(f"r{rack}", 1, members_of(rack, how)) for rack in racks]
    for first in racks[::BLOCK]:
        children = [f"r{rack}" for rack in racks[first : first + BLOCK]]
        tree.append(hyper_node(f"b{first}", 2, named(children, "HyperNode")))
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "default"},
        "spec": {"minMember": 1000, "networkTopology": {"mode": "hard"}},
    }
    args = {"Coscheduling": {"mode": "plan"}}
    return Harness([Coscheduling, GroupTopology], made, [group, *tree], args=args)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    args = parser.parse_args()
    annotations = {"scheduling.k8s.io/group-name": "g"}
    pods = [make_pod(f"p{n}", "2", metadata={"annotations": annotations}) for n in range(1000)]
    group = PodGroupInfo("default", "g", tuple(pods))
    for how in ("named", "by pattern", "by label"):
        cluster = cluster_of(args.nodes, how)
        plugin, times = cluster.plugin(GroupTopology), []
        for _ in range(6):
            started = perf_counter()
            found = plugin.generate_placements(CycleState(), group, cluster.nodes)
            times.append((perf_counter() - started) * 1000)
            assert isinstance(found, tuple | list), found
        rest = statistics.median(times[1:])
        print(f"{args.nodes} nodes {how}: first {times[0]:.1f} ms, next {rest:.1f} ms")


if __name__ == "__main__":
    main()
