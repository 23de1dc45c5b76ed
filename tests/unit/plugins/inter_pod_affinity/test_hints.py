"""The queueing hints of InterPodAffinity."""

from __future__ import annotations

from typing import Any

import pytest

from proreus.framework.events import ADD, DELETE, NODE, POD, UPDATE_NODE_LABEL, UPDATE_POD_LABEL
from proreus.framework.pod_info import PodInfo
from proreus.objects.pod import Pod
from proreus.objects.selectors import SelectorError
from proreus.plugins.inter_pod_affinity import InterPodAffinity
from proreus.plugins.inter_pod_affinity.hints import (
    is_schedulable_after_node_change,
    is_schedulable_after_pod_change,
)
from proreus.testing import FakeHandle, make_node, make_plugin, make_pod

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def terms(kind: str, *apps: str, key: str = "zone") -> dict[str, Any]:
    return {
        kind: {
            REQUIRED: [
                {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}} for app in apps
            ]
        }
    }


NEAR = make_pod("near", affinity=terms("podAffinity", "x"))
APART = make_pod("apart", labels={"app": "me"}, affinity=terms("podAntiAffinity", "x"))
NEITHER = make_pod("neither", labels={"app": "me"})


def other(app: str, node_name: str = "n1", **more: Any) -> Pod:
    return make_pod("other", labels={"app": app}, node_name=node_name, **more).pod


def test_events_of_1_36() -> None:
    handle = FakeHandle(kubernetes_version="1.36")
    registered = make_plugin(InterPodAffinity, handle).events_to_register()

    assert [(event.resource, event.action) for event in registered] == [
        (POD, ADD | UPDATE_POD_LABEL | DELETE),
        (NODE, ADD | UPDATE_NODE_LABEL),
    ]


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
        (NEITHER, other("x", affinity=terms("podAntiAffinity", "me", "you")), None, False),
        (NEITHER, other("x"), NEITHER.pod, True),
    ],
)
def test_pods(pod: PodInfo, old: Pod | None, new: Pod | None, queued: bool) -> None:
    assert is_schedulable_after_pod_change(pod, old, new, any_term=False) is queued


TWO_TERMS = make_pod("two", labels={"app": "me"}, affinity=terms("podAntiAffinity", "x", "y"))


@pytest.mark.parametrize(
    ("pod", "old", "new"),
    [
        (TWO_TERMS, other("x"), None),
        (TWO_TERMS, other("x"), other("z")),
        (NEITHER, other("x", affinity=terms("podAntiAffinity", "me", "you")), None),
    ],
)
def test_one_of_several_anti_affinity_terms_is_enough_since_1_37(
    pod: PodInfo, old: Pod | None, new: Pod | None
) -> None:
    assert is_schedulable_after_pod_change(pod, old, new, any_term=True)
    assert not is_schedulable_after_pod_change(pod, old, new, any_term=False)
    assert not is_schedulable_after_pod_change(TWO_TERMS, other("x"), other("y"), any_term=True)


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
        (NEITHER, None, {"zone": "a"}, False),
        (NEITHER, {}, {"zone": "a"}, False),
    ],
)
def test_nodes(pod: PodInfo, old: dict[str, str] | None, new: dict[str, str], queued: bool) -> None:
    before = None if old is None else make_node("n", labels=old)

    assert is_schedulable_after_node_change(pod, before, make_node("n", labels=new)) is queued


def test_a_selector_that_does_not_parse_queues_the_pod() -> None:
    """A hint that raises queues the pod."""
    broken = {"matchExpressions": [{"key": "app", "operator": "Near"}]}
    term = {"topologyKey": "zone", "labelSelector": broken}
    pod = make_pod(affinity={"podAffinity": {REQUIRED: [term]}})

    with pytest.raises(SelectorError, match="Near"):
        is_schedulable_after_pod_change(pod, None, other("x"), any_term=True)
