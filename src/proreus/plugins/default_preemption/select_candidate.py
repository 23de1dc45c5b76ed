"""SelectCandidate: what a candidate for preemption is, and which one is picked.

Example: evicting one pod of priority 10 from node ``a`` costs less than one of priority 50 from
node ``b``; where both cost the same, the node is picked whose most important victim started last,
since it loses the least work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from proreus.framework.pod_info import NOT_STARTED, PodInfo

# Makes every priority positive: otherwise two victims of priority -5 would sum up to less than one.
_PRIORITY_OFFSET = 2**31


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node, ``node_name``, that the pod fits once ``victims`` are evicted.

    ``victims``: the most important first. ``pdb_violations``: how many of them violate a
    PodDisruptionBudget. ``disruptions``: how many units a preemption by a group evicts, by kind
    (``DomainVictim.kind``). ``nodes_of_group``: where the pods of such a group go.
    """

    node_name: str
    victims: tuple[PodInfo, ...]
    pdb_violations: int
    disruptions: tuple[tuple[str, int], ...] = ()
    nodes_of_group: tuple[str, ...] = ()
    cost: tuple[int, int, int, int] = field(init=False, compare=False, repr=False)
    """The first four criteria of pickOneNodeForPreemption, less is better: PDB violations, the
    highest priority, the sum of priorities, the number of victims."""
    earliest_start_time: float = field(init=False, compare=False, repr=False)
    """The earliest start among the victims of the highest priority, in seconds since the epoch;
    infinite if none of them has started."""
    has_unstarted: bool = field(init=False, compare=False, repr=False)
    """Whether a victim of the highest priority has not started: it counts as starting now."""

    def __post_init__(self) -> None:
        priorities = [victim.priority for victim in self.victims]
        highest = priorities[0] if priorities else -_PRIORITY_OFFSET
        total = sum(priorities) + _PRIORITY_OFFSET * len(priorities)
        cost = self.pdb_violations, highest, total, len(priorities)
        object.__setattr__(self, "cost", cost)
        # Not `highest`: kube-scheduler takes the first victim's priority for the second criterion,
        # but looks for the maximum here. An extender may return victims in another order.
        top = max(priorities, default=highest)
        starts = [pod.importance[1] for pod in self.victims if pod.priority == top]
        object.__setattr__(self, "earliest_start_time", min(starts, default=NOT_STARTED))
        object.__setattr__(self, "has_unstarted", NOT_STARTED in starts)


def pick_one_node_for_preemption(
    candidates: Sequence[Candidate], now: float, sampled_once: bool = True
) -> Candidate | None:
    """Return the best candidate by kube-scheduler's criteria; None if there are none.

    Each criterion decides between those that are equal by the ones before. The last one, after
    ``Candidate.cost``, is the latest ``earliest_start_time``. ``now``: when victims that have not
    started count as started, in seconds since the epoch; ``NOT_STARTED``: after all others.
    ``sampled_once``: victims that have not started count as started when they were listed, those of
    a later candidate later (``Change.START_TIME_SAMPLED_ONCE``).
    """
    if not candidates:
        return None
    least = min(candidate.cost for candidate in candidates)
    left = [candidate for candidate in candidates if candidate.cost == least]
    # Extenders may return a node without victims; it has no start time to compare.
    if len(left) == 1 or not left[0].victims:
        return left[0]

    # Of equal ones `max` returns the first. kube-scheduler's choice is then the order of a Go map.
    def start(place: int) -> tuple[float, int]:
        one = left[place]
        if not one.has_unstarted:
            return one.earliest_start_time, 0
        earliest = one.earliest_start_time
        sampled = sampled_once and (earliest > now or earliest == NOT_STARTED)
        return min(earliest, now), place if sampled else 0

    return left[max(range(len(left)), key=start)]
