"""The nodes that slices and devices select: one by name, all, or those of a node selector."""

from __future__ import annotations

from collections.abc import Mapping

from proreus.base.errors import ProreusError
from proreus.framework.node_affinity import parsed_node_selector
from proreus.objects.devices import Device, ResourceSliceSpec
from proreus.objects.selectors import NodeSelector, ParsedNodeSelector

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
    return parsed_selector(selector).matches(labels, node)


def parsed_selector(selector: NodeSelector) -> ParsedNodeSelector:
    """Return a parsed node selector; raises ``PoolError`` if it cannot be parsed."""
    # A driver's slices have equal selectors, matched with every node.
    parsed = parsed_node_selector(selector)
    error = parsed.error()
    if error is not None:
        raise PoolError(error)
    return parsed


def term_count(selector: NodeSelector | None) -> int:
    """Return the number of terms of a selector; 0 without a selector."""
    return 0 if selector is None else len(selector.node_selector_terms)
