"""Claims that the pods of a PodGroup share (gate DRAWorkloadResourceClaims).

Such a claim is reserved for the group, not for each of its pods. The reservation is removed when no
pod of the group could be scheduled, so that other devices can be tried.
"""

from __future__ import annotations

from collections.abc import Mapping

from proreus.base.errors import ApiError
from proreus.base.logs import logger
from proreus.framework.cycle_state import CycleState
from proreus.framework.handle import Handle
from proreus.framework.pod_group import POD_GROUP_SCHEDULING_CYCLE, PodGroupSchedulingCycle
from proreus.objects.meta import controller_of, key_of
from proreus.objects.pod import Pod, PodResourceClaim
from proreus.objects.resource_claims import ResourceClaim, ResourceClaimConsumerReference
from proreus.objects.scheduling import POD_GROUPS, PodGroup, PodGroupResourceClaim, pod_group_key
from proreus.plugins.dynamic_resources.binding.claim_writes import ClaimWriteError, ClaimWriter
from proreus.plugins.dynamic_resources.claims import (
    ClaimError,
    claim_name,
    is_reserved_for_pod,
    pod_group_reference,
)
from proreus.plugins.dynamic_resources.dra_manager import DRAManager

log = logger(__name__)

RELEASED = "ResourceClaim unreserved for PodGroup"

_NONE: Mapping[str, ResourceClaimConsumerReference] = {}


class PodGroupClaims:
    """Finds the claims of a pod's group, and releases them. With the gate off, there are none."""

    def __init__(self, handle: Handle, manager: DRAManager, writer: ClaimWriter) -> None:
        self._manager = manager
        self._writer = writer
        self._enabled = manager.features.workload_claims
        self._groups = handle.store(POD_GROUPS) if self._enabled else {}
        self._states = handle.pod_group_states

    def _group_of(self, pod: Pod) -> PodGroup | None:
        """Return the pod's group, None for a pod without one.

        Raises ``ClaimError`` if the group does not exist.
        """
        # The consumer to reserve the claims for is unknown without the group: the pod waits for it.
        key = pod_group_key(pod) if self._enabled else ""
        if not key:
            return None
        group = self._groups.get(key)
        if group is None:
            name = key.partition("/")[2]
            raise ClaimError(f'podgroup.scheduling.k8s.io "{name}" not found')
        return group

    def consumers(self, pod: Pod) -> Mapping[str, ResourceClaimConsumerReference]:
        """Return the group as consumer, by name of each claim that is reserved for it.

        These are the claims of entries of the pod that equal an entry of its group. Raises
        ``ClaimError``.
        """
        group = self._group_of(pod)
        if group is None or not group.spec.resource_claims:
            return _NONE
        group_entries = {_claim_fields(entry) for entry in group.spec.resource_claims}
        reference = pod_group_reference(group)
        names = [
            claim_name(pod, one)
            for one in pod.spec.resource_claims
            if _claim_fields(one) in group_entries
        ]
        return {name: reference for name in names if name is not None}

    def is_scheduled(self, pod: Pod) -> bool:
        """Return whether a pod of the group of ``pod`` has a node; to be called between dry runs.

        Raises ``ClaimError`` if the group does not exist.
        """
        group = self._group_of(pod)
        return group is not None and self._scheduled(CycleState(), group) > 0

    def users_of(self, pod: Pod) -> set[str]:
        """Return the UID of a pod's group as a set; raises ``ClaimError``."""
        group = self._group_of(pod)
        return set() if group is None else {group.metadata.uid}

    async def release(self, state: CycleState, pod: Pod) -> bool:
        """Remove the group from one of its claims if no pod of the group is scheduled.

        Return whether there was one. Raises ``ClaimError``.
        """
        group = self._group_of(pod)
        # A pod that runs, or is being bound, uses the devices. One claim a call, as upstream: the
        # next attempt deallocates it, and may not need the others.
        if group is None or self._scheduled(state, group) > 0:
            return False
        for entry in group.spec.resource_claims:
            claim = self._claim_of(group, entry)
            if claim is None or claim.status.allocation is None:
                continue
            if is_reserved_for_pod(claim, pod, self._enabled):
                try:
                    written = await self._writer.drop_reservation(claim, group.metadata.uid)
                except (ClaimWriteError, ApiError) as error:
                    # Another claim may do; this one is tried again with the next attempt.
                    log.error("Cannot release a claim", err=error, claim=key_of(claim))
                    continue
                self._manager.claims.assume(written)
                return True
        return False

    def _scheduled(self, state: CycleState, group: PodGroup) -> int:
        """Return the number of pods of a group that have a node, without those of a dry run."""
        # In the group's own cycle, its pods are assumed one by one. The cycle records how many had
        # a node before.
        cycle: PodGroupSchedulingCycle | None = state.get(POD_GROUP_SCHEDULING_CYCLE)
        if cycle is not None:
            return cycle.scheduled_before
        known = self._states.get(key_of(group))
        return 0 if known is None else known.scheduled_count

    def _claim_of(self, group: PodGroup, entry: PodGroupResourceClaim) -> ResourceClaim | None:
        name = _claim_name(group, entry)
        if name is None:
            return None
        key = f"{group.metadata.namespace}/{name}"
        claim = self._manager.claims.get(key)
        if claim is None:
            raise ClaimError(f'could not find ResourceClaim "{key}"')
        owner = controller_of(claim.metadata)
        # One made from a template must be the group's own. Another one is skipped, not an error:
        # there is nothing to release then.
        foreign = owner is None or owner.uid != group.metadata.uid
        return None if entry.resource_claim_name is None and foreign else claim


def _claim_fields(entry: PodResourceClaim | PodGroupResourceClaim) -> tuple[str | None, ...]:
    return entry.name, entry.resource_claim_name, entry.resource_claim_template_name


def _claim_name(group: PodGroup, entry: PodGroupResourceClaim) -> str | None:
    """Return the name of an entry's claim; None where there is none on purpose."""
    if entry.resource_claim_name is not None:
        return entry.resource_claim_name
    for status in group.status.resource_claim_statuses:
        if status.name == entry.name:
            return status.resource_claim_name
    raise ClaimError(f"PodGroup {key_of(group)}: ResourceClaim not created yet")
