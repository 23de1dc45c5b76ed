"""agree() finds plugins whose methods disagree, and signatures that miss something."""

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
from proreus.testing.agreement import agree, assert_agreement, assert_sharing
from proreus.testing.clusters import drop_node, place_pod, put_node, take_pod


class ByCordon(FilterPlugin):
    """filter and filter_all give different reasons."""

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return Status.unschedulable("cordoned") if node.unschedulable else None

    def filter_all(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable, verdicts: Verdicts
    ) -> None:
        verdicts.reject(nodes.unschedulable, "is cordoned")


class ByPods(ScorePlugin):
    """score_all adds one on the last row."""

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return len(node.pods)

    def score_all(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> IntArray:
        return nodes.pod_count + (np.arange(len(nodes)) == len(nodes) - 1)


class SkippedByPods(ByPods, PreScorePlugin):
    """The same, but PreScore skips it."""

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        return Status.skip()


class ByRowNumber(ScorePlugin):
    """Scores depend on the other rows of the table."""

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return node.row

    def score_all(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> IntArray:
        return np.arange(len(nodes), dtype=np.int64)


class ByName(FilterPlugin, ScorePlugin):
    """Reads a field of the pod that is not in its signature."""

    row_local = True

    def sign(self, pod: PodInfo) -> str:
        return pod.namespace

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return Status.unschedulable("odd") if pod.pod.metadata.name == "odd" else None

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return 1


class BySize(ScorePlugin):
    """Claims to be row_local, but reads all nodes."""

    row_local = True

    def sign(self, pod: PodInfo) -> str:
        return ""

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return sum(len(other.pods) for other in self.handle.nodes)


class Floats(ScorePlugin):
    """score_all returns the wrong dtype."""

    def score_all(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> IntArray:
        return nodes.pod_count * 1.0


NODES = [make_node("n0", unschedulable=True), make_node("n1")]


def test_filters_that_disagree_are_found() -> None:
    handle = FakeHandle(NODES)
    plugin = make_plugin(ByCordon, handle)

    with pytest.raises(AssertionError, match=r"n0: filter_all says .*is cordoned.*, filter "):
        assert_agreement(plugin, make_pod(), handle.nodes)


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        (ByPods, "n1: score_all says 1, score 0"),
        (ByRowNumber, "score_all says"),
        (Floats, "float64"),
    ],
)
def test_scores_that_disagree_are_found(kind: type[ScorePlugin], complaint: str) -> None:
    handle = FakeHandle(NODES)

    with pytest.raises(AssertionError, match=complaint):
        assert_agreement(make_plugin(kind, handle), make_pod(), handle.nodes)


def test_skipped_plugins_are_not_compared() -> None:
    agree(SkippedByPods, examples=5)


def test_incomplete_signatures_are_found() -> None:
    handle = FakeHandle(NODES)
    pods = [make_pod("even"), make_pod("odd")]

    with pytest.raises(AssertionError, match=r"n0: cached is None, computed anew .*odd"):
        assert_sharing(make_plugin(ByName, handle), pods, handle)


def test_row_local_plugins_that_read_all_nodes_are_found() -> None:
    handle = FakeHandle(NODES)
    plugin = make_plugin(BySize, handle)
    assert_sharing(plugin, [make_pod()], handle)

    with pytest.raises(AssertionError, match="n0: cached is 0, computed anew 1"):
        assert_sharing(plugin, [make_pod()], handle, [place_pod(make_pod("p", node_name="n1"))])


def test_changes() -> None:
    handle = FakeHandle(NODES)
    for change in (
        place_pod(make_pod("p", node_name="n1")),
        put_node(make_node("n0")),
        put_node(make_node("n2")),
        place_pod(make_pod("q", node_name="n2")),
        place_pod(make_pod("r", node_name="gone")),
        take_pod("n2"),
        take_pod("n0"),
        drop_node("n0"),
        drop_node("gone"),
    ):
        change(handle)
        handle.nodes.validate()

    assert {node.name: len(node.pods) for node in handle.nodes} == {"n1": 1, "n2": 0}
    assert {node.name: node.unschedulable for node in handle.nodes} == {"n1": False, "n2": False}
