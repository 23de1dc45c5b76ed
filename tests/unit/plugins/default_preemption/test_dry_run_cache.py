"""Cached results of dry runs are those that another dry run would have."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proreus.base.feature_gates import FeatureGates
from proreus.base.kubernetes_version import V1_37
from proreus.config.load import default_configuration
from proreus.engine.runtime.registry import Registry
from proreus.engine.runtime.scheduling_points import run_pre_filter
from proreus.framework.cycle_state import CycleState
from proreus.framework.node_info import NodeInfo
from proreus.framework.plugin import FilterPlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.post_filter_result import NominatingInfo
from proreus.framework.status import Code, Status
from proreus.framework.verdicts import Verdicts
from proreus.objects.kinds import NODES, PODS
from proreus.objects.policy import POD_DISRUPTION_BUDGETS
from proreus.objects.scheduling import POD_GROUPS
from proreus.offline.cluster import OfflineCluster
from proreus.plugins import IN_TREE_PLUGINS
from proreus.plugins.default_preemption.candidates import DryRun
from proreus.plugins.default_preemption.domain_victims import DomainVictims, NodeNotFound
from proreus.plugins.default_preemption.dry_run_cache import DryRunCache, DryRunCaches
from proreus.plugins.default_preemption.potential_victims import DisruptionBudgets, PodsByPriority
from proreus.plugins.default_preemption.select_candidate import Candidate
from proreus.plugins.default_preemption.unit_dry_run import UnitDryRun
from proreus.testing import FakeHandle, make_node, make_pod

_NODES = 4
_MODES = ("single", "all")
_MEMBERS_OF_G, _MEMBERS_OF_H = 50, 60
_GATES, _REGISTRY = FeatureGates(), Registry(IN_TREE_PLUGINS)
_GATES_OF_GROUPS = FeatureGates.from_list(["GenericWorkload=true"], V1_37)
_CONFIGURATION = default_configuration(_REGISTRY, _GATES)

_where = st.integers(0, _NODES - 1)
_earlier = st.sampled_from((0, 1, 10, 20, 21, 30, 100, 101, 200))
_changes = st.one_of(
    st.tuples(st.just("pod"), _where, st.sampled_from((0, 5, 200)), st.sampled_from("ab")),
    st.tuples(st.just("no pod"), _earlier),
    st.tuples(st.just("node"), _where, st.sampled_from(("1", "2", "3"))),
    st.tuples(st.just("no node"), _where),
    st.tuples(st.just("nominated"), _where, st.sampled_from((5, 200))),
    st.tuples(st.just("not nominated"), _earlier),
    st.tuples(st.just("budget"), st.sampled_from("ab"), st.integers(0, 2)),
)
_groups = st.sampled_from("gh")
_changes_with_groups = st.one_of(
    _changes,
    st.tuples(st.just("member"), _where, st.sampled_from((0, 5, 200)), _groups),
    st.tuples(st.just("group"), _groups, st.sampled_from((5, 60, 200)), st.sampled_from(_MODES)),
    st.tuples(st.just("no group"), _groups),
    st.tuples(
        st.just("no pod"), st.sampled_from((_MEMBERS_OF_G, _MEMBERS_OF_G + 1, _MEMBERS_OF_H))
    ),
)
_preemptors = st.tuples(st.sampled_from((50, 100)), st.sampled_from(("500m", "1", "2")))


def _change(cluster: OfflineCluster, number: int, change: tuple[Any, ...]) -> None:
    """Apply one change; changes of objects that do not exist are no-ops."""
    nominator, nodes = cluster.scheduler.queue.nominator, cluster.api.store(NODES)
    match change:
        case "pod", where, priority, app if f"n{where}" in nodes:
            labels = {"app": app}
            pod = make_pod(
                f"p{number}", cpu="500m", priority=priority, labels=labels, node_name=f"n{where}"
            )
            cluster.api.put(PODS, pod.pod)
        case "member", where, priority, group if f"n{where}" in nodes:
            spec = {"schedulingGroup": {"podGroupName": group}}
            pod = make_pod(
                f"p{number}", cpu="500m", priority=priority, spec=spec, node_name=f"n{where}"
            )
            cluster.api.put(PODS, pod.pod)
        case "group", name, priority, mode:
            cluster.api.add(
                {
                    "kind": POD_GROUPS.kind,
                    "metadata": {"name": name, "namespace": "default"},
                    "spec": {"priority": priority, "disruptionMode": {mode: {}}},
                }
            )
        case "no group", name:
            cluster.api.remove(POD_GROUPS.kind, f"default/{name}")
        case "no pod", which:
            cluster.api.remove(PODS.kind, f"default/p{which}")
        case "node", where, cpu:
            cluster.api.put(NODES, make_node(f"n{where}", cpu))
        case "no node", where:
            cluster.api.remove(NODES.kind, f"n{where}")
        case "nominated", where, priority:
            pod = make_pod(f"w{number}", cpu="500m", priority=priority)
            cluster.api.put(PODS, pod.pod)
            nominator.add_nominated_pod(pod, NominatingInfo(f"n{where}"))
        case "not nominated", which:
            nominator.delete_nominated_pod(make_pod(f"w{which}").uid)
        case "budget", app, allowed:
            cluster.api.add(
                {
                    "kind": POD_DISRUPTION_BUDGETS.kind,
                    "metadata": {"name": f"{app}{number}", "namespace": "default"},
                    "spec": {"selector": {"matchLabels": {"app": app}}},
                    "status": {"disruptionsAllowed": allowed},
                }
            )


def _found(dry_run: DryRun) -> tuple[list[Candidate], Verdicts]:
    rows = np.arange(dry_run.verdicts.size)
    return dry_run.candidates(rows, len(rows)), dry_run.verdicts


_Round = tuple[list[tuple[Any, ...]], tuple[int, str], bool]


def _rounds(changes: st.SearchStrategy[tuple[Any, ...]]) -> st.SearchStrategy[list[_Round]]:
    one = st.tuples(st.lists(changes, max_size=4), _preemptors, st.booleans())
    return st.lists(one, min_size=2, max_size=5)


@settings(max_examples=60, deadline=None)
@given(_rounds(_changes))
def test_cached_results_are_those_of_another_dry_run(rounds: list[_Round]) -> None:
    _assert_cached_results_hold(rounds, _GATES)


def _twice(*changes: tuple[Any, ...]) -> list[_Round]:
    """Return two rounds with equivalent preemptors, and changes between them."""
    return [([], (50, "2"), False), ([*changes], (50, "2"), False)]


@settings(max_examples=60, deadline=None)
@given(_rounds(_changes_with_groups))
@example(_twice(("no pod", _MEMBERS_OF_G)))
@example(_twice(("member", 0, 5, "g")))
@example(_twice(("group", "g", 5, "single")))
@example(_twice(("group", "g", 200, "all")))
@example(_twice(("no group", "g")))
@example(_twice(("node", _NODES, "2"), ("no node", 0)))
def test_cached_results_hold_where_pods_are_evicted_with_their_group(rounds: list[_Round]) -> None:
    _assert_cached_results_hold(rounds, _GATES_OF_GROUPS)


def _assert_cached_results_hold(rounds: list[_Round], gates: FeatureGates) -> None:
    cluster = OfflineCluster(_CONFIGURATION, _REGISTRY, gates)
    for number in range(_NODES):
        cluster.api.put(NODES, make_node(f"n{number}", "2"))
        for which in range(number):
            _change(cluster, 10 * number + which, ("pod", number, 5, "a"))
    (profile,) = cluster.scheduler.profiles.values()
    handle = profile.post_filter[0].handle
    forest = handle.workload_forest
    with_groups = gates.enabled("GenericWorkload")
    units = DomainVictims(forest, handle.pod_group_states, handle.nodes)
    is_grouped = units.is_grouped if with_groups else None
    pods_by_priority = PodsByPriority(handle.nodes, is_grouped=is_grouped)
    caches = DryRunCaches(handle.nodes, forest if with_groups else None)
    if with_groups:
        for name, first in (("g", _MEMBERS_OF_G), ("h", _MEMBERS_OF_H)):
            _change(cluster, 0, ("group", name, 5, "all" if name == "g" else "single"))
            for where in range(_NODES):
                _change(cluster, first + where, ("member", where, 5, name))
    for turn, (changes, (priority, cpu), spread) in enumerate(rounds):
        for number, change in enumerate(changes):
            _change(cluster, 100 * turn + number, change)
        spread_by = {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "a"}},
        }
        spec = {"topologySpreadConstraints": [spread_by]} if spread else {}
        pod = make_pod(f"preemptor-{turn}", cpu=cpu, priority=priority, spec=spec)
        state = CycleState()
        run_pre_filter(profile, state, pod)
        budgets = cluster.api.store(POD_DISRUPTION_BUDGETS).values()
        dry_run_key = handle.dry_run_key(state, pod)
        known = caches.of(dry_run_key, pod, budgets)

        preemptor = (handle, state, pod, DisruptionBudgets(budgets))
        in_units = units if with_groups else None
        dry_run = DryRun(*preemptor, pods_by_priority, known, units=in_units)
        expected_pods = PodsByPriority(handle.nodes, is_grouped=is_grouped)
        unknown = DryRunCache(handle.nodes, priority)
        expected_run = DryRun(*preemptor, expected_pods, unknown, units=in_units)
        found, verdicts = _found(dry_run)
        expected, why = _found(expected_run)
        assert (found, dry_run.errors) == (expected, expected_run.errors)
        assert [verdicts.status(row) for row in range(why.size)] == [
            why.status(row) for row in range(why.size)
        ]
        # Rows where all may be evicted pod by pod are evaluated at once, with the same results.
        by_name = {candidate.node_name: candidate for candidate in expected}
        for row in expected_pods.rows_with_groups():
            node = handle.nodes[row]
            try:
                on_node = units.of_nodes([node])
                alone = UnitDryRun(handle, state, pod, row).select_victims(
                    on_node, DisruptionBudgets(budgets)
                )
            except NodeNotFound as error:
                alone = Status.error(str(error))
            if isinstance(alone, Status) and alone.code == Code.ERROR:
                assert alone.message in expected_run.errors
            else:
                assert by_name.get(node.name, why.status(row)) == alone


class Lonely(FilterPlugin):
    """Accepts nodes without pods that are not labelled ``closed``; counts its calls."""

    row_local = True
    calls = 0

    def sign(self, pod: PodInfo) -> Hashable | None:
        return None if "unsigned" in pod.labels else ()

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        self.calls += 1
        return Status.unschedulable("taken") if node.pods or "closed" in node.labels else None


def _calls(handle: FakeHandle, caches: DryRunCaches, pod: PodInfo) -> int:
    """Return how often the filter was called for one preemption."""
    (plugin,) = handle.filters
    assert isinstance(plugin, Lonely)
    before, state = plugin.calls, CycleState()
    known = caches.of(handle.dry_run_key(state, pod), pod, ())
    candidates, _ = _found(
        DryRun(handle, state, pod, DisruptionBudgets(()), PodsByPriority(handle.nodes), known),
    )
    assert [one.node_name for one in candidates] == ["n0", "n1"]
    return plugin.calls - before


def test_equivalent_preemptors_dry_run_only_what_changed() -> None:
    nodes = [make_node(f"n{i}", labels={"closed": ""} if i > 1 else {}) for i in range(4)]
    pods = [make_pod(f"p{i}", node_name=f"n{i}", priority=0) for i in range(4)]
    handle = FakeHandle(nodes, pods)
    handle.filters = (Lonely(None, handle),)
    caches = DryRunCaches(handle.nodes)

    assert _calls(handle, caches, make_pod("a", priority=10)) == 6
    assert _calls(handle, caches, make_pod("b", priority=10)) == 0
    handle.nodes.remove_pod(1, pods[1].uid)
    handle.nodes.add_pod(1, pods[1])
    assert _calls(handle, caches, make_pod("c", priority=10)) == 2
    assert _calls(handle, caches, make_pod("d", priority=11)) == 6
    assert _calls(handle, caches, make_pod("e", priority=10, labels={"unsigned": ""})) == 6


def test_a_rejected_node_is_not_dry_run_again_while_its_victims_are_deleted() -> None:
    nodes = [make_node(f"n{i}", labels={"closed": ""} if i > 1 else {}) for i in range(3)]
    names = ("p0", "p1", "p2", "another")
    pods = [make_pod(name, node_name=f"n{min(i, 2)}", priority=0) for i, name in enumerate(names)]
    handle = FakeHandle(nodes, pods)
    handle.filters = (Lonely(None, handle),)
    caches, table = DryRunCaches(handle.nodes), handle.nodes

    assert _calls(handle, caches, make_pod("a", priority=10)) == 5
    table.remove_pod(2, pods[2].uid)
    assert _calls(handle, caches, make_pod("b", priority=10)) == 0
    table.add_pod(2, make_pod("important", node_name="n2", priority=10))
    assert _calls(handle, caches, make_pod("c", priority=10)) == 1
    table[2].set_node(make_node("n2", labels={"closed": "", "other": ""}))
    table.update_node(table[2])
    assert _calls(handle, caches, make_pod("d", priority=10)) == 1


def test_new_and_cleared_nominations_invalidate_rows() -> None:
    pods = [make_pod(f"p{i}", cpu="1", node_name=f"n{i}", priority=0) for i in range(2)]
    cluster = OfflineCluster(_CONFIGURATION, _REGISTRY, _GATES)
    for i, pod in enumerate(pods):
        cluster.api.put(NODES, make_node(f"n{i}", "1"))
        cluster.api.put(PODS, pod.pod)
    (profile,) = cluster.scheduler.profiles.values()
    handle, nominator = profile.post_filter[0].handle, cluster.scheduler.queue.nominator
    pods_by_priority, caches = PodsByPriority(handle.nodes), DryRunCaches(handle.nodes)

    def nodes_for(pod: PodInfo) -> list[str]:
        state = CycleState()
        run_pre_filter(profile, state, pod)
        known = caches.of(handle.dry_run_key(state, pod), pod, ())
        candidates, _ = _found(
            DryRun(handle, state, pod, DisruptionBudgets(()), pods_by_priority, known)
        )
        return [one.node_name for one in candidates]

    first, second = (make_pod(name, cpu="1", priority=10) for name in ("first", "second"))
    cluster.api.put(PODS, first.pod)
    assert nodes_for(first) == ["n0", "n1"]
    nominator.add_nominated_pod(first, NominatingInfo("n0"))
    assert nodes_for(second) == ["n1"]
    assert nodes_for(first) == ["n0", "n1"], "its own nomination is not in its way"
    assert nodes_for(second) == ["n1"]
    nominator.delete_nominated_pod(first.uid)
    assert nodes_for(second) == ["n0", "n1"]
