"""``minResources`` of a group: what the whole cluster lacks of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from proreus.addons.coscheduling.groups import Group
from proreus.addons.coscheduling.records import Record
from proreus.framework import Handle, IntArray, NodeTable, PodInfo
from proreus.objects import parse_amount


def resource_gap(
    group: Group, pod: PodInfo, record: Record, nodes: NodeTable, handle: Handle
) -> dict[str, int]:
    """Return what of a group's resources the cluster lacks, those of its members aside, and those
    that are held for ``pod``, a member. Raises ``ValueError`` for what is no quantity.
    """
    needed = {**_amounts(group), "pods": group.min_member}
    own: dict[int, list[PodInfo]] = {
        nodes.rows[name]: [held]
        for name, held in handle.provided_for(pod).items()
        if name in nodes.rows
    }
    for uid in record.assigned:
        for row in _rows_of(uid, record, nodes, handle):
            own.setdefault(row, []).append(nodes[row].pods[uid])
    gap = {}
    for name, amount in needed.items():
        # Node by node only as far as a resource is needed, as in the original: a node that is
        # overfull adds to what is needed, unless it is covered before.
        free = _free(nodes, name)
        for row, pods in own.items():
            one = 1 if name == "pods" else 0
            free[row] += sum(p.requests.amounts.get(name, 0) or one for p in pods)
        left = amount - np.cumsum(free[handle.node_order()])
        if amount > 0 and not (left <= 0).any():
            gap[name] = int(left[-1]) if len(left) else amount
    return gap


def _amounts(group: Group) -> dict[str, int]:
    amounts = {}
    for name, quantity in group.min_resources.items():
        try:
            amounts[name] = parse_amount(name, quantity)
        except ValueError as error:
            raise ValueError(f"spec.minResources.{name}: {error}") from None
    return amounts


def _rows_of(uid: str, record: Record, nodes: NodeTable, handle: Handle) -> Iterator[int]:
    member = record.members.get(uid)
    name = "" if member is None else member.spec.node_name
    if not name and handle.get_waiting_pod(uid) is not None:
        yield from (row for row, node in enumerate(nodes) if uid in node.pods)
    elif name in nodes.rows and uid in nodes[nodes.rows[name]].pods:
        yield nodes.rows[name]


def _free(nodes: NodeTable, name: str) -> IntArray:
    if name == "pods":
        return nodes.allowed_pods - nodes.pod_count
    return nodes.allocatable[name] - nodes.requested[name]
