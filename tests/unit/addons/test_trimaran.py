from __future__ import annotations

import json
from datetime import UTC, datetime
from math import floor, inf, sqrt

import msgspec
import numpy as np
import pytest

from proreus.addons.node_metrics.metrics import (
    Metric,
    MetricsData,
    NodeMetricList,
    Usage,
    WatcherMetrics,
    Window,
    cpu_values,
    usage_of,
)
from proreus.addons.node_metrics.providers import NODE_USAGES, NodeUsage
from proreus.addons.trimaran.load_variation_risk_balancing import LoadVariationRiskBalancing
from proreus.addons.trimaran.low_risk_over_commitment import (
    Beta,
    Committed,
    LowRiskOverCommitment,
    limit_risk,
    load_risk,
)
from proreus.addons.trimaran.peaks import MODEL_FILE, Peaks, PowerModel
from proreus.addons.trimaran.target_load_packing import TargetLoadPacking
from proreus.framework import ConfigError, CycleState
from proreus.objects import ObjectMeta
from proreus.testing import FakeHandle, Harness, HarnessOptions, make_node, make_plugin, make_pod
from unit.addons.load_watcher import START, WATCHER, LoadWatcher, cpu


def harness(plugin, server: LoadWatcher, nodes, **args) -> Harness:
    given = {plugin.name: {**WATCHER, **args}}
    return Harness([plugin], nodes, args=given, options=HarnessOptions(http_get=server))


def scores(cluster: Harness, plugin, pod, names: str) -> list[int]:
    outcome = cluster.schedule(pod)
    return [outcome.score(name, plugin.name) for name in names]


# ---- metrics -------------------------------------------------------------------------------------


def test_the_last_average_wins_over_latest_values() -> None:
    metrics = (Metric("CPU", "AVG", 10), Metric("CPU", "Latest", 90), Metric("CPU", "AVG", 20))
    assert usage_of((*metrics, Metric("CPU", "STD", 5)), "CPU") == Usage(20, 5)
    assert usage_of((Metric("CPU", "", 30),), "CPU") == Usage(30, 0)
    assert usage_of((Metric("CPU", "STD", 5),), "CPU") == Usage(0, 5)
    assert usage_of(metrics, "Memory") is None
    assert cpu_values((*metrics, Metric("CPU", "", 1))) == [10, 90, 20]


def test_metrics_of_metrics_k8s_io_are_percent_of_the_capacity() -> None:
    cluster = Harness([TargetLoadPacking], [make_node("a", "4", "8Gi"), make_node("b", "4", "8Gi")])
    usage = {"cpu": "800m", "memory": "2Gi"}
    stamp = datetime.fromtimestamp(START - 10, UTC)
    found = NodeUsage(metadata=ObjectMeta(name="a"), timestamp=stamp, usage=usage)
    cluster.put(NODE_USAGES, found)
    cluster.advance(30)
    measured = cluster.plugin(TargetLoadPacking).measured
    assert measured is not None
    assert measured.of("a") == (Metric("CPU", "Latest", 20.0), Metric("Memory", "Latest", 25.0))
    assert measured.of("b") == ()


async def test_prometheus_is_asked_for_the_longest_window_with_data() -> None:
    asked: list[tuple[str, dict]] = []

    async def answer(url: str, *, headers: dict, insecure_skip_verify: bool, **_: object) -> bytes:
        asked.append((url, headers))
        assert insecure_skip_verify
        found = [{"metric": {"instance": "a:9100"}, "value": [0, "0.25"]}] if "10m" in url else []
        return json.dumps({"data": {"result": found}}).encode()

    handle = FakeHandle([make_node("a")])
    handle.http_get = answer  # type: ignore[method-assign]
    provider = {"type": "Prometheus", "address": "http://p:9090/", "token": "t"}
    plugin = make_plugin(LoadVariationRiskBalancing, handle, {"metricProvider": provider})
    metrics = await plugin._provider.read()
    assert metrics.window.duration == "10m"
    assert usage_of(metrics.of("a"), "Memory") == Usage(25, 25)
    assert asked[0][0].startswith(
        "http://p:9090/api/v1/query?query=avg_over_time%28instance%3Anode"
    )
    assert asked[0][1] == {"Authorization": "Bearer t"}


