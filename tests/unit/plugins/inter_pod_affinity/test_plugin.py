"""InterPodAffinity: the rules that surprise, each by an example."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec import structs

from proreus.base.feature_gates import FeatureGates
from proreus.base.kubernetes_version import V1_37
from proreus.framework.cycle_state import CycleState
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Code, Status
from proreus.framework.verdicts import Verdicts
from proreus.objects.node import Node
from proreus.plugins.inter_pod_affinity import InterPodAffinity
from proreus.testing import FakeHandle, make_node, make_plugin, make_pod

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
Yaml = dict[str, Any]


def term(key: str = ZONE, app: str = "x", **more: Any) -> Yaml:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **more}


def near(*terms: Yaml) -> Yaml:
    return {"podAffinity": {REQUIRED: list(terms)}}


def apart(*terms: Yaml) -> Yaml:
    return {"podAntiAffinity": {REQUIRED: list(terms)}}


def rather_near(weight: int, one: Yaml) -> Yaml:
    return {"podAffinity": {PREFERRED: [{"weight": weight, "podAffinityTerm": one}]}}


def rather_apart(weight: int, one: Yaml) -> Yaml:
    return {"podAntiAffinity": {PREFERRED: [{"weight": weight, "podAffinityTerm": one}]}}


def zoned(name: str, zone: str = "") -> Node:
    return make_node(name, labels={ZONE: zone} if zone else {})


def running(name: str, node: str, app: str = "x", **more: Any) -> PodInfo:
    return make_pod(name, labels={"app": app}, node_name=node, **more)


def namespace(name: str, **labels: str) -> Yaml:
    return {"kind": "Namespace", "metadata": {"name": name, "labels": labels}}


NODES = [zoned("n1", "a"), zoned("n2", "b"), zoned("n3", "a"), zoned("n4")]


def passing(pod: PodInfo, handle: FakeHandle) -> list[str]:
    """Return the nodes that pass."""
    plugin, state = make_plugin(InterPodAffinity, handle), CycleState()
    result = plugin.pre_filter(state, pod, handle.nodes)
    assert result is None, result
    verdicts = Verdicts(len(handle.nodes), plugin.name)
    plugin.filter_all(state, pod, handle.nodes, verdicts)
    return [handle.nodes[row].name for row in verdicts.passed_rows().tolist()]


def finals(pod: PodInfo, handle: FakeHandle, args: Yaml | None = None) -> list[int] | None:
    """Return normalised scores; None if the plugin skips."""
    plugin, state = make_plugin(InterPodAffinity, handle, args), CycleState()
    status = plugin.pre_score(state, pod, handle.nodes)
    if status is not None:
        assert status.code == Code.SKIP
        return None
    raw = plugin.score_all(state, pod, handle.nodes)
    return plugin.normalize(state, pod, raw).tolist()


# ---- filter ------------------------------------------------------------------------------------


def test_affinity_counts_pods_that_match_all_terms() -> None:
    both = make_pod(affinity=near(term(), term(app="y", key=HOST)))
    apart_ = [running("p1", "n1", "x"), running("p2", "n1", "y")]
    assert passing(both, FakeHandle(NODES, apart_)) == []

    tier = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"tier": "t"}}}
    two = make_pod(affinity=near(term(), tier))
    one_for_both = make_pod("p", labels={"app": "x", "tier": "t"}, node_name="n1")
    assert passing(two, FakeHandle(NODES, [one_for_both])) == ["n1"]


def test_the_first_pod_of_a_group_fits_nodes_with_the_keys() -> None:
    first = make_pod(labels={"app": "x"}, affinity=near(term()))
    assert passing(first, FakeHandle(NODES)) == ["n1", "n2", "n3"]

    stranger = make_pod(labels={"app": "y"}, affinity=near(term()))
    assert passing(stranger, FakeHandle(NODES)) == []

    # One that matches, but on a node without the key, leaves the counts empty.
    assert passing(first, FakeHandle(NODES, [running("p", "n4")])) == ["n1", "n2", "n3"]
    assert passing(first, FakeHandle(NODES, [running("p", "n2")])) == ["n2"]


FAST_PATH = "InterPodAffinityHostnameFastPath=true"


@pytest.mark.parametrize("gates", [(), (FAST_PATH,)])
def test_hostname_fast_path_counts_pods_of_nodes_without_a_hostname(gates) -> None:
    nodes = [make_node("n1"), without_labels(make_node("bare"))]
    pod = make_pod("p", labels={"app": "x"}, affinity=near(term(HOST)))
    first = FakeHandle(nodes, gates=gates, kubernetes_version="1.37")
    assert passing(pod, first) == ["n1"]
    # There is a pod of the group, on a node that has no hostname.
    there = FakeHandle(nodes, [running("q", "bare")], gates=gates, kubernetes_version="1.37")
    assert passing(pod, there) == ([] if gates else ["n1"])
    # Removed in a dry run, it no longer counts.
    plugin, state = make_plugin(InterPodAffinity, there), CycleState()
    plugin.pre_filter(state, pod, there.nodes)
    plugin.remove_pod(state, pod, running("q", "bare"), there.nodes[1])
    assert plugin.filter(state, pod, there.nodes[0]) is None


def without_labels(node: Node) -> Node:
    return structs.replace(node, metadata=structs.replace(node.metadata, labels={}))


@pytest.mark.parametrize(("gates", "skipped"), [((), True), ((FAST_PATH,), False)])
def test_hostname_fast_path_does_not_skip_beside_anti_affinity_by_hostname(gates, skipped) -> None:
    other = running("q", "n1", "y", affinity=apart(term(HOST, "elsewhere")))
    handle = FakeHandle(NODES, [other], gates=gates, kubernetes_version="1.37")
    plugin = make_plugin(InterPodAffinity, handle)
    found = plugin.pre_filter(CycleState(), make_pod("p", labels={"app": "x"}), handle.nodes)
    assert found == (Status.skip() if skipped else None)
    zone = running("q", "n1", "y", affinity=apart(term(ZONE, "elsewhere")))
    handle = FakeHandle(NODES, [zone], gates=gates, kubernetes_version="1.37")
    plugin = make_plugin(InterPodAffinity, handle)
    found = plugin.pre_filter(CycleState(), make_pod("p", labels={"app": "x"}), handle.nodes)
    assert found == Status.skip()


def test_anti_affinity_is_symmetric() -> None:
    pods = [running("p", "n1", affinity=apart(term(app="y")))]
    handle = FakeHandle(NODES, pods)
    plugin = make_plugin(InterPodAffinity, handle)

    def statuses(pod: PodInfo) -> list[Status | None]:
        state = CycleState()
        assert plugin.pre_filter(state, pod, handle.nodes) is None
        return [plugin.filter(state, pod, node) for node in handle.nodes]

    own = statuses(make_pod(affinity=apart(term())))
    assert [s and (s.code, s.reasons) for s in own] == [
        (Code.UNSCHEDULABLE, ("node(s) didn't match pod anti-affinity rules",)),
        None,
        (Code.UNSCHEDULABLE, ("node(s) didn't match pod anti-affinity rules",)),
        None,
    ]
    others = statuses(make_pod(labels={"app": "y"}))
    assert [s and (s.code, s.reasons) for s in others] == [
        (Code.UNSCHEDULABLE, ("node(s) didn't satisfy existing pods anti-affinity rules",)),
        None,
        (Code.UNSCHEDULABLE, ("node(s) didn't satisfy existing pods anti-affinity rules",)),
        None,
    ]


def test_missing_affinity_cannot_be_preempted_for() -> None:
    handle = FakeHandle(NODES)
    plugin, state = make_plugin(InterPodAffinity, handle), CycleState()
    pod = make_pod(affinity=near(term()))
    plugin.pre_filter(state, pod, handle.nodes)

    status = plugin.filter(state, pod, handle.nodes[0])

    assert status is not None
    assert status.code == Code.UNRESOLVABLE
    assert status.reasons == ("node(s) didn't match pod affinity rules",)


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ({"matchLabels": {"env": "prod"}}, ["n1"]),
        ({}, ["n1", "n2"]),
        # Up to 1.36 left in place and held against no labels: every namespace, production as well.
        (
            {"matchExpressions": [{"key": "env", "operator": "NotIn", "values": ["prod"]}]},
            ["n1", "n2"],
        ),
        ({"matchExpressions": [{"key": "env", "operator": "Exists"}]}, ["n1", "n2"]),
        ({"matchLabels": {"env": "none"}}, []),
    ],
)
def test_namespace_selectors_of_1_36(selector: Yaml, names: list[str]) -> None:
    objects = [namespace("one", env="prod"), namespace("two", env="test")]
    nodes = [zoned("n1", "a"), zoned("n2", "b")]
    pods = [running("p1", "n1", namespace="one"), running("p2", "n2", namespace="two")]
    pod = make_pod(affinity=near(term(namespaceSelector=selector)))

    handle = FakeHandle(nodes, pods, objects=objects, kubernetes_version="1.36")
    assert passing(pod, handle) == names


@pytest.mark.parametrize(
    ("operator", "values", "names"),
    [("NotIn", ["prod"], ["n2"]), ("Exists", [], ["n1", "n2"]), ("DoesNotExist", [], [])],
)
def test_since_1_37_a_namespace_selector_is_evaluated_once(
    operator: str, values: list[str], names: list[str]
) -> None:
    objects = [namespace("one", env="prod"), namespace("two", env="test")]
    nodes = [zoned("n1", "a"), zoned("n2", "b")]
    pods = [running("p1", "n1", namespace="one"), running("p2", "n2", namespace="two")]
    selector = {"matchExpressions": [{"key": "env", "operator": operator, "values": values}]}
    handle = FakeHandle(nodes, pods, objects=objects)
    handle.feature_gates = FeatureGates(emulation_version=V1_37)

    assert passing(make_pod(affinity=near(term(namespaceSelector=selector))), handle) == names


def test_terms_follow_the_labels_of_namespaces() -> None:
    nodes = [zoned("n1", "a"), zoned("n2", "b")]
    pods = [running("p1", "n1", namespace="one")]
    handle = FakeHandle(nodes, pods, objects=[namespace("one")])
    plugin = make_plugin(InterPodAffinity, handle)
    pod = make_pod(affinity=near(term(namespaceSelector={"matchLabels": {"env": "prod"}})))

    def rejected() -> list[bool]:
        state = CycleState()
        assert plugin.pre_filter(state, pod, handle.nodes) is None
        return [plugin.filter(state, pod, node) is not None for node in handle.nodes]

    assert rejected() == [True, True]
    handle.add(namespace("one", env="prod"))
    assert rejected() == [False, True]
    handle.remove("Namespace", "one")
    assert rejected() == [True, True]


def test_existing_terms_match_the_labels_of_the_pods_namespace() -> None:
    selector = {"matchLabels": {"env": "prod"}}
    pods = [running("p", "n1", affinity=apart(term(app="y", namespaceSelector=selector)))]
    objects = [namespace("one", env="prod"), namespace("two", env="test")]
    handle = FakeHandle(NODES, pods, objects=objects)

    assert passing(make_pod(labels={"app": "y"}, namespace="one"), handle) == ["n2", "n4"]
    plugin = make_plugin(InterPodAffinity, handle)
    for elsewhere in ("two", "unknown"):
        pod = make_pod(labels={"app": "y"}, namespace=elsewhere)
        assert plugin.pre_filter(CycleState(), pod, handle.nodes) == Status.skip()


def test_a_selector_that_does_not_parse_rejects_the_pod() -> None:
    broken = {"matchExpressions": [{"key": "app", "operator": "Near"}]}
    affinity = near({"topologyKey": ZONE, "labelSelector": broken})
    handle = FakeHandle(NODES, [running("p", "n1", affinity=affinity)])
    plugin = make_plugin(InterPodAffinity, handle)
    text = 'requiredAffinityTerms: "Near" is not a valid label selector operator'

    status = plugin.pre_filter(CycleState(), make_pod(affinity=affinity), handle.nodes)
    assert status == Status.unresolvable(f"parsing pod: {text}")
    scored = plugin.pre_score(CycleState(), make_pod(affinity=affinity), handle.nodes)
    assert scored == Status.error(f"failed to parse pod: {text}")
    assert plugin.pre_filter(CycleState(), make_pod(), handle.nodes) == Status.skip()


def test_pods_that_no_term_concerns_are_skipped() -> None:
    pods = [running("p", "n1", affinity=apart(term(app="y"))), running("q", "n4")]
    handle = FakeHandle(NODES, pods)
    plugin = make_plugin(InterPodAffinity, handle)

    assert plugin.pre_filter(CycleState(), make_pod(), handle.nodes) == Status.skip()
    # Somebody minds it, but on a node that is in no domain.
    handle.nodes.remove_pod(0, "uid-of-default-p")
    handle.nodes.add_pod(3, running("p", "n4", affinity=apart(term(app="y"))))
    pod = make_pod(labels={"app": "y"})
    assert plugin.pre_filter(CycleState(), pod, handle.nodes) == Status.skip()


def test_dry_runs_on_a_node_whose_domain_was_not_counted_yet() -> None:
    handle = FakeHandle(NODES)
    plugin, state = make_plugin(InterPodAffinity, handle), CycleState()
    pod = make_pod(labels={"app": "y"}, affinity=near(term(HOST, app="y")))
    plugin.pre_filter(state, pod, handle.nodes)
    fork, cloned_state = handle.nodes.fork(np.arange(4)), state.clone()

    hostile = running("new", "n1", affinity=apart(term("rack", app="y"), term(app="y")))
    fork.add_pod(0, hostile)
    plugin.add_pod(cloned_state, pod, hostile, fork[0])

    assert [plugin.filter(cloned_state, pod, node) is not None for node in fork] == [1, 0, 1, 0]
    assert [plugin.filter(state, pod, node) is not None for node in handle.nodes] == [0] * 4


# ---- score -------------------------------------------------------------------------------------


def test_preferred_terms_and_terms_of_existing_pods_add_up() -> None:
    pods = [
        running("p1", "n1"),
        running("p2", "n1"),
        running("p3", "n2", affinity=near(term(HOST, app="me"))),
    ]
    pod = make_pod(labels={"app": "me"}, affinity=rather_near(10, term()))

    assert finals(pod, FakeHandle(NODES, pods)) == [100, 55, 100, 0]


def test_without_matching_pods_score_is_skipped() -> None:
    assert finals(make_pod(affinity=rather_near(10, term())), FakeHandle(NODES)) is None
    alone = FakeHandle(NODES, [running("p", "n4")])
    assert finals(make_pod(affinity=rather_near(10, term())), alone) is None


def test_weights_that_cancel_out_are_not_skipped() -> None:
    pods = [running("p1", "n1")]
    pod = make_pod(affinity={**rather_near(5, term()), **rather_apart(5, term())})

    assert finals(pod, FakeHandle(NODES, pods)) == [0, 0, 0, 0]


def test_preferred_terms_of_existing_pods_can_be_ignored() -> None:
    pods = [
        running("p1", "n1", affinity=rather_near(5, term(app="me"))),
        running("p2", "n2", affinity=rather_apart(5, term(app="me"))),
    ]
    handle, ignore = FakeHandle(NODES, pods), {"ignorePreferredTermsOfExistingPods": True}
    plain = make_pod(labels={"app": "me"})
    choosy = make_pod(labels={"app": "me"}, affinity=rather_near(1, term(app="none")))

    assert finals(plain, handle) == [100, 0, 100, 50]
    assert finals(plain, handle, ignore) is None
    assert finals(choosy, handle, ignore) == [100, 0, 100, 50]


def test_required_terms_do_not_count_with_hard_weight_zero() -> None:
    pods = [running("p1", "n1", affinity=near(term(app="me")))]
    handle, pod = FakeHandle(NODES, pods), make_pod(labels={"app": "me"})

    assert finals(pod, handle) == [100, 0, 100, 0]
    assert finals(pod, handle, {"hardPodAffinityWeight": 0}) is None


@pytest.mark.parametrize(
    ("raw", "final"),
    [
        ([0, 29, 100], [0, 28, 100]),
        ([0, 57, 100], [0, 56, 100]),
        ([-5, 0, 7], [0, 41, 100]),
        ([0, 3, 7], [0, 42, 100]),
        ([4, 4], [0, 0]),
    ],
)
def test_normalize_divides_first(raw: list[int], final: list[int]) -> None:
    plugin = make_plugin(InterPodAffinity, FakeHandle())
    scores = np.array(raw, dtype=np.int64)

    assert plugin.normalize(CycleState(), make_pod(), scores).tolist() == final
    assert scores.tolist() == raw


# ---- thousands of terms --------------------------------------------------------------------------


def test_terms_of_a_pod_share_a_column() -> None:
    handle = FakeHandle([zoned("a", "a"), zoned("b", "b")], [make_pod("other", node_name="a")])
    terms = [term(app=f"nobody-{number}") for number in range(1_000)]
    plugin, state = make_plugin(InterPodAffinity, handle), CycleState()

    assert plugin.pre_filter(state, make_pod(affinity=apart(*terms)), handle.nodes) is None

    assert len(handle.nodes.pod_index._columns) <= 1


def test_an_affinity_to_a_key_that_no_node_has_fits_nowhere() -> None:
    handle = FakeHandle(
        [zoned("a", "a"), zoned("b", "b")],
        [make_pod("other", labels={"app": "x"}, node_name="a")],
    )
    pod = make_pod(affinity=near(term(), *(term(f"key-{number}") for number in range(1_000))))
    plugin, state = make_plugin(InterPodAffinity, handle), CycleState()

    assert plugin.pre_filter(state, pod, handle.nodes) is None
    verdicts = Verdicts(2, plugin.name)
    plugin.filter_all(state, pod, handle.nodes, verdicts)

    assert verdicts.passed_rows().tolist() == []
    assert list(state.read(plugin.name).affinity) == ["key-0"]
