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


@pytest.mark.parametrize(("new", "queued"), [(None, True), (other("y"), True), (other("x"), False)])
def test_a_pod_near_itself_may_be_the_first_again_when_another_goes(
    new: Pod | None, queued: bool
) -> None:
    assert after_pod(LONE, other("x"), new) is queued
    assert not after_pod(NEAR, other("x"), new)


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
    handle = FakeHandle(objects=[namespace("blue", team="x"), namespace("red"), namespace("me")])
    assert hints_of(handle).is_schedulable_after_pod_change(pod, old, new) is queued


def test_the_namespace_of_the_pod_is_selected_by_the_terms_of_a_deleted_pod() -> None:
    handle = FakeHandle(objects=[namespace("default", team="x")])
    gone = in_blue("x", affinity=terms("podAntiAffinity", "me", **TEAM))
    assert hints_of(handle).is_schedulable_after_pod_change(NEITHER, gone, None)


def labelled(name: str, **labels: str) -> Namespace:
    handle = FakeHandle(objects=[namespace(name, **labels)])
    return handle.api.store(NAMESPACES)[name]


@pytest.mark.parametrize("pod", [NEAR_TEAM, APART_FROM_TEAM])
def test_other_labels_of_a_namespace_that_a_term_may_select(pod: PodInfo) -> None:
    hint = hints_of().is_schedulable_after_namespace_change
    selected, not_selected = labelled("blue", team="x"), labelled("blue", team="y")

    assert hint(pod, not_selected, selected)
    assert hint(pod, selected, not_selected)
    assert hint(pod, None, selected)
    assert hint(pod, selected, None)
    assert not hint(pod, None, not_selected)
    assert not hint(pod, not_selected, labelled("blue"))
    assert not hint(pod, selected, labelled("blue", team="x", more="y"))


def test_other_labels_of_the_pods_own_namespace_matter_to_the_terms_of_existing_pods() -> None:
    hint = hints_of().is_schedulable_after_namespace_change

    assert hint(NEITHER, labelled("default", team="x"), labelled("default"))
    assert not hint(NEITHER, labelled("default", team="x"), labelled("default", team="x"))
    assert not hint(NEITHER, labelled("blue", team="x"), labelled("blue"))


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


def in_zone(name: str, zone: str = "", **more: Any) -> Node:
    return make_node(name, labels={"zone": zone} if zone else {}, **more)


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
