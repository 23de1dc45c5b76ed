"""Which candidate is sacrificed: kube-scheduler's criteria, one after the other."""

from __future__ import annotations

from collections.abc import Sequence

from proreus.plugins.default_preemption.crowds import started_at
from proreus.plugins.default_preemption.outcomes import Candidate


def pick_one(candidates: Sequence[Candidate], now: float) -> Candidate | None:
    """Return the candidate whose victims hurt least; each criterion keeps only its best."""
    if not candidates:
        return None
    least = min(candidate.harm for candidate in candidates)
    left = [candidate for candidate in candidates if candidate.harm == least]
    if len(left) == 1 or not left[0].victims:  # extenders may leave none
        return left[0]
    return max(left, key=lambda candidate: _earliest_start_of_most_important(candidate, now))


def _earliest_start_of_most_important(candidate: Candidate, now: float) -> float:
    highest = max(victim.priority for victim in candidate.victims)
    return min(started_at(v, now) for v in candidate.victims if v.priority == highest)
