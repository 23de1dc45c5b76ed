"""Scores: how high what is given stands in lists of alternatives (KEP-4816)."""

from __future__ import annotations

import numpy as np

from proreus.framework.plugin import MAX_SCORE
from proreus.framework.verdicts import IntArray
from proreus.objects.resource_claims import ResourceClaim

BEST_PRIORITY = 8
"""What the first alternative is worth; each further one is worth one less."""


def allocated_score(claim: ResourceClaim) -> int:
    """Return what an allocated claim is worth, on every node alike."""
    allocation = claim.status.allocation
    if allocation is None:
        return 0
    chosen = {result.request for result in allocation.devices.results}
    score = 0
    for request in claim.spec.devices.requests:
        for place, sub in enumerate(request.first_available):
            if f"{request.name}/{sub.name}" in chosen:
                score += BEST_PRIORITY - place
                break
    return score


def normalized(scores: IntArray) -> IntArray:
    """Bring the best score to 100, the others in proportion, cut to whole numbers."""
    best = int(scores.max(initial=0))
    if best <= 0:
        return scores
    # The quotient of int64 arrays rounds down, kube-scheduler's towards zero: no score is negative.
    return np.asarray(MAX_SCORE * scores // best, dtype=np.int64)
