"""Which of the advised moves are made now: budgets, and the memory against ping-pong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from proreus.controller.options import RebalancingOptions
from proreus.controller.rebalancing.better_nodes import Move
from proreus.controller.rebalancing.eviction_record import RecordedEviction


def choose(
    moves: Iterable[Move],
    recorded: Sequence[RecordedEviction],
    options: RebalancingOptions,
    now: float,
) -> list[Move]:
    """Return the moves to make, the best first; ``now``: Unix seconds.

    What is recorded of the last period has used the budgets already: a process that begins anew
    has no budget of its own. A workload is left alone for the cooldown, whichever of its pods was
    evicted: its successor may be the next that would be better elsewhere.
    """
    recent = [one for one in recorded if one.at > now - options.period_seconds]
    used = Counter(one.pod.partition("/")[0] for one in recent)
    resting = {one.workload for one in recorded if one.at > now - options.cooldown_seconds}
    chosen: list[Move] = []
    for move in sorted(moves, key=lambda move: (-move.gain, move.pod)):
        if len(recent) + len(chosen) >= options.max_evictions:
            break
        if move.workload in resting:
            continue
        if used[move.namespace] >= options.max_evictions_per_namespace:
            continue
        chosen.append(move)
        used[move.namespace] += 1
        resting.add(move.workload)
    return chosen
