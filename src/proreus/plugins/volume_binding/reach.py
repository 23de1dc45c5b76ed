"""From which nodes something can be reached: node affinity of volumes, topology of capacities.

Over columns a selector costs a few operations on a whole column. Where there are many of them, one
for each local disk or node as a rule, each is only held against the nodes that carry one of the
label values that it asks for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

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

Reach = ParsedNodeSelector | None
"""Who can reach something; None: everybody."""


@lru_cache(maxsize=65536)
def reach_of(selector: NodeSelector) -> ParsedNodeSelector:
    """Parse a required node affinity; terms that do not parse are met by nobody."""
    return parse_node_selector(selector)


def reach_of_volume(volume: PersistentVolume) -> Reach:
    """Return who can reach a volume."""
    affinity = volume.spec.node_affinity
    return None if affinity is None or affinity.required is None else reach_of(affinity.required)


def reach_of_selectors(selectors: Sequence[Selector]) -> ParsedNodeSelector:
    """Return the reach of those that any label selector selects."""
    return ParsedNodeSelector(tuple(ParsedNodeTerm(selector) for selector in selectors))


def reaches(labels: Mapping[str, str], reach: Reach) -> bool:
    """Tell whether a node can reach something. Names of nodes do not count, only labels."""
    return reach is None or reach.matches(labels, "")


def reaching(nodes: NodeTable, reach: ParsedNodeSelector) -> BoolArray:
    """Return the mask of nodes that can reach something."""
    if len(reach.terms) > _FEW_SELECTORS:
        each = [ParsedNodeSelector((term,)) for term in reach.terms]
        return first_reached(nodes, each) < len(each)
    mask = np.zeros(len(nodes), dtype=np.bool_)
    for term in reach.terms:
        if term.error is None:
            mask |= nodes.matches(term.labels)
    return mask


def first_reached(nodes: NodeTable, reaches_of: Sequence[Reach]) -> IntArray:
    """Return, for each node, which of some things is the first that it can reach.

    A node that can reach none has their number.
    """
    none = len(reaches_of)
    first: IntArray = np.full(len(nodes), none, dtype=np.int64)
    rows_by_value: dict[str, _RowsByValue] = {}
    many = none > _FEW_SELECTORS
    for place, reach in enumerate(reaches_of):
        if reach is None:
            np.minimum(first, place, out=first)
            break
        for term in reach.terms:
            if term.error is not None:
                continue
            anchor = _anchor(nodes, term.labels) if many else None
            if anchor is not None:
                by_value = rows_by_value.get(anchor.key)
                if by_value is None:
                    by_value = rows_by_value[anchor.key] = _RowsByValue(nodes, anchor.key)
                rows = by_value.rows(anchor)
                if len(rows) <= _FEW_ROWS:
                    _note_rows(nodes, first, place, term.labels, rows)
                    continue
            matching = nodes.matches(term.labels)
            first[matching] = np.minimum(first[matching], place)
    return first


def _note_rows(
    nodes: NodeTable, first: IntArray, place: int, selector: Selector, rows: Rows
) -> None:
    plain = len(selector.requirements) == 1
    for row in rows.tolist():
        if first[row] > place and (plain or selector.matches(nodes[row].labels)):
            first[row] = place


def _anchor(nodes: NodeTable, selector: Selector) -> Requirement | None:
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
            if code >= 0:
                found.append(self._order[starts[code] : starts[code + 1]])
        return np.concatenate(found) if found else np.empty(0, dtype=np.intp)
