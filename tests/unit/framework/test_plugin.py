"""Base classes: names, forms that are derived, extension points."""

from __future__ import annotations

import numpy as np
import pytest

from proreus.framework.cycle_state import CycleState
from proreus.framework.extension_points import points_of
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import FilterPlugin, PreFilterPlugin, ScorePlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.framework.verdicts import IntArray, Verdicts
from proreus.testing import FakeHandle, make_node, make_plugin, make_pod


class PerNode(FilterPlugin, ScorePlugin):
    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return Status.unschedulable("cordoned") if node.unschedulable else None

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return len(node.pods)


class Columnar(FilterPlugin, ScorePlugin):
    name = "InColumns"

    def filter_all(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable, verdicts: Verdicts
    ) -> None:
        verdicts.reject(nodes.unschedulable, "cordoned")

    def score_all(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> IntArray:
        return nodes.pod_count


class Constant(ScorePlugin):
    def score_all(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> int:
        return 7


HANDLE = FakeHandle(
    [make_node("n0"), make_node("n1", unschedulable=True)], [make_pod("a", node_name="n1")]
)


@pytest.mark.parametrize("kind", [PerNode, Columnar])
def test_the_other_form_is_derived(kind: type[PerNode] | type[Columnar]) -> None:
    plugin, state, pod = make_plugin(kind, HANDLE), CycleState(), make_pod()
    verdicts = Verdicts(2, plugin.name)

    plugin.filter_all(state, pod, HANDLE.nodes, verdicts)
    singles = [plugin.filter(state, pod, node) for node in HANDLE.nodes]

    expected = Status.unschedulable("cordoned").with_plugin(plugin.name)
    assert [verdicts.status(row) for row in range(2)] == [None, expected]
    assert [one and one.with_plugin(plugin.name) for one in singles] == [None, expected]
    assert np.asarray(plugin.score_all(state, pod, HANDLE.nodes)).tolist() == [0, 1]
    assert [plugin.score(state, pod, node) for node in HANDLE.nodes] == [0, 1]


def test_one_number_is_a_score_for_all() -> None:
    plugin = make_plugin(Constant, HANDLE)

    assert plugin.score(CycleState(), make_pod(), HANDLE.nodes[1]) == 7


def test_plugins_are_named_after_their_class() -> None:
    class Mine(PerNode):
        pass

    class Other(Columnar):
        name = "Another"

    assert (PerNode.name, Mine.name) == ("PerNode", "Mine")
    assert (Columnar.name, Other.name) == ("InColumns", "Another")


def test_a_plugin_must_have_a_form() -> None:
    with pytest.raises(TypeError, match="Nothing must define filter or filter_all"):
        type("Nothing", (FilterPlugin,), {})
    with pytest.raises(TypeError, match="must define filter or filter_all; Filter has no effect"):
        type("Nothing", (FilterPlugin,), {"Filter": lambda self, state, pod, node: None})
    with pytest.raises(TypeError, match="Nothing must define score or score_all"):
        type("Nothing", (ScorePlugin,), {})


def test_forms_are_noted() -> None:
    assert (PerNode.per_node_filter, PerNode.columnar_filter) == (True, False)
    assert (Columnar.per_node_score, Columnar.columnar_score) == (False, True)
    assert not Columnar.normalizes


def test_points() -> None:
    class Many(PerNode, PreFilterPlugin):
        pass

    assert points_of(Many) == {"preFilter", "filter", "score"}
