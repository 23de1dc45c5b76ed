"""A dry run of one pod on a node whose potential victims include whole groups."""

from __future__ import annotations

from typing import Any

from proreus.framework.cycle_state import CycleState
from proreus.framework.node_info import NodeInfo
from proreus.framework.plugin import FilterPlugin, PreFilterPlugin
from proreus.framework.pod_group import PlacedPod
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.objects.policy import POD_DISRUPTION_BUDGETS
from proreus.plugins.default_preemption.domain_victims import DomainVictim
from proreus.plugins.default_preemption.potential_victims import NO_VICTIMS, DisruptionBudgets
from proreus.plugins.default_preemption.select_candidate import Candidate
from proreus.plugins.default_preemption.unit_dry_run import UnitDryRun
from proreus.testing import FakeHandle, make_node, make_pod


class FewAcrossNodes(PreFilterPlugin, FilterPlugin):
    """Accepts a node if it has at most ``here`` pods, and all nodes ``in_all``, by its count."""

    here, in_all = 9, 9
    seen: list[str]

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Any) -> None:
        state.write(self.name, {"pods": sum(len(node.pods) for node in nodes)})

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> None:
        self.seen.append(f"+{added.name}@{node.name}")
        state.write(self.name, {"pods": state.read(self.name)["pods"] + 1})

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> None:
        self.seen.append(f"-{removed.name}@{node.name}")
        state.write(self.name, {"pods": state.read(self.name)["pods"] - 1})

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        if len(node.pods) > self.here:
            return Status.unschedulable("full")
        crowded = state.read(self.name)["pods"] > self.in_all
        return Status.unschedulable("too many") if crowded else None


class Node:
    """Node a, on which a pod of priority 100 is tried, and node b. ``pods``: ``name@node``."""

    def __init__(
        self, *pods: str, here: int = 9, in_all: int = 9, budget: int | None = None
    ) -> None:
        infos = [
            make_pod(name, node_name=node, priority=0, labels={"app": name[0]})
            for name, _, node in (pod.partition("@") for pod in pods)
        ]
        self.pods = {info.name: info for info in infos}
        self.handle = FakeHandle([make_node("a"), make_node("b")], infos)
        self.plugin = FewAcrossNodes(None, self.handle)
        self.plugin.here, self.plugin.in_all, self.plugin.seen = here, in_all, []
        self.handle.filters = (self.plugin,)
        self.state = CycleState()
        self.plugin.pre_filter(self.state, make_pod("high"), self.handle.nodes)
        if budget is not None:
            self.handle.add(
                {
                    "kind": POD_DISRUPTION_BUDGETS.kind,
                    "metadata": {"name": "g", "namespace": "default"},
                    "spec": {"selector": {"matchLabels": {"app": "g"}}},
                    "status": {"disruptionsAllowed": budget},
                }
            )

    def unit(self, priority: int, *names: str) -> DomainVictim:
        placed = [PlacedPod(self.pods[n], self.pods[n].pod.spec.node_name) for n in names]
        return DomainVictim(priority, 2 if len(names) > 1 else 1, placed)

    def select(self, *units: DomainVictim) -> Candidate | Status:
        budgets = DisruptionBudgets(self.handle.store(POD_DISRUPTION_BUDGETS).values())
        dry_run = UnitDryRun(self.handle, self.state, make_pod("high", priority=100), 0)
        return dry_run.select_victims(list(units), budgets)


def _victims(found: Candidate | Status) -> list[str]:
    assert isinstance(found, Candidate)
    return [pod.name for pod in found.victims]


def test_a_unit_is_evicted_on_all_its_nodes_or_stays() -> None:
    node = Node("g0@a", "g1@b", "x@a", here=1)
    found = node.select(node.unit(5, "g0", "g1"), node.unit(0, "x"))

    assert _victims(found) == ["x"], "the more important unit is tried first"
    node = Node("g0@a", "g1@b", "x@a", here=1)
    found = node.select(node.unit(5, "g0", "g1"), node.unit(6, "x"))
    assert _victims(found) == ["g0", "g1"]
    assert isinstance(found, Candidate)
    assert (found.node_name, found.pdb_violations) == ("a", 0)


def test_counts_across_nodes_are_told_of_pods_on_other_nodes() -> None:
    node = Node("g0@a", "g1@b", "y@b", in_all=2)
    found = node.select(node.unit(5, "g0", "g1"))

    assert _victims(found) == ["g0", "g1"]
    removed = ["-g0@a", "-g1@b"]
    assert node.plugin.seen == [*removed, "+g0@a", "+g1@b", *removed]


def test_the_dry_run_leaves_the_table_and_the_state_as_before() -> None:
    node = Node("g0@a", "g1@b", "x@a", "y@a", here=1)
    nodes = node.handle.nodes

    def content() -> list[Any]:
        return [(list(n.order), dict(n.pods), dict(n.requested), n.row) for n in nodes]

    before, position = content(), nodes.position
    for here in (0, 1, 2):
        node.plugin.here = here
        assert _victims(node.select(node.unit(5, "g0", "g1"), node.unit(0, "x"), node.unit(1, "y")))
    assert content() == before
    assert nodes.position == position, "no row has changed"
    assert node.state.read(node.plugin.name) == {"pods": 4}


def test_a_unit_that_violates_a_budget_is_tried_first() -> None:
    """Its violations are those of all its pods that exceed the budget."""
    for budget, victims in ((3, ["g0", "g1", "g2"]), (2, ["x"])):
        node = Node("g0@a", "g1@a", "g2@b", "x@a", here=2, budget=budget)
        units = node.unit(0, "g0", "g1", "g2"), node.unit(5, "x")
        found = node.select(*units)
        assert isinstance(found, Candidate)
        assert (_victims(found), found.pdb_violations) == (victims, 0)
    node = Node("g0@a", "g1@a", "g2@b", "x@a", here=0, budget=1)
    found = node.select(node.unit(0, "g0", "g1", "g2"), node.unit(5, "x"))
    assert isinstance(found, Candidate)
    assert (_victims(found), found.pdb_violations) == (["x", "g0", "g1", "g2"], 2)


def test_why_a_node_is_no_candidate() -> None:
    node = Node("g0@a", "g1@b", here=0)
    assert node.select(node.unit(100, "g0", "g1")) == Status.unresolvable(NO_VICTIMS)

    node = Node("g0@a", "z@a", here=0)
    assert node.select(node.unit(0, "g0")) == Status.unschedulable("full").with_plugin(
        node.plugin.name
    )

    node = Node("g0@a")
    assert node.select(node.unit(0, "g0")) == Status.error(
        'expected at least one victim pod on node "a"'
    )
