"""The code of a new plugin at each extension point, and its tests.

Small working examples, to be replaced by the plugin's real logic. They react to one label of nodes
and pods, the plugin's only argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from textwrap import dedent


@dataclass(frozen=True)
class Point:
    """An extension point of the scaffold: code and its test.

    ``does``: a description in a sentence. ``needs``: names of ``proreus.framework`` in the code.
    ``attribute``: an assignment in ``__init__``. ``wakes``: the event that may make a pod rejected
    here schedulable. ``columns``: the vectorized form, with its own ``column_needs``.
    """

    base: str
    does: str
    needs: tuple[str, ...]
    methods: str
    test: str
    attribute: str = ""
    wakes: str = ""
    columns: str = ""
    column_needs: tuple[str, ...] = ()


_RELABELLED_POD = "ClusterEvent(events.TARGET_POD, events.UPDATE_POD_LABEL)"
_NODE = "ClusterEvent(events.NODE, events.ADD | events.UPDATE_NODE_LABEL)"


def _point(
    base: str,
    does: str,
    needs: str,
    methods: str,
    test: str,
    *,
    attribute: str = "",
    wakes: str = "",
) -> Point:
    methods, test = dedent(methods).strip("\n"), dedent(test).strip("\n")
    return Point(base, does, tuple(needs.split()), methods, test, attribute, wakes)


_FILTER = Point(
    "FilterPlugin",
    "Keeps pods off nodes that carry the label.",
    ("CycleState", "NodeInfo", "PodInfo", "Status"),
    dedent("""
        def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
            if self.args.label in node.labels:
                return Status.unresolvable(f"node(s) carry {self.args.label}")
            return None
        """).strip("\n"),
    dedent("""
        def test_keeps_pods_off_labelled_nodes() -> None:
            cluster = Harness([PLUGIN], ["n1", make_node("n2", labels={LABEL: ""})])

            outcome = cluster.schedule(make_pod("web"))

            assert outcome.node == "n1", outcome
            assert outcome.why_not("n2") == f"PLUGIN: node(s) carry {LABEL}"


        def test_a_rejected_pod_is_tried_again_when_the_label_goes() -> None:
            cluster = Harness([PLUGIN], [make_node("n1", labels={LABEL: ""})])
            assert cluster.schedule(make_pod("web")).state == "unschedulable"

            cluster.patch("Node", "n1", {"metadata": {"labels": {LABEL: None}}})

            assert cluster.schedule("web").node == "n1"
        """).strip("\n"),
    wakes=_NODE,
    columns=dedent("""
        def filter_all(
            self, state: CycleState, pod: PodInfo, nodes: NodeTable, verdicts: Verdicts
        ) -> None:
            carry = nodes.label(self.args.label) >= 0
            reason = f"node(s) carry {self.args.label}"
            verdicts.reject(carry, reason, unresolvable=True)
        """).strip("\n"),
    column_needs=("CycleState", "NodeTable", "PodInfo", "Verdicts"),
)

_SCORE = Point(
    "ScorePlugin",
    "Prefers the nodes with the fewest pods.",
    ("CycleState", "NodeInfo", "PodInfo"),
    dedent("""
        def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
            return max(0, 100 - len(node.pods))
        """).strip("\n"),
    dedent("""
        def test_prefers_the_node_with_the_fewest_pods() -> None:
            cluster = Harness([PLUGIN], ["n1", "n2"], [make_pod("old", node_name="n1")])

            outcome = cluster.schedule(make_pod("web"))

            assert outcome.score("n2", "PLUGIN") == outcome.score("n1", "PLUGIN") + 1
        """).strip("\n"),
    columns=dedent("""
        def score_all(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> IntArray:
            return np.maximum(0, 100 - nodes.pod_count)
        """).strip("\n"),
    column_needs=("CycleState", "IntArray", "NodeTable", "PodInfo"),
)

POINTS: Mapping[str, Point] = {
    "preEnqueue": _point(
        "PreEnqueuePlugin",
        "Keeps pods out of the queue whose label says gated.",
        "PodInfo Status",
        """
        def pre_enqueue(self, pod: PodInfo) -> Status | None:
            if pod.labels.get(self.args.label) == "gated":
                return Status.unresolvable("the pod is gated")
            return None
        """,
        """
        def test_a_gated_pod_is_not_tried_before_its_label_goes() -> None:
            cluster = Harness([PLUGIN], 1)
            assert cluster.schedule(make_pod("web", labels={LABEL: "gated"})).state == "gated"

            cluster.patch("Pod", "web", {"metadata": {"labels": {LABEL: None}}})

            assert cluster.schedule("web").bound
        """,
        wakes=_RELABELLED_POD,
    ),
    "queueSort": _point(
        "QueueSortPlugin",
        "Sorts the queue by priority, then by name.",
        "QueuedPodInfo",
        """
        def sort_key(self, queued: QueuedPodInfo) -> tuple[int, str]:
            return -queued.info.priority, queued.key
        """,
        """
        def test_pods_are_tried_by_priority_then_by_name() -> None:
            cluster = Harness([PLUGIN], 1)
            cluster.add(make_pod("b"), make_pod("a"), make_pod("c", priority=5))

            tried = [outcome.pod for outcome in cluster.schedule_all()]

            assert tried == ["default/c", "default/a", "default/b"]
        """,
    ),
    "preFilter": _point(
        "PreFilterPlugin",
        "Rejects pods whose label says nowhere, before any node is filtered.",
        "CycleState NodeTable PodInfo Status",
        """
        def pre_filter(
            self, state: CycleState, pod: PodInfo, nodes: NodeTable
        ) -> Status | frozenset[str] | None:
            if pod.labels.get(self.args.label) == "nowhere":
                return Status.unresolvable("the pod must not be scheduled")
            return None
        """,
        """
        def test_rejects_a_pod_whose_label_says_nowhere() -> None:
            cluster = Harness([PLUGIN], 1)

            outcome = cluster.schedule(make_pod("web", labels={LABEL: "nowhere"}))

            assert outcome.rejected_by == {"PLUGIN"}
            assert "the pod must not be scheduled" in outcome.message
        """,
        wakes=_RELABELLED_POD,
    ),
    "filter": _FILTER,
    "postFilter": _point(
        "PostFilterPlugin",
        "Finds no way to make an unschedulable pod schedulable, and says so.",
        "CycleState PodInfo PostFilterResult Status Verdicts",
        """
        async def post_filter(
            self, state: CycleState, pod: PodInfo, verdicts: Verdicts
        ) -> PostFilterResult:
            return PostFilterResult(Status.unschedulable("PLUGIN found no victims"))
        """,
        """
        def test_says_that_it_found_no_victims() -> None:
            cluster = Harness([PLUGIN], 1)

            outcome = cluster.schedule(make_pod("big", cpu="1000"))

            assert "PLUGIN found no victims" in outcome.message
        """,
    ),
    "preScore": _point(
        "PreScorePlugin",
        "Skips its Score for pods whose label says anywhere.",
        "CycleState NodeTable PodInfo Status",
        """
        def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
            return Status.skip() if pod.labels.get(self.args.label) == "anywhere" else None
        """,
        """
        def test_does_not_score_for_pods_that_may_go_anywhere() -> None:
            cluster = Harness([PLUGIN], 2)

            outcome = cluster.schedule(make_pod("web", labels={LABEL: "anywhere"}))

            assert "PLUGIN" not in outcome.scores["node-0"]
        """,
    ),
    "score": _SCORE,
    "reserve": _point(
        "ReservePlugin",
        "Records the node of each pod.",
        "CycleState PodInfo Status",
        """
        def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
            self.reserved[pod.uid] = node_name
            return None

        def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
            self.reserved.pop(pod.uid, None)
        """,
        """
        def test_records_the_node_of_a_pod() -> None:
            cluster = Harness([PLUGIN], ["n1"])
            cluster.schedule(make_pod("web"))

            assert list(cluster.plugin(PLUGIN).reserved.values()) == ["n1"]
        """,
        attribute="self.reserved: dict[str, str] = {}",
    ),
    "permit": _point(
        "PermitPlugin",
        "Holds pods whose label says held, for half a minute at most.",
        "CycleState PodInfo Status",
        """
        def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
            if pod.labels.get(self.args.label) == "held":
                return Status.wait(30)
            return None
        """,
        """
        def test_holds_a_pod_until_it_is_allowed() -> None:
            cluster = Harness([PLUGIN], 1)
            assert cluster.schedule(make_pod("web", labels={LABEL: "held"})).state == "waiting"

            cluster.waiting("web").allow("PLUGIN")
            cluster.advance(0)

            assert cluster.outcome("web").bound


        def test_holds_no_pod_for_more_than_half_a_minute() -> None:
            cluster = Harness([PLUGIN], 1)
            cluster.schedule(make_pod("web", labels={LABEL: "held"}))

            cluster.advance(31)

            assert cluster.outcome("web").state == "unschedulable"
        """,
        wakes=_RELABELLED_POD,
    ),
    "preBind": _point(
        "PreBindPlugin",
        "Prepares what a pod needs before it is bound.",
        "CycleState PodInfo Status",
        """
        async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
            self.prepared.append(pod.key)
            return None
        """,
        """
        def test_prepares_before_a_pod_is_bound() -> None:
            cluster = Harness([PLUGIN], 1)

            assert cluster.schedule(make_pod("web")).bound
            assert cluster.plugin(PLUGIN).prepared == ["default/web"]
        """,
        attribute="self.prepared: list[str] = []",
    ),
    "bind": _point(
        "BindPlugin",
        "Leaves binding to the next plugin.",
        "CycleState PodInfo Status",
        """
        async def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
            return Status.skip()
        """,
        """
        def test_leaves_binding_to_the_next_plugin() -> None:
            assert Harness([PLUGIN], 1).schedule(make_pod("web")).bound
        """,
    ),
    "postBind": _point(
        "PostBindPlugin",
        "Records every bound pod.",
        "CycleState PodInfo",
        """
        def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
            self.bound.append(pod.key)
        """,
        """
        def test_records_bound_pods() -> None:
            cluster = Harness([PLUGIN], 1)
            cluster.schedule(make_pod("web"))

            assert cluster.plugin(PLUGIN).bound == ["default/web"]
        """,
        attribute="self.bound: list[str] = []",
    ),
}
"""By their names in the configuration, in the order in which they are called for a pod."""
