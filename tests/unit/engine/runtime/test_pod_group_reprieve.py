"""Victims that are put back by the rows they touch are those that a trial of all pods puts back.

Random clusters, all in-tree plugins, the whole cycle of a group: the reference filters every pod of
the group for every unit of victims, as kube-scheduler does.
"""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proreus.base.feature_gates import FeatureGates
from proreus.base.kubernetes_version import V1_37
from proreus.config.load import default_configuration
from proreus.engine.runtime.pod_group_reprieve import PodGroupReprieve
from proreus.engine.runtime.registry import Registry
from proreus.framework.cycle_state import CycleState
from proreus.framework.node_info import NodeInfo
from proreus.framework.plugin import FilterPlugin, PreFilterPlugin
from proreus.framework.pod_group import PlacedPod, ProposedAssignment
from proreus.framework.pod_info import PodInfo
from proreus.framework.post_filter_result import NominatingInfo
from proreus.framework.status import Status
from proreus.objects.kinds import NODES, PODS
from proreus.objects.policy import POD_DISRUPTION_BUDGETS
from proreus.objects.scheduling import POD_GROUPS
from proreus.offline.cluster import OfflineCluster
from proreus.plugins import IN_TREE_PLUGINS
from proreus.testing import make_node, make_pod

Json = dict[str, Any]

_ZONE, _HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
_GATES, _REGISTRY = (
    FeatureGates.from_list(["GenericWorkload=true"], V1_37),
    Registry(IN_TREE_PLUGINS),
)
_CONFIGURATION = default_configuration(_REGISTRY, _GATES)
_HIGH = 100

_cpus = st.sampled_from(("500m", "1", "2"))
_apps = st.sampled_from(("a", "b", "g"))


def _spread(app: str, key: str) -> Json:
    return {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": app}},
    }


def _affinity(kind: str, app: str, key: str) -> Json:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


_keys = st.sampled_from((_ZONE, _HOST))
_affinities = st.one_of(
    st.none(),
    st.none(),
    st.builds(_affinity, st.sampled_from(("podAffinity", "podAntiAffinity")), _apps, _keys),
)


@st.composite
def _pods(draw: st.DrawFn, /, name: str, group: str = "", **fixed: Any) -> Json:
    spec = fixed.pop("spec", {}) | ({"schedulingGroup": {"podGroupName": group}} if group else {})
    started = draw(st.integers(0, 2))
    return {
        "name": name,
        "cpu": draw(_cpus),
        "labels": {"app": draw(_apps)},
        "host_ports": draw(st.sampled_from(([], [], [80]))),
        "affinity": draw(_affinities),
        "status": {"startTime": f"2026-01-01T00:00:0{started}Z"} if started else {},
        "spec": spec,
        **fixed,
    }


def _pod_group(name: str, priority: int, mode: str = "single", min_count: int = 1) -> Json:
    policy = {"gang": {"minCount": min_count}}
    spec = {"schedulingPolicy": policy, "priority": priority, "disruptionMode": {mode: {}}}
    meta = {"name": name, "namespace": "default", "uid": name, "generation": 1}
    return {"kind": "PodGroup", "metadata": meta, "spec": spec}


@st.composite
def _clusters(draw: st.DrawFn) -> Json:
    names = [f"n{number}" for number in range(draw(st.integers(1, 5)))]
    nodes = [
        {"name": name, "cpu": draw(st.sampled_from(("2", "3"))), "pods": draw(st.integers(2, 5))}
        | {"labels": {_ZONE: draw(st.sampled_from(("x", "y"))), _HOST: name}}
        for name in names
    ]
    on = st.sampled_from(names)
    running = [
        draw(_pods(f"p{number}", node_name=draw(on), priority=draw(st.sampled_from((0, 5, 200)))))
        for number in range(draw(st.integers(0, 10)))
    ]
    groups = [_pod_group("old", 3, draw(st.sampled_from(("single", "all"))))]
    running += [
        draw(_pods(f"old-{number}", "old", node_name=draw(on), priority=3))
        for number in range(draw(st.integers(0, 4)))
    ]
    budgets = [
        {
            "kind": POD_DISRUPTION_BUDGETS.kind,
            "metadata": {"name": app, "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": app}}},
            "status": {"disruptionsAllowed": draw(st.integers(0, 2))},
        }
        for app in draw(st.lists(st.sampled_from(("a", "b")), unique=True))
    ]
    nominated = [
        (draw(_pods(f"w{number}", priority=200)), draw(on))
        for number in range(draw(st.integers(0, 2)))
    ]
    spreads = st.lists(st.builds(_spread, _apps, _keys), min_size=1, max_size=1)
    spec = draw(st.fixed_dictionaries({}, optional={"topologySpreadConstraints": spreads}))
    pods = [
        draw(_pods(f"g-{number}", "g", priority=_HIGH, spec=spec))
        for number in range(draw(st.integers(1, 4)))
    ]
    groups.append(_pod_group("g", _HIGH, min_count=draw(st.integers(1, len(pods)))))
    return {
        "nodes": nodes,
        "objects": groups + budgets,
        "running": running,
        "nominated": nominated,
        "pods": pods,
    }


