"""GroupTopology places PodGroups of Volcano in HyperNodes."""

from __future__ import annotations

from typing import Any

import pytest

from proreus.addons.coscheduling import Coscheduling
from proreus.addons.group_topology import GroupTopology, hyper_nodes
from proreus.addons.group_topology.hyper_nodes import NamePattern, PatternError
from proreus.testing import Harness, make_node, make_pod

Json = dict[str, Any]


def hyper_node(name: str, tier: int, *members: Json, tier_name: str = "") -> Json:
    return {
        "apiVersion": "topology.volcano.sh/v1alpha1",
        "kind": "HyperNode",
        "metadata": {"name": name},
        "spec": {"tier": tier, "tierName": tier_name, "members": list(members)},
    }


def member(selector: Json, kind: str = "Node") -> Json:
    return {"type": kind, "selector": selector}


def named(name: str, kind: str = "Node") -> Json:
    return member({"exactMatch": {"name": name}}, kind)


def child(name: str) -> Json:
    return named(name, "HyperNode")


# Two switches of two nodes each below each of two spines; the last switch has large nodes.
TREE = (
    hyper_node("s0", 1, named("n0"), named("n1"), tier_name="switch"),
    hyper_node("s1", 1, member({"regexMatch": {"pattern": "^n[23]$"}}), tier_name="switch"),
    hyper_node("s2", 1, member({"labelMatch": {"matchLabels": {"switch": "s2"}}})),
    hyper_node("s3", 1, named("n6"), named("n7"), named("gone")),
    hyper_node("spine0", 2, child("s0"), child("s1"), tier_name="spine"),
    hyper_node("spine1", 2, child("s2"), member({"regexMatch": {"pattern": "s3"}}, "HyperNode")),
)
PLAN = {"Coscheduling": {"mode": "plan"}}
CPUS = [1, 1, 1, 1, 1, 1, 3, 3]


def cluster_of(members: int, topology: Json | None, tree: tuple[Json, ...] = TREE) -> Harness:
    nodes = [
        make_node(f"n{i}", str(cpus), labels={"switch": f"s{i // 2}"})
        for i, cpus in enumerate(CPUS)
    ]
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "default"},
        "spec": {"minMember": members} | ({"networkTopology": topology} if topology else {}),
    }
    return Harness([Coscheduling, GroupTopology], nodes, [group, *tree], args=PLAN)


def place(cluster: Harness, members: int) -> set[str]:
    annotations = {"scheduling.k8s.io/group-name": "g"}
    for number in range(members):
        cluster.add(make_pod(f"p{number}", "1", metadata={"annotations": annotations}))
    cluster.schedule_all()
    return {cluster.pod(f"p{number}").spec.node_name for number in range(members)}


