"""Which nodes can access something: the node affinity of volumes, the topology of capacities.

Over columns a selector costs a few operations on a whole column. With many selectors, usually one
for each local disk or node, each is matched only against the nodes that have one of its label
values.

Worked example: three local volumes with affinity to the hostnames ``b``, ``a`` and ``b`` on the
nodes ``a``, ``b`` and ``c``: ``first_accessible`` returns ``[1, 0, 3]`` (3: none).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from proreus.base.bounded_cache import BYTES_AN_ENTRY, BoundedCache, approximate_size
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
"""The nodes that can access something; None: all nodes."""


_parsed: BoundedCache[NodeSelector, ParsedNodeSelector] = BoundedCache(32 * 2**20)


def nodes_of_affinity(selector: NodeSelector) -> ParsedNodeSelector:
    """Parse a required node affinity; terms that do not parse match no node."""
    parsed = _parsed.get(selector)
    if parsed is None:
        parsed = parse_node_selector(selector)
        size_bytes = approximate_size(selector) + approximate_size(parsed)
        _parsed.put(selector, parsed, BYTES_AN_ENTRY + size_bytes)
    return parsed


def nodes_of_volume(volume: PersistentVolume) -> AccessibleNodes:
    """Return the nodes that can access a volume."""
    affinity = volume.spec.node_affinity
    return (
        None
        if affinity is None or affinity.required is None
        else nodes_of_affinity(affinity.required)
    )


def nodes_of_selectors(selectors: Sequence[Selector]) -> ParsedNodeSelector:
    """Return the nodes that any of the label selectors matches."""
    return ParsedNodeSelector(tuple(ParsedNodeTerm(selector) for selector in selectors))


def is_accessible(labels: Mapping[str, str], accessible_nodes: AccessibleNodes) -> bool:
    """Return whether a node with these labels can access something."""
    # As in kube-scheduler a term on metadata.name never matches here.
    return accessible_nodes is None or accessible_nodes.matches(labels, "")


def accessible_mask(nodes: NodeTable, accessible_nodes: ParsedNodeSelector) -> BoolArray:
    """Return the mask of nodes that can access something, shape (nodes,)."""
    terms = accessible_nodes.terms
    if len(terms) > _FEW_SELECTORS:
        return first_accessible(nodes, [ParsedNodeSelector((term,)) for term in terms]) < len(terms)
    mask = np.zeros(len(nodes), dtype=np.bool_)
    for term in terms:
        if term.error is None:
            mask |= nodes.matches(term.labels)
    return mask


def first_accessible(nodes: NodeTable, reaches_of: Sequence[AccessibleNodes]) -> IntArray:
    """Return the index of the first thing that each node can access, shape (nodes,).

    ``len(reaches_of)`` for a node that can access none.
    """
    none = len(reaches_of)
    first: IntArray = np.full(len(nodes), none, dtype=np.int64)
    by_value: dict[str, dict[str, int]] = {}
    others: list[tuple[int, Selector]] = []
    for place, accessible_nodes in enumerate(reaches_of):
        # All nodes can access it: the ones after it are the first of none. Selectors seen before
        # lower the index below.
        if accessible_nodes is None:
            first[:] = place
            break
        for term in accessible_nodes.terms:
            if term.error is not None:
                continue
            # The usual form, of local disks: one lookup for all of them instead of a mask each.
            requirements = term.labels.requirements
            if len(requirements) == 1 and requirements[0].operator == "In":
                places = by_value.setdefault(requirements[0].key, {})
                for value in requirements[0].values:
                    places.setdefault(value, place)
            else:
                others.append((place, term.labels))
    for key, places in by_value.items():
        _note_values(nodes, first, key, places)
    _note_selectors(nodes, first, others)
    return first


def _note_values(nodes: NodeTable, first: IntArray, key: str, places: Mapping[str, int]) -> None:
    """Lower ``first`` by the values of one label: one index a value, then one gather."""
    values = nodes.label_values(key)
    none = np.iinfo(np.int64).max
    # At the end, for the code -1: nodes without the label.
    indices: IntArray = np.full(len(values) + 1, none, dtype=np.int64)
    for value, place in places.items():
        code = values.find(value)
        if code != ABSENT:
            indices[code] = place
    np.minimum(first, indices[nodes.label(key)], out=first)


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
    """Return the ``In`` requirement whose label has the most values in the table; None without."""
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
        """Return the rows whose label has one of the requirement's values."""
        starts = self._starts
        found = []
        for value in requirement.values:
            code = self._values.find(value)
            if code != ABSENT:
                found.append(self._order[starts[code] : starts[code + 1]])
        return np.concatenate(found) if found else np.empty(0, dtype=np.intp)
