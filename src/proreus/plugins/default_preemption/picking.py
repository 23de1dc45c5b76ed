"""Which candidate is sacrificed: kube-scheduler's criteria, one after the other."""

from __future__ import annotations

from collections.abc import Sequence

from proreus.plugins.default_preemption.dry_run_cache import Candidate


def pick_one_node_for_preemption(candidates: Sequence[Candidate], now: float) -> Candidate | None:
    """Return the candidate whose victims hurt least; each criterion keeps only its best."""
    if not candidates:
        return None
    least = min(candidate.cost for candidate in candidates)
    left = [candidate for candidate in candidates if candidate.cost == least]
    if len(left) == 1 or not left[0].victims:  # extenders may leave none
        return left[0]
    return max(
        left,
        key=lambda one: (
            min(one.earliest_start_time, now) if one.has_unstarted else one.earliest_start_time
        ),
    )