TAINTED = {"spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}}
HARD_1 = {"mode": "hard", "highestTierAllowed": 1}


@pytest.mark.parametrize(
    ("members", "topology", "nodes"),
    [
        # The tightest of the lowest tier.
        (2, HARD_1, {"n0", "n1"}),
        (5, HARD_1, {"n6", "n7"}),
        (7, HARD_1, {""}),
        (4, {"mode": "hard", "highestTierAllowed": 2}, {"n6", "n7"}),
        (8, {"mode": "hard", "highestTierAllowed": 2}, {"n4", "n5", "n6", "n7"}),
        (8, {"mode": "hard", "highestTierName": "switch"}, {""}),
        (9, {"mode": "hard"}, {""}),
        (8, {"mode": "soft", "highestTierAllowed": 1}, {"n4", "n5", "n6", "n7"}),
        (12, {"mode": "soft", "highestTierAllowed": 1}, {f"n{i}" for i in range(8)}),
        (2, {"mode": "hard", "highestTierName": "unknown"}, {""}),
    ],
)
def test_a_group_goes_to_the_lowest_hyper_node_that_holds_it(
    members: int, topology: Json, nodes: set[str]
) -> None:
    assert place(cluster_of(members, topology), members) == nodes


def test_a_group_that_fits_no_hyper_node_says_so() -> None:
    cluster = cluster_of(7, HARD_1)
    place(cluster, 7)
    (condition,) = cluster.pod("p0").status.conditions
    assert "no HyperNode that is allowed has room for 7 pods" in condition.message


def test_a_member_that_is_replaced_goes_to_the_hyper_node_of_the_others() -> None:
    cluster = cluster_of(2, HARD_1)
    assert place(cluster, 2) == {"n0", "n1"}
    cluster.remove("Pod", "p1")
    annotations = {"scheduling.k8s.io/group-name": "g"}
    cluster.add(make_pod("p2", "1", metadata={"annotations": annotations}))
    cluster.schedule_all()
    on = {cluster.pod("p0").spec.node_name, cluster.pod("p2").spec.node_name}
    assert on == {"n0", "n1"}


def test_a_group_waits_for_hyper_nodes_and_is_tried_when_they_appear() -> None:
    cluster = cluster_of(2, HARD_1, ())
    assert place(cluster, 2) == {""}
    cluster.add(TREE[0])
    cluster.advance(20)
    cluster.schedule_all()
    assert {cluster.pod(name).spec.node_name for name in ("p0", "p1")} == {"n0", "n1"}


def test_a_group_that_others_reject_in_its_hyper_node_is_tried_when_that_changes() -> None:
    cluster = cluster_of(2, HARD_1, TREE[:1])
    for name in ("n0", "n1"):
        cluster.patch("Node", name, TAINTED, "")
    assert place(cluster, 2) == {""}
    cluster.add(hyper_node("s0", 1, named("n2"), named("n3")))
    cluster.advance(20)
    cluster.schedule_all()
    assert {cluster.pod(name).spec.node_name for name in ("p0", "p1")} == {"n2", "n3"}


def test_a_group_is_tried_when_it_asks_for_no_hyper_node_any_more() -> None:
    cluster = cluster_of(2, HARD_1, TREE[:1])
    for name in ("n0", "n1"):
        cluster.patch("Node", name, TAINTED, "")
    assert place(cluster, 2) == {""}
    cluster.patch("PodGroup", "g", {"spec": {"networkTopology": None}})
    cluster.advance(20)
    cluster.schedule_all()
    assert "" not in {cluster.pod(name).spec.node_name for name in ("p0", "p1")}


def test_a_pattern_that_is_none_and_a_hyper_node_within_itself_have_no_members() -> None:
    broken = (
        hyper_node("s0", 1, member({"regexMatch": {"pattern": "("}})),
        hyper_node("loop", 2, child("loop"), child("s0"), member({})),
    )
    assert place(cluster_of(2, {"mode": "hard"}, broken), 2) == {""}


@pytest.mark.parametrize(
    "selector",
    [
        {"labelMatch": {"matchExpressions": [{"key": "switch", "operator": "Is"}]}},
        {"labelMatch": {"matchLabels": {"not a key": "s0"}}},
        {"regexMatch": {"pattern": "("}},
        {"regexMatch": {"pattern": "n(?=0)"}},  # RE2 and Go have no look-ahead
        {"regexMatch": {"pattern": "(?:n?){1000}0|(?:m?){1000}0"}},
    ],
)
def test_a_selector_that_cannot_be_read_keeps_no_group_from_other_hyper_nodes(
    selector: Json,
) -> None:
    broken = hyper_node("broken", 1, member(selector))
    assert place(cluster_of(2, HARD_1, (broken, *TREE)), 2) == {"n0", "n1"}


def test_a_group_that_asks_for_nothing_is_placed_as_without_hyper_nodes() -> None:
    assert "" not in place(cluster_of(12, None), 12)


def test_all_tasks_of_a_job_go_to_one_hyper_node() -> None:
    cluster = cluster_of(4, {"mode": "hard", "highestTierAllowed": 2})
    tasks = ("ps", "worker", "worker", "worker")
    for number, task in enumerate(tasks):
        annotations = {"scheduling.k8s.io/group-name": "g", "volcano.sh/task-spec": task}
        cluster.add(make_pod(f"p{number}", "1", metadata={"annotations": annotations}))
    cluster.schedule_all()
    on = {cluster.pod(f"p{number}").spec.node_name for number in range(4)}
    assert on <= {"n6", "n7"}
    assert "" not in on


def test_members_are_resolved_once_a_change_of_nodes_or_hyper_nodes() -> None:
    cluster = cluster_of(2, HARD_1)
    hyper_nodes = cluster.plugin(GroupTopology)._hyper_nodes

    def members() -> dict[str, set[str]]:
        return {one.name: set(one.members) for one in hyper_nodes.domains() or ()}

    before = hyper_nodes.domains()
    cluster.add(make_pod("alone", "1"))
    cluster.schedule_all()
    assert hyper_nodes.domains() is before
    assert members()["s2"] == {"n4", "n5"}
    cluster.patch("Node", "n0", {"metadata": {"labels": {"switch": "s2"}}})
    assert members()["s2"] == {"n0", "n4", "n5"}
    cluster.remove("Node", "n4")
    assert members()["s2"] == {"n0", "n5"}
    # The last row took the place of the one that is gone.
    rows = {one.name: one.rows for one in hyper_nodes.domains() or ()}
    assert {cluster.nodes[row].name for row in rows["s3"]} == {"n6", "n7"}
    cluster.add(hyper_node("s2", 1, named("n1")))
    assert members()["s2"] == {"n1"}
    assert members()["spine1"] == {"n1", "n6", "n7"}
    cluster.remove("HyperNode", "s2", namespace="")
    assert "s2" not in members()


def test_members_are_found_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = cluster_of(2, HARD_1)
    plugin = cluster.plugin(GroupTopology)
    expected = plugin._hyper_nodes.domains()
    cluster.add(make_node("more", "1"))
    monkeypatch.setattr(hyper_nodes, "_MOST_SECONDS", -1.0)
    found, calls = plugin._hyper_nodes.domains(), 1
    while found is None:
        found, calls = plugin._hyper_nodes.domains(), calls + 1
    assert calls == 1 + sum(len(one["spec"]["members"]) for one in TREE)
    assert [one.members for one in found] == [one.members for one in expected or ()]


def test_a_gang_waits_for_the_members_of_hyper_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = cluster_of(2, HARD_1)
    monkeypatch.setattr(hyper_nodes, "_MOST_SECONDS", -1.0)
    assert place(cluster, 2) == {""}
    for _ in range(20):
        cluster.advance(30)
        cluster.schedule_all()
    assert cluster.pod("p0").spec.node_name in ("n0", "n1")


def test_a_hyper_node_with_too_many_patterns_has_no_members(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = cluster_of(2, HARD_1)
    patterns = [member({"regexMatch": {"pattern": f"n{n}"}}) for n in range(101)]
    cluster.add(hyper_node("s1", 1, *patterns))
    domains = cluster.plugin(GroupTopology)._hyper_nodes.domains()
    assert {one.name: len(one.members) for one in domains or ()}["s1"] == 0
    assert "101 patterns and label selectors, at most 100" in str(vars(caplog.records[-1]))


def test_hyper_nodes_that_all_have_all_nodes_are_bounded(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hyper_nodes, "_FEWEST_NODES", 0)
    every = [member({"regexMatch": {"pattern": ""}})]
    tree = tuple(hyper_node(f"h{n:03}", 1, *every) for n in range(100))
    cluster = cluster_of(2, HARD_1, tree)
    domains = cluster.plugin(GroupTopology)._hyper_nodes.domains()
    assert domains is not None
    assert len(domains) == hyper_nodes.MAX_HYPER_NODES_OF_A_NODE
    assert "'name': 'h032'" in str(vars(caplog.records[-1]))


def test_a_pattern_takes_time_linear_in_a_name() -> None:
    # Python's re takes 2**60 steps for each of these names.
    tree = (hyper_node("s0", 1, member({"regexMatch": {"pattern": "^(a+)+$"}})),)
    nodes = [make_node(f"{'a' * 60}-{i}") for i in range(1_000)] + [make_node("a" * 60)]
    cluster = Harness([Coscheduling, GroupTopology], nodes, list(tree), args=PLAN)
    (domain,) = cluster.plugin(GroupTopology)._hyper_nodes.domains()
    assert domain.members == {"a" * 60}


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("n(", "'n(': missing ): n("),
        (r"(n)\1", "invalid escape sequence: \\1"),
        ("(?:n?){1000}0|(?:m?){1000}0", "4006 instructions, at most 2000 are allowed"),
        (".{1000}" * 50, "pattern too large - compile failed"),
        ("n\ud800", "not UTF-8"),
    ],
)
def test_a_pattern_that_cannot_be_used_is_an_error_that_says_why(
    pattern: str, problem: str
) -> None:
    with pytest.raises(PatternError) as caught:
        NamePattern(pattern)
    assert problem in str(caught.value)
    assert len(str(caught.value)) < 150


