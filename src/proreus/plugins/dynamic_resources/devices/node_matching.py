"""Which nodes slices, devices and allocations select: one by name, all, or by a node selector."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from proreus.base.bounded_cache import BYTES_AN_ENCODED_BYTE, BYTES_AN_ENTRY, BoundedCache
from proreus.base.errors import ProreusError
from proreus.framework.node_table import NodeTable
from proreus.framework.verdicts import BoolArray
from proreus.objects.devices import Device, ResourceSliceSpec
from proreus.objects.selectors import NodeSelector, ParsedNodeSelector, parse_node_selector

Labels = Mapping[str, str]
"""Labels of a node."""


class PoolError(ProreusError):
    """A node selector of a slice cannot be parsed; this fails the scheduling attempt."""


def slice_matches_node(spec: ResourceSliceSpec, node: str, labels: Labels) -> bool:
    """Return whether a slice is relevant to a node (``GatherPools``); raises ``PoolError``."""
    if spec.node_name or spec.all_nodes or spec.node_selector is not None:
        if spec.node_name:
            return spec.node_name == node
        return bool(spec.all_nodes) or _selects(spec.node_selector, node, labels)
    if spec.per_device_node_selection:
        return any(device_matches_node(device, node, labels) for device in spec.devices)
    # A slice that selects nodes in some way of a newer API. Other pools may do, so no error.
    return False


def device_matches_node(device: Device | ResourceSliceSpec, node: str, labels: Labels) -> bool:
    """Return whether a device, or a slice, selects a node; raises ``PoolError``."""
    if device.node_name:
        return device.node_name == node
    return bool(device.all_nodes) or _selects(device.node_selector, node, labels)


def _selects(selector: NodeSelector | None, node: str, labels: Labels) -> bool:
    if selector is None:
        return False
    parsed = parsed_selector(msgspec.json.encode(selector))
    return parsed.matches(labels, node)


_parsed: BoundedCache[bytes, ParsedNodeSelector] = BoundedCache(16 * 2**20)


def parsed_selector(encoded: bytes) -> ParsedNodeSelector:
    """Return a parsed node selector; raises ``PoolError`` if it cannot be parsed."""
    # Cached by encoding: a driver's slices have equal selectors, matched with every node.
    parsed = _parsed.get(encoded)
    if parsed is None:
        parsed = parse_node_selector(msgspec.json.decode(encoded, type=NodeSelector))
        _parsed.put(encoded, parsed, BYTES_AN_ENTRY + BYTES_AN_ENCODED_BYTE * len(encoded))
    error = parsed.error()
    if error is not None:
        raise PoolError(error)
    return parsed


def term_count(selector: NodeSelector | None) -> int:
    """Return how many terms a selector has; 0 for none."""
    return 0 if selector is None else len(selector.node_selector_terms)


def matching_nodes(selector: ParsedNodeSelector, nodes: NodeTable) -> BoolArray:
    """Return the mask of the nodes that a node selector selects, shape ``(len(nodes),)``."""
    mask = np.zeros(len(nodes), dtype=np.bool_)
    # Terms are alternatives. Labels are matched over columns; fields are the exception.
    for term in selector.terms:
        if not term.fields:
            mask |= nodes.matches(term.labels)
            continue
        # An allocation of local devices names its one node: a look-up instead of a walk over
        # thousands of nodes.
        names = {value for _, operator, value in term.fields if operator == "In"}
        if len(names) == 1:
            row = nodes.rows.get(names.pop())
            if row is not None and term.matches(nodes[row].labels, nodes[row].name):
                mask[row] = True
            continue
        for row, node in enumerate(nodes):
            if term.matches(node.labels, node.name):
                mask[row] = True
    return mask
