"""Small plugins with every trait that the runtime cares about, and a profile of them."""

from __future__ import annotations

import random
from collections.abc import Hashable

import numpy as np
import pytest

from proreus.base.clock import FakeClock
from proreus.base.metrics import SchedulerMetrics
from proreus.engine.cache.cache import Cache
from proreus.engine.runtime.find_nodes import FeasibleNodes, NodeSearch
from proreus.engine.runtime.profile import Profile
from proreus.framework.cycle_state import CycleState
from proreus.framework.extension_points import POINTS
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import FilterPlugin, QueueSortPlugin, ScorePlugin
from proreus.framework.pod_info import PodInfo, QueuedPodInfo
from proreus.framework.status import Status
from proreus.framework.verdicts import IntArray, Verdicts
from proreus.objects.codec import decoder_for
from proreus.objects.node import Node
from proreus.objects.pod import Pod
from unit.plugin_factory import plugin


def make_pod(name: str, cpu: int = 100, **spec: object) -> PodInfo:
    """Return a pod that requests milli-CPU."""
    requests = {"cpu": f"{cpu}m"}
    raw = {
        "metadata": {"name": name, "namespace": "ns", "uid": name},
        "spec": {"containers": [{"name": "c", "resources": {"requests": requests}}], **spec},
    }
    return PodInfo(decoder_for(Pod).convert(raw))


def make_node(name: str, cpu: int = 1000, **labels: str) -> Node:
    """Return a node with milli-CPU."""
    raw = {
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": {"cpu": f"{cpu}m", "memory": "1Gi", "pods": "10"}},
    }
    return decoder_for(Node).convert(raw)


class FitsCpu(FilterPlugin, ScorePlugin):
    """Filters by CPU, prefers free CPU: both forms, cached, without NormalizeScore."""

    row_local = True

    def sign(self, pod: PodInfo) -> Hashable:
        return pod.requests.amounts["cpu"]

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        free = node.allocatable["cpu"] - node.requested.get("cpu", 0)
        return (
            None if pod.requests.amounts["cpu"] <= free else Status.unschedulable("too little cpu")
        )

    def filter_all(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable, verdicts: Verdicts
    ) -> None:
        free = nodes.allocatable["cpu"] - nodes.requested["cpu"]
        verdicts.reject(free < pod.requests.amounts["cpu"], "too little cpu")

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        free = node.allocatable["cpu"] - node.requested.get("cpu", 0)
        return max(0, 100 * free // node.allocatable["cpu"])

    def score_all(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> IntArray:
        allocatable = nodes.allocatable["cpu"]
        free = allocatable - nodes.requested["cpu"]
        return np.maximum(0, 100 * free // allocatable)


class Cordon(FilterPlugin):
    """Only the per-node form, shared."""

    row_local = True
    looks_at_pods = False

    def sign(self, pod: PodInfo) -> Hashable:
        return ()

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return Status.unresolvable("cordoned") if node.labels.get("cordon") else None


class Fewest(ScorePlugin):
    """Raw scores beyond 100, brought down by normalisation; shared."""

    row_local = True

    def sign(self, pod: PodInfo) -> Hashable:
        return ()

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return 1000 * len(node.pods)

    def normalize(self, state: CycleState, pod: PodInfo, scores: IntArray) -> IntArray:
        most = int(scores.max(initial=0))
        return scores * 0 + 100 if most == 0 else 100 - 100 * scores // most


class Flat(ScorePlugin):
    """The same everywhere."""

    row_local = True
    looks_at_pods = False

    def sign(self, pod: PodInfo) -> Hashable:
        return ()

    def score_all(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> int:
        return 7


class ByKind(ScorePlugin):
    """Signs what no Filter plugin reads: the kind of a pod decides which nodes it prefers."""

    row_local = True

    def sign(self, pod: PodInfo) -> Hashable:
        return pod.pod.spec.scheduler_name

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return 10 * int(pod.pod.spec.scheduler_name == f"kind-{len(node.pods) % 3}")


class Even(FilterPlugin, ScorePlugin):
    """Shares nothing, over columns: an even number of pods passes; many pods are good."""

    def filter_all(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable, verdicts: Verdicts
    ) -> None:
        verdicts.reject(nodes.pod_count % 2 == 1, "odd")

    def score_all(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> IntArray:
        return nodes.pod_count.astype(np.int64)

    def normalize(self, state: CycleState, pod: PodInfo, scores: IntArray) -> IntArray:
        return 100 * scores // max(1, int(scores.max(initial=0)))


class Few(FilterPlugin, ScorePlugin):
    """Shares nothing, per node: less than four pods pass; their number is the score."""

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return None if len(node.pods) < 4 else Status.unschedulable("many")

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return len(node.pods)


class ByName(QueueSortPlugin):
    """Alphabetical."""

    def sort_key(self, queued: QueuedPodInfo) -> str:
        return queued.key


class NobodyNominated:
    """A nominator without nominations, and without a record of changes."""

    position = 0

    def __init__(self) -> None:
        self.pods: dict[str, list[PodInfo]] = {}

    def nominated_nodes(self) -> list[str]:
        return list(self.pods)

    def nominated_pods(self, node_name: str) -> list[PodInfo]:
        return self.pods.get(node_name, [])

    def nominated_node_of(self, uid: str) -> str | None:
        named = (name for name, pods in self.pods.items() if any(p.uid == uid for p in pods))
        return next(named, None)

    def changes_since(self, position: int) -> None:
        return None


class SearchHarness:
    """A cache, a profile over its table, and a search."""

    def __init__(self, *classes: type, weights: dict[str, int] | None = None) -> None:
        self.cache = Cache(FakeClock())
        self.nominator = NobodyNominated()
        made = [cls(None, self) for cls in classes]
        points = {
            point: tuple(p for p in made if isinstance(p, base)) for point, base in POINTS.items()
        }
        points["queueSort"] = (ByName(None, self),)
        weights = {p.name: 1 for p in made} | (weights or {})
        self.metrics = SchedulerMetrics()
        self.profile = Profile("p", points, weights, table=self.cache.table, metrics=self.metrics)
        self.search = NodeSearch(self.nominator, self.cache.node_order)
        self.rng = random.Random(1)

    @property
    def nodes(self) -> NodeTable:
        return self.cache.table

    def add_nodes(self, *names: str, cpu: int = 1000) -> None:
        for name in names:
            self.cache.add_node(make_node(name, cpu))

    def find(self, pod: PodInfo, names: frozenset[str] | None = None) -> FeasibleNodes:
        return self.search.find(self.profile, CycleState(), pod, names)

    def names(self, found: FeasibleNodes) -> list[str]:
        return sorted(self.nodes[row].name for row in found.rows.tolist())


class Kit:
    """What the tests of this package build with."""

    make_pod = staticmethod(make_pod)
    make_node = staticmethod(make_node)
    SearchHarness = SearchHarness
    plugin = staticmethod(plugin)
    FitsCpu, Cordon, Fewest, Flat, Even, Few = FitsCpu, Cordon, Fewest, Flat, Even, Few
    ByKind = ByKind

    @staticmethod
    def shared_harness() -> SearchHarness:
        return SearchHarness(FitsCpu, Cordon, Fewest, Flat, weights={"Fewest": 3})


@pytest.fixture(scope="session")
def kit() -> type[Kit]:
    return Kit
