"""The reasons and statuses with which NodeResourcesFit rejects nodes, for one node and by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from functools import lru_cache

import numpy as np

from proreus.base.bounded_cache import cleared_with_age
from proreus.framework.columns import ResourceColumns
from proreus.framework.node_info import NodeInfo
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Code, Status
from proreus.framework.verdicts import BoolArray, IntArray, Verdicts

TOO_MANY_PODS = "Too many pods"

_INSUFFICIENT = "Insufficient "
"""Followed by the resource."""

_BASE_RESOURCES = ("cpu", "memory", "ephemeral-storage")
_MOST_BITS = 62
_MOST_SHARED_REASONS = 16

Needs = Mapping[str, int]
"""What a pod requests, by resource, in the order of messages."""


def needs_of(amounts: Mapping[str, int]) -> Needs:
    """Return the requests that are not 0; cpu, memory and ephemeral-storage first."""
    needs = {r: amounts[r] for r in _BASE_RESOURCES if amounts.get(r, 0) > 0}
    others = dict(amounts)
    for resource in _BASE_RESOURCES:
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
        base = resource in _BASE_RESOURCES
        if needed or base:
            reasons.append(_INSUFFICIENT + resource)
            unresolvable = unresolvable or (amount if base else needed) > capacity
    return _status_of(tuple(reasons), unresolvable) if reasons else None


def reject_rows(
    verdicts: Verdicts,
    failing: BoolArray,
    needs: Needs,
    short: Mapping[str, BoolArray],
    nowhere: Set[str],
    too_many_pods: BoolArray,
    allocatable: ResourceColumns,
) -> None:
    """Reject the failing rows, those with the same reasons with one status.

    ``short``: by resource, on which rows it is too little; ``nowhere``: resources that no row has.
    ``allocatable``: by resource and row.
    """
    rows = np.flatnonzero(failing)
    # The first bit: Unresolvable, more than is allocatable. The second: too many pods.
    bits = [np.full(len(rows), bool(nowhere)), too_many_pods[rows]]
    places: dict[str, int] = {}
    for resource, lacks in short.items():
        lacking = lacks[rows]
        bits[0] |= lacking & (allocatable[resource][rows] < needs[resource])
        places[resource] = len(bits)
        bits.append(lacking)
    sets = _as_numbers(bits)
    for one in _distinct(sets):
        equal = sets == one
        first = int(equal.argmax())
        reasons = [TOO_MANY_PODS] if bits[1][first] else []
        insufficient = {resource for resource, place in places.items() if bits[place][first]}
        reasons += [
            _INSUFFICIENT + resource
            for resource in needs
            if resource in nowhere or resource in insufficient
        ]
        verdicts.reject_with(rows[equal], _status_of(tuple(reasons), bool(bits[0][first])))


def _status_of(reasons: tuple[str, ...], unresolvable: bool) -> Status:
    """Return a status, shared with other nodes and pods.

    ``unresolvable``: the pod requests more than the node has for all pods.
    """
    # Cached statuses must be small: a pod may request thousands of resources.
    make = _shared_status if len(reasons) <= _MOST_SHARED_REASONS else _new_status
    return make(reasons, unresolvable)


def _new_status(reasons: tuple[str, ...], unresolvable: bool) -> Status:
    code = Code.UNRESOLVABLE if unresolvable else Code.UNSCHEDULABLE
    return Status(code, reasons, "NodeResourcesFit")


_shared_status = cleared_with_age(lru_cache(maxsize=1024)(_new_status))


def _as_numbers(bits: Sequence[BoolArray]) -> IntArray:
    """Return a number for each row: the same for rows with the same bits."""
    if len(bits) > _MOST_BITS:
        packed = np.packbits(np.array(bits), axis=0)
        return np.unique(packed, axis=1, return_inverse=True)[1].reshape(-1).astype(np.int64)
    numbers: IntArray = bits[0].astype(np.int64)
    for place, bit in enumerate(bits[1:], start=1):
        numbers |= bit.astype(np.int64) << place
    return numbers


def _distinct(numbers: IntArray) -> list[int]:
    """Return the distinct numbers; most often all rows fail for the same reason."""
    first = int(numbers[0])
    if (numbers == first).all():
        return [first]
    found: list[int] = np.unique(numbers).tolist()
    return found
