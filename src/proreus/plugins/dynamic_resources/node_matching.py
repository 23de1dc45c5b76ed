"""From which nodes slices and devices can be used: from one by name, from all, or by a selector."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import msgspec

from proreus.errors import ProreusError
from proreus.objects.devices import Device, ResourceSliceSpec
from proreus.objects.selectors import NodeSelector, ParsedNodeSelector, parse_node_selector

Labels = Mapping[str, str]
"""Those of a node."""


class PoolError(ProreusError):
    """A slice that cannot be understood; it fails the scheduling attempt."""


def slice_matches_node(spec: ResourceSliceSpec, node: str, labels: Labels) -> bool:
    """Tell whether a slice matters to a node; raises ``PoolError``. Shared counters always do."""
    if spec.shared_counters:
        return True
    if spec.node_name or spec.all_nodes or spec.node_selector is not None:
        if spec.node_name:
            return spec.node_name == node
        return bool(spec.all_nodes) or _selects(spec.node_selector, node, labels)
    if spec.per_device_node_selection:
        return any(device_matches_node(device, node, labels) for device in spec.devices)
    return False


def device_matches_node(device: Device, node: str, labels: Labels) -> bool:
    """Tell whether a node can use a device that chooses its nodes itself."""
    if device.node_name:
        return device.node_name == node
    return bool(device.all_nodes) or _selects(device.node_selector, node, labels)


def _selects(selector: NodeSelector | None, node: str, labels: Labels) -> bool:
    if selector is None:
        return False
    parsed = parsed_selector(msgspec.json.encode(selector))
    return parsed.matches(labels, node)


@lru_cache(maxsize=4096)
def parsed_selector(encoded: bytes) -> ParsedNodeSelector:
    """Return a node selector ready for use; raises ``PoolError`` if it cannot be parsed."""
    parsed = parse_node_selector(msgspec.json.decode(encoded, type=NodeSelector))
    error = parsed.error()
    if error is not None:
        raise PoolError(error)
    return parsed


def term_count(selector: NodeSelector | None) -> int:
    """Return how many terms a selector has; 0 for none."""
    return 0 if selector is None else len(selector.node_selector_terms)
