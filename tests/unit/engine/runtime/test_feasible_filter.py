"""FilterFeasible: plugins that see all feasible nodes, and may leave none of them."""

from __future__ import annotations

import pytest

from proreus.framework import (
    ClusterEvent,
    CycleState,
    FeasibleFilterPlugin,
    FilterPlugin,
    NodeInfo,
    PodInfo,
    PreScorePlugin,
    Rows,
    Status,
    Verdicts,
    events,
)
from proreus.testing import Harness, HarnessOptions, make_node, make_pod


class Recorded(FeasibleFilterPlugin, PreScorePlugin):
    """Keeps the nodes of a label of the pod; asked without any if there is none of them."""

    def __init__(self, args: None, handle) -> None:
        super().__init__(args, handle)
        self.seen: list[list[str]] = []

    def events_to_register(self) -> list[ClusterEvent]:
        return [ClusterEvent(events.NODE, events.ADD)]

    def filter_feasible(
        self, state: CycleState, pod: PodInfo, feasible: Rows, verdicts: Verdicts
    ) -> None:
        names = [self.handle.nodes[row].name for row in feasible.tolist()]
        self.seen.append(names)
        wanted = pod.labels.get("keep")
        for row, name in zip(feasible.tolist(), names, strict=True):
            if wanted is not None and name not in wanted:
                verdicts.reject_row(row, Status.unschedulable("not now"))

    def pre_score(self, state: CycleState, pod: PodInfo, nodes) -> Status | None:
        return Status.skip()


class Second(Recorded):
    """Another one."""


class PerNode(FilterPlugin):
    """A filter that is called node by node, until enough nodes have passed."""

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return None


def keeps(name: str, keep: str, **more):
    return make_pod(name, "1", labels={"keep": keep}, **more)


def test_it_sees_the_feasible_nodes_and_leaves_some() -> None:
    cluster = Harness([Recorded, Second], [make_node("a"), make_node("b"), make_node("c", "0")])
    assert cluster.schedule(keeps("p", "b")).node == "b"
    assert cluster.plugin(Recorded).seen == [["a", "b"]]
    assert cluster.plugin(Second).seen == [["b"]]
    # The verdicts of Filter belong to all equal pods: they must be as they were.
    assert cluster.schedule(keeps("q", "a")).node == "a"


def test_a_pod_of_which_nothing_is_left_waits_for_this_plugin_alone() -> None:
    victim = make_pod("victim", "4", node_name="full", priority=0)
    cluster = Harness([Recorded, Second], [make_node("a"), make_node("full")], [victim])
    outcome = cluster.schedule(keeps("p", "-", priority=9))
    assert outcome.message == "0/2 nodes are available: 1 Insufficient cpu, 1 not now."
    assert outcome.rejected_by == {"Recorded"}
    assert cluster.plugin(Second).seen == []
    assert cluster.pod("victim").metadata.deletion_timestamp is None
    cluster.remove("Pod", "victim")
    assert cluster.queue_of("p") == "unschedulable"
    cluster.add(make_node("new"))
    assert cluster.queue_of("p") in ("active", "backoff")


def test_it_is_not_asked_where_nothing_fits() -> None:
    cluster = Harness([Recorded], [make_node("a", "0")])
    assert not cluster.schedule(keeps("p", "a")).bound
    assert cluster.plugin(Recorded).seen == []


def test_it_is_not_asked_about_a_nominated_node() -> None:
    cluster = Harness([Recorded], [make_node("a"), make_node("b")])
    pod = keeps("p", "-", status={"nominatedNodeName": "b"})
    assert cluster.schedule(pod).node == "b"
    assert cluster.plugin(Recorded).seen == []


def test_a_walk_over_nodes_does_not_stop_early() -> None:
    nodes = [make_node(f"n{number}") for number in range(150)]
    cluster = Harness([PerNode, Recorded], nodes)
    cluster.schedule(keeps("p", "n149"))
    assert len(cluster.plugin(Recorded).seen[0]) == 150


def test_an_exception_fails_the_attempt() -> None:
    class Broken(Recorded):
        def filter_feasible(self, state, pod, feasible, verdicts) -> None:
            raise ValueError("no idea")

    with pytest.raises(ValueError, match="no idea"):
        Harness([Broken], [make_node("a")]).schedule(make_pod("p"))
    options = HarnessOptions(raise_errors=False)
    outcome = Harness([Broken], [make_node("a")], options=options).schedule(make_pod("p"))
    assert "no idea" in outcome.message


def message_of(filter_feasible) -> str:
    plugin = type("Odd", (Recorded,), {"filter_feasible": filter_feasible})
    options = HarnessOptions(raise_errors=False)
    nodes = [make_node("full", "0"), make_node("a")]
    outcome = Harness([plugin], nodes, options=options).schedule(make_pod("p", "1"))
    assert not outcome.bound
    return outcome.message


def test_the_rows_are_read_only() -> None:
    def move(self, state, pod, feasible, verdicts) -> None:
        feasible[:] = 0

    assert "read-only" in message_of(move)


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (Status.error("broken"), 'running FilterFeasible plugin "Odd": broken'),
        (Status.skip(), "FilterFeasible does not allow the status Skip"),
        (Status.success("yes"), "FilterFeasible does not allow the status Success: yes"),
    ],
)
def test_what_is_no_rejection_fails_the_attempt(status, text) -> None:
    def reject(self, state, pod, feasible, verdicts) -> None:
        verdicts.reject_with(feasible, status)

    assert text in message_of(reject)
