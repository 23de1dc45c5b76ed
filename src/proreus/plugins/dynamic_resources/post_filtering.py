"""Taking back what is of no use, when no node can take a pod."""

from __future__ import annotations

import numpy as np

from proreus.framework.handle import Handle
from proreus.framework.pod_info import PodInfo
from proreus.framework.verdicts import Verdicts
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
    rejected = {
        reason: np.array(
            [
                s is not None and s.plugin == "DynamicResources" and reason in s.reasons
                for s in known
            ]
        )[verdicts.ids]
        for known in (verdicts.statuses,)
        for reason in (NOT_AVAILABLE, LEFT_OVER)
        if verdicts.ids is not None
    }
    if not rejected:
        return ""
    masks = judgement.unavailable(handle.nodes)
    places = [
        place
        for place, mask in masks.items()
        if place not in notes.shared and (mask & rejected[NOT_AVAILABLE]).any()
    ]
    handle.rng.shuffle(places)
    for place in places:
        claim = notes.claims[place]
        users = claim.status.reserved_for
        if not users or (len(users) == 1 and users[0].uid == pod.uid):
            binding.known(await binding.writer.deallocate(claim))
            return "deallocation of ResourceClaim completed"
    if notes.extended is not None and rejected[LEFT_OVER].any():
        await binding.writer.delete(notes.extended)
        return "deletion of ResourceClaim completed"
    return ""
