"""PodTopologySpread: the rules that surprise, each by an example, and worked scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from proreus.framework.cycle_state import CycleState
from proreus.framework.node_table import NodeTable
from proreus.framework.pod_info import PodInfo
from proreus.framework.pod_label_groups import PodQuery
from proreus.framework.status import Code, Status
from proreus.framework.verdicts import CodeArray, Verdicts
from proreus.objects.node import Node
from proreus.plugins.pod_topology_spread import PodTopologySpread
from proreus.testing import FakeHandle, make_node, make_plugin, make_pod

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
Yaml = dict[str, Any]
APP = {"matchLabels": {"app": "x"}}


def constraint(key: str = ZONE, selector: Yaml | None = APP, skew: int = 1, **more: Any) -> Yaml:
    return {
        "maxSkew": skew,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selector,
        **more,
    }


def soft(key: str = ZONE, skew: int = 1, **more: Any) -> Yaml:
    return constraint(key, skew=skew, whenUnsatisfiable="ScheduleAnyway", **more)


def pending(*constraints: Yaml, app: str = "x", **more: Any) -> PodInfo:
    spec = {"topologySpreadConstraints": list(constraints)}
    return make_pod(labels={"app": app}, spec=spec, **more)


def running(name: str, node: str, app: str = "x", **more: Any) -> PodInfo:
    return make_pod(name, labels={"app": app}, node_name=node, **more)


def zoned(name: str, zone: str = "", **more: Any) -> Node:
    return make_node(name, labels={ZONE: zone} if zone else {}, **more)


def on(counts: dict[str, int], **more: Any) -> list[PodInfo]:
    """Return so many pods on each node."""
    return [
        running(f"{node}-{i}", node, **more) for node, count in counts.items() for i in range(count)
    ]


THREE = [zoned("a", "a"), zoned("b", "b"), zoned("c", "c")]


def passing(pod: PodInfo, handle: FakeHandle, args: Yaml | None = None) -> list[str]:
    """Return the nodes that pass."""
    plugin, state = make_plugin(PodTopologySpread, handle, args), CycleState()
    result = plugin.pre_filter(state, pod, handle.nodes)
    assert result is None, result
    verdicts = Verdicts(len(handle.nodes), plugin.name)
    plugin.filter_all(state, pod, handle.nodes, verdicts)
    return [handle.nodes[row].name for row in verdicts.passed_rows().tolist()]


def scored(pod: PodInfo, handle: FakeHandle, args: Yaml | None = None) -> tuple[list[int], ...]:
    """Return raw and final scores."""
    plugin, state = make_plugin(PodTopologySpread, handle, args), CycleState()
    assert plugin.pre_score(state, pod, handle.nodes) is None
    raw = plugin.score_all(state, pod, handle.nodes)
    final = plugin.normalize(state, pod, raw)
    return raw.tolist(), final.tolist()


# ---- filter ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pod", "names"),
    [
        (pending(constraint()), ["b", "c"]),
        (pending(constraint(), app="y"), ["b", "c"]),
        (pending(constraint(skew=2), app="y"), ["a", "b", "c"]),
        (pending(constraint(minDomains=4)), []),
        (pending(constraint(minDomains=3)), ["b", "c"]),
        (pending(constraint(selector=None)), ["a", "b", "c"]),
        # The selector that selects everything counts no pod, but the pod itself.
        (pending(constraint(selector={})), ["a", "b", "c"]),
        (pending(constraint(selector={}, minDomains=9)), ["a", "b", "c"]),
    ],
)
def test_skew(pod: PodInfo, names: list[str]) -> None:
    handle = FakeHandle(THREE, on({"a": 3, "b": 1, "c": 1}))

    assert passing(pod, handle) == names


def test_pods_that_do_not_count() -> None:
    """Terminating pods, other namespaces, nodes without all keys."""
    deleted = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    pods = [
        running("p1", "a", metadata=deleted),
        running("p2", "a", namespace="other"),
        running("p3", "bare"),
        running("p4", "b"),
    ]
    handle = FakeHandle([*THREE, zoned("bare")], pods)

    assert passing(pending(constraint()), handle) == ["a", "c"]


def test_statuses() -> None:
    handle = FakeHandle([*THREE[:2], zoned("bare")], on({"a": 1}))
    plugin, state = make_plugin(PodTopologySpread, handle), CycleState()
    plugin.pre_filter(state, pending(constraint()), handle.nodes)

    full, free, bare = [plugin.filter(state, pending(), node) for node in handle.nodes]

    text = "node(s) didn't match pod topology spread constraints"
    assert full is not None
    assert (full.code, full.reasons) == (Code.UNSCHEDULABLE, (text,))
    assert free is None
    assert bare is not None
    assert (bare.code, bare.reasons) == (
        Code.UNRESOLVABLE,
        (f"{text} (missing required label)",),
    )


def test_inclusion_policies_determine_the_domains() -> None:
    nodes = [
        make_node("a", labels={ZONE: "a", "disk": "ssd"}),
        make_node("b", labels={ZONE: "b"}),
        make_node("c", labels={ZONE: "c", "disk": "ssd"}, taints=["k:NoSchedule"]),
    ]
    handle = FakeHandle(nodes, on({"a": 1, "c": 1}))
    ssd = {"disk": "ssd"}

    # b is not among the nodes that the pod may be on: its 0 pods do not count.
    assert passing(pending(constraint(), node_selector=ssd), handle) == ["a", "b", "c"]
    ignoring = constraint(nodeAffinityPolicy="Ignore")
    assert passing(pending(ignoring, node_selector=ssd), handle) == ["b"]
    handle.nodes.remove_pod(2, "uid-of-default-c-0")
    assert passing(pending(constraint(), node_selector=ssd), handle) == ["b", "c"]
    tainted = constraint(nodeTaintsPolicy="Honor")
    assert passing(pending(tainted, node_selector=ssd), handle) == ["a", "b", "c"]
    tolerating = [{"key": "k", "operator": "Exists"}]
    pod = pending(tainted, node_selector=ssd, tolerations=tolerating)
    assert passing(pod, handle) == ["b", "c"]


def test_domains_follow_nodes() -> None:
    handle = FakeHandle(THREE, on({"a": 1, "b": 1}))
    assert passing(pending(constraint()), handle) == ["c"]

    handle.nodes.remove_node(handle.nodes[2])
    assert passing(pending(constraint()), handle) == ["a", "b"]
    info = handle.nodes[0]
    info.set_node(zoned("a", "b"))
    handle.nodes.update_node(info)
    plugin, state = make_plugin(PodTopologySpread, handle), CycleState()
    plugin.pre_filter(state, pending(constraint()), handle.nodes)
    assert plugin.filter(state, pending(), info) is None


@pytest.mark.parametrize(("gate", "names"), [("true", ["a", "b", "c"]), ("false", ["b", "c"])])
def test_match_label_keys(gate: str, names: list[str]) -> None:
    """Only pods of the same revision count; a key that the pod lacks does not matter."""
    old = {"labels": {"app": "x", "revision": "1"}}
    pods = [make_pod("p", node_name="a", metadata=old)]
    name = "MatchLabelKeysInPodTopologySpread"
    gates = [f"{name}={gate}", f"{name}SelectorMerge={gate}"]
    handle = FakeHandle(THREE, pods, gates=gates)
    one = constraint(matchLabelKeys=["revision", "absent"])
    pod = pending(one, metadata={"labels": {"app": "x", "revision": "2"}})

    assert passing(pod, handle) == names
    assert passing(pending(one, metadata=old), handle) == ["b", "c"]


def test_removed_pods_lower_the_minimum() -> None:
    handle = FakeHandle(THREE, on({"a": 2, "b": 1, "c": 1}))
    plugin, state = make_plugin(PodTopologySpread, handle), CycleState()
    pod = pending(constraint())
    plugin.pre_filter(state, pod, handle.nodes)

    def rejected(state: CycleState) -> list[bool]:
        return [plugin.filter(state, pod, node) is not None for node in handle.nodes]

    assert rejected(state) == [True, False, False]
    cloned_state = state.clone()
    plugin.remove_pod(cloned_state, pod, running("b-0", "b"), handle.nodes[1])
    assert rejected(cloned_state) == [True, False, True]
    again = cloned_state.clone()
    plugin.add_pod(again, pod, running("b-0", "b"), handle.nodes[1])
    plugin.remove_pod(again, pod, running("p", "a", namespace="other"), handle.nodes[0])
    plugin.remove_pod(again, pod, running("p", "a", app="y"), handle.nodes[0])
    assert rejected(again) == rejected(state) == [True, False, False]
    assert rejected(cloned_state) == [True, False, True]


def test_skips_and_errors() -> None:
    handle = FakeHandle(THREE)
    plugin = make_plugin(PodTopologySpread, handle)
    broken = {"matchExpressions": [{"key": "app", "operator": "Near"}]}
    text = '"Near" is not a valid label selector operator'

    assert plugin.pre_filter(CycleState(), pending(), handle.nodes) == Status.skip()
    assert plugin.pre_filter(CycleState(), pending(soft()), handle.nodes) == Status.skip()
    assert plugin.pre_score(CycleState(), pending(), handle.nodes) == Status.skip()
    assert plugin.pre_score(CycleState(), pending(constraint()), handle.nodes) == Status.skip()
    hard = plugin.pre_filter(CycleState(), pending(constraint(selector=broken)), handle.nodes)
    assert hard == Status.error(f"obtaining pod's hard topology spread constraints: {text}")
    both = pending(constraint(), soft(labelSelector=broken))
    assert plugin.pre_filter(CycleState(), both, handle.nodes) is None
    assert plugin.pre_score(CycleState(), both, handle.nodes) == Status.error(
        f"calculating preScoreState: obtaining pod's soft topology spread constraints: {text}"
    )


# ---- score -------------------------------------------------------------------------------------

HOSTS = [make_node(f"n{i}") for i in range(4)]
TEN = [make_node(f"n{i}") for i in range(10)]
LAYOUT = [zoned("n1", "a"), zoned("n2", "a"), zoned("n3", "b")]
ON_LAYOUT = {"n1": 2, "n2": 1, "n3": 1}


@pytest.mark.parametrize(
    ("constraints", "nodes", "counts", "raw", "final"),
    [
        ([soft(HOST)], HOSTS, (2, 1, 0, 3), [4, 2, 0, 5], [20, 60, 100, 0]),
        ([soft(HOST, 2)], HOSTS, (2, 1, 0, 3), [5, 3, 1, 6], [33, 66, 100, 16]),
        ([soft(HOST, 3)], HOSTS, (4, 3, 2, 1), [9, 7, 6, 4], [44, 66, 77, 100]),
        (
            [soft(HOST)],
            TEN,
            (7, 0, 3, 0, 0, 0, 0, 0, 0, 0),
            [17, 0, 7, *[0] * 7],
            [0, 100, 58, *[100] * 7],
        ),
        ([soft(ZONE), soft(HOST)], LAYOUT, (2, 1, 1), [7, 6, 3], [42, 57, 100]),
        ([soft(HOST)], HOSTS, (0, 0, 0, 0), [0] * 4, [100] * 4),
        ([soft(HOST, labelSelector={})], HOSTS, (2, 1, 0, 3), [0] * 4, [100] * 4),
    ],
)
def test_worked_scores(
    constraints: list[Yaml],
    nodes: list[Node],
    counts: tuple[int, ...],
    raw: list[int],
    final: list[int],
) -> None:
    names = [node.metadata.name for node in nodes]
    handle = FakeHandle(nodes, on(dict(zip(names, counts, strict=True))))

    assert scored(pending(*constraints), handle) == (raw, final)


SERVICE = {
    "kind": "Service",
    "metadata": {"name": "s", "namespace": "default"},
    "spec": {"selector": {"app": "x"}},
}


def test_system_defaults() -> None:
    handle = FakeHandle(LAYOUT, on(ON_LAYOUT), objects=[SERVICE])
    assert scored(pending(), handle) == ([13, 12, 9], [69, 76, 100])

    # A node without the zone label has no zone to be full.
    bare = FakeHandle([*LAYOUT[:2], zoned("n3")], on(ON_LAYOUT), objects=[SERVICE])
    assert scored(pending(), bare) == ([13, 12, 4], [30, 38, 100])


def test_own_constraints_ignore_nodes_that_lack_a_key() -> None:
    nodes = [zoned("n1", "a"), zoned("n2", "b"), zoned("n3")]
    raw, final = scored(pending(soft()), FakeHandle(nodes, on({"n1": 2, "n3": 5})))

    assert raw[:2] == [3, 0]
    assert final == [0, 100, 0]


def test_only_feasible_nodes_count_as_domains() -> None:
    handle = FakeHandle(THREE, on({"a": 2, "b": 1, "c": 1}))
    plugin, state = make_plugin(PodTopologySpread, handle), CycleState()
    feasible = handle.nodes.take(np.array([0, 2]))

    assert plugin.pre_score(state, pending(soft()), feasible) is None

    # Two domains: 2 ln 4 = 2.77, 1 ln 4 = 1.39.
    assert plugin.score_all(state, pending(soft()), feasible).tolist() == [3, 1]


# ---- defaults ----------------------------------------------------------------------------------

LIST = {
    "defaultingType": "List",
    "defaultConstraints": [
        {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    ],
}


def owned(kind: str, api_version: str = "apps/v1", **labels: str) -> PodInfo:
    owner = {"apiVersion": api_version, "kind": kind, "name": "o", "uid": "u", "controller": True}
    return make_pod(metadata={"labels": labels, "ownerReferences": [owner]})


def owner(kind: str, selector: Yaml | None) -> Yaml:
    return {
        "kind": kind,
        "metadata": {"name": "o", "namespace": "default"},
        "spec": {"selector": selector},
    }


@pytest.mark.parametrize(
    ("pod", "objects", "constrained"),
    [
        (pending(), [], False),
        (pending(), [SERVICE], True),
        (pending(app="y"), [SERVICE], False),
        (pending(namespace="other"), [SERVICE], False),
        (pending(), [{**SERVICE, "spec": {}}], False),
        (pending(), [{**SERVICE, "spec": {"selector": {}}}], False),
        (owned("ReplicaSet", app="x"), [owner("ReplicaSet", APP)], True),
        (owned("ReplicaSet", app="x"), [], False),
        (owned("ReplicaSet", app="x"), [owner("ReplicaSet", None)], False),
        (owned("ReplicaSet", "apps/v1beta1", app="x"), [owner("ReplicaSet", APP)], False),
        (owned("StatefulSet", app="x"), [owner("StatefulSet", APP)], True),
        (owned("StatefulSet", app="x"), [owner("ReplicaSet", APP)], False),
        (
            owned("ReplicationController", "v1", app="x"),
            [owner("ReplicationController", {"app": "x"})],
            True,
        ),
        (
            owned("ReplicaSet", app="x"),
            [owner("ReplicaSet", {"matchExpressions": [{"key": "app", "operator": "Near"}]})],
            False,
        ),
    ],
)
def test_pods_that_get_default_constraints(
    pod: PodInfo, objects: list[Yaml], constrained: bool
) -> None:
    handle = FakeHandle(THREE, on({"a": 1, "b": 1}), objects=objects)

    if constrained:
        assert passing(pod, handle, LIST) == ["c"]
        assert (
            make_plugin(PodTopologySpread, handle).pre_score(CycleState(), pod, handle.nodes)
            is None
        )
    else:
        for args in (LIST, None):
            plugin = make_plugin(PodTopologySpread, handle, args)
            assert plugin.pre_filter(CycleState(), pod, handle.nodes) == Status.skip()
            assert plugin.pre_score(CycleState(), pod, handle.nodes) == Status.skip()


def test_services_and_owners_selectors_are_merged() -> None:
    tier = {
        "kind": "Service",
        "metadata": {"name": "t", "namespace": "default"},
        "spec": {"selector": {"tier": "t"}},
    }
    objects = [SERVICE, tier, owner("ReplicaSet", {"matchLabels": {"hash": "h"}})]
    full = {"app": "x", "tier": "t", "hash": "h"}
    pods = [
        make_pod("p1", labels=full, node_name="a"),
        make_pod("p2", labels={"app": "x", "tier": "t"}, node_name="b"),
        make_pod("p3", labels={"app": "x", "hash": "h"}, node_name="c"),
    ]

    assert passing(owned("ReplicaSet", **full), FakeHandle(THREE, pods, objects=objects), LIST) == [
        "b",
        "c",
    ]


def test_own_constraints_replace_defaults() -> None:
    handle = FakeHandle(THREE, on({"a": 1}), objects=[SERVICE])
    plugin = make_plugin(PodTopologySpread, handle, LIST)

    assert plugin.pre_filter(CycleState(), pending(soft(HOST)), handle.nodes) == Status.skip()


def test_selectors_follow_services_and_owners() -> None:
    handle = FakeHandle(THREE, on({"a": 1, "b": 1}))
    plugin = make_plugin(PodTopologySpread, handle, LIST)

    def constrained(pod: PodInfo) -> bool:
        return plugin.pre_filter(CycleState(), pod, handle.nodes) is None

    assert not constrained(pending())
    handle.add(SERVICE)
    assert constrained(pending())
    handle.add({**SERVICE, "spec": {"selector": {"app": "y"}}})
    assert not constrained(pending())
    handle.add(SERVICE)
    handle.remove("Service", "default/s")
    assert not constrained(pending())

    pod = owned("ReplicaSet", app="x")
    assert not constrained(pod)
    handle.add(owner("ReplicaSet", APP))
    assert constrained(pod)
    handle.remove("ReplicaSet", "default/o")
    assert not constrained(pod)


def test_an_empty_list_means_no_defaults() -> None:
    handle = FakeHandle(THREE, objects=[SERVICE])
    plugin = make_plugin(PodTopologySpread, handle, {"defaultingType": "List"})

    assert plugin.pre_score(CycleState(), pending(), handle.nodes) == Status.skip()


# ---- keys that no node has -----------------------------------------------------------------------


def test_domains_of_keys_that_no_node_has_are_computed_once() -> None:
    handle = FakeHandle(THREE, on({"a": 2}))
    constraints = [soft(f"example.com/key-{number}") for number in range(1_000)]
    plugin, pod = make_plugin(PodTopologySpread, handle), pending(*constraints)
    soft_ones = plugin._constraints.of(pod.pod).soft

    domains = plugin._domain_cache.of(soft_ones, pod, handle.nodes, True)

    assert len(domains) == 1_000
    assert len({id(one) for one in domains}) == 1
    assert scored(pending(*constraints), handle) == ([-1, -1, -1], [0, 0, 0])


def test_no_pods_are_counted_for_keys_that_no_node_has(monkeypatch: pytest.MonkeyPatch) -> None:
    queries: list[PodQuery] = []
    count_pods = NodeTable.count_pods

    def count(nodes: NodeTable, query: PodQuery) -> CodeArray:
        queries.append(query)
        return count_pods(nodes, query)

    monkeypatch.setattr(NodeTable, "count_pods", count)
    missing = [
        soft(f"example.com/key-{number}", labelSelector={"matchLabels": {"a": f"{number}"}})
        for number in range(100)
    ]

    assert scored(pending(soft(), *missing), FakeHandle(THREE, on({"a": 2})))[1] == [0, 0, 0]
    assert len(queries) == 1
