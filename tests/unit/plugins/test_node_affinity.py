"""NodeAffinity: PreFilter, Filter, Score, and queueing hints."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from proreus.base.errors import ConfigError
from proreus.base.feature_gates import FeatureGates
from proreus.config.model_decoding import decode_model
from proreus.framework.cycle_state import CycleState
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Code, Status
from proreus.plugins.node_affinity import NodeAffinity
from proreus.plugins.node_affinity_args import NodeAffinityArgs
from proreus.testing import FakeHandle, make_node, make_plugin, make_pod
from proreus.testing.agreement import assert_agreement

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
POD = "node(s) didn't match Pod's node affinity/selector"
ENFORCED = "node(s) didn't match scheduler-enforced node affinity"

NODES = [
    make_node("n0", labels={"zone": "a", "size": "3"}),
    make_node("n1", labels={"zone": "b", "size": "12"}),
    make_node("n2", labels={"zone": "b", "disk": "ssd"}),
]
ADDED_ZONE_B = {
    "addedAffinity": {
        REQUIRED: {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}
            ]
        }
    }
}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


def labelled(*expressions: dict[str, Any]) -> dict[str, Any]:
    return {"matchExpressions": list(expressions)}


def named(operator: str, *names: str, labels: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    return {
        "matchFields": [expression("metadata.name", operator, *names)],
        "matchExpressions": list(labels),
    }


def requiring(*terms: dict[str, Any], **more: Any) -> PodInfo:
    required = {REQUIRED: {"nodeSelectorTerms": list(terms)}}
    return make_pod(affinity={"nodeAffinity": required}, **more)


def preferring(*weighted: tuple[int, dict[str, Any]]) -> PodInfo:
    terms = [{"weight": weight, "preference": term} for weight, term in weighted]
    return make_pod(affinity={"nodeAffinity": {PREFERRED: terms}})


def plugin_on(args: Any = None) -> tuple[NodeAffinity, FakeHandle]:
    handle = FakeHandle(NODES)
    return make_plugin(NodeAffinity, handle, args), handle


def passing(pod: PodInfo, args: Any = None) -> list[str]:
    """Return the names of nodes that pass Filter, having checked all forms and reasons."""
    plugin, handle = plugin_on(args)
    assert_agreement(plugin, pod, handle.nodes)
    found = []
    for node in handle.nodes:
        status = plugin.filter(CycleState(), pod, node)
        if status is None:
            found.append(node.name)
        else:
            assert status.code == Code.UNRESOLVABLE
            assert status.reasons in ((POD,), (ENFORCED,))
    return found


@pytest.mark.parametrize(
    ("pod", "names"),
    [
        (make_pod(node_selector={"zone": "a"}), ["n0"]),
        (make_pod(node_selector={"zone": "a", "disk": "ssd"}), []),
        (requiring(labelled(expression("zone", "In", "a", "b"))), ["n0", "n1", "n2"]),
        (requiring(labelled(expression("zone", "NotIn", "a"))), ["n1", "n2"]),
        (requiring(labelled(expression("disk", "NotIn", "ssd"))), ["n0", "n1"]),
        (requiring(labelled(expression("disk", "Exists"))), ["n2"]),
        (requiring(labelled(expression("disk", "DoesNotExist"))), ["n0", "n1"]),
        (requiring(labelled(expression("size", "Gt", "3"))), ["n1"]),
        (requiring(labelled(expression("size", "Lt", "12"))), ["n0"]),
        (requiring(labelled(expression("zone", "Gt", "3"))), []),
        (requiring(named("In", "n1")), ["n1"]),
        (requiring(named("NotIn", "n1")), ["n0", "n2"]),
        (requiring(named("In", "n1"), labelled(expression("disk", "Exists"))), ["n1", "n2"]),
        (requiring(named("In", "n1", labels=(expression("zone", "In", "a"),))), []),
        # one value is all that a field may have
        (requiring(named("In", "n0", "n1")), []),
        # no term, an empty term, and terms that do not parse match nothing
        (requiring(), []),
        (requiring({}), []),
        (requiring(labelled(expression("zone", "In"))), []),
        (requiring(labelled(expression("not a key", "Exists"))), []),
        (requiring(labelled(expression("zone", "Near", "a"))), []),
        (requiring({}, labelled(expression("zone", "In", "a"))), ["n0"]),
        (
            requiring(labelled(expression("zone", "In")), labelled(expression("disk", "Exists"))),
            ["n2"],
        ),
        # nodeSelector and affinity must both hold
        (requiring(labelled(expression("zone", "In", "b")), node_selector={"disk": "ssd"}), ["n2"]),
    ],
)
def test_filter(pod: PodInfo, names: list[str]) -> None:
    assert passing(pod) == names


def test_the_added_affinity_is_filtered_first() -> None:
    plugin, handle = plugin_on(ADDED_ZONE_B)
    pod = make_pod(node_selector={"disk": "ssd"})

    reasons = []
    for node in handle.nodes:
        status = plugin.filter(CycleState(), pod, node)
        reasons.append(None if status is None else status.message)

    assert reasons == [ENFORCED, POD, None]
    assert passing(make_pod(), ADDED_ZONE_B) == ["n1", "n2"]


@pytest.mark.parametrize(
    ("pod", "result"),
    [
        (make_pod(), Status.skip()),
        (preferring(), Status.skip()),
        (make_pod(node_selector={}), None),
        (make_pod(node_selector={"zone": "a"}), None),
        (requiring(), None),
        (requiring(labelled(expression("zone", "Exists"))), None),
        (requiring(named("In", "n1")), frozenset({"n1"})),
        (requiring(named("In", "n1"), named("In", "n2")), frozenset({"n1", "n2"})),
        (requiring(named("In", "n1", "n2")), frozenset({"n1", "n2"})),
        (requiring(named("In", "n1"), labelled(expression("zone", "Exists"))), None),
        (requiring(named("NotIn", "n1")), None),
        (
            requiring(named("In", "n1", labels=(expression("zone", "In", "a"),))),
            frozenset({"n1"}),
        ),
        (
            requiring(
                {
                    "matchFields": [
                        expression("metadata.name", "In", "n1"),
                        expression("metadata.name", "In", "n2"),
                    ]
                }
            ),
            Status.unresolvable("pod affinity terms conflict"),
        ),
    ],
)
def test_pre_filter(pod: PodInfo, result: Any) -> None:
    plugin, handle = plugin_on()

    assert plugin.pre_filter(CycleState(), pod, handle.nodes) == result


def test_nothing_is_skipped_with_an_added_affinity() -> None:
    plugin, handle = plugin_on(ADDED_ZONE_B)

    assert plugin.pre_filter(CycleState(), make_pod(), handle.nodes) is None


def scores(pod: PodInfo, args: Any = None) -> list[int]:
    plugin, handle = plugin_on(args)
    assert_agreement(plugin, pod, handle.nodes)
    return [plugin.score(CycleState(), pod, node) for node in handle.nodes]


def test_score_sums_the_weights_of_preferred_terms() -> None:
    pod = preferring(
        (10, labelled(expression("zone", "In", "b"))),
        (15, labelled(expression("disk", "Exists"))),
        (40, named("In", "n0")),
        (0, labelled(expression("zone", "Exists"))),
        (7, {}),
    )

    assert scores(pod) == [40, 10, 25]


def test_score_includes_the_added_preferred_terms() -> None:
    added = {
        "addedAffinity": {
            PREFERRED: [{"weight": 3, "preference": labelled(expression("disk", "Exists"))}]
        }
    }

    assert scores(make_pod(), added) == [0, 0, 3]
    assert scores(preferring((2, labelled(expression("zone", "In", "b")))), added) == [0, 2, 5]


def test_pre_score() -> None:
    plugin, handle = plugin_on()

    def result(pod: PodInfo) -> Status | None:
        return plugin.pre_score(CycleState(), pod, handle.nodes)

    assert result(make_pod(node_selector={"zone": "a"})) == Status.skip()
    assert result(preferring()) is None
    assert result(preferring((1, labelled(expression("zone", "Exists"))))) is None
    broken = result(preferring((1, labelled(expression("zone", "In")))))
    assert broken is not None
    assert broken.code == Code.ERROR
    # what weighs nothing is not even parsed
    assert result(preferring((0, labelled(expression("zone", "In"))))) is None
    assert plugin.score_all(CycleState(), preferring(), handle.nodes) == 0


@pytest.mark.parametrize(
    ("raw", "final"), [([10, 25, 40, 0], [25, 62, 100, 0]), ([1, 3], [33, 100]), ([0, 0], [0, 0])]
)
def test_normalize(raw: list[int], final: list[int]) -> None:
    plugin, _ = plugin_on()

    found = plugin.normalize(CycleState(), make_pod(), np.array(raw, dtype=np.int64))

    assert found.tolist() == final


@pytest.mark.parametrize(
    ("added", "where"),
    [
        ({REQUIRED: {"nodeSelectorTerms": [labelled(expression("zone", "In"))]}}, "required"),
        ({PREFERRED: [{"weight": 1, "preference": labelled(expression("x y", "Exists"))}]}, "pref"),
    ],
)
def test_the_added_affinity_must_parse(added: dict[str, Any], where: str) -> None:
    handle = FakeHandle()
    args, _ = decode_model(NodeAffinityArgs, {"addedAffinity": added}, FeatureGates())

    with pytest.raises(ConfigError, match=rf"parsing addedAffinity\.{where}"):
        NodeAffinity(args, handle)


def test_pods_with_equal_affinity_share_a_signature() -> None:
    plugin, _ = plugin_on()
    pod = requiring(labelled(expression("zone", "Exists")), node_selector={"a": "1", "b": "2"})
    same = requiring(labelled(expression("zone", "Exists")), node_selector={"b": "2", "a": "1"})

    assert plugin.sign(pod) is plugin.sign(same)
    assert plugin.sign(pod) != plugin.sign(requiring(labelled(expression("zone", "Exists"))))
    assert plugin.sign(make_pod()) is plugin.sign(make_pod("b", "1", node_selector={}))


@pytest.mark.parametrize(
    ("pod", "old", "new", "expected"),
    [
        (make_pod(node_selector={"zone": "a"}), None, NODES[0], True),
        (make_pod(node_selector={"zone": "a"}), None, NODES[1], False),
        (make_pod(node_selector={"zone": "a"}), NODES[1], NODES[0], True),
        (make_pod(node_selector={"zone": "a"}), NODES[0], NODES[0], False),
        # whether a term that does not parse matches is unknown
        (requiring(labelled(expression("zone", "In"))), NODES[0], NODES[0], True),
        (
            requiring(labelled(expression("zone", "In")), node_selector={"zone": "b"}),
            None,
            NODES[0],
            False,
        ),
    ],
)
def test_hint(pod: PodInfo, old: Any, new: Any, expected: bool) -> None:
    plugin, _ = plugin_on()
    (event,) = plugin.events_to_register()
    assert event.hint is not None

    assert event.hint(pod, old, new) is expected


def test_hint_respects_the_added_affinity() -> None:
    plugin, _ = plugin_on(ADDED_ZONE_B)
    (event,) = plugin.events_to_register()
    assert event.hint is not None

    assert not event.hint(make_pod(node_selector={"zone": "a"}), None, NODES[0])
    assert event.hint(make_pod(node_selector={"zone": "b"}), None, NODES[1])
