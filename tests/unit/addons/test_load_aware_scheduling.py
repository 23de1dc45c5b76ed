from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from proreus.addons.load_aware_scheduling import LoadAwareScheduling
from proreus.addons.load_aware_scheduling.estimator import MOST_USED
from proreus.addons.node_metrics.metrics import Aggregation
from proreus.framework import ConfigError
from proreus.testing import FakeHandle, Harness, HarnessOptions, make_node, make_plugin, make_pod
from unit.addons.load_watcher import WATCHER, LoadWatcher, cpu, memory

GIB = 2**30


def plugin(**args) -> LoadAwareScheduling:
    return make_plugin(LoadAwareScheduling, FakeHandle(), {**WATCHER, **args})


def harness(server: LoadWatcher, nodes, **args) -> Harness:
    given = {LoadAwareScheduling.name: {**WATCHER, **args}}
    options = HarnessOptions(http_get=server)
    return Harness([LoadAwareScheduling], nodes, args=given, options=options)


def asking(name: str, requests: dict, limits: dict | None = None, **spec):
    resources = {"requests": requests, "limits": limits or {}}
    return make_pod(name, spec={"containers": [{"name": "c", "resources": resources}], **spec})


def score(cluster: Harness, pod, node: str) -> int:
    return cluster.schedule(pod).score(node, LoadAwareScheduling.name)


def used(cpu_percent: float, memory_percent: float = 0) -> list[dict]:
    return [cpu(cpu_percent), memory(memory_percent)]


# ---- estimates -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requests", "limits", "cpu_estimate", "memory_estimate"),
    [
        ({"cpu": "1"}, {"cpu": "2"}, 1700, 200 * 2**20),
        ({"memory": "1Gi"}, {}, 250, 751_619_277),
        ({}, {}, 250, 200 * 2**20),
        ({"cpu": "1"}, {"cpu": "100m"}, 100, 200 * 2**20),
    ],
)
def test_pods_are_estimated(requests, limits, cpu_estimate: int, memory_estimate: int) -> None:
    pod = asking("p", requests, limits)
    assert plugin()._estimator.estimate(pod.pod).amounts == (cpu_estimate, memory_estimate)


def test_pods_of_the_batch_band_are_estimated_by_batch_resources() -> None:
    requests = {"kubernetes.io/batch-cpu": 2000, "kubernetes.io/batch-memory": "1Gi"}
    pod = asking("p", requests, requests, priority=5500)
    assert plugin()._estimator.estimate(pod.pod).amounts == (1700, 751_619_277)


def test_annotations_of_a_pod_count_where_the_arguments_allow_it() -> None:
    annotations = {
        "scheduling.koordinator.sh/load-estimated-scaling-factors": '{"cpu": 50}',
        "scheduling.koordinator.sh/load-estimated-seconds-after-pod-scheduled": "90",
    }
    pod = make_pod("p", "1", metadata={"annotations": annotations})
    assert plugin()._estimator.estimate(pod.pod).amounts[0] == 850
    allowed = plugin(allowCustomizeEstimation=True)._estimator.estimate(pod.pod)
    assert (allowed.amounts[0], allowed.seconds_after_pod_scheduled) == (500, 90)
    wrong = make_pod("q", "1", metadata={"annotations": dict.fromkeys(annotations, "[1]")})
    ignored = plugin(allowCustomizeEstimation=True)._estimator.estimate(wrong.pod)
    assert (ignored.amounts[0], ignored.seconds_after_pod_scheduled) == (850, 0)


@pytest.mark.parametrize(
    "factors",
    ['{"cpu": 1e999}', '{"cpu": -1000}', '{"cpu": 1' + "0" * 400 + "}", '{"cpu": ' + "[" * 100_000],
    ids=["infinite", "negative", "huge", "deep"],
)
def test_odd_factors_estimate_between_nothing_and_more_than_any_node_has(factors: str) -> None:
    annotations = {"scheduling.koordinator.sh/load-estimated-scaling-factors": factors}
    pod = make_pod("p", "1", metadata={"annotations": annotations})
    estimate = plugin(allowCustomizeEstimation=True)._estimator.estimate(pod.pod)
    assert 0 <= estimate.amounts[0] <= MOST_USED


@pytest.mark.parametrize("nodes", [2, 150])
@pytest.mark.parametrize("limit", ["9E", "60P", "40P"])
def test_limits_beyond_all_capacity_keep_nobody_from_other_nodes(limit: str, nodes: int) -> None:
    names = [f"n{number}" for number in range(nodes)]
    cluster = harness(LoadWatcher(**{name: used(10, 10) for name in names}), names)
    requests, limits = {"cpu": "1m"}, {"cpu": limit, "memory": limit}
    cluster.add(*(asking(f"huge{n}", requests, limits, nodeName="n0") for n in range(2)))
    outcome = cluster.schedule(make_pod("p", "1", "1Gi"))
    found = [outcome.score(name, LoadAwareScheduling.name) for name in ("n0", "n1")]
    assert found == [0, 74]


