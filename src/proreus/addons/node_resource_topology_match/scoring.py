"""Score by zones: LeastAllocated, MostAllocated, BalancedAllocation.

Each zone gets a score for what is requested, in relation to what it has available; the node has
that of the worst zone that has one at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from proreus.addons.node_resource_topology_match.demand import Amounts, Demand
from proreus.addons.node_resource_topology_match.zones import NodeTopology, Zone

ZoneScore = Callable[[Amounts, Zone, Mapping[str, int]], int]


def least_allocated(amounts: Amounts, zone: Zone, weights: Mapping[str, int]) -> int:
    """Return the weighted mean of what would be left, in percent."""
    return _mean(amounts, zone, weights, lambda amount, most: (most - amount) * 100 // most)


def most_allocated(amounts: Amounts, zone: Zone, weights: Mapping[str, int]) -> int:
    """Return the weighted mean of what would be taken, in percent."""
    return _mean(amounts, zone, weights, lambda amount, most: amount * 100 // most)


def balanced_allocation(amounts: Amounts, zone: Zone, weights: Mapping[str, int]) -> int:
    """Return 100 less the sample variance of the fractions that would be taken; no weights."""
    fractions = []
    for name, amount in amounts.items():
        most = zone.available.get(name, 0)
        fraction = amount / most if most else 1.0
        if fraction > 1:
            return 0
        fractions.append(fraction)
    if len(fractions) < 2:
        return 100
    mean = sum(fractions) / len(fractions)
    variance = sum((one - mean) ** 2 for one in fractions) / (len(fractions) - 1)
    return int((1 - variance) * 100)


STRATEGIES: Mapping[str, ZoneScore] = {
    "LeastAllocated": least_allocated,
    "MostAllocated": most_allocated,
    "BalancedAllocation": balanced_allocation,
}


def score_by_zones(
    score: ZoneScore, demand: Demand, topology: NodeTopology, weights: Mapping[str, int]
) -> int:
    """Return the score of a node; in scope container the mean over all containers."""
    if topology.pod_scope:
        return _worst(score, demand.total, topology, weights)
    scores = [_worst(score, one.amounts, topology, weights) for one in demand.containers]
    return sum(scores) // len(scores) if scores else 0


def _worst(
    score: ZoneScore, amounts: Amounts, topology: NodeTopology, weights: Mapping[str, int]
) -> int:
    scores = [score(amounts, zone, weights) for zone in topology.zones]
    return min([one for one in scores if one], default=0)


def _mean(
    amounts: Amounts, zone: Zone, weights: Mapping[str, int], score: Callable[[int, int], int]
) -> int:
    total = weight_sum = 0
    for name, amount in amounts.items():
        most = zone.available.get(name, 0)
        weight = weights.get(name, 1)
        weight_sum += weight
        if most and amount <= most:
            total += score(amount, most) * weight
    return total // weight_sum if weight_sum else 0
