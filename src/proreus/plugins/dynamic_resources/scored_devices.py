"""Devices behind extended resources, as plugins that score by how full nodes are see them.

Where a node has none of a resource itself and a DeviceClass stands for it, the devices of that
class are what the node has of it (KEP-5004).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from proreus.framework.handle import Handle
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.verdicts import IntArray
from proreus.objects.devices import DeviceClass
from proreus.plugins.dynamic_resources.dra_manager import DRAManager
from proreus.plugins.dynamic_resources.features import Features
from proreus.plugins.extended_resources import may_be_dra_backed


class ScoredDevices:
    """Devices behind those of a plugin's configured resources that a class stands for.

    Answers depend on claims and slices, not on nodes alone: they must not be shared among pods that
    ``affects_score`` says yes of.
    """

    def __init__(self, resources: frozenset[str], manager: DRAManager, table: NodeTable) -> None:
        self._resources = resources
        self._manager = manager
        self._table = table

    @staticmethod
    def of(handle: Handle, resources: Iterable[str]) -> ScoredDevices | None:
        """Return what there is to know for configured resources; None if none can be devices."""
        features = Features.of(handle.feature_gates)
        found = frozenset(filter(may_be_dra_backed, resources))
        if not found or not features.extended_resources:
            return None
        return ScoredDevices(found, DRAManager.of(handle, features), handle.nodes)

    def affects_score(self, amounts: Mapping[str, int]) -> bool:
        """Tell whether devices count in the score of a pod that asks for this."""
        return any(
            amounts.get(resource) and self._class_of(resource) for resource in self._resources
        )

    def at(self, resource: str, node: NodeInfo) -> tuple[int, int]:
        """Return how many devices are taken on a node, of how many."""
        cls = self._class_of(resource)
        return (0, 0) if cls is None else self._manager.totals.at(resource, cls, node)

    def columns(self, resource: str, nodes: NodeTable) -> tuple[IntArray, IntArray] | None:
        """Return the same for each node of a table; None if no class stands for the resource."""
        cls = self._class_of(resource)
        if cls is None:
            return None
        return self._manager.totals.columns(resource, cls, self._table, nodes)

    def _class_of(self, resource: str) -> DeviceClass | None:
        return self._manager.extended.get(resource) if resource in self._resources else None
