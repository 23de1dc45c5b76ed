"""Pods that name their node are not checked: their requests may add up to more than int64 holds."""

from __future__ import annotations

import pytest

from proreus.testing import Harness, make_node, make_pod

HUGE = str(2**63 - 1)
RESOURCES = [
    {"name": name, "weight": weight}
    for name, weight in (("cpu", 1), ("memory", 1), ("example.com/x", 3))
]
SHAPE = [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]
STRATEGIES = {
    "LeastAllocated": {},
    "MostAllocated": {},
    "RequestedToCapacityRatio": {"requestedToCapacityRatio": {"shape": SHAPE}},
}


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("count", [3, 300], ids=["node by node", "columns"])
def test_other_pods_are_scheduled_as_before(strategy: str, count: int) -> None:
    nodes = [
        make_node(f"n{number}", cpu=cpu, memory="64Gi", resources={"example.com/x": 8})
        for number, cpu in enumerate([1] + [64] * (count - 1))
    ]
    scoring = {"type": strategy, "resources": RESOURCES, **STRATEGIES[strategy]}
    args = {"NodeResourcesFit": {"scoringStrategy": scoring}}
    with Harness(nodes=nodes, args=args) as cluster:
        for number in range(3):
            cluster.add(
                make_pod(
                    f"huge-{number}",
                    cpu=HUGE,
                    memory=HUGE,
                    resources={"example.com/x": HUGE},
                    node_name="n0",
                )
            )
        for number in range(4):
            pod = make_pod(f"p{number}", cpu=2, memory="1Gi", resources={"example.com/x": 1})
            outcome = cluster.schedule(pod)
            assert outcome.node not in ("", "n0"), outcome
        small = cluster.schedule(make_pod("small", memory="1Mi"))
        assert small.node not in ("", "n0"), small
        cluster._cluster.scheduler.cache.validate()
        cluster.remove("Pod", "huge-1")
        cluster._cluster.scheduler.cache.validate()


@pytest.mark.parametrize("count", [2, 300], ids=["node by node", "columns"])
def test_a_pod_as_huge_as_a_node(count: int) -> None:
    """What has no limit may be counted as the greatest number there is."""
    nodes = [make_node("n0", resources={"example.com/x": HUGE})]
    nodes += [make_node(f"n{number}") for number in range(1, count)]
    with Harness(nodes=nodes) as cluster:
        assert cluster.schedule(make_pod("a", resources={"example.com/x": HUGE})).node == "n0"
        again = cluster.schedule(make_pod("b", resources={"example.com/x": 1}))
        assert again.state == "unschedulable", again
        cluster._cluster.scheduler.cache.validate()
