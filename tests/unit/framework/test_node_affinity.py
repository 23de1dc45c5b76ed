"""Node affinity: parsed once, with the same result for nodes and for columns."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from proreus.framework.node_affinity import (
    UNRESTRICTED,
    WeightedTerm,
    node_affinity_of,
    weigh_terms,
)
from proreus.objects.selectors import ParsedNodeTerm, Requirement, Selector
from proreus.testing import make_node, make_pod, make_table
from proreus.testing.clusters import Cluster, clusters


@settings(deadline=None, max_examples=60)
@given(clusters(max_pods=3))
def test_columns_and_nodes_agree(cluster: Cluster) -> None:
    table = make_table(cluster.nodes)
    for pod in (cluster.pod, *cluster.pods):
        affinity = node_affinity_of(pod.pod)

        expected = [affinity.matches(node.labels, node.name) for node in table]
        assert affinity.matches_all(table).tolist() == expected


_names = st.frozensets(st.sampled_from(["-7", "0", "5", "+5", "a"]), min_size=1, max_size=3)
_requirements = st.one_of(
    st.builds(Requirement, st.sampled_from("xyz"), st.sampled_from(["Exists", "DoesNotExist"])),
    st.builds(Requirement, st.sampled_from("xyz"), st.sampled_from(["In", "NotIn"]), _names),
    st.builds(
        Requirement,
        st.sampled_from("xyz"),
        st.sampled_from(["Gt", "Lt"]),
        st.sampled_from(["-7", "0", "5", "6"]).map(lambda bound: frozenset((bound,))),
    ),
)
_terms = st.builds(
    ParsedNodeTerm, st.builds(Selector, st.lists(_requirements, min_size=1, max_size=2).map(tuple))
)


@given(st.lists(st.tuples(st.integers(-2, 100), _terms), max_size=8))
def test_preferred_terms_weigh_what_each_of_them_does(terms: list[WeightedTerm]) -> None:
    labels = [{"x": value, "y": "5"} for value in ("-7", "0", "5", "+5", "a", "6")]
    table = make_table([make_node(f"n{n}", labels=one) for n, one in enumerate([*labels, {}])])
    assert weigh_terms(table, terms).tolist() == [
        sum(weight for weight, term in terms if term.matches(node.labels, node.name))
        for node in table
    ]


def test_pods_that_say_nothing() -> None:
    assert node_affinity_of(make_pod().pod) is UNRESTRICTED
    assert node_affinity_of(make_pod(node_selector={}).pod) is UNRESTRICTED
    assert node_affinity_of(make_pod(affinity={"podAffinity": {}}).pod) is UNRESTRICTED


def test_pods_that_say_the_same_share_what_was_parsed() -> None:
    one = make_pod("one", node_selector={"a": "1", "b": "2"}).pod
    two = make_pod("two", node_selector={"b": "2", "a": "1"}).pod
    other = make_pod("other", node_selector={"a": "1"}).pod

    assert node_affinity_of(one) is node_affinity_of(two)
    assert node_affinity_of(other) is not node_affinity_of(two)
    assert node_affinity_of(one) is node_affinity_of(two)


def test_an_empty_affinity_is_said() -> None:
    affinity = node_affinity_of(make_pod(affinity={"nodeAffinity": {}}).pod)

    assert affinity.required is None
    assert affinity.preferred is None
    assert affinity.matches({}, "n1")
