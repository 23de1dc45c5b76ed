"""TopologyPlacementGenerator: place a whole PodGroup within one topology domain (KEP-5732, gate
TopologyAwareWorkloadScheduling).

Each value of the topology key in the group's constraint is one placement. A group that has pods on
nodes already stays in their domain.

Worked example: the key is the zone, nodes are in the zones ``a`` and ``b``: two placements ``a``
and ``b``. If a pod of the group runs in ``b``, only ``b``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

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
        enabled = handle.feature_gates.enabled("TopologyAwareWorkloadScheduling")
        self._groups = handle.store(POD_GROUPS) if enabled else {}

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
            required = domain_of(scheduled, key, self.handle.nodes)
        except ValueError as error:
            text = "cannot determine domain for already scheduled pods"
            return Status.error(f"{text}: {error}")
        codes, values = nodes.label(key), nodes.label_values(key).values
        placements = []
        for code in np.unique(codes[codes != ABSENT]).tolist():
            if required is None or values[code] == required:
                rows = np.flatnonzero(codes == code).tolist()
                names = frozenset(nodes[row].name for row in rows)
                placements.append(Placement(values[code], names))
        # Placements are evaluated in this order; codes are in the order in which values were seen.
        return sorted(placements, key=lambda placement: placement.name)


def domain_of(pods: Iterable[PlacedPod], key: str, nodes: NodeTable) -> str | None:
    """Return the domain that pods are in; None without pods.

    Raises ``ValueError`` if they are in none or in several.
    """
    domain: str | None = None
    for pod, node_name in pods:
        row = nodes.rows.get(node_name)
        if row is None:
            text = f'nodeinfo not found for node name "{node_name}"'
            raise ValueError(f"getting node for pod {pod.key}: {text}")
        value = nodes[row].labels.get(key)
        if value is None:
            raise ValueError(f"no topology domain found for pod {pod.key}")
        # As in kube-scheduler, pods in a domain with an empty name do not count.
        if domain and domain != value:
            raise ValueError(f"more than 1 domain found for pod group: {domain}, {value}")
        domain = value
    return domain
