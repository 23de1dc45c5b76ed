"""The nodes that can access something: the node affinity of volumes, the topology of capacities.

Over columns a selector costs a few operations on a whole column. All selectors of one label,
usually one for each local disk or node, cost one such operation together.

Worked example: three local volumes with affinity to the hostnames ``b``, ``a`` and ``b`` on the
nodes ``a``, ``b`` and ``c``: ``first_accessible`` returns ``[1, 0, 3]`` (3: none).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from proreus.framework.interning import ABSENT
from proreus.framework.node_affinity import parsed_node_selector
from proreus.framework.node_table import NodeTable
from proreus.framework.verdicts import BoolArray, IntArray
from proreus.objects.selectors import ParsedNodeSelector, ParsedNodeTerm, Selector
from proreus.objects.storage import PersistentVolume

AccessibleNodes = ParsedNodeSelector | None
"""The nodes that can access something; None means all nodes."""


def nodes_of_volume(volume: PersistentVolume) -> AccessibleNodes:
    """Return the nodes that can access a volume; a term that does not parse matches none."""
    affinity = volume.spec.node_affinity
    return (
        None
        if affinity is None or affinity.required is None
        else parsed_node_selector(affinity.required)
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
    mask: BoolArray = first_accessible(nodes, [accessible_nodes]) == 0
    return mask


def first_accessible(nodes: NodeTable, reaches_of: Sequence[AccessibleNodes]) -> IntArray:
    """Return the index of the first thing that each node can access, shape (nodes,).

    ``len(reaches_of)`` for a node that can access none.
    """
    first: IntArray = np.full(len(nodes), len(reaches_of), dtype=np.int64)
    by_value: dict[str, dict[str, int]] = {}
    seen: set[int] = set()
    for place, accessible_nodes in enumerate(reaches_of):
        # All nodes can access it: the ones after it are the first of none. Selectors seen before
        # lower the index below.
        if accessible_nodes is None:
            first[:] = np.minimum(first, place)
            break
        # Parsed selectors are shared, so that equal ones are most often one object.
        if id(accessible_nodes) in seen:
            continue
        seen.add(id(accessible_nodes))
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
                matching = nodes.matches(term.labels)
                first[matching] = np.minimum(first[matching], place)
    for key, places in by_value.items():
        _note_values(nodes, first, key, places)
    return first


def _note_values(nodes: NodeTable, first: IntArray, key: str, places: Mapping[str, int]) -> None:
    """Lower ``first`` by the values of one label: one index a value, then one gather."""
    values = nodes.label_values(key)
    # At the end, for the code -1: nodes without the label.
    indices: IntArray = np.full(len(values) + 1, np.iinfo(np.int64).max, dtype=np.int64)
    for value, place in places.items():
        code = values.find(value)
        if code != ABSENT:
            indices[code] = place
    np.minimum(first, indices[nodes.label(key)], out=first)