def test_stale_metrics_score_0_for_all_and_are_reported(caplog) -> None:
    server = LoadWatcher(a=20, b=60)
    cluster = harness(TargetLoadPacking, server, "ab")
    pod = make_pod("p", spec={"containers": [{"name": "c", "resources": {"limits": {"cpu": 0}}}]})
    assert scores(cluster, TargetLoadPacking, pod, "ab") == [70, 27]
    assert cluster.metric("proreus_stale_node_metrics", "TargetLoadPacking") == 0
    server.broken = True
    cluster.advance(3 * 900)
    assert "Cannot read metrics of nodes" in caplog.text
    assert cluster.metric("proreus_stale_node_metrics", "TargetLoadPacking") == 0
    cluster.advance(31)
    assert cluster.metric("proreus_stale_node_metrics", "TargetLoadPacking") == 1
    assert "missing or too old" in caplog.text
    assert scores(cluster, TargetLoadPacking, make_pod("q"), "ab") == [0, 0]
    server.broken, server.end = False, cluster.clock.now()
    cluster.advance(31)
    assert scores(cluster, TargetLoadPacking, make_pod("r"), "ab") != [0, 0]


# ---- TargetLoadPacking ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("percent", "score"),
    [(0, 40), (10, 55), (20, 70), (40, 100), (50, 33), (70, 20), (100, 0), (101, 0)],
)
def test_the_score_is_highest_at_the_target(percent: float, score: int) -> None:
    cluster = harness(TargetLoadPacking, LoadWatcher(a=percent, b=0), "ab")
    assert scores(cluster, TargetLoadPacking, make_pod("p", spec=limited("0")), "a") == [score]


@pytest.mark.parametrize(
    ("resources", "milli"),
    [
        ({"limits": {"cpu": "700m"}, "requests": {"cpu": "100m"}}, 700),
        ({"requests": {"cpu": "333m"}}, 500),
        ({}, 1000),
        ({"limits": {"memory": "1Gi"}}, 1000),
    ],
)
def test_what_a_container_will_use_is_predicted(resources: dict, milli: int) -> None:
    plugin = make_plugin(TargetLoadPacking, FakeHandle(), WATCHER)
    spec = {"containers": [{"name": "c", "resources": resources}], "overhead": {"cpu": "10m"}}
    assert plugin.predict(make_pod("p", spec=spec).pod) == milli + 10


def test_pods_that_the_metrics_do_not_show_yet_are_added() -> None:
    server = LoadWatcher(a=0, b=0)
    cluster = harness(TargetLoadPacking, server, [make_node("a", "10"), make_node("b", "10")])
    pods = [make_pod(f"p{number}", spec=limited("1")) for number in range(3)]
    assert scores(cluster, TargetLoadPacking, pods[0], "ab") == [55, 55]
    first = cluster.pod("p0").spec.node_name
    expected = [70, 55] if first == "a" else [55, 70]
    assert scores(cluster, TargetLoadPacking, pods[1], "ab") == expected
    # Both went to the same node, and are in the metrics a minute later.
    server.end = cluster.clock.now() + 61
    cluster.advance(61)
    assert scores(cluster, TargetLoadPacking, pods[2], "ab") == [55, 55]
    assert cluster.plugin(TargetLoadPacking).recent.by_node.keys() == {
        cluster.pod("p2").spec.node_name
    }


@pytest.mark.parametrize(
    ("plugin", "args"),
    [(LoadVariationRiskBalancing, {}), (Peaks, {"nodePowerModel": {"*": {"k1": 1, "k2": 0.05}}})],
)
def test_plugins_count_pods_that_the_metrics_do_not_show_yet_where_told_to(plugin, args) -> None:
    def where(told: bool) -> list[int]:
        server = LoadWatcher(a=10, b=20)
        nodes = [make_node(name, "10") for name in "ab"]
        cluster = harness(plugin, server, nodes, countRecentPods=told, **args)
        cluster.schedule(make_pod("p", "3", node_selector={"kubernetes.io/hostname": "a"}))
        made, pod, state = cluster.plugin(plugin), make_pod("q", "1"), CycleState()

        def scores() -> list[int]:
            found = made.score_all(state, pod, made.handle.nodes)
            return made.normalize(state, pod, found).tolist()

        before = scores()
        # A minute later the metrics show the pod: it is not counted twice.
        server.end = cluster.clock.now() + 61
        cluster.advance(61)
        return [before, scores()]

    (before, shown), (told_before, told_shown) = where(False), where(True)
    assert before[0] > before[1]
    assert told_before[0] < told_before[1]
    assert before == shown == told_shown


