"""The queueing hints of InterPodAffinity."""

from __future__ import annotations

from typing import Any

import pytest

from proreus.framework.events import (
    ADD,
    ALL,
    DELETE,
    NAMESPACE,
    NODE,
    POD,
    TARGET_POD,
    UPDATE_NODE_LABEL,
    UPDATE_NODE_TAINT,
    UPDATE_POD_LABEL,
    UPDATE_POD_TOLERATION,
)
from proreus.framework.pod_info import PodInfo
from proreus.objects.kinds import NAMESPACES, Namespace
from proreus.objects.node import Node
from proreus.objects.pod import Pod
from proreus.objects.selectors import SelectorError
from proreus.plugins.inter_pod_affinity import InterPodAffinity
from proreus.plugins.inter_pod_affinity.hints import AffinityHints
from proreus.plugins.inter_pod_affinity.namespaces import Namespaces
from proreus.testing import FakeHandle, make_node, make_plugin, make_pod

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def terms(kind: str, *apps: str, key: str = "zone", **more: Any) -> dict[str, Any]:
    return {
        kind: {
            REQUIRED: [
                {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **more}
                for app in apps
            ]
        }
    }


def hints_of(handle: FakeHandle | None = None) -> AffinityHints:
    handle = handle or FakeHandle()
    return AffinityHints(handle, Namespaces(handle))


def after_pod(pod: PodInfo, old: Pod | None, new: Pod | None) -> bool:
    return hints_of().is_schedulable_after_pod_change(pod, old, new)


NEAR = make_pod("near", affinity=terms("podAffinity", "x"))
APART = make_pod("apart", labels={"app": "me"}, affinity=terms("podAntiAffinity", "x"))
NEITHER = make_pod("neither", labels={"app": "me"})


def other(app: str, node_name: str = "n1", **more: Any) -> Pod:
    return make_pod("other", labels={"app": app}, node_name=node_name, **more).pod


@pytest.mark.parametrize(
    ("version", "node_actions"),
    # In 1.36 a change of taints is implied.
    [("1.36", ADD | UPDATE_NODE_LABEL), ("1.37", ADD | UPDATE_NODE_LABEL | UPDATE_NODE_TAINT)],
)
def test_events(version: str, node_actions: int) -> None:
    handle = FakeHandle(kubernetes_version=version)
    registered = make_plugin(InterPodAffinity, handle).events_to_register()

    others = {(event.resource, event.action) for event in registered}
    assert (NODE, node_actions) in others
    assert (NAMESPACE, ALL) in others
    # By its tolerations, a node may suit the pod that was of no use when it was new.
    own = UPDATE_POD_LABEL | UPDATE_POD_TOLERATION
    assert (POD, ADD | DELETE | own) in others or (TARGET_POD, own) in others


@pytest.mark.parametrize(
    ("pod", "old", "new", "queued"),
    [
        (NEAR, None, other("x"), True),
        (NEAR, None, other("y"), False),
        (NEAR, None, other("x", node_name=""), False),
        (NEAR, None, other("x", "", status={"nominatedNodeName": "n1"}), True),
        (NEAR, None, other("x", namespace="elsewhere"), False),
        (NEAR, other("y"), other("x"), True),
        (NEAR, other("x"), other("y"), False),
        (NEAR, other("x"), other("x"), False),
        (NEAR, other("x"), None, False),
        (APART, None, other("x"), False),
        (APART, other("x"), None, True),
        (APART, other("y"), None, False),
        (APART, other("x"), other("y"), True),
        (APART, other("y"), other("x"), False),
        (NEITHER, None, other("x"), False),
        (NEITHER, other("x"), None, False),
        (NEITHER, other("x", affinity=terms("podAntiAffinity", "me")), None, True),
        (NEITHER, other("x", affinity=terms("podAntiAffinity", "you")), None, False),
        (NEITHER, make_pod("neither", labels={"app": "you"}).pod, NEITHER.pod, True),
    ],
)
def test_pods(pod: PodInfo, old: Pod | None, new: Pod | None, queued: bool) -> None:
    assert after_pod(pod, old, new) is queued


TWO_TERMS = make_pod("two", labels={"app": "me"}, affinity=terms("podAntiAffinity", "x", "y"))
TWO_KEYS = make_pod(
    "two",
    affinity={
        "podAntiAffinity": {
            REQUIRED: terms("podAntiAffinity", "x")["podAntiAffinity"][REQUIRED]
            + terms("podAntiAffinity", "y", key="rack")["podAntiAffinity"][REQUIRED]
        }
    },
)