async def _preempt(drawn: Json) -> tuple[list[str], list[str], list[tuple[Any, ...]]]:
    """Run the cycle of the group; return the victims, nominations and the group's conditions."""
    cluster = OfflineCluster(_CONFIGURATION, _REGISTRY, _GATES)
    for node in drawn["nodes"]:
        cluster.api.put(NODES, make_node(node["name"], node["cpu"], **_rest(node, "name", "cpu")))
    for obj in drawn["objects"]:
        cluster.api.add(obj)
    for pod in drawn["running"]:
        cluster.api.put(PODS, make_pod(**pod).pod)
    for pod, node_name in drawn["nominated"]:
        nominator = cluster.scheduler.queue.nominator
        nominator.add_nominated_pod(make_pod(**pod), NominatingInfo(node_name))
    for pod in drawn["pods"]:
        cluster.api.put(PODS, make_pod(**pod).pod)
    await cluster.schedule_next()
    for node in cluster.scheduler.cache.table:
        assert cluster.scheduler.cache.node_difference(node.name) == ""
    await cluster.settle()
    pods = cluster.api.store(PODS).values()
    places = [f"{p.metadata.name} {p.spec.node_name} {p.status.nominated_node_name}" for p in pods]
    group = cluster.api.store(POD_GROUPS)["default/g"]
    conditions = [(one.status, one.reason, one.message) for one in group.status.conditions]
    return cluster.api.deleted, sorted(places), conditions


def _rest(of: Json, *without: str) -> Json:
    return {key: value for key, value in of.items() if key not in without}


@settings(max_examples=60, deadline=None)
@given(_clusters())
def test_rows_decide_as_a_trial_of_all_pods_does(drawn: Json) -> None:
    by_rows = asyncio.run(_preempt(drawn))
    with patch.object(PodGroupReprieve, "_is_decided_by_row", lambda self, assignment: False):
        by_trials = asyncio.run(_preempt(drawn))

    assert by_rows == by_trials


# ---- single units ------------------------------------------------------------------------------


class Roomy(PreFilterPlugin, FilterPlugin):
    """Accepts nodes with at most two pods, and counts calls; AddPod returns ``told``."""

    row_local = True
    told: bool | None = False

    def __init__(self, args: Any, handle: Any) -> None:
        super().__init__(args, handle)
        self.filtered: list[tuple[str, str]] = []
        self.removed: list[str] = []

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Any) -> None:
        return None

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> Any:
        return self.told

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> None:
        assert removed.uid not in node.pods
        self.removed.append(f"{removed.name} for {pod.name}")

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        self.filtered.append((pod.name, node.name))
        return Status.unschedulable("crowded") if len(node.pods) > 2 else None


class Trial:
    """Nodes a, b and c, on which pods of a group would go to some nodes."""

    def __init__(self, kit: Any, told: bool | None, *places: str) -> None:
        self.harness = kit.SearchHarness(Roomy)
        self.harness.add_nodes("a", "b", "c")
        (self.plugin,) = self.harness.profile.filter
        self.plugin.told = told
        assignments = [
            ProposedAssignment(make_pod(f"g{i}"), place, CycleState())
            for i, place in enumerate(places)
        ]
        profile, search = self.harness.profile, self.harness.search
        self.reprieve = PodGroupReprieve(profile, search, assignments)
        self.plugin.filtered.clear()
        self._numbers = count()

    def put_back(self, **nodes: int) -> bool:
        """Put a unit back that has so many pods on nodes."""
        unit = [
            PlacedPod(make_pod(f"old-{next(self._numbers)}"), name)
            for name, pods in nodes.items()
            for _ in range(pods)
        ]
        return self.reprieve.reprieve(unit)

    @property
    def running(self) -> dict[str, int]:
        return {node.name: len(node.pods) for node in self.harness.nodes if node.pods}


def test_only_pods_of_the_touched_nodes_are_filtered(kit: Any) -> None:
    trial = Trial(kit, False, "a", "a", "b")

    assert trial.put_back(c=3)
    assert trial.plugin.filtered == []
    assert trial.put_back(a=1, c=1)
    assert trial.plugin.filtered == [("g0", "a"), ("g1", "a")]
    assert trial.running == {"a": 1, "c": 4}, "the pods of the group are gone again"


def test_a_unit_that_does_not_fit_is_removed_from_all_its_nodes(kit: Any) -> None:
    trial = Trial(kit, False, "a", "a", "b")

    assert not trial.put_back(a=2, c=1)
    assert trial.running == {}
    assert trial.plugin.removed == [], "AddPod has promised that there is nothing to undo"


@pytest.mark.parametrize("told", [True, None])
def test_all_pods_are_filtered_where_counts_may_have_changed(kit: Any, told: bool | None) -> None:
    trial = Trial(kit, told, "a", "b")

    assert trial.put_back(c=1)
    assert trial.plugin.filtered == [("g0", "a"), ("g1", "b")]
    assert not trial.put_back(b=3)
    assert trial.plugin.removed == [f"old-{i} for g{j}" for i in (1, 2, 3) for j in range(2)]
    assert trial.running == {"c": 1}


def test_nothing_is_put_back_beside_pods_that_do_not_fit(kit: Any) -> None:
    """Those of a child group that failed: kube-scheduler tries them with each unit."""
    trial = Trial(kit, False, "a", "a", "a", "a", "b")

    assert not trial.put_back(c=1)
    assert not trial.put_back(b=1)
    assert trial.running == {}
