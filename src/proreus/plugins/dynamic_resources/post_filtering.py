"""Taking back what is of no use, when no node can take a pod."""

from __future__ import annotations

import numpy as np

from proreus.framework.handle import Handle
from proreus.framework.pod_info import PodInfo
from proreus.framework.verdicts import BoolArray, Verdicts
from proreus.plugins.dynamic_resources.binding import Binding
from proreus.plugins.dynamic_resources.filtering import LEFT_OVER, NOT_AVAILABLE, Judgement
from proreus.plugins.dynamic_resources.notes import Notes


async def take_back(
    handle: Handle,
    binding: Binding,
    judgement: Judgement,
    notes: Notes,
    pod: PodInfo,
    verdicts: Verdicts,
) -> str:
    """Take back one allocation that keeps the pod from nodes, if nobody else uses the claim.

    Return what was done; nothing if there was nothing to do. Raises ``ClaimWriteError``.
    """
    not_available = _rejected_for(NOT_AVAILABLE, verdicts)
    masks = judgement.unavailable(handle.nodes)
    places = [
        place
        for place, mask in masks.items()
        if place not in notes.shared and (mask & not_available).any()
    ]
    handle.rng.shuffle(places)
    for place in places:
        claim = notes.claims[place]
        users = claim.status.reserved_for
        if not users or (len(users) == 1 and users[0].uid == pod.uid):
            binding.known(await binding.writer.deallocate(claim))
            return "deallocation of ResourceClaim completed"
    if notes.extended is not None and _rejected_for(LEFT_OVER, verdicts).any():
        await binding.writer.delete(notes.extended)
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
