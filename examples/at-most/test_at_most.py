from __future__ import annotations

import pytest

from proreus.framework import NodeInfo, PodInfo
from proreus.testing import Harness, make_node, make_pod

HOST, RACK = "kubernetes.io/hostname", "example.com/rack"


def node(name: str, rack: str) -> NodeInfo:
    return make_node(name, labels={HOST: name, RACK: rack})


def web(name: str, **more: object) -> PodInfo:
    return make_pod(name, cpu="1", labels={"app": "web"}, **more)


def test_a_node_takes_one_pod_and_a_rack_two(plugin, config) -> None:
    nodes = [node("a-1", "a"), node("a-2", "a"), node("a-3", "a"), node("b-1", "b")]
    cluster = Harness([plugin], nodes, config=config)
    placed = [cluster.schedule(web(f"web-{n}")).node for n in range(4)]

    assert len({*placed[:3]}) == 3
    assert sorted(one[0] for one in placed[:3]) == ["a", "a", "b"]
    assert placed[3] == ""
    message = cluster.outcome("web-3").message
    assert "1 node(s) had 2 pods of the application in their example.com/rack" in message


def test_other_applications_and_namespaces_do_not_count(plugin, config) -> None:
    others = [
        make_pod("other", labels={"app": "db"}, node_name="n"),
        make_pod("elsewhere", namespace="test", labels={"app": "web"}, node_name="n"),
        make_pod("plain", node_name="n"),
    ]
    cluster = Harness([plugin], [node("n", "a")], others, config=config)
    assert cluster.schedule(web("web")).bound
    assert cluster.schedule(make_pod("another")).bound


def test_the_end_of_a_pod_of_the_application_wakes_the_next(plugin, config) -> None:
    running = [make_pod("old", labels={"app": "db"}, node_name="n"), web("first", node_name="n")]
    cluster = Harness([plugin], [node("n", "a")], running, config=config)
    assert not cluster.schedule(web("second")).bound
    cluster.remove("Pod", "old")
    assert cluster.queue_of("second") == "unschedulable"
    cluster.remove("Pod", "first")
    cluster.advance(2)
    assert cluster.schedule("second").bound


def test_preemption_frees_a_place(plugin, config) -> None:
    running = [web("first", node_name="a-1", priority=1), make_pod("filler", node_name="a-1")]
    cluster = Harness([plugin], [node("a-1", "a")], running, config=config)
    outcome = cluster.schedule(web("urgent", priority=10))
    assert outcome.nominated_node == "a-1"
    cluster.advance(60)
    with pytest.raises(LookupError):
        cluster.pod("first")
    assert cluster.pod("filler")