@pytest.mark.parametrize(
    ("pod", "old", "new", "queued"),
    [
        (TWO_TERMS, other("x"), None, True),
        (TWO_TERMS, other("x"), other("z"), True),
        (TWO_TERMS, other("x"), other("y"), False),
        (TWO_KEYS, other("x"), other("y"), True),
        (NEITHER, other("x", affinity=terms("podAntiAffinity", "me", "you")), None, True),
    ],
)
def test_one_of_several_anti_affinity_terms_is_enough(
    pod: PodInfo, old: Pod | None, new: Pod | None, queued: bool
) -> None:
    assert after_pod(pod, old, new) is queued


LONE = make_pod("lone", labels={"app": "x"}, affinity=terms("podAffinity", "x"))


def in_zone(name: str, zone: str = "", **more: Any) -> Node:
    return make_node(name, labels={"zone": zone} if zone else {}, **more)


@pytest.mark.parametrize(("new", "queued"), [(None, True), (other("y"), True), (other("x"), False)])
def test_a_pod_near_itself_may_be_the_first_again_when_the_last_other_goes(
    new: Pod | None, queued: bool
) -> None:
    zones = [in_zone("n1", "a"), in_zone("n2", "b")]
    alone, without_zones = hints_of(FakeHandle(zones)), hints_of(FakeHandle([in_zone("n1")]))
    accompanied = hints_of(FakeHandle(zones, [make_pod("x", labels={"app": "x"}, node_name="n2")]))

    assert alone.is_schedulable_after_pod_change(LONE, other("x"), new) is queued
    assert not accompanied.is_schedulable_after_pod_change(LONE, other("x"), new)
    assert not without_zones.is_schedulable_after_pod_change(LONE, other("x"), new)
    assert not alone.is_schedulable_after_pod_change(NEAR, other("x"), new)


def test_a_pod_that_another_term_selects_now_frees_the_domain_of_the_first() -> None:
    def after_change(*pods: PodInfo, node_name: str = "n1") -> bool:
        hint = hints_of(FakeHandle(nodes, pods)).is_schedulable_after_pod_change
        return hint(TWO_KEYS, other("x", node_name), other("y", node_name))

    nodes = [make_node(name, labels={"zone": "a", "rack": name}) for name in ("n1", "n2")]
    there = make_pod("other", labels={"app": "y"}, node_name="n1")
    still_x = make_pod("x", labels={"app": "x"}, node_name="n2")

    assert after_change(there)
    assert not after_change(there, still_x)
    assert after_change(node_name="gone")


# ---- namespaces ----------------------------------------------------------------------------------


def namespace(name: str, **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": labels},
    }


TEAM = {"namespaceSelector": {"matchLabels": {"team": "x"}}}
NEAR_TEAM = make_pod("near", affinity=terms("podAffinity", "x", **TEAM))
APART_FROM_TEAM = make_pod("apart", affinity=terms("podAntiAffinity", "x", **TEAM))


def in_blue(app: str, **more: Any) -> Pod:
    return other(app, namespace="blue", **more)


@pytest.mark.parametrize(
    ("pod", "old", "new", "queued"),
    [
        (NEAR_TEAM, None, in_blue("x"), True),
        (NEAR_TEAM, None, in_blue("y"), False),
        (NEAR_TEAM, None, other("x", namespace="red"), False),
        (NEAR_TEAM, in_blue("y"), in_blue("x"), True),
        (APART_FROM_TEAM, in_blue("x"), None, True),
        (APART_FROM_TEAM, in_blue("x"), in_blue("y"), True),
        (APART_FROM_TEAM, other("x", namespace="red"), None, False),
        (NEITHER, in_blue("x", affinity=terms("podAntiAffinity", "me", **TEAM)), None, False),
    ],
)
def test_terms_with_a_namespace_selector(
    pod: PodInfo, old: Pod | None, new: Pod | None, queued: bool
) -> None:
    handle = FakeHandle(
        objects=[namespace("blue", team="x"), namespace("red"), namespace("default")]
    )
    assert hints_of(handle).is_schedulable_after_pod_change(pod, old, new) is queued


def test_the_namespace_of_the_pod_is_selected_by_the_terms_of_a_deleted_pod() -> None:
    handle = FakeHandle(objects=[namespace("default", team="x")])
    gone = in_blue("x", affinity=terms("podAntiAffinity", "me", **TEAM))
    assert hints_of(handle).is_schedulable_after_pod_change(NEITHER, gone, None)


