"""Returns the utilisation of nodes: all nodes as columns for the heat map, some as a table."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from proreus.framework.cluster_table import ClusterTable
from proreus.framework.verdicts import IntArray

ZONE = "topology.kubernetes.io/zone"
PODS = "pods"
SHOWN = 100


class NodeCells(msgspec.Struct, rename="camel"):
    """All nodes by group. ``percent``: requested of allocatable; -1 where a node has none of it.

    ``groups``: values of the label, "" for nodes without it; ``group``: each node's place in them.
    """

    resource: str
    label: str
    names: list[str]
    percent: list[int]
    group: list[int]
    groups: list[str]
    unschedulable: list[int]


class NodeRow(msgspec.Struct):
    """A node in the table. ``percent``: by the resource of the table's head, -1 for none."""

    name: str
    group: str
    pods: int
    percent: list[int]
    unschedulable: bool


def resources(table: ClusterTable) -> list[str]:
    """Return the resources whose utilisation can be shown: cpu, memory, pods, then the others."""
    first = ["cpu", "memory", PODS]
    others = {one for one in table.allocatable if table.allocatable[one].any()}
    return first + sorted(others - set(first))


def label_keys(table: ClusterTable) -> list[str]:
    """Return keys of node labels that form groups: with several nodes each, zones first."""
    seen: dict[str, set[str]] = {}
    for info in table.infos[:200]:
        labels = {} if info.node is None else info.node.metadata.labels
        for key, value in labels.items():
            seen.setdefault(key, set()).add(value)
    most = max(min(len(table), 200) // 2, 1)
    keys = sorted(key for key, values in seen.items() if len(values) <= most and key != ZONE)
    return [ZONE, *keys]


def percents(table: ClusterTable, resource: str) -> IntArray:
    """Return each node's requested share of a resource, shape ``(len(table),)``; -1 for none."""
    if resource == PODS:
        allocatable, requested = table.allowed_pods, table.pod_count
    else:
        size = len(table)
        allocatable, requested = (
            table.allocatable[resource][:size],
            table.requested[resource][:size],
        )
    shares: IntArray = np.full(len(table), -1, dtype=np.int64)
    has = allocatable > 0
    # As float: 100 times the bytes of a large node would not fit 64 bits after a few more zeros.
    shares[has] = np.rint(requested[has] / allocatable[has] * 100).astype(np.int64)
    return shares


def node_cells(table: ClusterTable, resource: str, label: str) -> NodeCells:
    """Return how full each node is, with its group by a label."""
    codes, values = table.label(label), table.label_values(label).values
    present = np.unique(codes).tolist()
    names = {code: values[code] if code >= 0 else "" for code in present}
    order = sorted(present, key=lambda code: names[code])
    place = {code: number for number, code in enumerate(order)}
    return NodeCells(
        resource=resource,
        label=label,
        names=[info.name for info in table.infos],
        percent=percents(table, resource).tolist(),
        group=[place[code] for code in codes.tolist()],
        groups=[names[code] for code in order],
        unschedulable=np.flatnonzero(table.unschedulable).tolist(),
    )


def node_rows(
    table: ClusterTable, by: str, down: bool, label: str, text: str, columns: Sequence[str]
) -> tuple[list[NodeRow], int]:
    """Return nodes in the order of a column, and how many matched.

    ``by``: a resource, or ``name``; ``down``: the largest first. ``text``: what a node's name has
    to contain. ``columns``: resources in the table's head.
    """
    matching = [row for row in range(len(table)) if text in table.infos[row].name]
    if by == "name":
        matching.sort(key=lambda row: table.infos[row].name, reverse=down)
    else:
        percent = percents(table, by).tolist()
        matching.sort(key=lambda row: -percent[row] if down else percent[row])
    shares = [percents(table, column) for column in columns]
    codes, values = table.label(label), table.label_values(label).values
    rows = [
        NodeRow(
            name=table.infos[row].name,
            group=values[codes[row]] if codes[row] >= 0 else "",
            pods=int(table.pod_count[row]),
            percent=[int(share[row]) for share in shares],
            unschedulable=bool(table.unschedulable[row]),
        )
        for row in matching[:SHOWN]
    ]
    return rows, len(matching)
