"""agree() finds plugins whose methods disagree, and signatures that miss something."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from proreus.framework.cycle_state import CycleState
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import (
    FilterPlugin,
    Plugin,
    PostFilterPlugin,
    PreFilterPlugin,
    PreScorePlugin,
    ScorePlugin,
)
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.framework.verdicts import IntArray, Verdicts
from proreus.testing import FakeHandle, make_node, make_plugin, make_pod
from proreus.testing.agreement import agree, assert_agreement, assert_row_local, assert_sharing
from proreus.testing.clusters import Cluster, clusters, drop_node, place_pod, put_node, take_pod
from proreus.testing.vocabulary import Vocabulary


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
    handle = FakeHandle(NODES)

    assert_agreement(make_plugin(SkippedByPods, handle), make_pod(), handle.nodes)


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


class ByGpus(PreFilterPlugin, FilterPlugin):
    """filter_all forgets what is in use; only clusters with this vendor's GPUs show it."""

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        return None if pod.requests.amounts.get("nvidia.com/gpu") else Status.skip()

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        free = node.allocatable["nvidia.com/gpu"] - node.requested["nvidia.com/gpu"]
        return Status.unschedulable("no gpu") if free <= 0 else None

    def filter_all(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable, verdicts: Verdicts
    ) -> None:
        verdicts.reject(nodes.allocatable["nvidia.com/gpu"] <= 0, "no gpu")


class ByModel(PreScorePlugin, ScorePlugin):
    """Labels of pods and nodes by the team's own keys; score_all is wrong where both have one."""

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        return None if "corp.example/tier" in pod.labels else Status.skip()

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return int("corp.example/model" in node.labels)

    def score_all(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> IntArray:
        return (nodes.label("corp.example/model") >= 0).astype(np.int64) * 2


class ByTier(FilterPlugin):
    """Compares with a value that no cluster has by itself."""

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return Status.unschedulable("gold") if node.labels.get("tier") == "gold" else None


class ByTierInArgs(FilterPlugin):
    """The same, with key and value from the arguments."""

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        wrong = node.labels.get(self.args["label"]) == self.args["avoid"]
        return Status.unschedulable("avoided") if wrong else None


class AgainstMost(PreScorePlugin, ScorePlugin):
    """Claims to be row_local, but scores a node against the largest one of the cluster."""

    row_local = True

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        state.write("most", max([1, *(node.allocatable["memory"] for node in nodes)]))
        return None

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        most: int = state.read("most")
        return node.allocatable["memory"] * 100 // most


class OverPods(PostFilterPlugin):
    """Neither filters nor scores."""


@pytest.mark.parametrize("kind", [ByGpus, ByModel])
def test_clusters_have_what_the_plugin_looks_up(kind: type[Plugin]) -> None:
    with pytest.raises(AssertionError, match=r"(filter|score)_all says"):
        agree(kind, examples=2000)


def test_results_that_never_vary_are_a_failure_which_names_the_remedy() -> None:
    with pytest.raises(AssertionError, match="ByTier: Filter passed every node") as caught:
        agree(ByTier, examples=30)

    assert "node_labels: tier" in str(caught.value)
    assert "vocabulary=Vocabulary(" in str(caught.value)
    agree(ByTier, vocabulary=Vocabulary(values=["gold"]), examples=100)


def test_words_of_the_arguments_are_in_the_clusters() -> None:
    agree(ByTierInArgs, {"label": "tier", "avoid": "gold"}, examples=100)


def test_a_plugin_with_nothing_to_compare_is_a_failure() -> None:
    with pytest.raises(TypeError, match="neither Filter nor Score"):
        agree(OverPods, examples=5)


def test_row_local_plugins_that_compare_nodes_are_found() -> None:
    nodes = [make_node("n0", memory="4Gi"), make_node("n1", memory="8Gi")]
    cluster = Cluster(nodes, [], make_pod())

    with pytest.raises(AssertionError, match=r"n0: AgainstMost is row_local, .*: 50, .* 100"):
        assert_row_local(AgainstMost, None, cluster)
    with pytest.raises(AssertionError, match="AgainstMost is row_local"):
        agree(AgainstMost, examples=100)


@given(
    clusters(vocabulary=Vocabulary(resources=("vendor.example/card", "vendor.example/card-memory")))
)
def test_amounts_fit_their_resource(cluster: Cluster) -> None:
    counts = [node.status.allocatable.get("vendor.example/card", "0") for node in cluster.nodes]
    pods = (*(one.pod for one in cluster.pods), cluster.pod.pod)
    counts += [
        container.resources.requests.get("vendor.example/card", "0")
        for pod in pods
        for container in pod.spec.containers
    ]
    assert {*counts} <= {"0", "1", "4", "5"}


def test_a_vocabulary_is_made_of_sequences() -> None:
    with pytest.raises(TypeError, match="resources must be a sequence"):
        Vocabulary(resources="nvidia.com/gpu")
    with pytest.raises(TypeError, match="to the strategy instead"):
        agree(ByTier, vocabulary=Vocabulary(), drawn_from=clusters())


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
