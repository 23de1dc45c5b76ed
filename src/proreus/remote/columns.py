"""The node columns that a plugin may request, gathered for some rows of the node table.

Numbers are int64 in the units of ``objects.quantity`` (milli-CPU, bytes, counts). Strings and
taints are values that many rows share.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

import numpy as np

from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.verdicts import IntArray, Rows

Values = list[Hashable]
"""One value per row; None if the node has none."""

NAME = "name"
_PLAIN = ("podCount", "allowedPods", "unschedulable")
_RESOURCES = ("allocatable", "requested", "nonzeroRequested")
_TEXTS: dict[str, Callable[[NodeInfo, str], Hashable]] = {
    "labels": lambda node, key: node.labels.get(key),
    "annotations": lambda node, key: node.node and node.node.metadata.annotations.get(key),
}
_ALLOWED = (
    f"{NAME}, {', '.join(_PLAIN)}, taints, allocatable.<resource>, requested.<resource>, "
    "nonzeroRequested.<cpu|memory>, labels.<key>, annotations.<key>"
)


def column_problem(name: str) -> str | None:
    """Return why a column does not exist, or None if it does."""
    kind, dot, key = name.partition(".")
    if not dot and (kind in (NAME, "taints") or kind in _PLAIN):
        return None
    if key and (kind in ("allocatable", "requested") or kind in _TEXTS):
        return None
    if kind == "nonzeroRequested" and key in ("cpu", "memory"):
        return None
    return f'"{name}" is unknown, allowed are {_ALLOWED}'


def is_numeric(name: str) -> bool:
    """Return whether a column holds numbers."""
    kind = name.partition(".")[0]
    return kind in _PLAIN or kind in _RESOURCES


def numbers(table: NodeTable, name: str, rows: Rows) -> IntArray:
    """Return a numeric column for some rows."""
    kind, _, resource = name.partition(".")
    match kind:
        case "allocatable":
            return table.allocatable[resource][rows]
        case "requested":
            return table.requested[resource][rows]
        case "nonzeroRequested":
            return table.nonzero_requested[resource][rows]
        case "podCount":
            return table.pod_count[rows]
        case "allowedPods":
            return table.allowed_pods[rows]
    return table.unschedulable[rows].astype(np.int64)


def values(table: NodeTable, name: str, rows: Rows) -> Values:
    """Return a column that is not numeric for some rows."""
    kind, _, key = name.partition(".")
    nodes = [table[row] for row in rows.tolist()]
    if kind == NAME:
        return [node.name for node in nodes]
    if kind == "taints":
        return [node.taints for node in nodes]
    read = _TEXTS[kind]
    return [read(node, key) for node in nodes]
