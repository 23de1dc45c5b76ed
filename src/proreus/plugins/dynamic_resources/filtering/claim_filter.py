"""Filter and Score over all nodes: one search for each ``DeviceAvailability``, results as columns.

``ClaimFilter`` works on a table of nodes and keeps nothing about nodes in the cycle state, so that
dry runs (nominated pods, preemption) and the real cycle do not affect each other. Reserve calls it
for the chosen node again, and gets the same result from the ``AllocationCache``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from proreus.framework.node_affinity import matches_selector
from proreus.framework.node_table import NodeTable
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.framework.verdicts import BoolArray, IntArray, Rows, Verdicts
from proreus.objects.meta import ObjectMeta, key_of
from proreus.objects.pod import PodExtendedResourceRequest
from proreus.objects.resource_claims import (
    DeviceClaim,
    DeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from proreus.plugins.dynamic_resources.devices.availability_index import can_skip_operations
from proreus.plugins.dynamic_resources.devices.node_allocatable import EffectiveRequest
from proreus.plugins.dynamic_resources.devices.pools import PoolView
from proreus.plugins.dynamic_resources.dra_manager import (
    ERROR,
    FITS,
    INVALID_POOLS,
    NO_FIT,
    DRAManager,
)
from proreus.plugins.dynamic_resources.filtering.extended_resources import (
    SPECIAL_CLAIM_NAME,
    requests_for,
)
from proreus.plugins.dynamic_resources.filtering.node_allocatable_filter import (
    NodeAllocatableFilter,
)
from proreus.plugins.dynamic_resources.filtering.node_allocatable_mappings import (
    NodeAllocatableFilterOf136,
)
from proreus.plugins.dynamic_resources.search.allocation_error import AllocationError
from proreus.plugins.dynamic_resources.search.allocator import (
    AllocationTimeout,
    AllocatorResult,
)
from proreus.plugins.dynamic_resources.search.search_time import SearchTime
from proreus.plugins.dynamic_resources.state_data import ClaimsToAllocate, StateData
from proreus.plugins.extended_resources import may_be_dra_backed

CANNOT_ALLOCATE = "cannot allocate all claims"
NOT_AVAILABLE = "resourceclaim not available on the node"
EXTENDED_CLAIM_LEFT_OVER = "cannot schedule extended resource claim"

_CANNOT_ALLOCATE = Status.unresolvable(CANNOT_ALLOCATE)
_NOT_AVAILABLE = Status.unresolvable(NOT_AVAILABLE)
_INVALID_POOLS = Status.unresolvable("invalid resource pools were encountered")
_NO_RESOURCE = Status.unresolvable("cannot fit resource")
_EXTENDED_CLAIM_LEFT_OVER = Status.unresolvable(EXTENDED_CLAIM_LEFT_OVER)


class ClaimFilter:
    """Filters and scores the nodes of tables for one pod.

    ``nodes``: the whole table. ``search_time``: returns the time for the searches of one call.
    """

    def __init__(
        self,
        manager: DRAManager,
        state_data: StateData,
        pod: PodInfo,
        nodes: NodeTable,
        search_time: Callable[[], SearchTime],
    ) -> None:
        self._manager = manager
        self._state_data = state_data
        self._pod = pod
        self._nodes = nodes
        self._search_time = search_time
        features = manager.features
        by_version = (
            NodeAllocatableFilter
            if features.node_allocatable_overhead
            else NodeAllocatableFilterOf136
        )
        self._node_allocatable = (
            by_version(manager, state_data, pod) if features.node_allocatable else None
        )

    # ---- filter --------------------------------------------------------------------------------

    def run(self, nodes: NodeTable, verdicts: Verdicts) -> None:
        """Reject the nodes on which the pod's claims cannot be satisfied."""
        state_data = self._state_data
        # A claim of an earlier attempt has the requests of the node that was chosen then, which may
        # be wrong for others. All nodes are rejected, so that PostFilter deletes it.
        if state_data.extended is not None and state_data.extended.spec.devices.requests:
            verdicts.reject_with(np.ones(len(nodes), dtype=np.bool_), _EXTENDED_CLAIM_LEFT_OVER)
            return
        if self._node_allocatable is not None:
            self._node_allocatable.reject_shared(nodes, verdicts)
        for to_allocate, rows in self._claims_to_allocate_by_rows(nodes, verdicts):
            self._allocate(nodes, to_allocate, rows, verdicts)
        for place, cannot in self._cannot_skip(nodes):
            if place in state_data.shared_in_group:
                key = key_of(state_data.claims[place])
                verdicts.reject_with(
                    cannot,
                    Status.unresolvable(
                        f"resource claim {key} allocation requires DRAOptionalNodeOperations "
                        "feature on the node"
                    ),
                )
        # Last, as upstream: an Error of the allocator ends the attempt even on a node where an
        # allocated claim is not available.
        for mask in self.unavailable(nodes).values():
            verdicts.reject_with(mask, _NOT_AVAILABLE)

    def unavailable(self, nodes: NodeTable) -> dict[int, BoolArray]:
        """Return, by position of each allocated claim, the mask of nodes that cannot use it."""
        masks = {}
        for place, selector in self._state_data.available_on_nodes.items():
            if place in self._state_data.not_ready:
                masks[place] = np.ones(len(nodes), dtype=np.bool_)
            elif selector is not None:
                masks[place] = ~matches_selector(nodes, selector)
        for place, cannot in self._cannot_skip(nodes):
            masks[place] = masks[place] | cannot if place in masks else cannot
        return masks

    def _cannot_skip(self, nodes: NodeTable) -> Iterator[tuple[int, BoolArray]]:
        """Yield claims whose devices need an optional node operation, with the mask of nodes that
        lack the feature."""
        skipping = self._state_data.skipping
        if skipping:
            cannot = np.array([not can_skip_operations(info) for info in nodes], dtype=np.bool_)
            yield from ((place, cannot) for place in skipping)

    def _allocate(
        self, nodes: NodeTable, to_allocate: ClaimsToAllocate, rows: Rows, verdicts: Verdicts
    ) -> None:
        allocation_cache = to_allocate.allocation_cache
        if allocation_cache is None:
            if self._node_allocatable is not None:
                self._node_allocatable.reject_insufficient(nodes, to_allocate, None, rows, verdicts)
            return
        numbers = self._manager.availability_index.column(nodes)[rows]
        try:
            outcome = self._manager.outcomes_for(allocation_cache, numbers, self._search_time())
        except AllocationTimeout as timeout:
            # One Error is enough to end the attempt; rows without a result (UNKNOWN) pass.
            outcome = allocation_cache.outcome[numbers]
            for row in rows[numbers == timeout.number].tolist():
                text = f"node {nodes[row].name}: timed out trying to allocate devices"
                verdicts.reject_row(row, Status.error(text))
        if self._node_allocatable is not None:
            for number in np.unique(numbers[outcome == FITS]).tolist():
                where = rows[(outcome == FITS) & (numbers == number)]
                self._node_allocatable.reject_insufficient(
                    nodes, to_allocate, number, where, verdicts
                )
        if not outcome.any():  # FITS is 0
            return
        for code, status in (
            (NO_FIT, _CANNOT_ALLOCATE),
            (INVALID_POOLS, _INVALID_POOLS),
        ):
            verdicts.reject_with(rows[outcome == code], status)
        # Errors name devices and pools, which differ from node to node.
        statuses: dict[str, Status] = {}
        for index in np.flatnonzero(outcome == ERROR).tolist():
            allocation_error = allocation_cache.results[int(numbers[index])]
            assert isinstance(allocation_error, AllocationError)
            row = int(rows[index])
            views: Sequence[PoolView] = ()
            if "{" in allocation_error.text:
                views = self._manager.availability_index.views_of(nodes[row].name)
            text = allocation_error.message(to_allocate.claims, views)
            # Where the text names no device it is that of all nodes: one Status for 5,000 of them.
            if text not in statuses:
                on_node = allocation_error.on_node
                found = Status.unresolvable(text) if on_node else Status.error(text)
                statuses[text] = found.with_plugin(verdicts.plugin)
            verdicts.reject_row(row, statuses[text])

    def effective_request_at(self, name: str) -> EffectiveRequest | None:
        """Return the request of pod and devices; None if it is no more than the pod's requests."""
        if self._node_allocatable is None:
            return None
        to_allocate = self.claims_to_allocate_at(name)
        number = None
        if to_allocate.allocation_cache is not None:
            number = self._manager.availability_index.of_node(name).number
        row = self._nodes.rows[name]
        return self._node_allocatable.effective_request_at(self._nodes, to_allocate, number, row)

    # ---- extended resources --------------------------------------------------------------------

    def _claims_to_allocate_by_rows(
        self, nodes: NodeTable, verdicts: Verdicts
    ) -> Iterator[tuple[ClaimsToAllocate, Rows]]:
        """Yield the claims to allocate, and the rows where they are.

        Rejects rows that lack an extended resource which no device class backs.
        """
        state_data = self._state_data
        if not state_data.dra_backed:
            yield self._claims_to_allocate(()), np.arange(len(nodes))
            return
        # One bit for each resource that a node lacks. Nodes with equal bits get the same claim, so
        # there are as many searches as different lacks, not as nodes.
        missing = np.zeros(len(nodes), dtype=np.int64)
        for bit, resource in enumerate(state_data.dra_backed):
            missing |= (nodes.allocatable[resource] <= 0).astype(np.int64) << bit
        for resource, amount in self._pod.requests.amounts.items():
            if amount > 0 and may_be_dra_backed(resource) and resource not in state_data.dra_backed:
                # Rows that are rejected already are skipped: for thousands of resources that no
                # node has, the first one rejects all rows and the others cost nothing.
                without = verdicts.passed() & (nodes.allocatable[resource] == 0)
                # A column does not distinguish 0 from absent. A node that lists the resource with 0
                # is left to NodeResourcesFit.
                for row in np.flatnonzero(without).tolist():
                    if resource not in nodes[row].allocatable:
                        verdicts.reject_row(row, _NO_RESOURCE)
        for bits in np.unique(missing).tolist():
            rows = np.flatnonzero(missing == bits)
            resources = tuple(r for bit, r in enumerate(state_data.dra_backed) if bits >> bit & 1)
            yield self._claims_to_allocate(resources), rows

    def _claims_to_allocate(self, resources: tuple[str, ...]) -> ClaimsToAllocate:
        state_data = self._state_data
        # Kept for the attempt: Score and Reserve need the same ones.
        to_allocate = state_data.claims_by_resources.get(resources)
        if to_allocate is not None:
            return to_allocate
        claims = state_data.unallocated_claims()
        requests: tuple[DeviceRequest, ...] = ()
        mappings: tuple[PodExtendedResourceRequest, ...] = ()
        # Last, so that claims of the pod's own have the first choice of devices, as upstream.
        if resources:
            requests, mappings = requests_for(self._pod.pod, resources, self._manager.extended.get)
            claims = (*claims, self._extended_claim(requests))
        allocation_cache = self._manager.allocation_cache(claims) if claims else None
        to_allocate = state_data.claims_by_resources[resources] = ClaimsToAllocate(
            resources, claims, requests, mappings, allocation_cache
        )
        return to_allocate

    def _extended_claim(self, requests: tuple[DeviceRequest, ...]) -> ResourceClaim:
        extended = self._state_data.extended
        meta = extended.metadata if extended is not None else ObjectMeta(name=SPECIAL_CLAIM_NAME)
        devices = DeviceClaim(requests=requests)
        return ResourceClaim(metadata=meta, spec=ResourceClaimSpec(devices=devices))

    # ---- one node, and all scores --------------------------------------------------------------

    def claims_to_allocate_at(self, name: str) -> ClaimsToAllocate:
        """Return the claims to allocate on a node."""
        node = self._nodes[self._nodes.rows[name]]
        dra_backed = self._state_data.dra_backed
        return self._claims_to_allocate(
            tuple(r for r in dra_backed if node.allocatable.get(r, 0) <= 0)
        )

    def allocate_at(self, name: str) -> tuple[ClaimsToAllocate, AllocatorResult | None]:
        """Return the claims to allocate on a node, and the result; None if there are none.

        Raises ``AllocationTimeout``.
        """
        to_allocate = self.claims_to_allocate_at(name)
        if to_allocate.allocation_cache is None:
            return to_allocate, None
        availability = self._manager.availability_index.of_node(name)
        return to_allocate, self._manager.result(
            to_allocate.allocation_cache, availability, self._search_time()
        )

    def scores(self, nodes: NodeTable) -> IntArray | int:
        """Return the points of each node for the alternatives that it provides (KEP-4816).

        Not normalised; shape ``(len(nodes),)``.
        """
        state_data = self._state_data
        scores = np.full(len(nodes), state_data.score, dtype=np.int64)
        ignored = Verdicts(len(nodes))  # nodes have passed Filter
        for to_allocate, rows in self._claims_to_allocate_by_rows(nodes, ignored):
            if to_allocate.allocation_cache is None or not _has_alternatives(to_allocate):
                continue
            numbers = self._manager.availability_index.column(nodes)[rows]
            self._manager.outcomes_for(to_allocate.allocation_cache, numbers, self._search_time())
            scores[rows] += to_allocate.allocation_cache.score[numbers]
        return scores


def _has_alternatives(to_allocate: ClaimsToAllocate) -> bool:
    assert to_allocate.allocation_cache is not None
    return any(any(claim.prioritized) for claim in to_allocate.allocation_cache.prepared.claims)
