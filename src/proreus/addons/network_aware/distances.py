"""The sums of NetworkOverhead over all nodes: nodes of one region and zone are one domain.

Nodes of a domain differ only in the placed pods that run on them. So requirements and costs are
computed once for each pair of domains, multiplied by how many pods are in each, and corrected
on the hosts of the pods.

Costs named NetperfCosts are searched as their tool has written them, by bisection, as in the
original: entries out of order are not found. All others are sorted first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from proreus.addons.network_aware.objects import NetworkTopology
from proreus.framework import IntArray, NodeTable
from proreus.objects import LABEL_REGION, LABEL_ZONE

_UNKNOWN = np.iinfo(np.int64).min

SAME_ZONE_COST = 1
MAX_COST = 100
NETPERF = "NetperfCosts"

T = TypeVar("T")


class Domains(NamedTuple):
    """``places``: region and zone of each domain, "" for none; ``of_row``: the domain of a node."""

    places: tuple[tuple[str, str], ...]
    of_row: IntArray

    @classmethod
    def of(cls, nodes: NodeTable) -> Domains:
        """Return the domains of some nodes."""
        zones = nodes.label(LABEL_ZONE).astype(np.int64)
        # -1 is the code of nodes without the label.
        base = int(zones.max(initial=-1)) + 2
        codes, of_row = np.unique(
            (nodes.label(LABEL_REGION).astype(np.int64) + 1) * base + zones + 1, return_inverse=True
        )
        regions = ["", *nodes.label_values(LABEL_REGION).values]
        names = ["", *nodes.label_values(LABEL_ZONE).values]
        places = tuple((regions[code // base], names[code % base]) for code in codes.tolist())
        return cls(places, of_row.reshape(-1))


class Dependency(NamedTuple):
    """Placed pods that a pod depends on, by node, and their maximum cost."""

    pods: Mapping[str, int]
    max_cost: int


class Distances:
    """Costs between domains by one NetworkTopology."""

    def __init__(self, topology: NetworkTopology, weights_name: str) -> None:
        self.topology = topology
        self._weights_name = weights_name
        self._origins: dict[tuple[str, str], NodeCosts] = {}
        self._between: tuple[object, object, IntArray, IntArray] | None = None

    def between(
        self, origins: tuple[tuple[str, str], ...], others: tuple[tuple[str, str], ...]
    ) -> tuple[IntArray, IntArray]:
        """Return the costs to compare with a maximum, and the ones to sum, by origin and other."""
        # Of the last two sets of domains: they change with the nodes.
        known = self._between
        if known is not None and known[0] == origins and known[1] == others:
            return known[2], known[3]
        pairs = [self._costs_from(one).to(*other) for one in origins for other in others]
        shape = len(origins), len(others)
        compared = [_UNKNOWN if one is None else one for one, _ in pairs]
        found = np.array(compared, dtype=np.int64).reshape(shape)
        costs = np.array([cost for _, cost in pairs], dtype=np.int64).reshape(shape)
        self._between = origins, others, found, costs
        return found, costs

    def _costs_from(self, place: tuple[str, str]) -> NodeCosts:
        if place not in self._origins:
            self._origins[place] = NodeCosts(self.topology, self._weights_name, *place)
        return self._origins[place]

    def sums(
        self,
        dependencies: Sequence[Dependency],
        nodes: NodeTable,
        domains: Domains,
        everywhere: NodeTable,
        all_domains: Domains,
    ) -> IntArray:
        """Return met and violated requirements and the cost of each node, shape (3, nodes).

        ``everywhere``: all nodes, on which the placed pods are.
        """
        compared, costs = self.between(domains.places, all_domains.places)
        known = compared != _UNKNOWN
        by_domain = np.zeros((3, len(domains.places)), dtype=np.int64)
        hosts: list[tuple[IntArray, IntArray]] = []
        for pods, max_cost in dependencies:
            placed = [(everywhere.rows[name], n) for name, n in pods.items() if name in everywhere]
            rows, counts = np.array(placed, dtype=np.int64).reshape(-1, 2).T
            there = np.zeros(len(all_domains.places), dtype=np.int64)
            np.add.at(there, all_domains.of_row[rows], counts)
            met = known & (compared <= max_cost)
            each = np.stack((met, known & ~met, costs)).astype(np.int64)
            by_domain += each @ there
            if nodes is not everywhere:
                own = [nodes.rows.get(everywhere[row].name, -1) for row in rows.tolist()]
                here = np.array(own, dtype=np.int64)
                rows, here, counts = rows[here >= 0], here[here >= 0], counts[here >= 0]
            else:
                here = rows
            # A pod on the node itself is near, whatever the costs within its domain are.
            correction = -each[:, domains.of_row[here], all_domains.of_row[rows]]
            correction[0] += 1
            hosts.append((here, correction * counts))
        found: IntArray = by_domain[:, domains.of_row]
        for here, correction in hosts:
            found[:, here] += correction
        return found


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
    """The costs from nodes with one region and zone."""

    def __init__(
        self, topology: NetworkTopology, weights_name: str, region: str, zone: str
    ) -> None:
        self._region, self._zone = region, zone
        self._to_region = costs_from(topology, weights_name, LABEL_REGION, region)
        self._to_zone = costs_from(topology, weights_name, LABEL_ZONE, zone)

    def to(self, region: str, zone: str) -> tuple[int | None, int]:
        """Return the costs to a region and zone: one to compare with a maximum, None if it is not
        known, and one to sum."""
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
