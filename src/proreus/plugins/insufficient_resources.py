"""The rejection of nodes that lack resources, for one node and by row.

For NodeResourcesFit, and for DynamicResources where devices add to what a pod requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from functools import lru_cache

import numpy as np

from proreus.base.bounded_cache import cleared_with_age
from proreus.framework.columns import ResourceColumns
from proreus.framework.node_info import NodeInfo
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Code, Status
from proreus.framework.verdicts import BoolArray, Verdicts

TOO_MANY_PODS = "Too many pods"

_INSUFFICIENT = "Insufficient "
"""Followed by the resource."""

BASE_RESOURCES = ("cpu", "memory", "ephemeral-storage")
_MOST_SHARED_REASONS = 16

Needs = Mapping[str, int]
"""The requests of a pod by resource, in the order of messages."""


def needs_of(amounts: Mapping[str, int]) -> Needs:
    """Return the requests that are not 0; cpu, memory and ephemeral-storage first."""
    needs = {r: amounts[r] for r in BASE_RESOURCES if amounts.get(r, 0) > 0}
    others = dict(amounts)
    for resource in BASE_RESOURCES:
        others.pop(resource, None)
    # No loop in Python: a pod may request 40,000 resources.
    if 0 in others.values():
        others = {resource: amount for resource, amount in others.items() if amount}
    needs.update(others)
    return needs


def rejection(
    needs: Needs, too_many_pods: bool, node: NodeInfo, counted: PodInfo | None = None
) -> Status | None:
    """Return the rejection of a pod; None if it fits.

    ``counted``: the pod as it counts on the node already. This much is not needed again; where it
    is more than the pod requests, the difference makes no room: the kubelet has yet to free it.
    """
    allocatable, requested = node.allocatable, node.requested
    held = None if counted is None else counted.accounted_requests.amounts
    reasons = [TOO_MANY_PODS] if too_many_pods else []
    unresolvable = False
    for resource, amount in needs.items():
        capacity = allocatable.get(resource, 0)
        needed = amount if held is None else max(0, amount - held.get(resource, 0))
        if needed <= capacity - requested.get(resource, 0):
            continue
        # kube-scheduler checks a base resource also where nothing is needed: the node may have
        # less than its pods request.
        base = resource in BASE_RESOURCES
        if needed or base:
            reasons.append(_INSUFFICIENT + resource)
            unresolvable = unresolvable or (amount if base else needed) > capacity
    return _status_of(tuple(reasons), unresolvable, "NodeResourcesFit") if reasons else None


def reject_rows(
    verdicts: Verdicts,
    failing: BoolArray,
    needs: Needs,
    short: Mapping[str, BoolArray],
    allocatable: ResourceColumns,
    nowhere: Set[str] = frozenset(),
    too_many_pods: BoolArray | None = None,
) -> None:
    """Reject the failing rows, those with the same reasons with one status.

    ``short``: by resource, on which rows it is too little; ``nowhere``: resources that no row has.
    ``allocatable``: by resource and row.
    """
    rows = np.flatnonzero(failing)
    no_room = np.zeros(len(rows), dtype=np.bool_) if too_many_pods is None else too_many_pods[rows]
    # The first bit: Unresolvable, more than is allocatable. The second: too many pods.
    bits = [np.full(len(rows), bool(nowhere)), no_room]
    for resource, lacks in short.items():
        lacking = lacks[rows]
        bits[0] |= lacking & (allocatable[resource][rows] < needs[resource])
        bits.append(lacking)
    packed = np.packbits(np.array(bits), axis=0)
    # Most often all rows fail for the same reasons.
    left = np.arange(len(rows))
    while len(left):
        first = int(left[0])
        equal = (packed[:, left] == packed[:, first : first + 1]).all(axis=0)
        lacked = {resource for resource, lacks in short.items() if lacks[rows[first]]} | nowhere
        reasons = [TOO_MANY_PODS] if no_room[first] else []
        reasons += [_INSUFFICIENT + resource for resource in needs if resource in lacked]
        status = _status_of(tuple(reasons), bool(bits[0][first]), verdicts.plugin)
        verdicts.reject_with(rows[left[equal]], status)
        left = left[~equal]


def _status_of(reasons: tuple[str, ...], unresolvable: bool, plugin: str) -> Status:
    """Return a status, shared with other nodes and pods.

    ``unresolvable``: the pod requests more than the node has for all pods.
    """
    # Cached statuses must be small: a pod may request thousands of resources.
    make = _shared_status if len(reasons) <= _MOST_SHARED_REASONS else _new_status
    return make(reasons, unresolvable, plugin)


def _new_status(reasons: tuple[str, ...], unresolvable: bool, plugin: str) -> Status:
    return Status(Code.UNRESOLVABLE if unresolvable else Code.UNSCHEDULABLE, reasons, plugin)


_shared_status = cleared_with_age(lru_cache(maxsize=1024)(_new_status))
