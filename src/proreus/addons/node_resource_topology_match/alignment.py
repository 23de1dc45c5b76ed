"""Filter: whether a kubelet with policy single-numa-node can align a pod.

Worked example, scope container: zones 0 and 1 have 4 and 8 CPUs left. A pod's first container asks
for 3 CPUs and gets zone 0, the lowest that can have it; the second one asks for 8, and gets zone 1.
"""

from __future__ import annotations

from collections.abc import Sequence

from proreus.addons.node_resource_topology_match.demand import (
    Amounts,
    Demand,
    is_aligned_for_guaranteed_pods_only,
    is_host_level,
)
from proreus.addons.node_resource_topology_match.zones import NodeTopology, Zone
from proreus.framework import NodeInfo

ALWAYS_ALLOCATABLE = ("cpu", "memory", "ephemeral-storage", "pods")


def misaligned(demand: Demand, topology: NodeTopology, node: NodeInfo) -> str:
    """Return what cannot be aligned in one zone; "" if everything can."""
    if topology.pod_scope:
        found = _suitable_zone(demand.total, demand.guaranteed, topology.zones, node)
        return "pod" if found is None else ""
    zones = list(topology.zones)
    for index, container in enumerate(demand.containers):
        place = _suitable_zone(container.amounts, demand.guaranteed, zones, node)
        if place is None:
            return container.kind
        # Init containers end before the next one starts.
        if index >= demand.inits and place < len(zones):
            zones[place] = zones[place].less(container.amounts)
    return ""


def _suitable_zone(
    amounts: Amounts, guaranteed: bool, zones: Sequence[Zone], node: NodeInfo
) -> int | None:
    """Return the index of the lowest zone that can have all amounts, ``len(zones)`` for none
    needed; None if no zone can."""
    suitable = set(range(len(zones)))
    constrained = False
    for resource, amount in amounts.items():
        if not amount:
            continue
        if resource not in node.allocatable and resource not in ALWAYS_ALLOCATABLE:
            return None
        listed = [index for index, zone in enumerate(zones) if resource in zone.available]
        if not listed and is_host_level(resource):
            continue
        constrained = True
        free = not guaranteed and is_aligned_for_guaranteed_pods_only(resource)
        suitable &= {
            index for index in listed if free or zones[index].available[resource] >= amount
        }
        if not suitable:
            return None
    if not suitable:
        return None if constrained else len(zones)
    return min(suitable)
