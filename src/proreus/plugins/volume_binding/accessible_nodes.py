"""From which nodes something can be reached: node affinity of volumes, topology of capacities.

Over columns a selector costs a few operations on a whole column. Where there are many of them, one
for each local disk or node as a rule, each is only held against the nodes that carry one of the
label values that it asks for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from proreus.framework.interning import ABSENT
from proreus.framework.node_table import NodeTable
from proreus.framework.verdicts import BoolArray, IntArray, Rows
from proreus.objects.selectors import (
    NodeSelector,
    ParsedNodeSelector,
    ParsedNodeTerm,
    Requirement,
    Selector,
    parse_node_selector,
)
from proreus.objects.storage import PersistentVolume

_FEW_SELECTORS = 8
_FEW_ROWS = 32

AccessibleNodes = ParsedNodeSelector | None
"""Who can reach something; None: everybody."""


@lru_cache(maxsize=65536)
def nodes_of_affinity(selector: NodeSelector) -> ParsedNodeSelector:
    """Parse a required node affinity; terms that do not parse are met by nobody."""
    return parse_node_selector(selector)


def nodes_of_volume(volume: PersistentVolume) -> AccessibleNodes:
    """Return who can reach a volume."""
    affinity = volume.spec.node_affinity
    return (
        None
        if affinity is None or affinity.required is None
        else nodes_of_affinity(affinity.required)
    )


def nodes_of_selectors(selectors: Sequence[Selector]) -> ParsedNodeSelector:
    """Return the reach of those that any label selector selects."""
    return ParsedNodeSelector(tuple(ParsedNodeTerm(selector) for selector in selectors))


def is_accessible(labels: Mapping[str, str], accessible_nodes: AccessibleNodes) -> bool:
    """Tell whether a node can reach something. Names of nodes do not count, only labels."""
    return accessible_nodes is None or accessible_nodes.matches(labels, "")


def accessible_mask(nodes: NodeTable, accessible_nodes: ParsedNodeSelector) -> BoolArray:
    """Return the mask of nodes that can reach something."""
    terms = accessible_nodes.terms
    if len(terms) > _FEW_SELECTORS:
        return first_accessible(nodes, [ParsedNodeSelector((term,)) for term in terms]) < len(terms)
    mask = np.zeros(len(nodes), dtype=np.bool_)
    for term in terms:
        if term.error is None:
            mask |= nodes.matches(term.labels)
    return mask


def first_accessible(nodes: NodeTable, reaches_of: Sequence[AccessibleNodes]) -> IntArray:
    """Return, for each node, which of some things is the first that it can reach.

    A node that can reach none has their number.
    """
    none = len(reaches_of)
    first: IntArray = np.full(len(nodes), none, dtype=np.int64)
    by_value: dict[str, dict[str, int]] = {}
    others: list[tuple[int, Selector]] = []
    for place, accessible_nodes in enumerate(reaches_of):
        if accessible_nodes is None:
            first[:] = place
            break
        for term in accessible_nodes.terms:
            if term.error is not None:
                continue
            asked = term.labels.requirements
            if len(asked) == 1 and asked[0].operator == "In":
                places = by_value.setdefault(asked[0].key, {})
                for value in asked[0].values:
                    places.setdefault(value, place)
            else:
                others.append((place, term.labels))
    for key, places in by_value.items():
        _note_values(nodes, first, key, places)
    _note_selectors(nodes, first, others)
    return first


def _note_values(nodes: NodeTable, first: IntArray, key: str, places: Mapping[str, int]) -> None:
    """Note what is reached by the value of one label: one answer a value, then one gather."""
    values = nodes.label_values(key)
    none = np.iinfo(np.int64).max
    answers: IntArray = np.full(len(values) + 1, none, dtype=np.int64)  # the last: no such label
    for value, place in places.items():
        code = values.find(value)
        if code != ABSENT:
            answers[code] = place
    np.minimum(first, answers[nodes.label(key)], out=first)


def _note_selectors(
    nodes: NodeTable, first: IntArray, selectors: Sequence[tuple[int, Selector]]
) -> None:
    rows_by_value: dict[str, _RowsByValue] = {}
    many = len(selectors) > _FEW_SELECTORS
    for place, selector in selectors:
        indexed = _most_selective(nodes, selector) if many else None
        if indexed is not None:
            index = rows_by_value.get(indexed.key)
            if index is None:
                index = rows_by_value[indexed.key] = _RowsByValue(nodes, indexed.key)
            rows = index.rows(indexed)
            if len(rows) <= _FEW_ROWS:
                for row in rows.tolist():
                    if first[row] > place and selector.matches(nodes[row].labels):
                        first[row] = place
                continue
        matching = nodes.matches(selector)
        first[matching] = np.minimum(first[matching], place)


def _most_selective(nodes: NodeTable, selector: Selector) -> Requirement | None:
    """Return the requirement of a selector that names values, of the label with the most values."""
    best, most = None, 0
    for requirement in selector.requirements:
        if requirement.operator == "In":
            values = len(nodes.label_values(requirement.key))
            if best is None or values > most:
                best, most = requirement, values
    return best


class _RowsByValue:
    """The rows of a table by the value of one label."""

    def __init__(self, nodes: NodeTable, key: str) -> None:
        codes = nodes.label(key)
        self._values = nodes.label_values(key)
        self._order = np.argsort(codes, kind="stable")
        self._starts = np.searchsorted(codes[self._order], np.arange(len(self._values) + 1))

    def rows(self, requirement: Requirement) -> Rows:
        """Return the rows whose label has one of the values that are asked for."""
        starts = self._starts
        found = []
        for value in requirement.values:
            code = self._values.find(value)
            if code != ABSENT:
                found.append(self._order[starts[code] : starts[code + 1]])
        return np.concatenate(found) if found else np.empty(0, dtype=np.intp)
