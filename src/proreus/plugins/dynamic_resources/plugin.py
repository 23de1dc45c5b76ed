"""The extension points of DynamicResources, in the order in which a pod meets them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

from proreus.config.plugin_args import DynamicResourcesArgs
from proreus.errors import ApiError
from proreus.framework.cycle_state import CycleState
from proreus.framework.events import ClusterEvent
from proreus.framework.handle import Handle
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.nominating import PostFilterResult
from proreus.framework.plugin import (
    FilterPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    ReservePlugin,
    ScorePlugin,
)
from proreus.framework.pod_group import GROUP_TRIAL
from proreus.framework.pod_info import ASSUMED_AS, PodInfo
from proreus.framework.status import Status
from proreus.framework.verdicts import IntArray, Verdicts
from proreus.objects.meta import key_of
from proreus.objects.pod import Pod
from proreus.objects.resource_claims import AllocationResult, ResourceClaim
from proreus.objects.selectors import parse_node_selector
from proreus.plugins.dynamic_resources.allocator import Solution
from proreus.plugins.dynamic_resources.binding import Binding
from proreus.plugins.dynamic_resources.binding_conditions import Readiness, needs_conditions
from proreus.plugins.dynamic_resources.claim_writes import ClaimWriteError
from proreus.plugins.dynamic_resources.claims import (
    ClaimError,
    check_requests,
    claims_of,
    is_extended_resource_claim,
    is_reserved_for,
    with_allocation,
)
from proreus.plugins.dynamic_resources.extended_resources import new_extended_claim
from proreus.plugins.dynamic_resources.features import Features
from proreus.plugins.dynamic_resources.filtering import Judgement
from proreus.plugins.dynamic_resources.group_claims import RELEASED, GroupClaims
from proreus.plugins.dynamic_resources.hints import events
from proreus.plugins.dynamic_resources.manager import DeviceManager
from proreus.plugins.dynamic_resources.node_allocatable import as_assumed
from proreus.plugins.dynamic_resources.notes import Notes, Variant
from proreus.plugins.dynamic_resources.post_filtering import take_back
from proreus.plugins.dynamic_resources.results import allocations
from proreus.plugins.dynamic_resources.scoring import allocated_score, normalized
from proreus.plugins.extended_resources import may_be_devices

_NOT_FOUND = "claim allocation not found for node"

_NOTHING = Notes()
"""Of pods that have no claims; never written to."""


class DynamicResources(
    PreEnqueuePlugin,
    PreFilterPlugin,
    FilterPlugin,
    PostFilterPlugin,
    ScorePlugin,
    ReservePlugin,
    PreBindPlugin,
):
    """Finds, keeps and gives devices for the ResourceClaims of pods (KEP-4381).

    Pods without claims cost it nothing: its Filter is skipped and its score is 0 everywhere.
    """

    Args = DynamicResourcesArgs
    row_local = True
    looks_at_pods = False
    allow_parallel = True

    args: DynamicResourcesArgs

    def __init__(self, args: DynamicResourcesArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self.features = Features.of(handle.feature_gates)
        self.manager = DeviceManager.of(handle, self.features)
        self._binding = Binding(handle, self.manager, args.binding_timeout_seconds)
        if self.features.node_allocatable:
            self.looks_at_pods = True  # type: ignore[misc]  # what they leave of the node counts
        self._groups = GroupClaims(handle, self.manager, self._binding.writer)

    def events_to_register(self) -> Iterable[ClusterEvent]:
        """Return what may help: see ``hints``."""
        return events(self._claims_of, self.features.node_allocatable)

    def sign(self, pod: PodInfo) -> Hashable | None:
        """Pods without claims all look the same; devices of claims are looked for anew."""
        if pod.pod.spec.resource_claims or self._backed(pod):
            return None
        return ()

    def _claims_of(self, pod: Pod) -> tuple[ResourceClaim, ...]:
        return claims_of(pod, self.manager.claims.get, self.features.workload_claims)

    def _backed(self, pod: PodInfo) -> tuple[str, ...]:
        """Return the extended resources of a pod that devices may stand for."""
        if not self.features.extended_resources:
            return ()
        found = self.manager.extended.backed(pod.requests.amounts)
        return tuple(sorted(filter(may_be_devices, found))) if found else ()

    def _judgement(self, notes: Notes, pod: PodInfo) -> Judgement:
        return Judgement(self.manager, notes, pod, self.handle.nodes, self._deadline)

    def _deadline(self) -> Callable[[], bool]:
        """Return a function that says whether the time for one node is over."""
        timeout_seconds = self.args.filter_timeout_seconds
        if not self.features.filter_timeout or not timeout_seconds:
            return _never
        now = self.handle.clock.now
        end = now() + timeout_seconds
        return lambda: now() > end

    # ---- before the search ---------------------------------------------------------------------

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        """Keep the pod out until all its claims are there."""
        if not pod.pod.spec.resource_claims:
            return None
        try:
            self._claims_of(pod.pod)
        except ClaimError as error:
            return Status.unresolvable(str(error))
        return None

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        """Look at the pod's claims; Skip where there are none."""
        state.write(self.name, _NOTHING)
        try:
            claims = self._claims_of(pod.pod) if pod.pod.spec.resource_claims else ()
            backed = self._backed(pod)
            of_group = self._groups.consumers(pod.pod)
            if not claims and not backed:
                return Status.skip()
            found = Notes(claims=claims, backed=backed, of_group=of_group)
            if backed:
                found.extended = self._extended_claim_of(pod.pod)
            self._look_at(found, tried=state.get(GROUP_TRIAL) is not None)
        except ClaimError as error:
            return Status.unresolvable(str(error))
        state.write(self.name, found)
        return None

    def _extended_claim_of(self, pod: Pod) -> ResourceClaim:
        """Return the claim that an earlier attempt left, or one in memory."""
        key = self.manager.extended_claims.get(pod.metadata.uid)
        left = None if key is None else self.manager.claims.get(key)
        return new_extended_claim(pod) if left is None else left

    def _look_at(self, notes: Notes, *, tried: bool) -> None:
        """Sort the pod's claims into those that are allocated and those that can be.

        ``tried``: the pod is tried with its whole group, and may share what another one found.
        """
        unusable, shared = set(), set()
        for place, claim in enumerate(notes.claims):
            allocation = claim.status.allocation
            if allocation is None:
                flying = self.manager.allocated.in_flight.get(claim.metadata.uid)
                if flying is None:
                    check_requests(
                        claim, self.manager.classes.__contains__, self.features.prioritized_list
                    )
                    continue
                if not (tried and flying.tried):
                    raise ClaimError(
                        f"resource claim {key_of(claim)} is in the process of being allocated"
                    )
                shared.add(place)
                allocation = flying.allocation
                claim = with_allocation(claim, allocation)
            selector = allocation.node_selector
            parsed = None if selector is None else parse_node_selector(selector)
            error = None if parsed is None else parsed.error()
            if error is not None:
                raise ValueError(f"claim {key_of(claim)}: {error}")
            notes.usable[place] = parsed
            if self.features.binding_conditions:
                ready, _ = self._binding.readiness_of(claim)
                if ready in (Readiness.FAILED, Readiness.TIMED_OUT):
                    unusable.add(place)
            if self.features.prioritized_list:
                notes.score += allocated_score(claim)
        notes.unusable = frozenset(unusable)
        notes.shared = frozenset(shared)

    # ---- nodes ---------------------------------------------------------------------------------

    def filter_all(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable, verdicts: Verdicts
    ) -> None:
        """Reject nodes whose devices cannot satisfy the claims."""
        notes: Notes = state.read(self.name)
        if not notes.empty:
            self._judgement(notes, pod).run(nodes, verdicts)

    async def post_filter(
        self, state: CycleState, pod: PodInfo, verdicts: Verdicts
    ) -> PostFilterResult:
        """Take back an allocation that is of no use where the pod could go."""
        notes: Notes | None = state.get(self.name)
        if notes is None:
            return PostFilterResult(Status.error("not found"))
        if notes.empty:
            return PostFilterResult(Status.unschedulable("no new claims to deallocate"))
        try:
            judgement = self._judgement(notes, pod)
            text = await take_back(self.handle, self._binding, judgement, notes, pod, verdicts)
            if not text and await self._groups.release(state, pod.pod):
                return PostFilterResult(Status.unresolvable(RELEASED))
        except (ClaimError, ClaimWriteError, ApiError) as error:
            return PostFilterResult(Status.error(str(error)))
        return PostFilterResult(Status.unschedulable(text or "still not schedulable"))

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Score one node: at no cost for pods without claims."""
        return super().score(state, pod, node) if self._scores(state) else 0

    def score_all(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> IntArray | int:
        """Prefer nodes that can give what stands first in lists of alternatives (KEP-4816)."""
        if not self._scores(state):
            return 0
        return self._judgement(state.read(self.name), pod).scores(nodes)

    def _scores(self, state: CycleState) -> bool:
        notes: Notes | None = state.get(self.name)
        return notes is not None and not notes.empty and self.features.prioritized_list

    def normalize(self, state: CycleState, pod: PodInfo, scores: IntArray) -> IntArray:
        """Bring the best score to 100."""
        return normalized(scores)

    # ---- one node ------------------------------------------------------------------------------

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Note the devices as taken, before anything is written."""
        notes: Notes = state.read(self.name)
        if notes.empty:
            return None
        judgement = self._judgement(notes, pod)
        variant, answer = judgement.answer_at(node_name)
        notes.chosen = variant
        shared = [notes.claims[place] for place in sorted(notes.shared)]
        if any(self.manager.allocation_of(claim) is None for claim in shared):
            return Status.error(_NOT_FOUND)
        in_flight = self.manager.allocated.in_flight
        reserved = [
            (claim, in_flight[claim.metadata.uid].allocation)
            for claim in shared
            if claim.metadata.uid in in_flight
        ]
        if variant.claims:
            if not isinstance(answer, Solution) or variant.invalidation_key is None:
                return Status.error(_NOT_FOUND)
            reserved += self._given(variant, answer, node_name)
        notes.reserved = tuple(reserved)
        tried = state.get(GROUP_TRIAL) is not None
        if self.features.node_allocatable:
            demand = judgement.demand_at(node_name)
            notes.statuses = () if demand is None else demand.statuses
            state.write(ASSUMED_AS, as_assumed(pod, notes.statuses) if notes.statuses else None)
        for claim, allocation in notes.reserved:
            self.manager.allocated.begin(claim, allocation, tried)
        return None

    def _given(
        self, variant: Variant, answer: Solution, node_name: str
    ) -> list[tuple[ResourceClaim, AllocationResult]]:
        """Return the claims that are allocated now, and what the search found for them."""
        assert variant.invalidation_key is not None
        given = allocations(
            variant.invalidation_key.plan,
            answer,
            variant.claims,
            self.manager.situations.views_of(self.handle.nodes, node_name),
            node_name,
            self.features,
            self.handle.rng,
        )
        return list(zip(variant.claims, given, strict=True))

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Give the devices back, and take back in the background what was written."""
        notes: Notes | None = state.get(self.name)
        if notes is None or notes.empty:
            return
        for claim, _ in notes.reserved:
            self.manager.allocated.end(claim.metadata.uid)
        notes.reserved = ()
        for claim in notes.written:
            self.manager.claims.restore(key_of(claim))
        if notes.created is not None:
            self.manager.allocated.end(notes.created.metadata.uid)
        # Reserved before this attempt counts too: the pod has no claim to it where it does not run.
        written = {claim.metadata.uid: claim for claim in (*notes.claims, *notes.written)}
        if notes.created is not None:
            written.pop(notes.created.metadata.uid, None)
        held = [c for c in written.values() if is_reserved_for(c, pod.uid)]
        if held or notes.created is not None:
            self.handle.spawn(self._binding.take_back(held, notes.created, pod.uid))
        notes.written = []
        notes.created = None
        if notes.told:
            notes.told = False
            self.handle.spawn(self._binding.take_back_statuses(pod.pod))

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Skip pods without claims."""
        notes: Notes | None = state.get(self.name)
        return Status.skip() if notes is None or notes.empty else None

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Write allocations and reservations, then wait until the devices are ready."""
        notes: Notes = state.read(self.name)
        given = {claim.metadata.uid: allocation for claim, allocation in notes.reserved}
        try:
            claims = [
                await self._binding.bind_claim(notes, pod.pod, claim, given.get(claim.metadata.uid))
                for claim in notes.claims
            ]
            extended = next((c for c, _ in notes.reserved if is_extended_resource_claim(c)), None)
            if extended is not None:
                claims.append(await self._binding.bind_extended(notes, pod, extended))
            if notes.statuses:
                notes.told = True
                await self._binding.tell_statuses(pod.pod, notes.statuses)
        except (ClaimWriteError, ApiError) as error:
            return Status.error(str(error))
        if self.features.binding_conditions and any(map(needs_conditions, claims)):
            return await self._binding.wait_until_ready(pod, claims, node_name)
        return None


def _never() -> bool:
    return False