def test_a_pattern_that_cannot_be_used_is_logged_once_a_change(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = cluster_of(2, HARD_1)
    cluster.add(hyper_node("broken", 1, member({"regexMatch": {"pattern": "n("}})))
    place(cluster, 2)
    (record,) = (one for one in caplog.records if "HyperNode" in one.message)
    assert "'name': 'broken'" in str(vars(record))
    assert "missing )" in str(vars(record))


@pytest.mark.parametrize(
    ("pattern", "matching"),
    [
        ("n1", {"n1", "n10"}),  # anywhere in the name
        ("", {"n1", "n10", "m2", "é1"}),
        ("^n1$|2$", {"n1", "m2"}),
        ("^[^n]|0$", {"n10", "m2", "é1"}),
        (r"1\n|1\s|\D\D", set()),  # a name is not followed by a line break
        (r"1\b", {"n1", "é1"}),
        (r"\An[[:digit:]]\z", {"n1"}),
        ("(?s)1.", {"n10"}),
        ("(?i)^N10$", {"n10"}),
        (r"^\pL1$", {"n1", "é1"}),
        (r"\Qn1", {"n1", "n10"}),
        ("(?:1|m)(?-m:2?)$", {"n1", "m2", "é1"}),
    ],
)
def test_patterns_mean_what_they_mean_in_go(pattern: str, matching: set[str]) -> None:
    found = NamePattern(pattern)
    assert found.search(["n1", "n10", "m2", "é1"]) == matching
    assert found.search([]) == set()
