"""PostFilter: deallocates one claim whose devices keep a pod, or a group, from nodes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from proreus.base.errors import ApiError
from proreus.base.kubernetes_version import Change
from proreus.framework.cycle_state import CycleState
from proreus.framework.handle import Handle
from proreus.framework.pod_group import FILTER_VERDICTS, PodGroupInfo
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.framework.verdicts import BoolArray, Verdicts
from proreus.plugins.dynamic_resources.binding.claim_writes import ClaimWriteError, ClaimWriter
from proreus.plugins.dynamic_resources.binding.pod_group_claims import RELEASED, PodGroupClaims
from proreus.plugins.dynamic_resources.claims import ClaimError
from proreus.plugins.dynamic_resources.dra_manager import DRAManager
from proreus.plugins.dynamic_resources.filtering.claim_filter import (
    EXTENDED_CLAIM_LEFT_OVER,
    NOT_AVAILABLE,
    ClaimFilter,
)
from proreus.plugins.dynamic_resources.state_data import PLUGIN, StateData

_NOT_FOUND = Status.error("not found")


class Deallocation:
    """Deallocates claims that no other pod uses.

    ``claim_filter``: makes the filter for one pod.
    """

    def __init__(
        self,
        handle: Handle,
        manager: DRAManager,
        writer: ClaimWriter,
        groups: PodGroupClaims,
        claim_filter: Callable[[StateData, PodInfo, CycleState], ClaimFilter],
    ) -> None:
        self._handle = handle
        self._manager = manager
        self._writer = writer
        self._groups = groups
        self._claim_filter = claim_filter

    async def for_pod(self, state: CycleState, pod: PodInfo, verdicts: Verdicts) -> Status:
        """Deallocate a claim that keeps a pod from nodes, or release one of its group."""
        data: StateData | None = state.get(PLUGIN)
        if data is None:
            return _NOT_FOUND
        if data.empty:
            return self._nothing_done("no new claims to deallocate")
        try:
            text = await self._deallocate_unusable(state, data, pod, verdicts)
            # A claim reserved for the group has a user, so it is not deallocated in one step.
            # Released, it can be by the next attempt.
            if not text and await self._groups.release(state, pod.pod):
                return Status.unresolvable(RELEASED)
        except (ClaimError, ClaimWriteError, ApiError) as error:
            return Status.error(str(error))
        return Status.unschedulable(text) if text else self._nothing_done("still not schedulable")

    def _nothing_done(self, reason: str) -> Status:
        if self._handle.feature_gates.includes(Change.CLAIM_POST_FILTER_WITHOUT_REASONS):
            return Status.unschedulable()
        return Status.unschedulable(reason)

    async def for_group(
        self, states: Mapping[str, CycleState] | None, group: PodGroupInfo
    ) -> Status:
        """Deallocate claims that keep pods of a group from nodes, or release the group's.

        ``states``: of the pods that PreFilter has seen; None if it has seen none.
        """
        in_force = self._handle.feature_gates.enabled("TopologyAwareWorkloadScheduling")
        if group.is_composite or (in_force and _has_constraints(group)):
            return Status.unschedulable()
        if states is None:
            # Of a group that a plugin provides, no pod is tried where no placement has room for it.
            provided = group.group is not None and group.entity_key.is_provided
            return Status.unschedulable() if provided else _NOT_FOUND
        try:
            status = await self._free_claims_of_group(states, group.pods)
        except (ClaimError, ClaimWriteError, ApiError) as error:
            status = Status.error(str(error))
        done = "deallocation and deletion of ResourceClaims completed"
        return status or Status.unschedulable(done)

    async def _free_claims_of_group(
        self, states: Mapping[str, CycleState], pods: Sequence[PodInfo]
    ) -> Status | None:
        """Free a claim of each pod, or of the group if a pod has none. Raises ``ClaimError``."""
        nothing_done = False
        for pod in pods:
            if (state := states.get(pod.key)) is None:
                continue
            data: StateData = state.read(PLUGIN)
            verdicts: Verdicts | None = state.get(FILTER_VERDICTS)
            text = ""
            if not data.empty and verdicts is not None:
                text = await self._deallocate_unusable(state, data, pod, verdicts)
            nothing_done = nothing_done or not text
        if not (nothing_done and pods and self._manager.features.workload_claims):
            return None
        pod = pods[0]
        if self._groups.is_scheduled(pod.pod):
            return None
        for state in states.values():
            data, verdicts = state.read(PLUGIN), state.get(FILTER_VERDICTS)
            if data.empty or verdicts is None:
                continue
            claim_filter = self._claim_filter(data, pod, state)
            users = self._groups.users_of(pod.pod)
            if await self._deallocate_one(claim_filter, data, users, verdicts):
                return Status.unschedulable("deallocation of PodGroup ResourceClaim completed")
        released = await self._groups.release(CycleState(), pod.pod)
        return Status.unresolvable(RELEASED) if released else None

    async def _deallocate_unusable(
        self, state: CycleState, data: StateData, pod: PodInfo, verdicts: Verdicts
    ) -> str:
        """Deallocate one claim that keeps the pod from nodes, if no other pod uses it.

        Return a message, empty if there was nothing to do. Raises ``ClaimWriteError``.
        """
        claim_filter = self._claim_filter(data, pod, state)
        if await self._deallocate_one(claim_filter, data, {pod.uid}, verdicts):
            return "deallocation of ResourceClaim completed"
        if data.extended is not None and _rejected_for(EXTENDED_CLAIM_LEFT_OVER, verdicts).any():
            await self._writer.delete(data.extended)
            return "deletion of ResourceClaim completed"
        return ""

    async def _deallocate_one(
        self,
        claim_filter: ClaimFilter,
        state_data: StateData,
        users: Collection[str],
        verdicts: Verdicts,
    ) -> bool:
        """Deallocate one claim that keeps a pod from nodes; return whether there was one.

        ``users``: the UIDs of those that it may be reserved for. Raises ``ClaimWriteError``.
        """
        # Only claims that this plugin rejected a node for: where another plugin rejected it first,
        # the pod could not run there with other devices either.
        not_available = _rejected_for(NOT_AVAILABLE, verdicts)
        masks = claim_filter.unavailable(self._handle.nodes)
        places = [place for place, mask in masks.items() if (mask & not_available).any()]
        # One claim at a time: its devices may be enough. In random order as upstream, where there
        # is no better heuristic either.
        self._handle.rng.shuffle(places)
        for place in places:
            claim = state_data.claims[place]
            reserved_for = claim.status.reserved_for
            if not reserved_for or (len(reserved_for) == 1 and reserved_for[0].uid in users):
                # One that only the dry run of a group has allocated counts too, as upstream; there
                # is nothing to write.
                if place not in state_data.shared_in_group:
                    self._manager.claims.assume(await self._writer.deallocate(claim))
                return True
        return False


def _rejected_for(reason: str, verdicts: Verdicts) -> BoolArray:
    """Return the mask of the rows that DynamicResources rejected for a reason."""
    if verdicts.ids is None:
        return np.zeros(verdicts.size, dtype=np.bool_)
    # Rows share statuses, so reasons are compared once for each status.
    has_reason = [
        status is not None and status.plugin == PLUGIN and reason in status.reasons
        for status in verdicts.statuses
    ]
    return np.array(has_reason, dtype=np.bool_)[verdicts.ids]


def _has_constraints(group: PodGroupInfo) -> bool:
    return group.group is not None and group.group.spec.scheduling_constraints is not None
