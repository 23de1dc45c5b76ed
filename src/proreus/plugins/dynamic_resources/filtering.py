"""Which nodes can take a pod's claims: over columns, one search a situation.

``Judgement`` answers for a table of nodes; nothing that it finds is kept in the cycle's state, so
that trials (nominated pods, preemption) and the real cycle cannot disturb each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from proreus.framework.node_table import NodeTable
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.framework.verdicts import BoolArray, IntArray, Rows, Verdicts
from proreus.objects.meta import ObjectMeta
from proreus.objects.pod import PodExtendedResourceRequest
from proreus.objects.resource_claims import (
    AllocationResult,
    DeviceClaim,
    DeviceRequest,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimSpec,
)
from proreus.objects.selectors import ParsedNodeSelector
from proreus.plugins.dynamic_resources.allocator import Answer, TimedOut
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
from proreus.plugins.dynamic_resources.plans import AllocationFault
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


@dataclass(slots=True)
class Variant:
    """What is to be allocated on nodes that leave the same resources to devices."""

    resources: tuple[str, ...]
    claims: tuple[ResourceClaim, ...]
    requests: tuple[DeviceRequest, ...]
    mappings: tuple[PodExtendedResourceRequest, ...]
    outlook: Outlook | None


@dataclass(slots=True)
class Notes:
    """What PreFilter found out about a pod, and what Reserve and PreBind did.

    ``claims``: the pod's own. ``usable``: the parsed node selector of each that is allocated
    (None: usable everywhere), by position. ``unusable``: positions of allocated claims whose
    devices failed to become ready. ``shared``: positions of claims that another pod of the same
    group is about to get, in ``usable`` too. ``backed``: resources that devices may stand for.
    ``of_group``: the claims, by name, that are reserved for the pod's group instead of for it.
    """

    claims: tuple[ResourceClaim, ...] = ()
    usable: dict[int, ParsedNodeSelector | None] = field(default_factory=dict)
    unusable: frozenset[int] = frozenset()
    shared: frozenset[int] = frozenset()
    of_group: Mapping[str, ResourceClaimConsumerReference] = field(default_factory=dict)
    backed: tuple[str, ...] = ()
    extended: ResourceClaim | None = None
    """The claim for extended resources; without a resourceVersion while it is in memory only."""
    variants: dict[tuple[str, ...], Variant] = field(default_factory=dict)
    score: int = 0
    """What allocated claims contribute to the score of every node."""
    chosen: Variant | None = None
    """What Reserve found for the node."""
    reserved: tuple[tuple[ResourceClaim, AllocationResult], ...] = ()
    written: list[ResourceClaim] = field(default_factory=list)
    created: ResourceClaim | None = None

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do for the pod."""
        return not self.claims and self.extended is None

    def waiting(self) -> tuple[ResourceClaim, ...]:
        """Return the pod's own claims that need an allocation."""
        return tuple(c for place, c in enumerate(self.claims) if place not in self.usable)


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
        outlook = variant.outlook
        if outlook is None:
            return
        numbers = self._manager.situations.column(self._nodes, nodes)
        if rows is not None:
            numbers = numbers[rows]
        try:
            outcome = self._manager.consider(outlook, numbers, self._deadline())
        except TimedOut:
            outcome = self._one_by_one(nodes, outlook, numbers, rows, verdicts)
        if not outcome.any():
            return
        for code, status in (
            (NO_FIT, _CANNOT_ALLOCATE),
            (INVALID_POOLS, _INVALID_POOLS),
        ):
            verdicts.reject_with(_picked(outcome == code, rows), status)
        for index in np.flatnonzero(outcome == FAULT).tolist():
            fault = outlook.answers[int(numbers[index])]
            assert isinstance(fault, AllocationFault)
            row = index if rows is None else int(rows[index])
            verdicts.reject_row(row, Status.error(self._words(fault, variant, nodes, row)))

    def _one_by_one(
        self,
        nodes: NodeTable,
        outlook: Outlook,
        numbers: IntArray,
        rows: Rows | None,
        verdicts: Verdicts,
    ) -> IntArray:
        """Search with a deadline for each situation; nodes where it is missed are errors."""
        late: set[int] = set()
        for number in np.unique(numbers).tolist():
            try:
                self._manager.consider(outlook, np.array([number]), self._deadline())
            except TimedOut:
                late.add(number)
                break  # one error is enough to end the attempt
        for index, number in enumerate(numbers.tolist()):
            if number in late:
                row = index if rows is None else int(rows[index])
                text = f"node {nodes[row].name}: timed out trying to allocate devices"
                verdicts.reject_row(row, Status.error(text))
        outcome: IntArray = np.maximum(outlook.outcome[numbers], FITS)
        return outcome

    def _words(self, fault: AllocationFault, variant: Variant, nodes: NodeTable, row: int) -> str:
        views: Sequence[object] = ()
        if "{" in fault.text:
            views = self._manager.situations.views_of(self._nodes, nodes[row].name)
        return fault.words(variant.claims, views)  # type: ignore[arg-type]

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
        outlook = self._manager.outlook(claims) if claims else None
        variant = notes.variants[resources] = Variant(
            resources, claims, requests, mappings, outlook
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
        if variant.outlook is None:
            return variant, None
        situation = self._manager.situations.of_node(self._nodes, name)
        assert isinstance(situation, Situation)
        return variant, self._manager.answer(variant.outlook, situation, self._deadline())

    def scores(self, nodes: NodeTable) -> IntArray | int:
        """Return for each node how high its devices stand in lists of alternatives."""
        notes = self._notes
        scores = np.full(len(nodes), notes.score, dtype=np.int64)
        ignored = Verdicts(len(nodes))
        for variant, rows in self._variants(nodes, ignored):
            if variant.outlook is None or not _has_alternatives(variant):
                continue
            numbers = self._manager.situations.column(self._nodes, nodes)
            if rows is not None:
                numbers = numbers[rows]
            self._manager.consider(variant.outlook, numbers, self._deadline())
            found = variant.outlook.score[numbers]
            if rows is None:
                scores += found
            else:
                scores[rows] += found
        return scores


def _has_alternatives(variant: Variant) -> bool:
    assert variant.outlook is not None
    return any(any(claim.prioritized) for claim in variant.outlook.plan.claims)


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