# ---- Score ---------------------------------------------------------------------------------------


def test_nodes_that_use_least_are_preferred() -> None:
    server = LoadWatcher(a=used(63.75, 10), b=used(10, 10))
    nodes = [make_node(name, "8", "100Gi") for name in "abc"]
    cluster = harness(server, nodes, resourceWeights={"cpu": 1})
    outcome = cluster.schedule(make_pod("p", "200m"))
    # (8000 - 5100 - 170) / 8000, and a node without metrics.
    assert [outcome.score(name, LoadAwareScheduling.name) for name in "abc"] == [34, 87, 0]
    assert outcome.node == "b"


def test_weights_of_resources_and_of_the_dominant_one() -> None:
    server = LoadWatcher(a=used(50, 20), b=used(0))
    nodes = [make_node(name, "10", "100Gi") for name in "ab"]
    factors = {"estimatedScalingFactors": {"cpu": 100}}
    cluster = harness(server, nodes, resourceWeights={"cpu": 1, "memory": 3}, **factors)
    assert score(cluster, make_pod("p", "1"), "a") == (40 + 3 * 80) // 4
    server = LoadWatcher(a=used(50, 20), b=used(0))
    dominant = harness(server, nodes, dominantResourceWeight=2, **factors)
    assert score(dominant, make_pod("p", "1"), "a") == (40 + 80 + 2 * 40) // 4


def test_pods_that_metrics_do_not_show_yet_count() -> None:
    server = LoadWatcher(a=used(0), b=used(50))
    nodes = [make_node(name, "10", "100Gi") for name in "ab"]
    args = {"resourceWeights": {"cpu": 1}, "estimatedScalingFactors": {"cpu": 100}}
    cluster = harness(server, nodes, **args)
    assert score(cluster, make_pod("p0", "1"), "a") == 90
    assert cluster.pod("p0").spec.node_name == "a"
    assert score(cluster, make_pod("p1", "1"), "a") == 80
    # Metrics of a minute later show them both.
    server.end = cluster.clock.now() + 61
    cluster.advance(61)
    assert score(cluster, make_pod("p2", "1"), "a") == 90
    cluster.remove("Pod", "p2")
    assert score(cluster, make_pod("p3", "1"), "a") == 90


def test_estimates_may_count_for_longer_than_metrics_lack_the_pod() -> None:
    server = LoadWatcher(a=used(0), b=used(50))
    nodes = [make_node(name, "10", "100Gi") for name in "ab"]
    args = {"resourceWeights": {"cpu": 1}, "estimatedScalingFactors": {"cpu": 100}}
    cluster = harness(server, nodes, estimatedSecondsAfterPodScheduled=150, **args)
    cluster.schedule(make_pod("p0", "1"))
    for _ in range(4):
        server.end = cluster.clock.now() + 30
        cluster.advance(31)
    assert score(cluster, make_pod("p1", "1"), "a") == 80
    for _ in range(3):
        server.end = cluster.clock.now() + 30
        cluster.advance(31)
    assert score(cluster, make_pod("p2", "1"), "a") == 80  # p1 counts still, p0 does not


def test_a_pod_counts_until_some_time_after_it_is_initialized() -> None:
    server = LoadWatcher(a=used(0), b=used(50))
    nodes = [make_node(name, "10", "100Gi") for name in "ab"]
    cluster = harness(server, nodes, estimatedSecondsAfterInitialized=60)
    cluster.schedule(make_pod("p0", "1"))
    server.end = cluster.clock.now() + 120
    cluster.advance(120)
    recent = cluster.plugin(LoadAwareScheduling).recent
    assert recent.by_node.keys() == {"a"}
    since = datetime.fromtimestamp(cluster.clock.now(), UTC).isoformat()
    condition = {"type": "Initialized", "status": "True", "lastTransitionTime": since}
    cluster.patch("Pod", "p0", {"status": {"conditions": [condition]}})
    cluster.advance(31)
    assert recent.by_node.keys() == {"a"}
    cluster.advance(60)
    assert not recent.by_node


def test_stale_metrics_are_visible_and_neutral(caplog) -> None:
    server = LoadWatcher(a=used(20), b=used(60))
    cluster = harness(server, "ab", usageThresholds={"cpu": 50})
    stale = "proreus_stale_node_metrics"
    assert cluster.schedule(make_pod("p")).node == "a"
    assert cluster.metric(stale, LoadAwareScheduling.name) == 0
    server.broken = True
    cluster.advance(181 + 30)
    assert cluster.metric(stale, LoadAwareScheduling.name) == 1
    assert "missing or too old" in caplog.text
    outcome = cluster.schedule(make_pod("q"))
    assert [outcome.score(name, LoadAwareScheduling.name) for name in "ab"] == [0, 0]


