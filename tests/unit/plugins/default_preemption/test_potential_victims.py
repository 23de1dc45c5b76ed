from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proreus.framework.node_table import NodeTable
from proreus.objects.policy import PodDisruptionBudget
from proreus.plugins.default_preemption.potential_victims import (
    DisruptionBudgets,
    EqualVictims,
    PodsByPriority,
)
from proreus.testing import FakeHandle, make_node, make_pod

_NODES = 5

_steps = st.lists(
    st.tuples(
        st.sampled_from(("add", "remove", "remove node")),
        st.integers(0, _NODES - 1),
        st.integers(-2, 2),
    ),
    max_size=12,
)


def _seen(
    pods_by_priority: PodsByPriority, nodes: NodeTable, priority: int
) -> dict[str, list[str]]:
    """Return the names of the pods below a priority, by node that has any."""
    pods_by_priority.refresh()
    rows = nodes.rows_of(nodes.rows)
    some = rows[pods_by_priority.has_lower_priority_pods(rows, priority)].tolist()
    return {
        nodes[row].name: [pod.name for pod in pods_by_priority.lower_priority_pods(row, priority)]
        for row in some
    }


@settings(max_examples=50, deadline=None)
@given(_steps, st.integers(-2, 3))
def test_cached_pods_are_those_of_the_nodes(
    steps: list[tuple[str, int, int]], priority: int
) -> None:
    nodes = FakeHandle([make_node(f"n{number}") for number in range(_NODES)], []).nodes
    pods_by_priority = PodsByPriority(
        nodes, is_grouped=lambda pod: pod.pod.spec.scheduling_group is not None
    )
    grouped = {"schedulingGroup": {"podGroupName": "g"}}
    for number, (what, where, prioritize_nodes) in enumerate(steps):
        row = nodes.rows.get(f"n{where}")
        if row is None:
            continue
        if what == "add":
            spec = grouped if prioritize_nodes == 2 else {}
            nodes.add_pod(row, make_pod(f"p{number}", priority=prioritize_nodes, spec=spec))
        elif what == "remove" and nodes[row].pods:
            nodes.remove_pod(row, next(iter(nodes[row].pods)))
        elif what == "remove node" and len(nodes) > 1:
            nodes.remove_node(nodes[row])
        assert _seen(pods_by_priority, nodes, priority) == _seen(
            PodsByPriority(nodes), nodes, priority
        )
        assert pods_by_priority.rows_with_groups() == {
            node.row for node in nodes if any(pod.priority == 2 for pod in node.pods.values())
        }


def test_higher_priority_comes_first_and_equal_priority_is_no_victim() -> None:
    pods = [
        make_pod(f"p{priority}", priority=priority, node_name="n") for priority in (3, 9, 0, 7, 5)
    ]
    nodes = FakeHandle([make_node("n"), make_node("empty")], pods).nodes

    assert _seen(PodsByPriority(nodes), nodes, 7) == {"n": ["p5", "p3", "p0"]}
    assert _seen(PodsByPriority(nodes), nodes, 0) == {}


def test_of_equal_priority_the_older_pod_comes_first() -> None:
    status = {"startTime": "2026-01-01T00:00:00Z"}, {"startTime": "2025-01-01T00:00:00Z"}, {}, {}
    pods = [
        make_pod(f"p{number}", priority=1, node_name="n", status=one)
        for number, one in enumerate(status)
    ]
    nodes = FakeHandle([make_node("n")], pods).nodes

    assert _seen(PodsByPriority(nodes), nodes, 2) == {"n": ["p1", "p0", "p2", "p3"]}
    up_to_1_36 = PodsByPriority(nodes, EqualVictims.REVERSED)
    assert _seen(up_to_1_36, nodes, 2) == {"n": ["p1", "p0", "p3", "p2"]}


def test_of_equal_victims_the_smaller_uid_is_the_more_important_since_1_38() -> None:
    started = {"startTime": "2025-01-01T00:00:00Z"}
    pods = [
        make_pod(name, priority=1, node_name="n", status=status)
        for name, status in (("b", {}), ("a", {}), ("d", started), ("c", started))
    ]
    nodes = FakeHandle([make_node("n")], pods).nodes
    by_uid = PodsByPriority(nodes, EqualVictims.BY_UID)
    assert _seen(by_uid, nodes, 2) == {"n": ["c", "d", "a", "b"]}


def test_the_last_pod_takes_the_place_of_a_removed_one() -> None:
    pods = [make_pod(name, priority=0, node_name="n") for name in ("a", "b", "c", "d")]
    nodes = FakeHandle([make_node("n")], pods).nodes
    pods_by_priority = PodsByPriority(nodes, EqualVictims.REVERSED)

    assert _seen(pods_by_priority, nodes, 1) == {"n": ["d", "c", "b", "a"]}
    nodes.remove_pod(0, pods[0].uid)
    assert _seen(pods_by_priority, nodes, 1) == {"n": ["c", "b", "d"]}
    nodes.remove_pod(0, pods[2].uid)
    nodes.add_pod(0, pods[0])
    assert _seen(pods_by_priority, nodes, 1) == {"n": ["a", "b", "d"]}
    for uid in list(nodes[0].pods):
        nodes.remove_pod(0, uid)
    assert _seen(pods_by_priority, nodes, 1) == {}


@pytest.mark.parametrize("stop", [False, True])
def test_budgets_of_a_namespace(stop: bool) -> None:
    checked: list[None] = []
    a, b, c, bare = (
        make_pod(name, labels={"app": name} if name else {}) for name in ("a", "b", "c", "")
    )
    elsewhere = make_pod("e", namespace="other", labels={"app": "a"})
    budgets = DisruptionBudgets(
        [_budget("a", 1), _budget("b")],
        stop_at_first_exhausted=stop,
        check=lambda: checked.append(None),
    )

    violating, others = budgets.filter_pods_with_pdb_violation([a, a, b, c, bare, elsewhere])

    assert violating == [a, b]
    assert others == [a, c, bare, elsewhere]
    assert len(checked) == 6


def _budget(app: str, allowed: int = 0) -> PodDisruptionBudget:
    return msgspec.convert(
        {
            "metadata": {"name": "budget", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": app}}},
            "status": {"disruptionsAllowed": allowed},
        },
        PodDisruptionBudget,
    )
