"""The extension points of DynamicResources, in the order of a pod's scheduling attempt."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial

import numpy as np

from proreus.base.errors import ApiError
from proreus.base.kubernetes_version import Change
from proreus.framework.assume_cache import resource_version_of
from proreus.framework.cycle_state import CycleState
from proreus.framework.events import ClusterEvent
from proreus.framework.handle import Handle
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import (
    MAX_SCORE,
    FilterPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    ReservePlugin,
    ScorePlugin,
)
from proreus.framework.pod_group import (
    FILTER_VERDICTS,
    POD_GROUP_SCHEDULING_CYCLE,
    PodGroupInfo,
    PodGroupPostFilterResult,
    PodGroupSchedulingCycle,
    SchedulePodGroup,
)
from proreus.framework.pod_group_plugin import PodGroupPostFilterPlugin
from proreus.framework.pod_info import ASSUMED_AS, PodInfo
from proreus.framework.post_filter_result import PostFilterResult
from proreus.framework.status import Status
from proreus.framework.verdicts import IntArray, Verdicts
from proreus.objects.devices import RESOURCE_SLICES
from proreus.objects.meta import key_of
from proreus.objects.pod import Pod
from proreus.objects.resource_claims import AllocationResult, ResourceClaim
from proreus.plugins.dynamic_resources.args import DynamicResourcesArgs
from proreus.plugins.dynamic_resources.binding.claim_binder import (
    ClaimBinder,
    needs_conditions,
)
from proreus.plugins.dynamic_resources.binding.claim_writes import ClaimWriteError
from proreus.plugins.dynamic_resources.binding.pod_group_claims import RELEASED, PodGroupClaims
from proreus.plugins.dynamic_resources.claims import (
    ClaimError,
    claims_of,
    is_extended_resource_claim,
    is_reserved_for,
)
from proreus.plugins.dynamic_resources.devices.allocated import InFlightAllocation
from proreus.plugins.dynamic_resources.devices.node_allocatable import as_assumed
from proreus.plugins.dynamic_resources.devices.node_matching import PoolError
from proreus.plugins.dynamic_resources.dra_manager import DRAManager
from proreus.plugins.dynamic_resources.features import Features
from proreus.plugins.dynamic_resources.filtering.claim_filter import ClaimFilter
from proreus.plugins.dynamic_resources.filtering.extended_resources import new_extended_claim
from proreus.plugins.dynamic_resources.hints import (
    CLAIM_RESTORED,
    claim_restored,
    events,
    for_claims_alone,
    slice_deleted_event,
    taint_rule_event,
)
from proreus.plugins.dynamic_resources.pre_filtering import inspect_claims
from proreus.plugins.dynamic_resources.search.allocator import Solution
from proreus.plugins.dynamic_resources.search.results import allocations
from proreus.plugins.dynamic_resources.search.search_time import SearchTime
from proreus.plugins.dynamic_resources.state_data import ClaimsToAllocate, StateData
from proreus.plugins.extended_resources import may_be_dra_backed

_NOT_FOUND = "claim allocation not found for node"

_NOTHING = StateData()
"""The state of pods without claims; never written to."""


class DynamicResources(
    PreEnqueuePlugin,
    PreFilterPlugin,
    FilterPlugin,
    PostFilterPlugin,
    ScorePlugin,
    ReservePlugin,
    PreBindPlugin,
    PodGroupPostFilterPlugin,
):
    """Allocates devices to the ResourceClaims of pods (KEP-4381).

    Pods without claims cost next to nothing: Filter is skipped and the score is 0 on all nodes.
    """

    Args = DynamicResourcesArgs
    row_local = True
    looks_at_pods = False
    allow_parallel = True

    args: DynamicResourcesArgs

    def __init__(self, args: DynamicResourcesArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self.features = Features.of(handle.feature_gates)
        self.manager = DRAManager.of(handle, self.features)
        self._claim_binder = ClaimBinder(handle, self.manager, args.binding_timeout_seconds)
        if self.features.node_allocatable:
            self.looks_at_pods = True  # type: ignore[misc]  # what they leave of cpu and memory
        self._groups = PodGroupClaims(handle, self.manager, self._claim_binder.writer)

    def events_to_register(self) -> Iterable[ClusterEvent]:
        """Return the events of ``hints``."""
        gates = self.handle.feature_gates
        index = self.manager.pods_of_claims
        found = events(
            self._claims_of,
            self.features.node_allocatable,
            gates,
            index.ungated_by,
            index.concerned_by if gates.enabled("SchedulerPreQueueingHints") else None,
        )
        slices = self.handle.store(RESOURCE_SLICES)
        found = (*found, claim_restored(self._claims_of), slice_deleted_event(slices))
        if self.features.device_taint_rules:
            found = (*found, taint_rule_event(slices))
        return map(for_claims_alone, found)

    def sign(self, pod: PodInfo) -> Hashable | None:
        """Return None for a pod with claims: its results do not go to the equivalence cache."""
        # They depend on claims and slices, which change without their node. The AllocationCache
        # keeps the part of them that can be shared.
        if pod.pod.spec.resource_claims or self._dra_backed(pod):
            return None
        return ()

    def _claims_of(self, pod: Pod) -> tuple[ResourceClaim, ...]:
        return claims_of(pod, self.manager.claims.get, self.features.workload_claims)

    def _dra_backed(self, pod: PodInfo) -> tuple[str, ...]:
        """Return the extended resources of a pod that devices may provide, sorted by name."""
        if not self.features.extended_resources:
            return ()
        found = self.manager.extended.dra_backed(pod.requests.amounts)
        return tuple(sorted(filter(may_be_dra_backed, found))) if found else ()

    def _claim_filter(self, state_data: StateData, pod: PodInfo, state: CycleState) -> ClaimFilter:
        search_time = partial(self._search_time, state)
        return ClaimFilter(self.manager, state_data, pod, self.handle.nodes, search_time)

    def _search_time(self, state: CycleState) -> SearchTime:
        return SearchTime(state.budget, self.name, self._timer())

    def _timer(self) -> Callable[[], bool]:
        """Return a function that returns whether ``filterTimeout`` is over."""
        timeout_seconds = self.args.filter_timeout_seconds
        if not self.features.filter_timeout or not timeout_seconds:
            return _never
        now = self.handle.clock.now
        end = now() + timeout_seconds
        return lambda: now() > end

    # ---- PreEnqueue and PreFilter --------------------------------------------------------------

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        """Reject the pod until all its claims exist."""
        # The controller creates claims from templates after the pod, so this is common. Gated here,
        # the pod costs no attempt.
        if not pod.pod.spec.resource_claims:
            return None
        try:
            self._claims_of(pod.pod)
        except ClaimError as error:
            return Status.unresolvable(str(error))
        return None

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        """Resolve the pod's claims; Skip if there are none."""
        # Written first, so that PostFilter finds a state after a rejection here; without one it
        # returns the Error "not found", as upstream.
        state.write(self.name, _NOTHING)
        in_group = pod.pod.spec.scheduling_group is not None
        cycle: PodGroupSchedulingCycle | None = (
            state.get(POD_GROUP_SCHEDULING_CYCLE) if in_group else None
        )
        if cycle is not None:
            states: dict[str, CycleState] = cycle.state.get(self.name) or {}
            states[pod.key] = state
            cycle.state.write(self.name, states)
        try:
            claims = self._claims_of(pod.pod) if pod.pod.spec.resource_claims else ()
            dra_backed = self._dra_backed(pod)
            group_consumers = self._groups.consumers(pod.pod) if in_group else {}
            if not claims and not dra_backed:
                return Status.skip()
            found = StateData(claims=claims, dra_backed=dra_backed, group_consumers=group_consumers)
            if dra_backed:
                found.extended = self._extended_claim_of(pod.pod)
            in_group_cycle = cycle is not None
            inspect_claims(self.manager, self._claim_binder, found, in_group_cycle=in_group_cycle)
        except ClaimError as error:
            return Status.unresolvable(str(error))
        state.write(self.name, found)
        return None

    def _extended_claim_of(self, pod: Pod) -> ResourceClaim:
        """Return the claim that an earlier attempt left behind, or one in memory."""
        key = self.manager.extended_claims.get(pod.metadata.uid)
        left = None if key is None else self.manager.claims.get(key)
        return new_extended_claim(pod) if left is None else left

    # ---- Filter, PostFilter, Score -------------------------------------------------------------

    def filter_all(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable, verdicts: Verdicts
    ) -> None:
        """Reject nodes whose devices cannot satisfy the claims."""
        state_data: StateData = state.read(self.name)
        if state_data.empty:
            return
        try:
            self._claim_filter(state_data, pod, state).run(nodes, verdicts)
        except PoolError as error:
            everywhere = np.ones(len(nodes), dtype=np.bool_)
            verdicts.reject_with(everywhere, Status.error(f"gather pool information: {error}"))

    async def post_filter(
        self, state: CycleState, pod: PodInfo, verdicts: Verdicts
    ) -> PostFilterResult:
        """Deallocate a claim whose devices keep the pod from nodes where it could run."""
        state_data: StateData | None = state.get(self.name)
        if state_data is None:
            return PostFilterResult(Status.error("not found"))
        if state_data.empty:
            return PostFilterResult(self._nothing_done("no new claims to deallocate"))
        try:
            claim_filter = self._claim_filter(state_data, pod, state)
            text = await self._claim_binder.deallocate_unusable(
                claim_filter, state_data, pod, verdicts
            )
            # A claim reserved for the group cannot be deallocated in one step, see above: it has a
            # user. Releasing it lets the next attempt do so.
            if not text and await self._groups.release(state, pod.pod):
                return PostFilterResult(Status.unresolvable(RELEASED))
        except (ClaimError, ClaimWriteError, ApiError) as error:
            return PostFilterResult(Status.error(str(error)))
        if text:
            return PostFilterResult(Status.unschedulable(text))
        return PostFilterResult(self._nothing_done("still not schedulable"))

    async def pod_group_post_filter(
        self, state: CycleState, group: PodGroupInfo, schedule: SchedulePodGroup
    ) -> PodGroupPostFilterResult:
        """Deallocate claims whose devices keep pods of a group from nodes, or release the group's.

        ``state`` has the states of the pods that PreFilter has seen; Error "not found" if none.
        """
        in_force = self.handle.feature_gates.enabled("TopologyAwareWorkloadScheduling")
        if group.is_composite or (in_force and _has_constraints(group)):
            return PodGroupPostFilterResult(Status.unschedulable())
        states: dict[str, CycleState] | None = state.get(self.name)
        if states is None:
            # Of a group that a plugin provides, no pod is tried where no placement has room for it.
            if group.group is not None and group.entity_key.is_provided:
                return PodGroupPostFilterResult(Status.unschedulable())
            return PodGroupPostFilterResult(Status.error("not found"))
        try:
            status = await self._free_claims_of_group(states, group.pods)
        except (ClaimError, ClaimWriteError, ApiError) as error:
            status = Status.error(str(error))
        done = "deallocation and deletion of ResourceClaims completed"
        return PodGroupPostFilterResult(status or Status.unschedulable(done))

    async def _free_claims_of_group(
        self, states: Mapping[str, CycleState], pods: Sequence[PodInfo]
    ) -> Status | None:
        """Free a claim of each pod, or of the group if a pod has none. Raises ``ClaimError``."""
        nothing_done = False
        for pod in pods:
            if (state := states.get(pod.key)) is None:
                continue
            data: StateData = state.read(self.name)
            verdicts: Verdicts | None = state.get(FILTER_VERDICTS)
            text = ""
            if not data.empty and verdicts is not None:
                claim_filter = self._claim_filter(data, pod, state)
                text = await self._claim_binder.deallocate_unusable(
                    claim_filter, data, pod, verdicts
                )
            nothing_done = nothing_done or not text
        if not (nothing_done and pods and self.features.workload_claims):
            return None
        pod = pods[0]
        if self._groups.is_scheduled(pod.pod):
            return None
        for state in states.values():
            data, verdicts = state.read(self.name), state.get(FILTER_VERDICTS)
            if data.empty or verdicts is None:
                continue
            claim_filter = self._claim_filter(data, pod, state)
            users = self._groups.users_of(pod.pod)
            if await self._claim_binder.deallocate_one(claim_filter, data, users, verdicts):
                return Status.unschedulable("deallocation of PodGroup ResourceClaim completed")
        released = await self._groups.release(CycleState(), pod.pod)
        return Status.unresolvable(RELEASED) if released else None

    def _nothing_done(self, reason: str) -> Status:
        if self.handle.feature_gates.includes(Change.CLAIM_POST_FILTER_WITHOUT_REASONS):
            return Status.unschedulable()
        return Status.unschedulable(reason)

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Score one node; 0 at no cost for pods without claims."""
        return super().score(state, pod, node) if self._scores(state) else 0

    def score_all(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> IntArray | int:
        """Prefer nodes that provide the first of a request's alternatives (KEP-4816)."""
        if not self._scores(state):
            return 0
        return self._claim_filter(state.read(self.name), pod, state).scores(nodes)

    def _scores(self, state: CycleState) -> bool:
        state_data: StateData | None = state.get(self.name)
        return state_data is not None and not state_data.empty and self.features.prioritized_list

    def normalize(self, state: CycleState, pod: PodInfo, scores: IntArray) -> IntArray:
        """Scale scores so that the best is 100, rounded down (``DefaultNormalizeScore``)."""
        best = int(scores.max(initial=0))
        if best <= 0:
            return scores
        # int64 arrays divide rounding down, Go towards zero. No score is negative.
        return np.asarray(MAX_SCORE * scores // best, dtype=np.int64)

    # ---- Reserve, PreBind, Unreserve -----------------------------------------------------------

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Put the allocations in flight: from now on no other pod gets the devices."""
        state_data: StateData = state.read(self.name)
        if state_data.empty:
            return None
        # The result is that of Filter, from the cache, unless a device has been taken since.
        claim_filter = self._claim_filter(state_data, pod, state)
        to_allocate, result = claim_filter.allocate_at(node_name)
        state_data.chosen = to_allocate
        shared = [state_data.claims[place] for place in sorted(state_data.shared_in_group)]
        if any(self.manager.allocation_of(claim) is None for claim in shared):
            return Status.error(_NOT_FOUND)
        in_flight = self.manager.allocated.in_flight
        reserved = [
            (claim, in_flight[claim.metadata.uid].allocation)
            for claim in shared
            if claim.metadata.uid in in_flight
        ]
        if to_allocate.claims:
            if not isinstance(result, Solution) or to_allocate.allocation_cache is None:
                return Status.error(_NOT_FOUND)
            reserved += self._allocations(to_allocate, result, node_name)
        state_data.reserved = tuple(reserved)
        in_group_cycle = state.get(POD_GROUP_SCHEDULING_CYCLE) is not None
        if self.features.node_allocatable:
            effective_request = claim_filter.effective_request_at(node_name)
            state_data.statuses = () if effective_request is None else effective_request.statuses
            state.write(
                ASSUMED_AS, as_assumed(pod, state_data.statuses) if state_data.statuses else None
            )
        for claim, allocation in state_data.reserved:
            self.manager.allocated.add_in_flight(claim, allocation, in_group_cycle)
        return None

    def _allocations(
        self, to_allocate: ClaimsToAllocate, result: Solution, node_name: str
    ) -> list[tuple[ResourceClaim, AllocationResult]]:
        """Return the claims to allocate, each with the allocation that the search found."""
        assert to_allocate.allocation_cache is not None
        found = allocations(
            to_allocate.allocation_cache.prepared,
            result,
            to_allocate.claims,
            self.manager.availability_index.views_of(self.handle.nodes, node_name),
            node_name,
            self.features,
            self.handle.rng,
        )
        return list(zip(to_allocate.claims, found, strict=True))

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Release the devices, and undo in the background what was written."""
        state_data: StateData | None = state.get(self.name)
        if state_data is None or state_data.empty:
            return
        given_up = [
            flying
            for uid in self._in_flight_of(state_data)
            if (flying := self.manager.allocated.remove_in_flight(uid)) is not None
        ]
        state_data.reserved = ()
        # What was written stays assumed: the apiserver has it, and the watch may be far behind.
        # With the watched version back, the devices would be free for the next pod.
        if any(self._is_latest(one) or one.was_never_written for one in given_up):
            self.handle.announce(CLAIM_RESTORED)
        # Claims that were reserved before this attempt are released as well: reserved for a pod
        # that does not run, they could not be deallocated for anybody.
        written = {claim.metadata.uid: claim for claim in (*state_data.claims, *state_data.written)}
        if state_data.created is not None:
            written.pop(state_data.created.metadata.uid, None)
        held = [c for c in written.values() if is_reserved_for(c, pod.uid)]
        # Unreserve is part of the cycle and cannot await the apiserver. The pod backs off.
        if held or state_data.created is not None:
            self.handle.spawn(self._claim_binder.unreserve(held, state_data.created, pod.uid))
        state_data.written = []
        state_data.created = None
        if state_data.statuses_written:
            state_data.statuses_written = False
            self.handle.spawn(self._claim_binder.clear_statuses(pod.pod))

    def _is_latest(self, flying: InFlightAllocation) -> bool:
        """Return whether the claim is as we wrote it, for this pod or another that shares it."""
        latest = self.manager.claims.get(key_of(flying.claim))
        return latest is not None and resource_version_of(latest) <= flying.written_version

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Skip pods without claims."""
        state_data: StateData | None = state.get(self.name)
        return Status.skip() if state_data is None or state_data.empty else None

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Write allocations and reservations, then wait until the devices are ready."""
        state_data: StateData = state.read(self.name)
        status = await self._bind_claims(state_data, pod, node_name)
        if status is None and self.manager.allocated.in_flight_until_pre_bind_ends:
            for claim, _ in state_data.reserved:
                self.manager.allocated.remove_in_flight(claim.metadata.uid)
            # The claim that was created for the pod stays in flight: the watch may not have
            # delivered it yet, and nothing else would count its devices.
            if state_data.created is not None:
                self.manager.allocated.keep_until_deleted(state_data.created.metadata.uid)
            state_data.reserved = ()
        return status

    def _in_flight_of(self, state_data: StateData) -> list[str]:
        """Return the uids of the claims whose allocations may be in flight for the pod."""
        uids = dict.fromkeys(claim.metadata.uid for claim, _ in state_data.reserved)
        if self.manager.allocated.in_flight_until_pre_bind_ends:
            # kube-scheduler does not ask whether the pod was counted among those that wait: one
            # that came to share a claim after it was written is not, and still ends the wait.
            uids |= dict.fromkeys(claim.metadata.uid for claim in state_data.claims)
        if state_data.created is not None:
            uids[state_data.created.metadata.uid] = None
        return list(uids)

    async def _bind_claims(
        self, state_data: StateData, pod: PodInfo, node_name: str
    ) -> Status | None:
        found = {claim.metadata.uid: allocation for claim, allocation in state_data.reserved}
        try:
            claims = [
                await self._claim_binder.bind_claim(
                    state_data, pod.pod, claim, found.get(claim.metadata.uid)
                )
                for claim in state_data.claims
            ]
            extended = next(
                (c for c, _ in state_data.reserved if is_extended_resource_claim(c)), None
            )
            if extended is not None:
                claims.append(await self._claim_binder.bind_extended(state_data, pod, extended))
            # Marked before the write, which may take effect although its response is lost.
            if state_data.statuses:
                state_data.statuses_written = True
                await self._claim_binder.write_statuses(pod.pod, state_data.statuses)
        except (ClaimWriteError, ApiError) as error:
            return Status.error(str(error))
        if self.features.binding_conditions and any(map(needs_conditions, claims)):
            return await self._claim_binder.wait_until_ready(pod, claims, node_name)
        return None


def _never() -> bool:
    return False


def _has_constraints(group: PodGroupInfo) -> bool:
    return group.group is not None and group.group.spec.scheduling_constraints is not None
