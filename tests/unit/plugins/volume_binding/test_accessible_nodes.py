"""Many selectors over columns match what each of them matches node by node."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from proreus.objects.codec import decoder_for
from proreus.objects.node import LABEL_HOSTNAME, LABEL_ZONE
from proreus.objects.selectors import NodeSelector, ParsedNodeSelector, parse_node_selector
from proreus.plugins.volume_binding.accessible_nodes import (
    AccessibleNodes,
    accessible_mask,
    first_accessible,
    is_accessible,
)
from proreus.testing import make_node, make_table
from proreus.testing.volume_clusters import BETA_ZONE, NODES, ZONES, zone_labels


def selectors(fewest: int = 0) -> st.SearchStrategy[AccessibleNodes]:
    """Draw the nodes that can access something; ``fewest``: expressions a term."""
    values = st.lists(st.sampled_from((*ZONES, *NODES, "gone")), min_size=1, max_size=2)
    expression = st.fixed_dictionaries(
        {
            "key": st.sampled_from((LABEL_ZONE, LABEL_HOSTNAME, BETA_ZONE)),
            "operator": st.sampled_from(("In", "In", "In", "NotIn", "Near")),
            "values": values,
        }
    )
    expressions = st.lists(expression, min_size=fewest, max_size=2)
    term = st.fixed_dictionaries({"matchExpressions": expressions})
    made = st.lists(term, max_size=2).map(
        lambda terms: parse_node_selector(
            decoder_for(NodeSelector).convert({"nodeSelectorTerms": terms})
        )
    )
    return made if fewest else st.one_of(made, made, made, st.none())


@settings(max_examples=200, deadline=None)
@given(
    st.lists(zone_labels(zone=ZONES, beta=ZONES), max_size=7),
    st.one_of(
        st.lists(selectors(), max_size=14),
        st.lists(st.one_of(selectors(1), selectors(2)), min_size=8, max_size=24),
    ),
)
def test_first_accessible(labels: list[dict[str, str]], all_of: list[AccessibleNodes]) -> None:
    nodes = make_table(make_node(f"n{row}", labels=one) for row, one in enumerate(labels))
    expected = [
        next(
            (
                place
                for place, accessible_nodes in enumerate(all_of)
                if is_accessible(node.labels, accessible_nodes)
            ),
            len(all_of),
        )
        for node in nodes
    ]
    assert first_accessible(nodes, all_of).tolist() == expected
    limited = [accessible_nodes for accessible_nodes in all_of if accessible_nodes is not None]
    any_of_them = ParsedNodeSelector(
        tuple(term for accessible_nodes in limited for term in accessible_nodes.terms)
    )
    for accessible_nodes in (*limited, any_of_them):
        mask = accessible_mask(nodes, accessible_nodes)
        assert mask.tolist() == [is_accessible(node.labels, accessible_nodes) for node in nodes]
