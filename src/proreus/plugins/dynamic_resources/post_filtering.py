"""Taking back what is of no use, when no node can take a pod."""

from __future__ import annotations

import numpy as np

from proreus.framework.handle import Handle
from proreus.framework.pod_info import PodInfo
from proreus.framework.verdicts import BoolArray, Verdicts
from proreus.plugins.dynamic_resources.claim_binder import ClaimBinder
from proreus.plugins.dynamic_resources.filtering import (
    EXTENDED_CLAIM_LEFT_OVER,
    NOT_AVAILABLE,
    ClaimFilter,
)
from proreus.plugins.dynamic_resources.state_data import StateData


async def deallocate_unusable(
    handle: Handle,
    claim_binder: ClaimBinder,
    claim_filter: ClaimFilter,
    state_data: StateData,
    pod: PodInfo,
    verdicts: Verdicts,
) -> str:
    """Take back one allocation that keeps the pod from nodes, if nobody else uses the claim.

    Return what was done; nothing if there was nothing to do. Raises ``ClaimWriteError``.
    """
    not_available = _rejected_for(NOT_AVAILABLE, verdicts)
    masks = claim_filter.unavailable(handle.nodes)
    places = [
        place
        for place, mask in masks.items()
        if place not in state_data.shared_in_group and (mask & not_available).any()
    ]
    handle.rng.shuffle(places)
    for place in places:
        claim = state_data.claims[place]
        users = claim.status.reserved_for
        if not users or (len(users) == 1 and users[0].uid == pod.uid):
            claim_binder.assume(await claim_binder.writer.deallocate(claim))
            return "deallocation of ResourceClaim completed"
    if state_data.extended is not None and _rejected_for(EXTENDED_CLAIM_LEFT_OVER, verdicts).any():
        await claim_binder.writer.delete(state_data.extended)
        return "deletion of ResourceClaim completed"
    return ""


def _rejected_for(reason: str, verdicts: Verdicts) -> BoolArray:
    """Return the mask of rows that were rejected here for a reason."""
    if verdicts.ids is None:
        return np.zeros(verdicts.size, dtype=np.bool_)
    said = [
        status is not None and status.plugin == "DynamicResources" and reason in status.reasons
        for status in verdicts.statuses
    ]
    return np.array(said, dtype=np.bool_)[verdicts.ids]
