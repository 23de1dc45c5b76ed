"""Score by zones: LeastAllocated, MostAllocated, BalancedAllocation, LeastNUMANodes.

The first three score each zone by the requests in relation to what is available in it; the node's
score is that of its worst zone with a score above 0.

LeastNUMANodes counts the zones that a pod needs, and compares the distance between them. Worked
example: of two zones at a distance of 20, a pod that fits one of them needs 1; one that needs the
memory of both needs 2. With ``maxNUMANodes`` 8 a step is 12: the scores are 100 - 12 + 6 (no other
zone is nearer to itself) and 100 - 24 + 6.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

from proreus.addons.node_resource_topology_match.demand import Demand
from proreus.addons.node_resource_topology_match.zones import NodeTopology, Zone
from proreus.addons.pod_amounts import Amounts

_UNKNOWN_COST = 255
MOST_ZONES = 8
"""The most zones that are combined: the number of combinations is exponential."""

ZoneScore = Callable[[Amounts, Zone, Mapping[str, int]], int]


def least_allocated(amounts: Amounts, zone: Zone, weights: Mapping[str, int]) -> int:
    """Return the weighted mean of the rest after the request, in percent."""
    return _mean(amounts, zone, weights, lambda amount, most: (most - amount) * 100 // most)


def most_allocated(amounts: Amounts, zone: Zone, weights: Mapping[str, int]) -> int:
    """Return the weighted mean of the requested share, in percent."""
    return _mean(amounts, zone, weights, lambda amount, most: amount * 100 // most)


def balanced_allocation(amounts: Amounts, zone: Zone, weights: Mapping[str, int]) -> int:
    """Return 100 less the sample variance of the requested fractions, without weights."""
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


def least_numa_nodes_score(demand: Demand, topology: NodeTopology) -> int:
    """Return the score of a node: the fewer zones the better."""
    zones = list(topology.zones)
    wanted = [demand.total] if topology.pod_scope else [one.amounts for one in demand.containers]
    wanted = [amounts for amounts in wanted if _needs_zones(amounts, zones)]
    if not wanted:
        return 100
    count, nearest = 0, True
    for amounts in wanted:
        found = _fewest(amounts, zones)
        if found is None:
            return 0
        places, is_nearest = found
        count, nearest = max(count, len(places)), nearest and is_nearest
        _take(amounts, zones, places)
    step = 100 // topology.max_numa_nodes
    score = 100 - count * step + (step // 2 if nearest else 0)
    return max(score, 0)


def _needs_zones(amounts: Amounts, zones: Sequence[Zone]) -> bool:
    return any(name in zone.available for zone in zones for name in amounts)


def _fewest(amounts: Amounts, zones: Sequence[Zone]) -> tuple[tuple[int, ...], bool] | None:
    """Return the places of the fewest zones that hold the amounts together, and whether no others
    of that number are nearer to each other; None if all zones are not enough."""
    places = range(len(zones))
    if len(zones) > MOST_ZONES:
        # The zones with the most of the requested resources; the rest is hardly ever needed.
        def wealth(place: int) -> int:
            return -min(zones[place].available.get(name, 0) for name in amounts)

        places = sorted(sorted(places, key=wealth)[:MOST_ZONES])  # type: ignore[assignment]
    for count in range(1, len(places) + 1):
        best: tuple[float, tuple[int, ...]] | None = None
        nearest = float("inf")
        for chosen in combinations(places, count):
            distance = _distance([zones[place] for place in chosen])
            nearest = min(nearest, distance)
            if _holds(amounts, [zones[place] for place in chosen]) and (
                best is None or distance < best[0]
            ):
                best = distance, chosen
        if best is not None:
            return best[1], best[0] == nearest
    return None


def _holds(amounts: Amounts, zones: Sequence[Zone]) -> bool:
    # Each resource has to be in every zone, also with a request of 0.
    return all(
        all(name in zone.available for zone in zones)
        and sum(zone.available[name] for zone in zones) >= amount
        for name, amount in amounts.items()
    )


def _distance(zones: Sequence[Zone]) -> float:
    costs = [zone.costs.get(other.id, _UNKNOWN_COST) for zone in zones for other in zones]
    return sum(costs) / len(costs)


def _take(amounts: Amounts, zones: list[Zone], places: Sequence[int]) -> None:
    left = dict(amounts)
    for place in places:
        zone = zones[place]
        taken = {name: min(amount, zone.available.get(name, 0)) for name, amount in left.items()}
        zones[place] = zone.less(taken)
        left = {name: amount - taken[name] for name, amount in left.items()}
