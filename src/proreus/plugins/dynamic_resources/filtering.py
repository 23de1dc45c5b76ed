"""Which nodes can take a pod's claims: over columns, one search a situation.

``Judgement`` answers for a table of nodes; nothing that it finds is kept in the cycle's state, so
that trials (nominated pods, preemption) and the real cycle cannot disturb each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from proreus.framework.node_table import NodeTable
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.framework.verdicts import BoolArray, IntArray, Rows, Verdicts
from proreus.objects.meta import ObjectMeta
from proreus.objects.pod import PodExtendedResourceRequest
from proreus.objects.resource_claims import (
    DeviceClaim,
    DeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from proreus.objects.selectors import ParsedNodeSelector
from proreus.plugins.dynamic_resources.allocator import Answer, Placement, Solution, TimedOut
from proreus.plugins.dynamic_resources.extended_resources import (
    SPECIAL_CLAIM_NAME,
    requests_for,
)
from proreus.plugins.dynamic_resources.manager import (
    FAULT,
    FITS,
    INVALID_POOLS,
    NO_FIT,
    DeviceManager,
    Outlook,
)
from proreus.plugins.dynamic_resources.node_allocatable import (
    Demand,
    GivenDevice,
    MappingFault,
    demand_of,
    reject_full,
    reject_in_use,
)
from proreus.plugins.dynamic_resources.notes import Notes, Variant
from proreus.plugins.dynamic_resources.plans import AllocationFault
from proreus.plugins.dynamic_resources.pools import PoolView
from proreus.plugins.dynamic_resources.situations import Situation
from proreus.plugins.extended_resources import may_be_devices

CANNOT_ALLOCATE = "cannot allocate all claims"
NOT_AVAILABLE = "resourceclaim not available on the node"
LEFT_OVER = "cannot schedule extended resource claim"

_CANNOT_ALLOCATE = Status.unresolvable(CANNOT_ALLOCATE)
_NOT_AVAILABLE = Status.unresolvable(NOT_AVAILABLE)
_INVALID_POOLS = Status.unresolvable("invalid resource pools were encountered")
_NO_RESOURCE = Status.unresolvable("cannot fit resource")
_LEFT_OVER = Status.unresolvable(LEFT_OVER)


class Judgement:
    """Judges the nodes of tables for one pod."""

    def __init__(
        self,
        manager: DeviceManager,
        notes: Notes,
        pod: PodInfo,
        nodes: NodeTable,
        deadline: Callable[[], Callable[[], bool]],
    ) -> None:
        self._manager = manager
        self._notes = notes
        self._pod = pod
        self._nodes = nodes
        self._deadline = deadline

    # ---- filter --------------------------------------------------------------------------------

    def run(self, nodes: NodeTable, verdicts: Verdicts) -> None:
        """Reject the nodes that cannot do."""
        notes = self._notes
        if notes.extended is not None and notes.extended.spec.devices.requests:
            verdicts.reject_with(np.ones(len(nodes), dtype=np.bool_), _LEFT_OVER)
            return
        if self._manager.features.node_allocatable:
            self._reject_in_use(nodes, verdicts)
        for variant, rows in self._variants(nodes, verdicts):
            self._allocate(nodes, variant, rows, verdicts)
        for mask in self.unavailable(nodes).values():
            verdicts.reject_with(mask, _NOT_AVAILABLE)

    def unavailable(self, nodes: NodeTable) -> dict[int, BoolArray]:
        """Return, by position of an allocated claim, the nodes where it is of no use."""
        masks = {}
        for place, selector in self._notes.usable.items():
            if place in self._notes.unusable:
                masks[place] = np.ones(len(nodes), dtype=np.bool_)
            elif selector is not None:
                masks[place] = ~_matching(selector, nodes)
        return masks

    def _allocate(
        self, nodes: NodeTable, variant: Variant, rows: Rows | None, verdicts: Verdicts
    ) -> None:
        invalidation_key = variant.invalidation_key
        if invalidation_key is None:
            if self._manager.features.node_allocatable and self._notes.shared:
                all_nodes_feasible = np.arange(len(nodes)) if rows is None else rows
                self._look_for_room(nodes, variant, None, all_nodes_feasible, verdicts)
            return
        numbers = self._manager.situations.column(self._nodes, nodes)
        if rows is not None:
            numbers = numbers[rows]
        try:
            outcome = self._manager.consider(invalidation_key, numbers, self._deadline())
        except TimedOut:
            outcome = self._one_by_one(nodes, invalidation_key, numbers, rows, verdicts)
        if self._manager.features.node_allocatable:
            for number in np.unique(numbers[outcome == FITS]).tolist():
                fitting = np.flatnonzero((outcome == FITS) & (numbers == number))
                where = fitting if rows is None else rows[fitting]
                self._look_for_room(nodes, variant, number, where, verdicts)
        if not outcome.any():
            return
        for code, status in (
            (NO_FIT, _CANNOT_ALLOCATE),
            (INVALID_POOLS, _INVALID_POOLS),
        ):
            verdicts.reject_with(_picked(outcome == code, rows), status)
        for index in np.flatnonzero(outcome == FAULT).tolist():
            fault = invalidation_key.answers[int(numbers[index])]
            assert isinstance(fault, AllocationFault)
            row = index if rows is None else int(rows[index])
            verdicts.reject_row(row, Status.error(self._words(fault, variant, nodes, row)))

    def _one_by_one(
        self,
        nodes: NodeTable,
        invalidation_key: Outlook,
        numbers: IntArray,
        rows: Rows | None,
        verdicts: Verdicts,
    ) -> IntArray:
        """Search with a deadline for each situation; nodes where it is missed are errors."""
        late: set[int] = set()
        for number in np.unique(numbers).tolist():
            try:
                self._manager.consider(invalidation_key, np.array([number]), self._deadline())
            except TimedOut:
                late.add(number)
                break  # one error is enough to end the attempt
        for index, number in enumerate(numbers.tolist()):
            if number in late:
                row = index if rows is None else int(rows[index])
                text = f"node {nodes[row].name}: timed out trying to allocate devices"
                verdicts.reject_row(row, Status.error(text))
        outcome: IntArray = np.maximum(invalidation_key.outcome[numbers], FITS)
        return outcome

    def _words(self, fault: AllocationFault, variant: Variant, nodes: NodeTable, row: int) -> str:
        views: Sequence[object] = ()
        if "{" in fault.text:
            views = self._manager.situations.views_of(self._nodes, nodes[row].name)
        return fault.words(variant.claims, views)  # type: ignore[arg-type]

    # ---- devices that take of the node ---------------------------------------------------------

    def _reject_in_use(self, nodes: NodeTable, verdicts: Verdicts) -> None:
        notes = self._notes
        for place, selector in notes.usable.items():
            if place not in notes.shared:
                mask = _matching(selector, nodes) if selector is not None else None
                rows = np.arange(len(nodes)) if mask is None else np.flatnonzero(mask)
                reject_in_use(nodes, rows, self._pod, notes.claims[place], verdicts)

    def _look_for_room(
        self,
        nodes: NodeTable,
        variant: Variant,
        number: int | None,
        rows: Rows,
        verdicts: Verdicts,
    ) -> None:
        """Reject rows of one situation that have no room for what the devices take of them."""
        try:
            demand = demand_of(self._pod, self._given(variant, number))
        except MappingFault as fault:
            verdicts.reject_with(rows, Status.error(str(fault)))
            return
        if isinstance(demand, Status):
            verdicts.reject_with(rows, demand)
        elif demand is not None:
            reject_full(nodes, rows, demand, verdicts)

    def _given(
        self, variant: Variant, number: int | None
    ) -> Iterator[tuple[ResourceClaim, Sequence[GivenDevice]]]:
        """Yield the devices that the pod's claims would have in a situation, claim by claim."""
        if number is not None:
            assert variant.invalidation_key is not None
            answer = variant.invalidation_key.answers[number]
            views = self._manager.situations.all[number].views
            assert isinstance(answer, Solution)
            for claim, placements in zip(variant.claims, answer.placements, strict=True):
                yield claim, [_given_device(one, views) for one in placements]
        for place in self._notes.shared:
            claim = self._notes.claims[place]
            allocation = self._manager.allocation_of(claim)
            if allocation is not None:
                yield claim, list(self._manager.devices_of(allocation))

    def demand_at(self, name: str) -> Demand | None:
        """Return what the pod takes of a node with its devices; None: what it asks for."""
        variant = self.variant_at(name)
        number = None
        if variant.invalidation_key is not None:
            situation = self._manager.situations.of_node(self._nodes, name)
            assert situation is not None
            number = situation.number
        demand = demand_of(self._pod, self._given(variant, number))
        return demand if isinstance(demand, Demand) else None

    # ---- extended resources --------------------------------------------------------------------

    def _variants(
        self, nodes: NodeTable, verdicts: Verdicts
    ) -> Iterator[tuple[Variant, Rows | None]]:
        """Yield what is to be allocated, and on which rows (None: all)."""
        notes = self._notes
        if not notes.backed:
            yield self._variant(()), None
            return
        missing = np.zeros(len(nodes), dtype=np.int64)
        for bit, resource in enumerate(notes.backed):
            missing |= (nodes.allocatable[resource] <= 0).astype(np.int64) << bit
        for resource, amount in self._pod.requests.amounts.items():
            if amount > 0 and may_be_devices(resource) and resource not in notes.backed:
                for row in np.flatnonzero(nodes.allocatable[resource] == 0).tolist():
                    if resource not in nodes[row].allocatable:
                        verdicts.reject_row(row, _NO_RESOURCE)
        for bits in np.unique(missing).tolist():
            rows = np.flatnonzero(missing == bits)
            resources = tuple(r for bit, r in enumerate(notes.backed) if bits >> bit & 1)
            yield self._variant(resources), rows

    def _variant(self, resources: tuple[str, ...]) -> Variant:
        notes = self._notes
        variant = notes.variants.get(resources)
        if variant is not None:
            return variant
        claims = notes.waiting()
        requests: tuple[DeviceRequest, ...] = ()
        mappings: tuple[PodExtendedResourceRequest, ...] = ()
        if resources:
            requests, mappings = requests_for(self._pod.pod, resources, self._manager.extended.get)
            claims = (*claims, self._extended_claim(requests))
        invalidation_key = self._manager.invalidation_key(claims) if claims else None
        variant = notes.variants[resources] = Variant(
            resources, claims, requests, mappings, invalidation_key
        )
        return variant

    def _extended_claim(self, requests: tuple[DeviceRequest, ...]) -> ResourceClaim:
        extended = self._notes.extended
        meta = extended.metadata if extended is not None else ObjectMeta(name=SPECIAL_CLAIM_NAME)
        devices = DeviceClaim(requests=requests)
        return ResourceClaim(metadata=meta, spec=ResourceClaimSpec(devices=devices))

    # ---- one node, and all scores --------------------------------------------------------------

    def variant_at(self, name: str) -> Variant:
        """Return what is to be allocated on a node."""
        node = self._nodes[self._nodes.rows[name]]
        backed = self._notes.backed
        return self._variant(tuple(r for r in backed if node.allocatable.get(r, 0) <= 0))

    def answer_at(self, name: str) -> tuple[Variant, Answer | None]:
        """Return what the search finds on a node; no answer where nothing is to be allocated."""
        variant = self.variant_at(name)
        if variant.invalidation_key is None:
            return variant, None
        situation = self._manager.situations.of_node(self._nodes, name)
        assert isinstance(situation, Situation)
        return variant, self._manager.answer(variant.invalidation_key, situation, self._deadline())

    def scores(self, nodes: NodeTable) -> IntArray | int:
        """Return for each node how high its devices stand in lists of alternatives."""
        notes = self._notes
        scores = np.full(len(nodes), notes.score, dtype=np.int64)
        ignored = Verdicts(len(nodes))
        for variant, rows in self._variants(nodes, ignored):
            if variant.invalidation_key is None or not _has_alternatives(variant):
                continue
            numbers = self._manager.situations.column(self._nodes, nodes)
            if rows is not None:
                numbers = numbers[rows]
            self._manager.consider(variant.invalidation_key, numbers, self._deadline())
            found = variant.invalidation_key.score[numbers]
            if rows is None:
                scores += found
            else:
                scores[rows] += found
        return scores


def _given_device(placement: Placement, views: Sequence[PoolView]) -> GivenDevice:
    device = views[placement.pool].devices[placement.device]
    return GivenDevice(device.name, device.kind, placement.consumed)


def _has_alternatives(variant: Variant) -> bool:
    assert variant.invalidation_key is not None
    return any(any(claim.prioritized) for claim in variant.invalidation_key.plan.claims)


def _picked(mask: BoolArray, rows: Rows | None) -> BoolArray | Rows:
    return mask if rows is None else rows[mask]


def _matching(selector: ParsedNodeSelector, nodes: NodeTable) -> BoolArray:
    """Return the nodes that a node selector selects."""
    mask = np.zeros(len(nodes), dtype=np.bool_)
    for term in selector.terms:
        if not term.fields:
            mask |= nodes.matches(term.labels)
            continue
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
