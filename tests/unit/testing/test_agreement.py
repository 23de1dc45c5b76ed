"""The agreement of two forms is really looked at."""

from __future__ import annotations

import numpy as np
import pytest

from proreus.framework.cycle_state import CycleState
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import FilterPlugin, PreScorePlugin, ScorePlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.framework.verdicts import IntArray, Verdicts
from proreus.testing import FakeHandle, make_node, make_plugin, make_pod
from proreus.testing.agreement import agree, assert_agreement


class ByCordon(FilterPlugin):
    """Columns and nodes disagree about the reason."""

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return Status.unschedulable("cordoned") if node.unschedulable else None

    def filter_all(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable, verdicts: Verdicts
    ) -> None:
        verdicts.reject(nodes.unschedulable, "is cordoned")


class ByPods(ScorePlugin):
    """Columns count one more on the last row."""

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return len(node.pods)

    def score_all(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> IntArray:
        return nodes.pod_count + (np.arange(len(nodes)) == len(nodes) - 1)


class SkippedByPods(ByPods, PreScorePlugin):
    """The same, but nobody is ever asked."""

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        return Status.skip()


class ByRowNumber(ScorePlugin):
    """Depends on which rows the table happens to hold."""

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return node.row

    def score_all(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> IntArray:
        return np.arange(len(nodes), dtype=np.int64)


class Floats(ScorePlugin):
    """Columns of the wrong type."""

    def score_all(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> IntArray:
        return nodes.pod_count * 1.0


NODES = [make_node("n0", unschedulable=True), make_node("n1")]


def test_filters_that_disagree_are_found() -> None:
    handle = FakeHandle(NODES)
    plugin = make_plugin(ByCordon, handle)

    with pytest.raises(AssertionError, match=r"n0: columns say .*is cordoned.*, the node "):
        assert_agreement(plugin, make_pod(), handle.nodes)


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [(ByPods, "n1: columns say 1, the node 0"), (ByRowNumber, "columns say"), (Floats, "float64")],
)
def test_scores_that_disagree_are_found(kind: type[ScorePlugin], complaint: str) -> None:
    handle = FakeHandle(NODES)

    with pytest.raises(AssertionError, match=complaint):
        assert_agreement(make_plugin(kind, handle), make_pod(), handle.nodes)


def test_what_is_skipped_is_not_compared() -> None:
    agree(SkippedByPods, examples=5)