def test_stale_metrics_reject_nodes_where_that_is_asked_for() -> None:
    server = LoadWatcher()
    server.broken = True
    args = {"usageThresholds": {"cpu": 50}, "enableScheduleWhenNodeMetricsExpired": False}
    cluster = harness(server, "ab", **args)
    outcome = cluster.schedule(make_pod("p"))
    assert "2 node(s) nodeMetric expired" in outcome.message
    server.broken, server.end = False, cluster.clock.now()
    server.percent = {"a": used(10)}
    cluster.advance(31)
    cluster.schedule_all()
    assert cluster.pod("p").spec.node_name


# ---- Filter --------------------------------------------------------------------------------------


def test_without_thresholds_nothing_is_rejected() -> None:
    cluster = harness(LoadWatcher(a=used(99, 99)), [make_node("a", "8", "100Gi")])
    assert cluster.schedule(make_pod("p", "200m")).node == "a"


def test_a_node_beyond_a_threshold_is_rejected() -> None:
    server = LoadWatcher(a=used(63.75))
    cluster = harness(server, [make_node("a", "8", "100Gi")], usageThresholds={"cpu": 65})
    assert cluster.schedule(make_pod("small", "100m")).node == "a"
    server.end = cluster.clock.now() + 61
    cluster.advance(61)
    outcome = cluster.schedule(make_pod("p", "200m"))
    assert "1 node(s) cpu usage exceed threshold" in outcome.message
    daemon = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u"}
    owned = make_pod("d", "200m", metadata={"ownerReferences": [{**daemon, "controller": True}]})
    assert cluster.schedule(owned).node == "a"


def test_memory_has_a_threshold_too_and_an_unmeasured_node_none() -> None:
    nodes = [make_node(name, "8", "100Gi") for name in "ab"]
    server = LoadWatcher(a=used(0, 95.6))
    cluster = harness(server, nodes, usageThresholds={"memory": 95})
    outcome = cluster.schedule(asking("p", {"memory": "1"}))
    assert outcome.node == "b"
    assert "memory usage exceed threshold" in str(outcome)


def test_a_hot_node_is_rejected_until_it_is_well_below_its_threshold() -> None:
    server = LoadWatcher(a=used(70))
    node = make_node("a", "8", "100Gi")
    cluster = harness(server, [node], usageThresholds={"cpu": 65}, resourceWeights={"cpu": 1})
    cluster.schedule(make_pod("p", "100m"))
    for percent, rejected in ((63, True), (61, True), (60, False), (63, False)):
        server.percent, server.end = {"a": used(percent)}, cluster.clock.now() + 31
        cluster.advance(31)
        status = cluster.plugin(LoadAwareScheduling).filter(
            None, asking("q", {"cpu": "1m"}), cluster.node("a")
        )
        assert (status is not None) == rejected, percent


def test_metrics_that_show_room_wake_the_pods_that_fit_there() -> None:
    server = LoadWatcher(a=used(70))
    cluster = harness(server, [make_node("a", "10", "100Gi")], usageThresholds={"cpu": 65})
    cluster.schedule(make_pod("small", "500m"))
    cluster.schedule(make_pod("large", "5"))
    server.percent, server.end = {"a": used(50)}, cluster.clock.now() + 31
    cluster.advance(31)
    assert cluster.queue_of("large") == "unschedulable"
    cluster.advance(10)
    cluster.schedule_all()
    assert cluster.pod("small").spec.node_name == "a"
    assert not cluster.pod("large").spec.node_name


def test_metrics_that_show_a_new_pod_using_little_wake_the_pods_that_it_kept_out() -> None:
    server = LoadWatcher(a=used(30))
    cluster = harness(server, [make_node("a", "10", "100Gi")], usageThresholds={"cpu": 65})
    assert cluster.schedule(make_pod("first", "3")).bound
    assert not cluster.schedule(make_pod("second", "2")).bound
    # More than before the first pod came, but less than with what was estimated of it.
    server.percent, server.end = {"a": used(40)}, cluster.clock.now() + 62
    cluster.advance(72)
    cluster.schedule_all()
    assert cluster.pod("second").spec.node_name == "a"


