"""The extension points of DynamicResources, in the order of a pod's scheduling attempt."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from functools import partial
from typing import Annotated, Self

import numpy as np
from pydantic import Field

from proreus.base.feature_gates import FeatureGates
from proreus.config.durations import format_duration
from proreus.config.field_errors import child, forbidden, invalid
from proreus.config.fields import PluginArgs, Seconds
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
    POD_GROUP_SCHEDULING_CYCLE,
    PodGroupInfo,
    PodGroupPostFilterResult,
    PodGroupSchedulingCycle,
    SchedulePodGroup,
)
from proreus.framework.pod_group_plugin import PodGroupPostFilterPlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.post_filter_result import PostFilterResult
from proreus.framework.status import Status
from proreus.framework.verdicts import IntArray, Verdicts
from proreus.plugins.dynamic_resources.binding.claim_binder import ClaimBinder
from proreus.plugins.dynamic_resources.binding.deallocation import Deallocation
from proreus.plugins.dynamic_resources.binding.pod_group_claims import PodGroupClaims
from proreus.plugins.dynamic_resources.binding.reservation import ClaimReservation
from proreus.plugins.dynamic_resources.claims import ClaimError
from proreus.plugins.dynamic_resources.devices.node_matching import PoolError
from proreus.plugins.dynamic_resources.dra_manager import DRAManager
from proreus.plugins.dynamic_resources.features import Features
from proreus.plugins.dynamic_resources.filtering.claim_filter import ClaimFilter
from proreus.plugins.dynamic_resources.hints import events
from proreus.plugins.dynamic_resources.pre_filtering import PreFilter
from proreus.plugins.dynamic_resources.search.search_time import SearchTime
from proreus.plugins.dynamic_resources.state_data import PLUGIN, StateData

_NOTHING = StateData()
"""The state of pods without claims; never written to."""


class DynamicResourcesArgs(PluginArgs):
    """The time limits of filtering one node and of waiting for devices to be ready, in seconds."""

    go_type = "v1.DynamicResourcesArgs"

    filter_timeout_seconds: Annotated[Seconds | None, Field(alias="filterTimeout")] = None
    binding_timeout_seconds: Annotated[Seconds | None, Field(alias="bindingTimeout")] = None

    def with_defaults(self, gates: FeatureGates) -> Self:
        """Use 10 s and 10 min where the gates are enabled."""
        update: dict[str, float] = {}
        if self.filter_timeout_seconds is None and gates.enabled("DRASchedulerFilterTimeout"):
            update["filter_timeout_seconds"] = 10.0
        if self.binding_timeout_seconds is None and _waits_for_devices(gates):
            update["binding_timeout_seconds"] = 600.0
        return self.model_copy(update=update)

    def problems(self, path: str, gates: FeatureGates) -> Iterator[str]:
        """Check the ranges; a field is an error while its gate is disabled."""
        timeout, where = self.filter_timeout_seconds, child(path, "filterTimeout")
        if timeout is not None and not gates.enabled("DRASchedulerFilterTimeout"):
            yield forbidden(where, "DRASchedulingFilterTimeout feature gate is disabled")
        elif timeout is not None and timeout < 0:
            yield invalid(where, format_duration(timeout), "must be zero or positive")
        timeout, where = self.binding_timeout_seconds, child(path, "bindingTimeout")
        if timeout is not None and not _waits_for_devices(gates):
            yield forbidden(
                where,
                "DRADeviceBindingConditions or DRAResourceClaimDeviceStatus feature gate "
                "is disabled",
            )
        elif timeout is not None and timeout < 1:
            yield invalid(where, format_duration(timeout), "must be at least 1 second")


def _waits_for_devices(gates: FeatureGates) -> bool:
    return gates.enabled("DRADeviceBindingConditions") and gates.enabled(
        "DRAResourceClaimDeviceStatus"
    )


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

    needs_points = dict.fromkeys(("filter", "postFilter", "score", "reserve"), "preFilter")

    Args = DynamicResourcesArgs
    row_local = True
    looks_at_pods = False
    allow_parallel = True

    args: DynamicResourcesArgs

    def __init__(self, args: DynamicResourcesArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self.features = Features.of(handle.feature_gates)
        if self.features.node_allocatable:
            self.looks_at_pods = True  # type: ignore[misc]  # what they leave of cpu and memory
        self.manager = manager = DRAManager.of(handle, self.features)
        binder = ClaimBinder(handle, manager, args.binding_timeout_seconds)
        groups = PodGroupClaims(handle, manager, binder.writer)
        self._pre_filter = PreFilter(manager, binder, groups)
        self._deallocation = Deallocation(
            handle, manager, binder.writer, groups, self._claim_filter
        )
        self._reservation = ClaimReservation(handle, manager, binder)

    def events_to_register(self) -> Iterable[ClusterEvent]:
        """Return the events of ``hints``."""
        return events(self.handle, self.manager, self._pre_filter.claims_of)

    def sign(self, pod: PodInfo) -> Hashable | None:
        """Return None for a pod with claims: its results do not go to the equivalence cache."""
        # They depend on claims and slices, which change without their node. The AllocationCache
        # keeps the part of them that can be shared.
        if pod.pod.spec.resource_claims or self._pre_filter.dra_backed(pod):
            return None
        return ()

    def _claim_filter(self, data: StateData, pod: PodInfo, state: CycleState) -> ClaimFilter:
        search_time = partial(self._search_time, state)
        return ClaimFilter(self.manager, data, pod, self.handle.nodes, search_time)

    def _search_time(self, state: CycleState) -> SearchTime:
        seconds = self.args.filter_timeout_seconds if self.features.filter_timeout else None
        return SearchTime(state.budget, self.name, self.handle.clock.now, seconds)

    # ---- PreEnqueue and PreFilter --------------------------------------------------------------

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        """Reject the pod until all its claims exist."""
        # The controller creates claims from templates after the pod, so this is common. Gated here,
        # the pod costs no attempt.
        try:
            if pod.pod.spec.resource_claims:
                self._pre_filter.claims_of(pod.pod)
        except ClaimError as error:
            return Status.unresolvable(str(error))
        return None

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        """Resolve the pod's claims; Skip if there are none."""
        # Written first, so that PostFilter finds a state after a rejection here; without one it
        # returns the Error "not found", as upstream.
        state.write(PLUGIN, _NOTHING)
        cycle = _group_cycle_of(state, pod)
        try:
            data = self._pre_filter.inspect(pod, in_group_cycle=cycle is not None)
        except ClaimError as error:
            return Status.unresolvable(str(error))
        except ValueError as error:
            return Status.error(str(error))
        if data is None:
            return Status.skip()
        state.write(PLUGIN, data)
        return None

    # ---- Filter, PostFilter, Score -------------------------------------------------------------

    def filter_all(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable, verdicts: Verdicts
    ) -> None:
        """Reject nodes whose devices cannot satisfy the claims."""
        data: StateData = state.read(PLUGIN)
        if data.empty:
            return
        data.filtered = True
        try:
            self._claim_filter(data, pod, state).run(nodes, verdicts)
        except PoolError as error:
            everywhere = np.ones(len(nodes), dtype=np.bool_)
            verdicts.reject_with(everywhere, Status.error(f"gather pool information: {error}"))

    async def post_filter(
        self, state: CycleState, pod: PodInfo, verdicts: Verdicts
    ) -> PostFilterResult:
        """Deallocate a claim whose devices keep the pod from nodes where it could run."""
        return PostFilterResult(await self._deallocation.for_pod(state, pod, verdicts))

    async def pod_group_post_filter(
        self, state: CycleState, group: PodGroupInfo, schedule: SchedulePodGroup
    ) -> PodGroupPostFilterResult:
        """Deallocate claims whose devices keep pods of a group from nodes, or release the group's.

        ``state`` has the states of the pods that PreFilter has seen; Error "not found" if none.
        """
        states = state.get(PLUGIN)
        return PodGroupPostFilterResult(await self._deallocation.for_group(states, group))

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Score one node; 0 at no cost for pods without claims."""
        return super().score(state, pod, node) if self._scores(state) else 0

    def score_all(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> IntArray | int:
        """Prefer nodes that provide the first of a request's alternatives (KEP-4816)."""
        if not self._scores(state):
            return 0
        return self._claim_filter(state.read(PLUGIN), pod, state).scores(nodes)

    def _scores(self, state: CycleState) -> bool:
        # kube-scheduler scores what Filter found, and a configuration may leave it out.
        data = _data_of(state)
        return self.features.prioritized_list and data.filtered and not data.empty

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
        data: StateData = state.read(PLUGIN)
        if data.empty:
            return None
        claim_filter = self._claim_filter(data, pod, state)
        return self._reservation.reserve(state, data, claim_filter, pod, node_name)

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Release the devices, and undo in the background what was written."""
        data = _data_of(state)
        if not data.empty:
            self._reservation.unreserve(data, pod)

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Skip pods without claims."""
        return Status.skip() if _data_of(state).empty else None

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Write allocations and reservations, then wait until the devices are ready."""
        return await self._reservation.bind(state.read(PLUGIN), pod, node_name)


def _data_of(state: CycleState) -> StateData:
    data: StateData | None = state.get(PLUGIN)
    return _NOTHING if data is None else data


def _group_cycle_of(state: CycleState, pod: PodInfo) -> PodGroupSchedulingCycle | None:
    """Return the cycle of the pod's group, which gets the pod's state for its PostFilter."""
    if pod.pod.spec.scheduling_group is None:
        return None
    cycle: PodGroupSchedulingCycle | None = state.get(POD_GROUP_SCHEDULING_CYCLE)
    if cycle is not None:
        states: dict[str, CycleState] = cycle.state.get(PLUGIN) or {}
        states[pod.key] = state
        cycle.state.write(PLUGIN, states)
    return cycle