def limited(cpu: str) -> dict:
    return {"containers": [{"name": "c", "resources": {"limits": {"cpu": cpu}}}]}


# ---- LoadVariationRiskBalancing ------------------------------------------------------------------


@pytest.mark.parametrize(("args", "score"), [({}, 65), ({"safeVarianceSensitivity": 2}, 54)])
def test_mean_and_deviation_are_balanced(args: dict, score: int) -> None:
    server = LoadWatcher(a=[cpu(50), cpu(10, "STD")], b=0)
    nodes = [make_node(name, "4") for name in "ab"]
    cluster = harness(LoadVariationRiskBalancing, server, nodes, **args)
    pod = make_pod("p", "400m")
    assert scores(cluster, LoadVariationRiskBalancing, pod, "a") == [score]


def of_any_size(name: str, node_name: str, kind: str) -> object:
    """Return a pod with the largest amounts that a quantity may have."""
    amounts = {"requests": {"cpu": "1m", "memory": "1"}, kind: {"cpu": "9E", "memory": "9E"}}
    container = {"name": "c", "resources": amounts}
    return make_pod(name, spec={"containers": [container], "nodeName": node_name})


@pytest.mark.parametrize("nodes", [2, 150])
@pytest.mark.parametrize(
    ("plugin", "kind", "args"),
    [
        (LowRiskOverCommitment, "limits", {}),
        (LoadVariationRiskBalancing, "requests", {"countRecentPods": True}),
        (Peaks, "requests", {"countRecentPods": True, "nodePowerModel": {"*": {"k1": 1, "k2": 1}}}),
    ],
)
def test_pods_with_more_than_an_int64_together_harm_no_other(
    plugin: type, kind: str, args: dict, nodes: int
) -> None:
    names = [f"n{number}" for number in range(nodes)]
    cluster = harness(plugin, LoadWatcher(**dict.fromkeys(names, 10)), names, **args)
    cluster.add(*(of_any_size(f"huge{number}", "n0", kind) for number in range(3)))
    outcome = cluster.schedule(make_pod("p", "1", "1Gi"))
    assert outcome.bound
    assert outcome.node != "n0"


# ---- LowRiskOverCommitment -----------------------------------------------------------------------


def test_the_risk_of_limits_and_load() -> None:
    deviation = 0.05 * sqrt(5)
    beta = Beta.fitted(0.3, deviation**2)
    assert beta is not None
    assert (round(beta.alpha, 2), round(beta.beta, 2)) == (4.74, 11.06)
    assert round(beta.cdf(0.375), 4) == 0.7545
    assert limit_risk(4000, Committed(2000, 6000)) == 0.5
    load = load_risk(Usage(30, 5), 4000, Committed(1500, 5000), 5)
    assert round(load, 4) == 0.2455
    assert round(100 * (1 - (0.5 + load) / 2)) == 63
    assert round(1 - load_risk(Usage(30, 5), 4000, Committed(1500, 3000), 5), 4) == 0.7546


def test_the_beta_distribution_is_what_samples_of_it_show() -> None:
    rng = np.random.default_rng(0)
    for shapes in ((0.5, 0.5), (2, 8), (30, 5), (1, 1)):
        drawn = rng.beta(*shapes, 200_000)
        for x in (0.05, 0.3, 0.7, 0.95):
            assert abs(Beta(*shapes).cdf(x) - (drawn <= x).mean()) < 0.005
    assert Beta.fitted(0.5, 0.25) is None


def test_a_pod_without_requests_and_limits_scores_0() -> None:
    cluster = harness(LowRiskOverCommitment, LoadWatcher(a=10, b=10), "ab")
    assert scores(cluster, LowRiskOverCommitment, make_pod("p"), "ab") == [0, 0]
    assert scores(cluster, LowRiskOverCommitment, make_pod("q", "1"), "ab") == [50 + 50, 50 + 50]