def test_a_node_may_have_thresholds_of_its_own_and_its_raw_allocatable() -> None:
    server = LoadWatcher(a=used(70), b=used(70), c=used(70))
    nodes = [make_node(name, "8", "100Gi") for name in "abc"]
    cluster = harness(server, nodes, usageThresholds={"cpu": 85})
    own, raw = "scheduling.koordinator.sh/usage-thresholds", "node.koordinator.sh/raw-allocatable"
    for name, given in (
        ("b", {own: json.dumps({"usageThresholds": {"cpu": 75}})}),
        ("c", {own: "[", raw: '{"cpu": "4"}'}),
    ):
        cluster.patch("Node", name, {"metadata": {"annotations": given}}, "")
    found = cluster.plugin(LoadAwareScheduling)
    pod = asking("p", {"cpu": "1"})
    rejected = [found.filter(None, pod, cluster.node(name)) is not None for name in "abc"]
    assert rejected == [False, True, True]


@pytest.mark.parametrize("nodes", [2, 150])
@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("scheduling.koordinator.sh/usage-thresholds", '{"usageThresholds": {"cpu": []}}'),
        ("scheduling.koordinator.sh/usage-thresholds", '{"usageThresholds": {"cpu": "x"}}'),
        ("scheduling.koordinator.sh/usage-thresholds", '{"usageThresholds": {"cpu": 1e300}}'),
        ("scheduling.koordinator.sh/usage-thresholds", "[" * 100_000),
        ("node.koordinator.sh/raw-allocatable", '{"cpu": "x"}'),
        ("node.koordinator.sh/raw-allocatable", '{"cpu": "9E", "memory": "9E"}'),
        ("node.koordinator.sh/raw-allocatable", '["cpu"]'),
    ],
)
def test_an_odd_annotation_of_one_node_keeps_nobody_from_others(
    key: str, text: str, nodes: int
) -> None:
    names = [f"n{number}" for number in range(nodes)]
    server = LoadWatcher(**{name: used(10, 10) for name in names})
    cluster = harness(server, names, usageThresholds={"cpu": 65, "memory": 95})
    cluster.patch("Node", "n0", {"metadata": {"annotations": {key: text}}}, "")
    outcome = cluster.schedule(make_pod("p", "1", "1Gi"))
    assert outcome.score("n1", LoadAwareScheduling.name) == 74
    assert outcome.bound


# ---- metrics -------------------------------------------------------------------------------------


async def test_prometheus_is_asked_for_percentiles() -> None:
    asked = []

    async def answer(url: str, **_: object) -> bytes:
        asked.append(url)
        value = "0.9" if "quantile_over_time%280.95" in url else "0.2"
        found = [{"metric": {"instance": "a"}, "value": [0, value]}]
        return json.dumps({"data": {"result": found}}).encode()

    handle = FakeHandle([make_node("a", "10", "100Gi"), make_node("b", "10", "100Gi")])
    handle.http_get = answer  # type: ignore[method-assign]
    args = {
        "metricProvider": {"type": "Prometheus"},
        "aggregated": {
            "usageThresholds": {"cpu": 65},
            "usageAggregationType": "p95",
            "usageAggregatedDuration": "10m",
            "scoreAggregationType": "avg",
        },
        "resourceWeights": {"cpu": 1},
        "estimatedScalingFactors": {"cpu": 100},
    }
    found = make_plugin(LoadAwareScheduling, handle, args)
    assert found.args.aggregations == (Aggregation("p95", 600), Aggregation("avg", 300))
    found.use(await found._provider.read())
    pod = make_pod("p", "1")
    assert found.filter(None, pod, handle.nodes[0]) is not None
    assert found.score(None, pod, handle.nodes[0]) == 70
    assert any("%5B600s%5D" in url for url in asked)


@pytest.mark.parametrize(
    "args",
    [
        {"usageThresholds": {"cpu": 101}},
        {"usageThresholds": {"disk": 10}},
        {"estimatedScalingFactors": {"cpu": -1}},
        {"resourceWeights": {"cpu": 0}},
        {"resourceWeights": {"cpu": -1, "memory": 1}},
        {"estimator": "mine"},
        {"nodeMetricExpirationSeconds": 0},
        {"filterHysteresis": -1},
        {"aggregated": {"usageAggregationType": "p95"}},
        {"prodUsageThresholds": {"cpu": 50}},
        {"scoreAccordingProdUsage": True},
    ],
)
def test_invalid_arguments_are_refused(args: dict) -> None:
    with pytest.raises(ConfigError):
        Harness([LoadAwareScheduling], args={LoadAwareScheduling.name: args})


def test_nodes_that_are_gone_are_forgotten() -> None:
    server = LoadWatcher(a=used(10))
    cluster = harness(server, [make_node("a", "10", "100Gi")], usageThresholds={"cpu": 65})
    for number in range(3):
        cluster.add(make_node(f"gone-{number}", "10", "100Gi"))
        cluster.schedule(make_pod(f"p{number}", "1"))
        cluster.remove("Node", f"gone-{number}")
    cluster.advance(61)
    assert cluster.plugin(LoadAwareScheduling)._loads._loads.keys() == {"a"}