def labelled(name: str, **labels: str) -> Namespace:
    handle = FakeHandle(objects=[namespace(name, **labels)])
    return handle.api.store(NAMESPACES)[name]


def relabel(hint: AffinityHints, pod: PodInfo, old: Any, new: Any) -> bool:
    return hint.is_schedulable_after_namespace_change(pod, old, new)


BLUE_X, BLUE_Y = labelled("blue", team="x"), labelled("blue", team="y")


@pytest.mark.parametrize(
    ("pod", "now", "old", "new", "queued"),
    [
        (NEAR_TEAM, "x", BLUE_Y, BLUE_X, True),
        (NEAR_TEAM, "x", None, BLUE_X, True),
        (NEAR_TEAM, "x", labelled("blue", team="x", more="y"), BLUE_X, False),
        (NEAR_TEAM, "y", BLUE_X, BLUE_Y, False),
        (APART_FROM_TEAM, "y", BLUE_X, BLUE_Y, True),
        (APART_FROM_TEAM, "y", BLUE_X, None, True),
        (APART_FROM_TEAM, "x", BLUE_Y, BLUE_X, False),
        (NEITHER, "x", BLUE_Y, BLUE_X, False),
    ],
)
def test_other_labels_of_a_namespace_by_which_a_term_selects_a_pod(
    pod: PodInfo, now: str, old: Namespace | None, new: Namespace | None, queued: bool
) -> None:
    there = make_pod("there", namespace="blue", labels={"app": "x"}, node_name="n1")
    objects = [] if new is None else [namespace("blue", team=now)]
    hint = hints_of(FakeHandle([in_zone("n1", "a")], [there], objects=objects))
    assert relabel(hint, pod, old, new) is queued
    # Nobody is there whom the term selects now, or has selected.
    assert not relabel(hints_of(FakeHandle([in_zone("n1", "a")], objects=objects)), pod, old, new)


def test_other_labels_of_the_pods_own_namespace_matter_to_the_terms_of_existing_pods() -> None:
    there = make_pod("there", node_name="n1", affinity=terms("podAntiAffinity", "me", **TEAM))
    nodes, objects = [in_zone("n1", "a")], [namespace("default")]
    hint = hints_of(FakeHandle(nodes, [there], objects=objects))

    assert relabel(hint, NEITHER, labelled("default", team="x"), labelled("default"))
    assert not relabel(hint, NEITHER, labelled("default", team="y"), labelled("default"))
    elsewhere = hints_of(FakeHandle([*nodes, in_zone("n2", "b")], [there], objects=objects))
    assert relabel(elsewhere, NEITHER, labelled("default", team="x"), labelled("default"))


@pytest.mark.parametrize(
    ("pod", "old", "new", "queued"),
    [
        (NEAR_TEAM, None, in_blue("x"), True),
        (NEAR_TEAM, None, in_blue("y"), False),
        (NEAR_TEAM, in_blue("x"), in_blue("y"), True),
        (NEAR_TEAM, in_blue("x"), None, False),
        (APART_FROM_TEAM, in_blue("x"), None, True),
        (APART_FROM_TEAM, None, in_blue("x"), False),
        (NEITHER, in_blue("x", affinity=terms("podAntiAffinity", "me", **TEAM)), None, True),
        (NEAR, None, in_blue("x"), False),
    ],
)
def test_since_1_38_pods_of_unknown_namespaces_may_help(
    pod: PodInfo, old: Pod | None, new: Pod | None, queued: bool
) -> None:
    def hint(version: str, *names: str) -> bool:
        objects = [namespace(name) for name in names]
        handle = FakeHandle([in_zone("n1")], objects=objects, kubernetes_version=version)
        return hints_of(handle).is_schedulable_after_pod_change(pod, old, new)

    assert hint("1.38") is queued
    assert not hint("1.38", "blue", "default")
    assert not hint("1.37")


# ---- nodes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pod", "old", "new", "queued"),
    [
        (NEAR, None, {"zone": "a"}, True),
        (NEAR, None, {}, False),
        (NEAR, {}, {"zone": "a"}, True),
        (NEAR, {"zone": "a"}, {"zone": "b"}, True),
        (NEAR, {"zone": "a"}, {"zone": "a", "more": "x"}, False),
        (NEAR, {"zone": "a"}, {}, False),
        (APART, None, {}, True),
        (APART, {"zone": "a"}, {}, True),
        (APART, {"zone": "a"}, {"zone": "b"}, True),
        (APART, {}, {"zone": "a"}, False),
        (NEITHER, None, {"zone": "a"}, True),
        (NEITHER, {}, {"zone": "a"}, False),
    ],
)
def test_nodes(pod: PodInfo, old: dict[str, str] | None, new: dict[str, str], queued: bool) -> None:
    before = None if old is None else make_node("n", labels=old)
    after = make_node("n", labels=new)
    hints = hints_of(FakeHandle([after]))

    assert hints.is_schedulable_after_node_change(pod, before, after) is queued


