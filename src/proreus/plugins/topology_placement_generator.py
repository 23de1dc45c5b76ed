"""TopologyPlacementGenerator: place a whole PodGroup within one topology domain (KEP-5732, gate
TopologyAwareWorkloadScheduling).

Each value of the topology key in the group's constraint is one placement. A group that has pods on
nodes already stays in their domain.

Worked example: the key is the zone, nodes are in the zones ``a`` and ``b``: two placements ``a``
and ``b``. If a pod of the group runs in ``b``, only ``b``.

A node whose label is empty is in no domain (``Change.EMPTY_TOPOLOGY_VALUE``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from proreus.base.kubernetes_version import Change
from proreus.framework.cycle_state import CycleState
from proreus.framework.handle import Handle
from proreus.framework.interning import ABSENT
from proreus.framework.node_table import NodeTable
from proreus.framework.pod_group import PlacedPod, Placement, PodGroupInfo
from proreus.framework.pod_group_plugin import PlacementGeneratePlugin
from proreus.framework.status import Status
from proreus.objects.scheduling import POD_GROUPS


class TopologyPlacementGenerator(PlacementGeneratePlugin):
    """Generates a placement for each topology domain."""

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        gates = handle.feature_gates
        enabled = gates.enabled("TopologyAwareWorkloadScheduling")
        self._groups = handle.store(POD_GROUPS) if enabled else {}
        named = gates.includes(Change.EMPTY_TOPOLOGY_VALUE)
        self._domain_of = domain_of if named else domain_of_1_37
        self._not_domains = {""} if named else frozenset()

    def generate_placements(
        self, state: CycleState, group: PodGroupInfo, nodes: NodeTable
    ) -> Sequence[Placement] | Status:
        """Return one placement a domain, in the order of the domains' names."""
        found = group.group or self._groups.get(group.key)
        if found is None:
            return Status.error(f'podgroup.scheduling.k8s.io "{group.name}" not found')
        if not found.topology_keys:
            return [Placement("all-nodes", None)]
        # Only the first constraint, as in kube-scheduler.
        key = found.topology_keys[0]
        states = (self.handle.pod_group_states.get(leaf.key) for leaf in group.leaves)
        scheduled = [
            placed for state in states if state is not None for placed in state.scheduled()
        ]
        try:
            required = self._domain_of(values_of(scheduled, key, self.handle.nodes))
        except ValueError as error:
            text = "cannot determine domain for already scheduled pods"
            return Status.error(f"{text}: {error}")
        codes, values = nodes.label(key), nodes.label_values(key).values
        placements = []
        for code in np.unique(codes[codes != ABSENT]).tolist():
            if values[code] not in self._not_domains and required in (None, values[code]):
                rows = np.flatnonzero(codes == code).tolist()
                names = frozenset(nodes[row].name for row in rows)
                placements.append(Placement(values[code], names))
        # Placements are evaluated in this order; codes are in the order in which values were seen.
        return sorted(placements, key=lambda placement: placement.name)


def values_of(pods: Iterable[PlacedPod], key: str, nodes: NodeTable) -> Iterable[tuple[str, str]]:
    """Yield the keys of pods, each with the label of its node; raises ``ValueError``."""
    for pod, node_name in pods:
        row = nodes.rows.get(node_name)
        if row is None:
            text = f'nodeinfo not found for node name "{node_name}"'
            raise ValueError(f"getting node for pod {pod.key}: {text}")
        value = nodes[row].labels.get(key)
        if value is None:
            raise ValueError(f"no topology domain found for pod {pod.key}")
        yield pod.key, value


def domain_of(values: Iterable[tuple[str, str]]) -> str | None:
    """Return the domain that pods are in; None without pods.

    Raises ``ValueError`` if they are in several, or one of them in none.
    """
    domain: str | None = None
    for pod, value in values:
        if not value:
            raise ValueError(f"empty topology domain found for pod {pod}")
        if domain is not None and domain != value:
            raise ValueError(f'more than 1 domain found for pod group: "{domain}", "{value}"')
        domain = value
    return domain


def domain_of_1_37(values: Iterable[tuple[str, str]]) -> str | None:
    """Return the domain that pods are in as before: pods in a domain with an empty name do not
    count.
    """
    domain: str | None = None
    for _, value in values:
        if domain and domain != value:
            raise ValueError(f"more than 1 domain found for pod group: {domain}, {value}")
        domain = value
    return domain
