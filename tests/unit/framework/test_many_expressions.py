"""Node affinity with 24,000 expressions and more, which fit into one pod."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proreus.base.bounded_cache import RepeatingCache
from proreus.framework import node_affinity as module
from proreus.framework.label_columns import LabelColumns
from proreus.framework.node_affinity import (
    matches_selector,
    node_affinity,
    node_affinity_of,
)
from proreus.framework.pod_info import PodInfo
from proreus.objects.selectors import (
    NOTHING,
    ParsedNodeSelector,
    ParsedNodeTerm,
    Requirement,
    Selector,
)
from proreus.testing import make_node, make_pod, make_table

MANY = 24_000
HOST = "kubernetes.io/hostname"


def requiring(*terms: list[dict[str, Any]]) -> PodInfo:
    selector = {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": selector}
    return make_pod(affinity={"nodeAffinity": required})


def expression(operator: str, number: int) -> dict[str, Any]:
    values = {} if "Exist" in operator else {"values": ["1"]}
    return {"key": f"example.com/key-{number}", "operator": operator, **values}


@pytest.fixture
def evaluated(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys whose columns are looked at."""
    keys: list[str] = []
    column = LabelColumns.column

    def noting(self: LabelColumns, key: str, *args: Any) -> Any:
        keys.append(key)
        return column(self, key, *args)

    monkeypatch.setattr(LabelColumns, "column", noting)
    return keys


@pytest.mark.parametrize("operator", ["Exists", "DoesNotExist", "In", "NotIn", "Gt", "Lt"])
@pytest.mark.parametrize("together", [True, False])
def test_keys_that_no_node_has_are_not_looked_up(
    evaluated: list[str], operator: str, together: bool
) -> None:
    table = make_table([make_node(f"n{number}") for number in range(3)])
    expressions = [expression(operator, number) for number in range(MANY)]
    terms = [expressions] if together else [[one] for one in expressions]

    mask = node_affinity_of(requiring(*terms).pod).matches_all(table)

    assert mask.tolist() == [operator in ("DoesNotExist", "NotIn")] * 3
    assert not evaluated


def test_a_key_that_comes_later_is_found() -> None:
    table = make_table([make_node("n0")])
    selector = Selector((Requirement("zone", "Exists"),))
    assert table.label("zone").tolist() == [-1]
    assert not table.matches(selector).any()

    grown = make_table([make_node("n0"), make_node("n1", labels={"zone": "a"})])

    assert grown.matches(selector).tolist() == [False, True]
    assert grown.take(np.array([1])).matches(selector).tolist() == [True]
    assert grown.fork(np.array([1])).matches(selector).tolist() == [True]


def test_keys_of_nodes_that_are_gone_are_forgotten() -> None:
    columns = LabelColumns()
    for number in range(10):
        columns.put(0, {f"key-{number}": ""}, 1, 1000)
    assert len(columns._keys) == 10

    columns.forget_unused_keys(make_table([make_node("n0")]).infos)

    assert HOST in columns
    assert len(columns._keys) == 1


VALUES = ["1", "2", "7", "a", "-3"]
REQUIREMENTS = st.one_of(
    st.builds(
        Requirement,
        st.sampled_from(["k", "l"]),
        st.sampled_from(["In", "NotIn"]),
        st.frozensets(st.sampled_from(VALUES), min_size=1),
    ),
    st.builds(
        Requirement, st.sampled_from(["k", "l"]), st.sampled_from(["Exists", "DoesNotExist"])
    ),
    st.builds(
        Requirement,
        st.sampled_from(["k", "l"]),
        st.sampled_from(["Gt", "Lt"]),
        st.sampled_from(["1", "2", "-3"]).map(lambda bound: frozenset({bound})),
    ),
)


@settings(deadline=None, max_examples=100)
@given(
    st.lists(REQUIREMENTS, min_size=1, max_size=14),
    st.lists(st.dictionaries(st.sampled_from(["k", "l"]), st.sampled_from(VALUES)), max_size=6),
)
def test_a_table_is_matched_as_each_of_its_nodes(
    requirements: list[Requirement], labels: list[dict[str, str]]
) -> None:
    selector = Selector(tuple(requirements))
    nodes = [make_node(f"n{number}", labels=one) for number, one in enumerate(labels)]
    expected = [selector.matches(node.metadata.labels) for node in nodes]

    assert make_table(nodes).matches(selector).tolist() == expected


TERMS = st.one_of(
    st.lists(REQUIREMENTS, min_size=1, max_size=2).map(
        lambda requirements: ParsedNodeTerm(Selector(tuple(requirements)))
    ),
    st.builds(
        ParsedNodeTerm,
        REQUIREMENTS.map(lambda one: Selector((one,))),
        st.tuples(
            st.tuples(st.just("metadata.name"), st.sampled_from(["In", "NotIn"]), st.just("n1"))
        ),
    ),
    st.just(ParsedNodeTerm(NOTHING)),
    st.just(ParsedNodeTerm(NOTHING, error="invalid")),
    st.just(ParsedNodeTerm(Selector((Requirement("absent", "DoesNotExist"),)))),
    st.just(ParsedNodeTerm(Selector((Requirement("absent", "Exists"),)))),
)


@settings(deadline=None, max_examples=100)
@given(
    st.lists(TERMS, min_size=1, max_size=14),
    st.lists(st.dictionaries(st.sampled_from(["k", "l"]), st.sampled_from(VALUES)), max_size=6),
)
def test_terms_match_a_table_as_each_of_its_nodes(
    terms: list[ParsedNodeTerm], labels: list[dict[str, str]]
) -> None:
    selector = ParsedNodeSelector(tuple(terms))
    nodes = [make_node(f"n{number}", labels=one) for number, one in enumerate(labels)]
    expected = [selector.matches(node.metadata.labels, node.metadata.name) for node in nodes]

    assert matches_selector(make_table(nodes), selector).tolist() == expected


def test_a_pod_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pod = requiring([expression("Exists", 1)])
    known = node_affinity(pod)

    def fail(*_: object) -> None:
        raise AssertionError("evaluated again")

    monkeypatch.setattr(module, "node_affinity_of", fail)

    assert node_affinity(pod) is known


def test_what_is_kept_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = RepeatingCache(128 * 2**20, module._key_of, module._parsed)
    monkeypatch.setattr(module, "_shared", shared)
    largest = 0

    for first in range(10):
        pod = requiring([expression("Exists", first + n) for n in range(MANY)]).pod
        node_affinity_of(pod)
        largest = max(largest, shared.of(pod.spec).size_bytes)
        assert shared.size_bytes <= shared.budget_bytes + largest

    assert largest > MANY * 300
    shared.age()
    shared.age()
    assert not len(shared)
    assert shared._last is None