EXCLUSIVE = make_pod("there", node_name="n1", affinity=terms("podAntiAffinity", "me"))


@pytest.mark.parametrize(("zone", "queued"), [("a", False), ("b", True), ("", True)])
def test_a_new_node_helps_a_pod_that_existing_pods_keep_away_from_all_others(
    zone: str, queued: bool
) -> None:
    new = in_zone("n2", zone)
    hint = hints_of(FakeHandle([in_zone("n1", "a"), new], [EXCLUSIVE]))
    assert hint.is_schedulable_after_node_change(NEITHER, None, new) is queued


def test_a_new_node_with_taints_helps_once_they_are_gone() -> None:
    tainted, cordoned = in_zone("n2", taints=["new:NoSchedule"]), in_zone("n2", unschedulable=True)
    ready = in_zone("n2")
    hint = hints_of(FakeHandle([in_zone("n1", "a"), ready], [EXCLUSIVE]))
    after_change = hint.is_schedulable_after_node_change

    assert not after_change(NEITHER, None, tainted)
    assert not after_change(NEITHER, None, cordoned)
    assert after_change(NEITHER, tainted, ready)
    assert after_change(NEITHER, cordoned, ready)
    assert not after_change(NEITHER, tainted, cordoned)
    # Tried when the node was new, it was rejected for the taints.
    assert not after_change(APART, tainted, ready)


@pytest.mark.parametrize(
    ("zone", "key", "queued"), [("", "new", True), ("", "old", False), ("a", "new", False)]
)
def test_tolerations_help_that_open_a_node_from_which_nobody_keeps_the_pod(
    zone: str, key: str, queued: bool
) -> None:
    tainted = in_zone("n2", zone, taints=["new:NoSchedule"])
    hint = hints_of(FakeHandle([in_zone("n1", "a"), tainted], [EXCLUSIVE]))
    tolerant = make_pod(
        "neither", labels={"app": "me"}, tolerations=[{"key": key, "operator": "Exists"}]
    )
    assert hint.is_schedulable_after_pod_change(tolerant, NEITHER.pod, tolerant.pod) is queued


@pytest.mark.parametrize(
    ("nodes", "old", "new", "queued"),
    [
        # The node with the pod leaves the zone, in which another node is.
        ([in_zone("n2", "a")], in_zone("n1", "a"), in_zone("n1", "b"), True),
        ([in_zone("n2", "c")], in_zone("n1", "a"), in_zone("n1", "b"), False),
        # Without the label no domain of the term is left.
        ([], in_zone("n1", "a"), in_zone("n1"), True),
        # A node without pods leaves the zone of the pod.
        ([in_zone("n1", "a")], in_zone("n2", "a"), in_zone("n2", "b"), True),
        ([in_zone("n1", "a")], in_zone("n2", "b"), in_zone("n2", "a"), False),
    ],
)
def test_a_node_that_leaves_a_domain_from_which_existing_pods_keep_the_pod_away(
    nodes: list[Node], old: Node, new: Node, queued: bool
) -> None:
    hint = hints_of(FakeHandle([*nodes, new], [EXCLUSIVE]))
    assert hint.is_schedulable_after_node_change(NEITHER, old, new) is queued


def test_a_node_takes_its_pods_out_of_a_domain() -> None:
    noisy = make_pod("there", labels={"app": "x"}, node_name="n1")
    old, new = in_zone("n1", "a"), in_zone("n1")
    hint = hints_of(FakeHandle([in_zone("n2", "a"), new], [noisy]))

    assert hint.is_schedulable_after_node_change(LONE, old, new)
    assert not hint.is_schedulable_after_node_change(NEAR, old, new)
    assert not hint.is_schedulable_after_node_change(NEITHER, old, new)


def test_a_selector_that_does_not_parse_queues_the_pod() -> None:
    """A hint that raises queues the pod."""
    broken = {"matchExpressions": [{"key": "app", "operator": "Near"}]}
    term = {"topologyKey": "zone", "labelSelector": broken}
    pod = make_pod(affinity={"podAffinity": {REQUIRED: [term]}})

    with pytest.raises(SelectorError, match="Near"):
        after_pod(pod, None, other("x"))