# ---- Peaks ---------------------------------------------------------------------------------------

MODELS = {
    "a": {"k0": 300, "k1": -90, "k2": -0.07},
    "b": {"k0": 300, "k1": -90, "k2": -0.07},
    "c": {"k0": 300, "k1": -40, "k2": -0.05},
}


def test_the_node_whose_power_rises_least_is_the_best() -> None:
    assert round(PowerModel(k1=-90, k2=-0.07).jump(20, 30), 3) == 11.173
    nodes = [make_node(name, "10") for name in "abc"]
    cluster = harness(Peaks, LoadWatcher(a=20, b=60, c=20), nodes, nodePowerModel=MODELS)
    assert scores(cluster, Peaks, make_pod("p", "1"), "abc") == [0, 100, 52]


def test_nodes_whose_power_cannot_be_predicted_are_the_worst() -> None:
    nodes = [make_node(name, "10") for name in "abcde"]
    server = LoadWatcher(a=20, b=60, c=95, d=10)
    cluster = harness(Peaks, server, nodes, nodePowerModel=MODELS)
    assert scores(cluster, Peaks, make_pod("p", "1"), "abcde") == [0, 100, 0, 0, 0]


def test_linear_models_and_a_model_for_all_other_nodes() -> None:
    nodes = [make_node(name, "10") for name in "ab"]
    models = {"a": {"idle": 100, "max": 200}, "*": {"idle": 100, "max": 150}}
    cluster = harness(Peaks, LoadWatcher(a=20, b=60), nodes, nodePowerModel=models)
    assert scores(cluster, Peaks, make_pod("p", "1"), "ab") == [0, 100]


def test_models_are_read_from_a_file(tmp_path, monkeypatch) -> None:
    path = tmp_path / "models.json"
    path.write_text(json.dumps(MODELS))
    monkeypatch.setenv(MODEL_FILE, str(path))
    nodes = [make_node(name, "10") for name in "abc"]
    cluster = harness(Peaks, LoadWatcher(a=20, b=60, c=20), nodes)
    assert scores(cluster, Peaks, make_pod("p", "1"), "abc") == [0, 100, 52]
    path.write_text("[1]")
    with pytest.raises(ConfigError, match="cannot be read"):
        harness(Peaks, LoadWatcher(), nodes)


def test_fields_in_capitals_are_taken_as_the_original_takes_them() -> None:
    plugin = make_plugin(
        Peaks, FakeHandle(), {"WatcherAddress": "http://w", "NodePowerModel": MODELS}
    )
    assert plugin.args.watcher_address == "http://w"
    assert plugin.args.node_power_model["c"].k1 == -40


@pytest.mark.parametrize(
    ("plugin", "args"),
    [
        (TargetLoadPacking, {"defaultRequestsMultiplier": "much"}),
        (Peaks, {"nodePowerModel": {"a": {"idle": 1}}}),
        (Peaks, {"stalenessWindows": 0}),
        (TargetLoadPacking, {"metricProvider": {"type": "SignalFx"}}),
    ],
)
def test_invalid_arguments_are_refused(plugin, args: dict) -> None:
    with pytest.raises(ConfigError):
        Harness([plugin], args={plugin.name: args})


def test_an_answer_of_load_watcher_is_read() -> None:
    answer = b'{"timestamp": 1, "window": {"end": 5}, "data": {"NodeMetricsMap": {"a": {}}}}'
    metrics = msgspec.json.decode(answer, type=WatcherMetrics)
    assert (metrics.window.end, metrics.of("a"), metrics.of("b")) == (5, (), ())


# ---- all nodes -----------------------------------------------------------------------------------


def target_load_packing(made: TargetLoadPacking, pod, node, missing: int) -> int:
    """Return the score of a node by the formula of the original."""
    values = cpu_values(made.measured.of(node.name))
    capacity, target = node.allocatable["cpu"], float(made.args.target_utilization)
    if not values:
        return 0
    used = values[-1] / 100 * capacity + made.predict(pod.pod) + missing
    percent = 100 * used / capacity if capacity else 0.0
    if percent > 100:
        return 0
    if percent > target:
        return floor(target * (100 - percent) / (100 - target) + 0.5)
    return floor((100 - target) * percent / target + target + 0.5)


