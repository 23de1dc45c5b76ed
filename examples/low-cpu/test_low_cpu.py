from __future__ import annotations

from datetime import UTC, datetime

import pytest

from proreus.framework import ApiError
from proreus.objects import ObjectMeta
from proreus.testing import Harness, make_node, make_pod

REFRESH_SECONDS = 2


@pytest.fixture
def measure(module):
    """Return a function that sets the CPU usage that metrics-server reports, by node."""

    def put(cluster: Harness, **usage: str) -> None:
        for name, cpu in usage.items():
            now = datetime.fromtimestamp(cluster.clock.now(), UTC)
            metrics = module.NodeMetrics(
                metadata=ObjectMeta(name=name), timestamp=now, usage={"cpu": cpu}
            )
            cluster.put(module.NODE_METRICS, metrics)
        cluster.advance(REFRESH_SECONDS)

    return put


def known(cluster: Harness) -> dict[str, float]:
    return {state: cluster.metric("proreus_low_cpu_nodes", state) for state in ("fresh", "stale")}


def test_busy_nodes_take_no_pod_and_idle_ones_are_preferred(plugin, config, measure) -> None:
    cluster = Harness([plugin], [make_node(name) for name in "abc"], config=config)
    measure(cluster, a="3500m", b="2", c="400m")
    outcome = cluster.schedule(make_pod("p"))
    assert outcome.why_not("a") == "LowCpu: node(s) had too much CPU in use"
    assert [outcome.score(name, "LowCpu") for name in "bc"] == [3 * 50, 3 * 90]
    assert outcome.node == "c"


def test_pods_that_came_after_the_measurement_count_too(plugin, config, measure) -> None:
    cluster = Harness([plugin], [make_node("a"), make_node("b")], config=config)
    measure(cluster, a="0", b="1200m")
    placed = [cluster.schedule(make_pod(name, cpu="1")).node for name in ("p", "q")]
    assert placed == ["a", "a"]
    third = cluster.schedule(make_pod("r", cpu="1"))
    assert [third.score(name, "LowCpu") for name in "ab"] == [3 * 50, 3 * 70]


def test_a_waiting_pod_is_woken_once_a_node_is_less_busy(plugin, config, measure) -> None:
    cluster = Harness([plugin], [make_node("a")], config=config)
    measure(cluster, a="3900m")
    assert not cluster.schedule(make_pod("p")).bound
    measure(cluster, a="3800m")
    assert cluster.queue_of("p") == "unschedulable"
    measure(cluster, a="1")
    assert cluster.queue_of("p") in ("active", "backoff")
    assert cluster.schedule("p").node == "a"


def test_stale_measurements_are_ignored_and_reported(plugin, config, measure, caplog) -> None:
    cluster = Harness([plugin], [make_node("a"), make_node("b")], config=config)
    measure(cluster, a="3900m", b="2")
    assert known(cluster) == {"fresh": 2, "stale": 0}
    caplog.clear()
    cluster.advance(40)
    measure(cluster, b="2")
    cluster.advance(30)
    assert known(cluster) == {"fresh": 1, "stale": 1}
    assert "Nodes without fresh CPU usage" in caplog.text
    outcome = cluster.schedule(make_pod("p"))
    assert set(outcome.feasible) == {"a", "b"}
    assert [outcome.score(name, "LowCpu") for name in "ab"] == [0, 3 * 50]


def test_nodes_without_measurement_may_be_rejected(plugin, measure) -> None:
    args = {"LowCpu": {"unknown": "Reject", "refreshSeconds": "2s"}}
    cluster = Harness([plugin], [make_node("a")], args=args)
    outcome = cluster.schedule(make_pod("p"))
    assert outcome.why_not("a") == "LowCpu: node(s) had no fresh CPU usage"
    measure(cluster, a="1")
    assert cluster.schedule("p").node == "a"


def test_a_failing_api_is_logged_and_keeps_the_last_measurements(
    plugin, config, measure, caplog, monkeypatch
) -> None:
    cluster = Harness([plugin], [make_node("a")], config=config)
    measure(cluster, a="3900m")

    async def refuse(*_: object) -> None:
        raise ApiError(503, "ServiceUnavailable", "the server is currently unable")

    monkeypatch.setattr(cluster.api, "list_all", refuse)
    cluster.advance(10)
    assert "Cannot read metrics.k8s.io" in caplog.text
    assert not cluster.schedule(make_pod("p")).bound
    cluster.advance(60)
    assert known(cluster) == {"fresh": 0, "stale": 1}
    assert cluster.schedule("p").node == "a"
