"""Chooses the moves to make now, by budgets and the memory against ping-pong."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from proreus.controller.evictions.budgets import EvictionBudget
from proreus.controller.evictions.eviction_record import RecordedEviction
from proreus.controller.options import RebalancingOptions
from proreus.controller.rebalancing.better_nodes import Move


def choose(
    moves: Iterable[Move],
    recorded: Sequence[RecordedEviction],
    options: RebalancingOptions,
    now: float,
) -> list[Move]:
    """Return the moves to make, the best first; ``now``: Unix seconds.

    A workload is left alone for the cooldown, whichever of its pods was evicted, or could not be:
    its successor may be the next that would be better elsewhere.
    """
    since = now - options.period_seconds
    budget = EvictionBudget(
        recorded, since, options.max_evictions, options.max_evictions_per_namespace
    )
    resting = {one.workload for one in recorded if one.at > now - options.cooldown_seconds}
    chosen: list[Move] = []
    for move in sorted(moves, key=lambda move: (-move.gain, move.pod)):
        if move.workload not in resting and budget.take(move.pod, move.uid):
            chosen.append(move)
            resting.add(move.workload)
    return chosen
