from __future__ import annotations

from proreus.addons.pod_state import PodState
from proreus.testing import Harness, make_pod


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
