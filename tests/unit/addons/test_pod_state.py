from __future__ import annotations

from proreus.addons.pod_state import PodState
from proreus.framework import CycleState
from proreus.testing import Harness, make_node, make_pod


def test_terminating_pods_count_for_a_node_and_nominated_ones_against_it() -> None:
    cluster = Harness([PodState], ["a", "b", "c"])
    for number in range(2):
        cluster.add(make_pod(f"old-{number}", node_name="a"))
        stamp = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
        cluster.patch("Pod", f"old-{number}", stamp)
    cluster.add(make_pod("next", "9", priority=10, spec={"nodeName": ""}))
    cluster.patch("Pod", "next", {"status": {"nominatedNodeName": "b"}})
    outcome = cluster.schedule(make_pod("p", priority=20))
    assert [outcome.score(name, "PodState") for name in "abc"] == [100, 0, 33]


def test_counts_are_kept_and_follow_the_nodes_that_change() -> None:
    cluster = Harness([PodState], [f"n{number}" for number in range(40)])
    plugin, pod = cluster.plugin(PodState), make_pod("p")

    def scores() -> list[int]:
        return plugin.score_all(CycleState(), pod, cluster.nodes).tolist()

    assert scores() == [0] * 40
    ending = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    cluster.add(*(make_pod(f"p{n}", node_name=f"n{n}", metadata=ending) for n in (3, 7)))
    assert sorted(scores()) == [0] * 38 + [1, 1]
    cluster.remove("Node", "n3")
    cluster.remove("Pod", "p7")
    assert scores() == [0] * 39
    cluster.add(make_node("new"), make_pod("late", node_name="new", metadata=ending))
    assert sorted(scores()) == [0] * 39 + [1]
