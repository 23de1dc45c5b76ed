"""Which candidate is sacrificed: kube-scheduler's criteria, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from proreus.plugins.default_preemption.crowds import started_at
from proreus.plugins.default_preemption.outcomes import Candidate

_PRIORITY_OFFSET = 2**31
"""Makes every priority positive, so that fewer victims always weigh less."""


def pick_one(candidates: Sequence[Candidate], now: float) -> Candidate | None:
    """Return the candidate whose victims hurt least; each criterion keeps only its best."""
    criteria: tuple[Callable[[Candidate], float], ...] = (
        lambda candidate: candidate.pdb_violations,
        lambda candidate: candidate.victims[0].priority if candidate.victims else -(2**31),
        lambda candidate: sum(victim.priority + _PRIORITY_OFFSET for victim in candidate.victims),
        lambda candidate: len(candidate.victims),
        lambda candidate: -_earliest_start_of_most_important(candidate, now),
    )
    left = list(candidates)
    for criterion in criteria:
        if len(left) <= 1:
            break
        values = [criterion(candidate) for candidate in left]
        best = min(values)
        left = [c for c, value in zip(left, values, strict=True) if value == best]
    return left[0] if left else None


def _earliest_start_of_most_important(candidate: Candidate, now: float) -> float:
    highest = max(victim.priority for victim in candidate.victims)
    return min(started_at(v, now) for v in candidate.victims if v.priority == highest)
