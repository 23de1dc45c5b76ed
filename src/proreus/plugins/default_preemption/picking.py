"""Which candidate is sacrificed: kube-scheduler's criteria, one after the other."""

from __future__ import annotations

from collections.abc import Sequence

from proreus.plugins.default_preemption.outcomes import Candidate


def pick_one(candidates: Sequence[Candidate], now: float) -> Candidate | None:
    """Return the candidate whose victims hurt least; each criterion keeps only its best."""
    if not candidates:
        return None
    least = min(candidate.harm for candidate in candidates)
    left = [candidate for candidate in candidates if candidate.harm == least]
    if len(left) == 1 or not left[0].victims:  # extenders may leave none
        return left[0]
    return max(left, key=lambda one: min(one.oldest, now) if one.has_unstarted else one.oldest)
