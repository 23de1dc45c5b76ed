"""The pod index: after any history, counts equal those of a new index."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proreus.framework import count_columns, pod_index
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.pod_info import PodInfo
from proreus.framework.pod_label_groups import PodMatch, PodQuery
from proreus.objects.codec import decoder_for
from proreus.objects.selectors import LabelSelector, parse_label_selector
from proreus.testing import make_node, make_pod, make_table
from proreus.testing.inter_pod_clusters import (
    NAMESPACES,
    label_selectors,
    pods_with_inter_pod_terms,
)

ANTI = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": "zone"}
        ]
    }
}


def query_of(
    selector: dict[str, object] | None, *namespaces: str, skip_terminating: bool = False
) -> PodQuery:
    typed = None if selector is None else decoder_for(LabelSelector).convert(selector)
    match = PodMatch(frozenset(namespaces) or None, parse_label_selector(typed))
    return PodQuery((match,), skip_terminating)


APP_A = query_of({"matchLabels": {"app": "a"}}, "default")


def counted(table: NodeTable, query: PodQuery) -> list[int]:
    return [sum(query.selects_pod(p.pod) for p in info.pods.values()) for info in table]


def test_counts_follow_pods() -> None:
    table = make_table([make_node("n0"), make_node("n1")])
    table.add_pod(0, make_pod("before", labels={"app": "a"}))
    assert table.count_pods(APP_A).tolist() == [1, 0]

    table.add_pod(1, make_pod("p1", labels={"app": "a", "more": "x"}))
    table.add_pod(1, make_pod("p2", labels={"app": "b"}))
    table.add_pod(1, make_pod("p3", labels={"app": "a"}, namespace="other"))
    assert table.count_pods(APP_A).tolist() == [1, 1]

    table.remove_pod(0, "uid-of-default-before")
    assert table.count_pods(APP_A).tolist() == [0, 1]


def test_terminating_pods_count_unless_asked_not_to() -> None:
    deleted = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    pods = [
        make_pod("p1", labels={"app": "a"}, node_name="n0", metadata=deleted),
        make_pod("p2", labels={"app": "a"}, node_name="n0"),
    ]
    table = make_table([make_node("n0")], pods)

    assert table.count_pods(APP_A).tolist() == [2]
    living = query_of({"matchLabels": {"app": "a"}}, "default", skip_terminating=True)
    assert table.count_pods(living).tolist() == [1]


def test_all_matches_of_a_query_must_mean_the_same_pod() -> None:
    tiered = query_of({"matchExpressions": [{"key": "tier", "operator": "Exists"}]})
    both = PodQuery(APP_A.matches + tiered.matches)
    pods = [
        make_pod("p1", labels={"app": "a"}, node_name="n0"),
        make_pod("p2", labels={"tier": "x"}, node_name="n0"),
        make_pod("p3", labels={"app": "a", "tier": "x"}, node_name="n1"),
    ]
    table = make_table([make_node("n0"), make_node("n1")], pods)

    assert table.count_pods(both).tolist() == [0, 1]


def test_the_order_of_labels_does_not_matter() -> None:
    """A pod may come back from the apiserver with its labels in another order."""
    table = make_table([make_node("n0")])
    table.count_pods(APP_A)
    table.add_pod(0, make_pod("p", labels={"app": "a", "tier": "x"}))
    info = table[0]
    info.replace_pod(make_pod("p", labels={"tier": "x", "app": "a"}))

    table.remove_pod(0, "uid-of-default-p")

    assert table.count_pods(APP_A).tolist() == [0]
    table.validate()


def test_nodes_take_their_pods_along() -> None:
    pods = [
        make_pod(f"p{i}", labels={"app": "a"}, node_name=f"n{i % 3}", affinity=ANTI)
        for i in range(5)
    ]
    table = make_table([make_node(f"n{i}") for i in range(3)], pods)
    assert table.count_pods(APP_A).tolist() == [2, 2, 1]

    gone = table[0]
    table.remove_node(gone)
    assert [info.name for info in table] == ["n2", "n1"]
    assert table.count_pods(APP_A).tolist() == [1, 2]
    table.validate()

    table.add_node(gone)
    assert table.count_pods(APP_A).tolist() == [1, 2, 2]
    (term,) = table.pod_index.required_anti.counted.values()
    assert table.count_terms([(term, 1)]).tolist() == [1, 2, 2]
    table.validate()


def test_terms_are_found_by_the_pods_that_they_mean() -> None:
    pods = [make_pod(f"p{i}", node_name="n0", affinity=ANTI) for i in range(2)]
    table = make_table([make_node("n0"), make_node("n1")], pods)
    terms = table.pod_index.required_anti

    def anywhere(key: str) -> bool:
        return True

    ((column, ((term, weight),)),) = terms.matching("default", {"app": "a"}, {}, anywhere).items()
    assert (column, weight) == (("zone", False), 1)
    assert table.count_terms([(term, 1)]).tolist() == [2, 0]
    assert terms.matching("default", {"app": "b"}, {}, anywhere) == {}
    assert terms.matching("other", {"app": "a"}, {}, anywhere) == {}
    assert terms.matching("default", {"app": "a"}, {}, lambda key: False) == {}

    table.add_pod(1, make_pod("p2", affinity=ANTI))
    assert table.count_terms([(term, 1)]).tolist() == [2, 1]
    for row, name in ((0, "p0"), (0, "p1"), (1, "p2")):
        table.remove_pod(row, f"uid-of-default-{name}")
    assert len(terms.counted) == 0


def test_a_term_that_no_pod_has_is_freed_without_the_garbage_collector() -> None:
    table = make_table([make_node("n0")], [make_pod("p0", node_name="n0", affinity=ANTI)])
    (term,) = table.pod_index.required_anti.counted.values()
    table.count_terms([(term, 1)])
    assert term.column is not None
    counts = weakref.ref(term.column.counts)
    gc.disable()
    try:
        table.remove_pod(0, "uid-of-default-p0")
        del term
        assert counts() is None
    finally:
        gc.enable()


def test_parts_and_forks_count_their_own_rows() -> None:
    pods = [make_pod(f"p{i}", labels={"app": "a"}, node_name=f"n{i}") for i in (0, 2, 3)]
    table = make_table([make_node(f"n{i}") for i in range(4)], pods)
    rows = table.rows_of(["n1", "n2", "n3"])

    part, fork = table.take(rows), table.fork(rows)
    fork.remove_pod(1, "uid-of-default-p2")
    fork.add_pod(0, make_pod("new", labels={"app": "a"}))

    assert part.count_pods(APP_A).tolist() == [0, 1, 1]
    assert fork.count_pods(APP_A).tolist() == [1, 0, 1]
    assert part.take(part.rows_of(["n2"])).count_pods(APP_A).tolist() == [1]
    assert table.count_pods(APP_A).tolist() == [1, 0, 1, 1]


def test_a_query_that_was_let_go_is_counted_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(count_columns, "_FEWEST", 2)
    monkeypatch.setattr(count_columns, "_MOST", 2)
    table = make_table([make_node("n0")], [make_pod("p0", labels={"app": "a"}, node_name="n0")])
    others = [query_of({"matchLabels": {"app": "a"}}, "default", str(i)) for i in range(3)]

    assert table.count_pods(APP_A).tolist() == [1]
    for other in others:
        assert table.count_pods(other).tolist() == [1]
    table.add_pod(0, make_pod("p1", labels={"app": "a"}))

    assert table.count_pods(APP_A).tolist() == [2]
    assert table.count_pods(others[0]).tolist() == [2]
    table.validate()


NODES = tuple(f"n{i}" for i in range(4))
_step = st.one_of(
    st.tuples(
        st.sampled_from(("pod", "update")), pods_with_inter_pod_terms("new", NODES, broken=True)
    ),
    st.tuples(st.just("node"), st.sampled_from(NODES)),
    st.tuples(
        st.just("query"),
        st.tuples(label_selectors(), st.sampled_from(((), NAMESPACES[:1], NAMESPACES[:2]))),
    ),
)


@settings(deadline=None)
@given(steps=st.lists(_step, max_size=30))
def test_any_history(steps: list[tuple[str, object]]) -> None:
    """Pods come and go, nodes come and go with their pods; columns are few and often let go."""
    table = make_table()
    away = {name: NodeInfo(name) for name in NODES}
    for name, info in away.items():
        info.set_node(make_node(name))
    queries: list[PodQuery] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(count_columns, "_FEWEST", 3)
        patch.setattr(count_columns, "_MOST", 3)
        for number, (kind, value) in enumerate(steps):
            if isinstance(value, PodInfo):
                name = value.pod.spec.node_name
                if name in table:
                    row = table.rows[name]
                    if value.uid in table[row].pods and kind == "update":
                        table.update_pod(row, value)
                        assert table[row].order[-1] == value.uid
                    elif value.uid in table[row].pods:
                        table.remove_pod(row, value.uid)
                    else:
                        table.add_pod(row, value)
            elif kind == "node":
                assert isinstance(value, str)
                if value in table:
                    away[value] = table[table.rows[value]]
                    table.remove_node(away[value])
                else:
                    table.add_node(away[value])
            else:
                selector, namespaces = value  # type: ignore[misc]
                queries.append(query_of(selector, *namespaces, skip_terminating=number % 2 == 0))
            for query in queries[-4:]:
                assert table.count_pods(query).tolist() == counted(table, query)
        index = table.pod_index
        for terms in (index.required_anti, index.required, index.preferred):
            for term in list(terms.counted.values()):
                weights = table.count_terms([(term, 1)]).tolist()
                assert dict(enumerate(weights)) == {
                    row: term.by_row.get(row, 0) for row in range(len(table))
                }
            if every := list(terms.counted.values()):
                columns = [table.count_terms([(term, 3)]) for term in every]
                total = np.sum(columns, axis=0).tolist()
                for most_rows in (0, 64):
                    patch.setattr(pod_index, "_MOST_SPARSE_ROWS", most_rows)
                    assert table.count_terms([(term, 3) for term in every]).tolist() == total
        table.validate()


def test_a_term_that_excludes_a_label_twice_goes_with_its_pod() -> None:
    absent = {"key": "app", "operator": "DoesNotExist"}
    other = {"key": "tier", "operator": "NotIn", "values": ["a", "b"]}
    expressions = [absent, absent, other, {**other, "values": ["b"]}]
    term = {"labelSelector": {"matchExpressions": expressions}, "topologyKey": "zone"}
    anti = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    table = make_table([make_node("n0")], [make_pod("p0", node_name="n0", affinity=anti)])
    terms = table.pod_index.required_anti
    assert len(terms.counted) == 1

    table.remove_pod(0, "uid-of-default-p0")

    assert len(terms.counted) == 0
    assert terms.matching("default", {}, {}, lambda key: True) == {}


def test_columns_grow_with_the_table() -> None:
    table = make_table([make_node("n0")])
    table.add_pod(0, make_pod("p", labels={"app": "a"}, affinity=ANTI))
    table.count_pods(APP_A)
    (term,) = table.pod_index.required_anti.counted.values()
    table.count_terms([(term, 1)])
    for i in range(1, 100):
        info = NodeInfo(f"n{i}")
        info.set_node(make_node(info.name))
        table.add_node(info)

    table.add_pod(99, make_pod("last", labels={"app": "a"}, affinity=ANTI))

    assert table.count_pods(APP_A).tolist() == [1, *[0] * 98, 1]
    assert table.count_terms([(term, 1)]).tolist() == [1, *[0] * 98, 1]
    table.validate()