def load_variation(made: LoadVariationRiskBalancing, pod, node, missing: int) -> int:
    """Return the score of a node by the formula of the original."""
    args, found = made.args, []
    for resource, type_ in (("cpu", "CPU"), ("memory", "Memory")):
        usage, capacity = usage_of(made.measured.of(node.name), type_), node.allocatable[resource]
        if usage is None:
            continue
        if not capacity:
            found.append(0.0)
            continue
        used, deviation = (min(max(one * capacity / 100, 0.0), capacity) for one in usage)
        mean = min((used + pod.requests.amounts[resource]) / capacity, 1.0)
        sensitivity = args.safe_variance_sensitivity
        deviation = pow(deviation / capacity, 1 / sensitivity if sensitivity else inf)
        deviation = min(deviation * args.safe_variance_margin, 1.0)
        found.append((1 - (mean + deviation) / 2) * 100)
    return floor(min(found) + 0.5) if found else 0


@pytest.mark.parametrize(
    ("plugin", "formula", "args"),
    [
        (TargetLoadPacking, target_load_packing, {"targetUtilization": 55}),
        (LoadVariationRiskBalancing, load_variation, {}),
        (
            LoadVariationRiskBalancing,
            load_variation,
            {"safeVarianceSensitivity": 0.7, "safeVarianceMargin": 1.3},
        ),
        (LoadVariationRiskBalancing, load_variation, {"safeVarianceSensitivity": 0}),
    ],
)
def test_the_scores_of_all_nodes_are_those_of_the_formula(plugin, formula, args: dict) -> None:
    rng = np.random.default_rng(1)
    names = [f"n{number}" for number in range(400)]
    nodes = [
        make_node(name, int(rng.integers(0, 90)), f"{rng.integers(1, 99)}Gi") for name in names
    ]
    metrics = {}
    for name in names:
        values = rng.uniform(0, 130, 4)
        kinds = (("CPU", "AVG"), ("CPU", "STD"), ("Memory", "Latest"), ("Memory", "STD"))
        found = [Metric(*kind, value) for kind, value in zip(kinds, values, strict=True)]
        metrics[name] = NodeMetricList(tuple(one for one in found if rng.random() < 0.8))
    handle = FakeHandle(nodes)
    made = make_plugin(plugin, handle, {**WATCHER, **args})
    made.use(WatcherMetrics(Window("15m", START - 900, START), MetricsData(metrics)))
    state, missing = CycleState(), dict.fromkeys(names, 0)
    for number in range(5):
        pod = make_pod("p", f"{int(rng.integers(0, 20_000))}m", int(rng.integers(0, 2**36)))
        expected = [formula(made, pod, node, missing[node.name]) for node in handle.nodes]
        assert made.score_all(state, pod, handle.nodes).tolist() == expected
        if isinstance(made, TargetLoadPacking):
            made.reserve(state, pod, names[number])
            missing[names[number]] += made.predict(pod.pod)
    assert len(set(expected)) > 20


def test_the_risks_of_nodes_follow_their_pods() -> None:
    server = LoadWatcher(a=30, b=30)
    cluster = harness(LowRiskOverCommitment, server, "ab")
    plugin = cluster.plugin(LowRiskOverCommitment)
    resources = {"requests": {"cpu": "1"}, "limits": {"cpu": "3"}}
    spec = {"containers": [{"name": "c", "resources": resources}]}
    pod, state = make_pod("p", spec=spec), CycleState()

    def scores() -> list[int]:
        return [plugin.score(state, pod, node) for node in plugin.handle.nodes]

    empty = scores()
    assert empty[0] == empty[1]
    cluster.add(make_pod("there", node_name="a", spec=spec))
    with_pod = scores()
    assert with_pod[0] != empty[0]
    assert with_pod[1] == empty[1]
    cluster.remove("Pod", "there")
    assert scores() == empty


def test_a_power_that_no_number_holds_is_the_worst() -> None:
    server = LoadWatcher(a=90, b=10)
    cluster = harness(Peaks, server, "ab", nodePowerModel={"a": {"k1": 1, "k2": 900}, "b": {}})
    assert scores(cluster, Peaks, make_pod("p", "100m"), "ab") == [0, 100]
