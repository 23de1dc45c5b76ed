"""The dry run in lockstep finds what a dry run of one node after the other finds.

Random clusters, all in-tree filters, a real search: the reference takes one node at a time, as
kube-scheduler does, on a fork of its own with notes of its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proreus.base.feature_gates import FeatureGates
from proreus.config.load import default_configuration
from proreus.engine.runtime.profile import Profile
from proreus.engine.runtime.registry import Registry
from proreus.engine.runtime.scheduling_points import run_pre_filter
from proreus.framework.cycle_state import CycleState
from proreus.framework.node_info import NodeInfo
from proreus.framework.plugin import FilterPlugin, PreFilterPlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.post_filter_result import NominatingInfo
from proreus.framework.status import Status
from proreus.objects.kinds import NODES, PODS
from proreus.objects.policy import POD_DISRUPTION_BUDGETS
from proreus.offline.cluster import OfflineCluster
from proreus.plugins import IN_TREE_PLUGINS
from proreus.plugins.default_preemption.candidates import DryRun
from proreus.plugins.default_preemption.dry_run_cache import DryRunCache
from proreus.plugins.default_preemption.potential_victims import (
    DisruptionBudgets,
    PodsByPriority,
    sorted_by_importance,
)
from proreus.plugins.default_preemption.select_candidate import Candidate
from proreus.testing import FakeHandle, make_node, make_pod

Json = dict[str, Any]

_ZONE = "topology.kubernetes.io/zone"
_HIGH = 100
_GATES, _REGISTRY = FeatureGates(), Registry(IN_TREE_PLUGINS)
_CONFIGURATION = default_configuration(_REGISTRY, _GATES)


def _anti(app: str, key: str) -> Json:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def _spread(app: str, key: str) -> Json:
    return {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": app}},
    }


def _pods(name: str, **fixed: st.SearchStrategy[Any]) -> st.SearchStrategy[PodInfo]:
    def build(app: str, ports: list[int], anti: str | None, started: int, **rest: Any) -> PodInfo:
        spec = rest.pop("spec", {})
        affinity = _anti(*anti.split()) if anti else None
        status = {"startTime": f"2026-01-01T00:00:0{started}Z"} if started else {}
        return make_pod(
            name,
            labels={"app": app},
            host_ports=ports,
            affinity=affinity,
            status=status,
            spec=spec,
            **rest,
        )

    return st.builds(
        build,
        app=st.sampled_from(("a", "b", "high")),
        ports=st.lists(st.sampled_from((80, 443)), max_size=1),
        anti=st.sampled_from((None, None, f"high {_ZONE}", "a kubernetes.io/hostname")),
        started=st.integers(0, 2),
        cpu=st.sampled_from(("100m", "500m", "1", "2")),
        **fixed,
    )


@st.composite
def _clusters_and_pods(draw: st.DrawFn) -> tuple[OfflineCluster, PodInfo]:
    names = tuple(f"n{number}" for number in range(draw(st.integers(1, 12))))
    cluster = OfflineCluster(_CONFIGURATION, _REGISTRY, _GATES)
    for name in names:
        labels = {_ZONE: draw(st.sampled_from(("x", "y")))}
        cpu = draw(st.sampled_from(("2", "3")))
        cluster.api.put(NODES, make_node(name, cpu, labels=labels, pods=draw(st.integers(2, 6))))
    for number in range(draw(st.integers(0, 24))):
        on = st.sampled_from(names)
        pod = draw(_pods(f"p{number}", node_name=on, priority=st.sampled_from((0, 5, 5, 200))))
        cluster.api.put(PODS, pod.pod)
    for number in range(draw(st.integers(0, 6))):
        waiting = draw(_pods(f"w{number}", priority=st.sampled_from((5, _HIGH, 200))))
        cluster.api.put(PODS, waiting.pod)
        nominator = cluster.scheduler.queue.nominator
        nominator.add_nominated_pod(waiting, NominatingInfo(draw(st.sampled_from(names))))
    for app in draw(st.lists(st.sampled_from(("a", "b")), unique=True)):
        cluster.api.add(
            {
                "kind": POD_DISRUPTION_BUDGETS.kind,
                "metadata": {"name": app, "namespace": "default"},
                "spec": {"selector": {"matchLabels": {"app": app}}},
                "status": {"disruptionsAllowed": draw(st.integers(0, 2))},
            }
        )
    keys = st.sampled_from((_ZONE, "kubernetes.io/hostname"))
    spread = st.builds(_spread, st.sampled_from(("a", "high")), keys)
    spec = st.fixed_dictionaries(
        {}, optional={"topologySpreadConstraints": st.lists(spread, min_size=1, max_size=2)}
    )
    return cluster, draw(_pods("preemptor", priority=st.just(_HIGH), spec=spec))


def _reference(
    profile: Profile, state: CycleState, pod: PodInfo, budgets: DisruptionBudgets, row: int
) -> Candidate | Status:
    """Dry-run one node: remove all victims, run filters, reprieve one by one."""
    handle: Any = profile.post_filter[0].handle
    fork, forked_state = handle.nodes.fork(np.array([row])), state.clone()
    potential = [p for p in fork[0].pods.values() if p.priority < pod.priority]
    if not potential:
        return Status.unresolvable("No preemption victims found for incoming pod")
    for victim in potential:
        profile.remove_pod(forked_state, pod, victim, fork, 0)
    status = handle.run_filters_with_nominated_pods(forked_state, pod, fork).status(0)
    if status is not None:
        return status
    violating, others = budgets.filter_pods_with_pdb_violation(sorted_by_importance(potential))
    victims, violations = [], 0
    for back in violating + others:
        profile.add_pod(forked_state, pod, back, fork, 0)
        if handle.run_filters_with_nominated_pods(forked_state, pod, fork).status(0) is not None:
            profile.remove_pod(forked_state, pod, back, fork, 0)
            victims.append(back)
            violations += back in violating
    if violating and others:
        # Of pods that have not started, the start times sampled when they were listed decide.
        victims = [one for one in sorted_by_importance(potential) if one in victims]
    return Candidate(fork[0].name, tuple(victims), violations)


@settings(max_examples=30, deadline=None)
@given(_clusters_and_pods())
def test_lockstep_finds_the_candidates_of_one_dry_run_a_node(
    cluster_and_pod: tuple[OfflineCluster, PodInfo],
) -> None:
    cluster, pod = cluster_and_pod
    (profile,) = cluster.scheduler.profiles.values()
    handle, state = profile.post_filter[0].handle, CycleState()
    assert run_pre_filter(profile, state, pod).status is None
    budgets = DisruptionBudgets(cluster.api.store(POD_DISRUPTION_BUDGETS).values())
    rows = np.arange(len(handle.nodes))

    nodes = handle.nodes
    dry_run = DryRun(
        handle, state, pod, budgets, PodsByPriority(nodes), DryRunCache(nodes, pod.priority)
    )
    found = dry_run.candidates(rows, len(rows))

    expected = {row: _reference(profile, state, pod, budgets, row) for row in rows.tolist()}
    candidates = [c for c in expected.values() if isinstance(c, Candidate)]
    without_victims = {c.node_name for c in candidates if not c.victims}
    wanted = [c for c in candidates if c.victims]
    assert sorted(found, key=lambda c: c.node_name) == sorted(wanted, key=lambda c: c.node_name)
    for row, one in expected.items():
        assert dry_run.verdicts.status(row) == (one if isinstance(one, Status) else None)
    assert len(dry_run.errors) == len(without_victims)


# ---- plugins that fail, and enough candidates --------------------------------------------------


class OnePodPerNode(FilterPlugin):
    """Accepts nodes without pods; fails on an empty one that has the label ``broken``."""

    row_local = True

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        if "broken" in node.labels and not node.pods:
            raise ValueError("out of order")
        return Status.unschedulable("taken") if node.pods else None


class FailsToRemove(PreFilterPlugin, FilterPlugin):
    """Fails when a pod is removed from a node with the label ``fails-to-remove``."""

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Any) -> None:
        return None

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> None:
        if "fails-to-remove" in node.labels:
            raise ValueError("hands off")

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return None


def _handle(*labels: str) -> FakeHandle:
    nodes = [make_node(f"n{i}", labels={label: ""}) for i, label in enumerate(labels)]
    pods = [make_pod(f"p{i}", node_name=f"n{i}", priority=0) for i in range(len(labels))]
    handle = FakeHandle(nodes, pods)
    handle.filters = (OnePodPerNode(None, handle),)
    return handle


def _dry_run(handle: FakeHandle, pod: PodInfo) -> DryRun:
    nodes = handle.nodes
    return DryRun(
        handle,
        CycleState(),
        pod,
        DisruptionBudgets(()),
        PodsByPriority(nodes),
        DryRunCache(nodes, pod.priority),
    )


@pytest.mark.parametrize("across", [False, True])
def test_a_plugin_failure_rejects_only_the_node_it_is_about(across: bool) -> None:
    handle = _handle("fine", "broken", "fine", *(["fails-to-remove"] if across else []))
    if across:
        handle.filters = (*handle.filters, FailsToRemove(None, handle))
    pod = make_pod("high", priority=_HIGH)
    dry_run = _dry_run(handle, pod)

    found = dry_run.candidates(np.arange(len(handle.nodes)), 10)

    assert [c.node_name for c in found] == ["n0", "n2"]
    assert dry_run.errors[0] == 'running "OnePodPerNode" filter plugin: out of order'
    assert len(dry_run.errors) == (2 if across else 1)
    assert not dry_run.verdicts.counts()


def test_the_dry_run_stops_at_the_wanted_number_of_candidates() -> None:
    handle = _handle(*["fine"] * 7)
    pod = make_pod("high", priority=_HIGH)

    dry_run = _dry_run(handle, pod)
    found = dry_run.candidates(np.arange(7), 3)

    assert [c.node_name for c in found] == ["n0", "n1", "n2"]
