from __future__ import annotations

from proreus.testing import Harness, make_node, make_pod
from proreus.testing.agreement import agree


def gpus(count: int) -> dict[str, int]:
    return {"nvidia.com/gpu": count}


def test_the_most_idle_node_wins(plugin, config) -> None:
    nodes = [make_node(f"n{n}", resources=gpus(n)) for n in (2, 8, 4)]
    running = [make_pod("old", node_name="n8", resources=gpus(5))]
    cluster = Harness([plugin], nodes, running, config=config)
    first = cluster.schedule(make_pod("a", resources=gpus(1)))
    assert [first.score(node, "GpuIdle") for node in ("n2", "n8", "n4")] == [250, 375, 500]
    assert first.node == "n4"
    assert {cluster.schedule(make_pod(name, resources=gpus(1))).node for name in "bc"} == {
        "n4",
        "n8",
    }


def test_pods_without_gpus_are_skipped(plugin, config) -> None:
    cluster = Harness([plugin], [make_node("a"), make_node("b", resources=gpus(8))], config=config)
    outcome = cluster.schedule(make_pod("web", cpu="1"))
    assert all("GpuIdle" not in added for added in outcome.scores.values())


def test_both_forms_agree(plugin) -> None:
    agree(plugin, {"resource": "example.com/gpu"}, examples=50)
