"""Device totals for the plugins that score by utilisation: NodeResourcesFit, BalancedAllocation.

Where a node has none of an extended resource itself and a DeviceClass backs it, devices of that
class are the node's capacity (KEP-5004).
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
    """Devices behind those of a plugin's configured resources that a DeviceClass backs.

    Totals depend on claims and slices, not on nodes alone: scores of pods for which
    ``affects_score`` is true must not be kept in the equivalence cache.
    """

    def __init__(self, resources: frozenset[str], manager: DRAManager) -> None:
        self._resources = resources
        self._manager = manager

    @staticmethod
    def of(handle: Handle, resources: Iterable[str]) -> ScoredDevices | None:
        """Return the totals for configured resources; None if none of them can be devices."""
        # None spares plugins whose arguments name cpu and memory only any work for each pod.
        features = Features.of(handle.feature_gates)
        found = frozenset(filter(may_be_dra_backed, resources))
        if not found or not features.extended_resources:
            return None
        return ScoredDevices(found, DRAManager.of(handle, features))

    def affects_score(self, amounts: Mapping[str, int]) -> bool:
        """Return whether devices count in the score of a pod that requests these amounts."""
        return any(
            amounts.get(resource) and self._class_of(resource) for resource in self._resources
        )

    def at(self, resource: str, node: NodeInfo) -> tuple[int, int]:
        """Return the numbers of devices that are taken on a node, and that it reaches."""
        cls = self._class_of(resource)
        return (0, 0) if cls is None else self._manager.totals.at(resource, cls, node)

    def columns(self, resource: str, nodes: NodeTable) -> tuple[IntArray, IntArray] | None:
        """Return ``at`` for each node, shape ``(len(nodes),)``; None if no class backs it."""
        cls = self._class_of(resource)
        if cls is None:
            return None
        return self._manager.totals.columns(resource, cls, nodes)

    def _class_of(self, resource: str) -> DeviceClass | None:
        return self._manager.extended.get(resource) if resource in self._resources else None
