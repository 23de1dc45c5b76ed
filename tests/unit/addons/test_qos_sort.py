from __future__ import annotations

from proreus.addons.qos_sort import QOSSort
from proreus.testing import Harness, make_node, make_pod


def test_pods_of_one_priority_go_by_qos_class_and_then_by_time() -> None:
    def guaranteed(name: str) -> object:
        amounts = {"cpu": "1", "memory": "1Gi"}
        resources = {"requests": amounts, "limits": amounts}
        return make_pod(name, spec={"containers": [{"name": "c", "resources": resources}]})

    cluster = Harness([QOSSort], [])
    cluster.add(
        make_pod("best-effort"),
        make_pod("burstable", "1"),
        guaranteed("guaranteed"),
        make_pod("later", "2"),
        make_pod("important", priority=10),
    )
    cluster.add(make_node("a", "32", "64Gi"))
    cluster.schedule_all()
    order = [event.pod for event in cluster.events() if event.reason == "Scheduled"]
    names = [name.rpartition("/")[2] for name in order]
    assert names == ["important", "guaranteed", "burstable", "later", "best-effort"]
