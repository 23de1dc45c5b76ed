"""The network costs from a node to others, by region and zone.

Costs named NetperfCosts are searched as their tool has written them, by bisection, as in the
original: entries out of order are not found. All others are sorted first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from proreus.addons.network_aware.objects import NetworkTopology
from proreus.objects import LABEL_REGION, LABEL_ZONE

SAME_ZONE_COST = 1
MAX_COST = 100
NETPERF = "NetperfCosts"

T = TypeVar("T")


def costs_from(
    topology: NetworkTopology, weights_name: str, label: str, origin: str
) -> Mapping[str, int]:
    """Return the costs from a region (or zone) to others, by destination."""
    found: dict[str, int] = {}
    if not origin:
        return found
    in_order = weights_name != NETPERF
    for weights in topology.spec.weights:
        if weights.name != weights_name:
            continue
        costs = _search(weights.topology_list, label, lambda one: one.topology_key, in_order)
        origins = () if costs is None else costs.origin_list
        origin_costs = _search(origins, origin, lambda one: one.origin, in_order)
        if origin_costs is not None:
            found |= {one.destination: one.network_cost for one in origin_costs.cost_list}
    return found


class NodeCosts:
    """What it costs from nodes with one region and zone."""

    def __init__(
        self, topology: NetworkTopology, weights_name: str, region: str, zone: str
    ) -> None:
        self._region, self._zone = region, zone
        self._to_region = costs_from(topology, weights_name, LABEL_REGION, region)
        self._to_zone = costs_from(topology, weights_name, LABEL_ZONE, zone)

    def to(self, region: str, zone: str) -> tuple[int | None, int]:
        """Return the cost to another node's region and zone: what is compared with a maximum (None:
        nothing is known), and what is added up."""
        if not region and not zone:
            # Above any maximum.
            return 2**62, MAX_COST
        if region == self._region:
            if zone == self._zone:
                return -1, SAME_ZONE_COST
            cost = self._to_zone.get(zone)
        else:
            cost = self._to_region.get(region)
        return (None, MAX_COST) if cost is None else (cost, cost)


def _search(entries: Sequence[T], wanted: str, key: Callable[[T], str], in_order: bool) -> T | None:
    if in_order:
        entries = sorted(entries, key=key)
    first, last = 0, len(entries) - 1
    while first <= last:
        middle = (first + last) // 2
        found = key(entries[middle])
        if found == wanted:
            return entries[middle]
        if found < wanted:
            first = middle + 1
        else:
            last = middle - 1
    return None
