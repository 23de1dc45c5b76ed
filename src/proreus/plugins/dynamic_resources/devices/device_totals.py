"""The numbers of a class' devices that each node reaches, and that are taken of these.

For scores only (``calculateDRAResourceTotals`` upstream): old generations and incomplete
pools count, taints and counters do not matter. Devices are counted pool by pool, so that a cycle
does not walk over them, and the counts of pools are added up once after a change.

Example: n1 lists the GPUs a and b; a network pool has c for nodes with ``rack=a``, n1 and n2. Then
``local`` is {n1: (0 taken, 2 in all)}, ``by_selector`` {rack=a: (0, 1)}: n1 reaches 3 GPUs, n2 one.
A claim gets b: only the pool of n1 is counted again, (1, 2).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from proreus.framework.node_affinity import matches_selector
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.verdicts import IntArray
from proreus.objects.devices import Device, DeviceClass, ResourceSliceSpec
from proreus.objects.selectors import NodeSelector
from proreus.plugins.dynamic_resources.cel.expressions import CelError
from proreus.plugins.dynamic_resources.devices.allocated import AllocatedDevices
from proreus.plugins.dynamic_resources.devices.node_matching import (
    PoolError,
    parsed_selector,
)
from proreus.plugins.dynamic_resources.devices.pools import PoolKey, Pools

NodeScope = str | NodeSelector
"""The nodes that reach a device: the one of this name, all, or those of a node selector."""

ALL_NODES = ""


class DeviceCounts(NamedTuple):
    """Devices taken, devices in the class, and devices that its selectors fail to evaluate for."""

    held: int = 0
    capacity: int = 0
    errors: int = 0

    def plus(self, other: DeviceCounts) -> DeviceCounts:
        """Add two counts."""
        held, capacity, errors = other
        return DeviceCounts(self.held + held, self.capacity + capacity, self.errors + errors)


NO_DEVICES = DeviceCounts()


class _ClassTotals:
    """Totals of one class: ``local`` by node name or ``ALL_NODES``, ``by_selector`` by selector."""

    def __init__(self, cls: DeviceClass) -> None:
        self.cls = cls
        self.expressions = _expressions(cls)
        self.local: dict[str, DeviceCounts] = {}
        self.by_selector: dict[NodeSelector, DeviceCounts] = {}
        self._counted: dict[PoolKey, dict[NodeScope, DeviceCounts]] = {}
        self._is_stale = False

    def count_pool(self, pools: Pools, allocated: AllocatedDevices, key: PoolKey) -> None:
        """Count the devices of a pool whose slices or allocations changed."""
        # Taken devices are looked up by name: while a driver replaces a generation, two slices may
        # list the same device.
        uses = allocated.uses.get(key, {})
        found: dict[NodeScope, DeviceCounts] = {}
        for spec, kinds in pools.published(key):
            for device, kind in zip(spec.devices, kinds, strict=True):
                node_scope = _node_scope_of(spec, device)
                if node_scope is None:
                    continue
                # An error is counted where the device is in reach, and makes it 0 of 0 there: the
                # resource then does not count in the score, as upstream where evaluation fails.
                counts = DeviceCounts(errors=1)
                try:
                    if isinstance(node_scope, NodeSelector):
                        parsed_selector(node_scope)
                    if not all(map(kind.matches, self.expressions)):
                        continue
                    counts = DeviceCounts(device.name in uses, 1)
                except PoolError:
                    # Matching such a selector fails on every node, also upstream.
                    node_scope = ALL_NODES
                except CelError:
                    pass
                found[node_scope] = found.get(node_scope, NO_DEVICES).plus(counts)
        if found != self._counted.pop(key, {}):
            self._is_stale = True
        if found:
            self._counted[key] = found

    def refresh(self) -> None:
        """Add up the counts of pools, if they have changed."""
        if not self._is_stale:
            return
        self.local, self.by_selector, self._is_stale = {}, {}, False
        for counted in self._counted.values():
            for node_scope, counts in counted.items():
                if isinstance(node_scope, str):
                    known = self.local.get(node_scope)
                    self.local[node_scope] = counts if known is None else known.plus(counts)
                else:
                    known = self.by_selector.get(node_scope, NO_DEVICES)
                    self.by_selector[node_scope] = known.plus(counts)


class DeviceTotals:
    """Totals of the device classes behind the resources that plugins score.

    A class is counted from its first query on; without queries nothing is kept up to date.
    """

    def __init__(self, pools: Pools, allocated: AllocatedDevices) -> None:
        self._pools = pools
        self._allocated = allocated
        self._classes: dict[str, _ClassTotals] = {}

    def pools_changed(self, keys: Collection[PoolKey]) -> None:
        """Count pools whose slices changed, or of which devices were taken or released."""
        for known in self._classes.values():
            for key in keys:
                known.count_pool(self._pools, self._allocated, key)

    def at(self, resource: str, cls: DeviceClass, node: NodeInfo) -> tuple[int, int]:
        """Return the numbers of devices that are taken on a node, and that it reaches.

        ``(0, 0)`` if a selector of the class cannot be evaluated for one of them.
        """
        known = self._totals_of(resource, cls)
        total = known.local.get(node.name, NO_DEVICES)
        total = total.plus(known.local.get(ALL_NODES, NO_DEVICES))
        for selector, more in known.by_selector.items():
            if parsed_selector(selector).matches(node.labels, node.name):
                total = total.plus(more)
        return (0, 0) if total.errors else (total.held, total.capacity)

    def columns(
        self, resource: str, cls: DeviceClass, nodes: NodeTable
    ) -> tuple[IntArray, IntArray]:
        """Return ``at`` for each node, as two columns of shape ``(len(nodes),)``."""
        known = self._totals_of(resource, cls)
        local = known.local
        each = [local.get(node.name, NO_DEVICES) for node in nodes]
        totals = np.array(each, dtype=np.int64).reshape(-1, 3).T.copy()
        totals += np.array(local.get(ALL_NODES, NO_DEVICES), dtype=np.int64)[:, None]
        for selector, more in known.by_selector.items():
            column = np.array(more, dtype=np.int64)[:, None]
            totals += column * matches_selector(nodes, parsed_selector(selector))
        totals[:2, totals[2] > 0] = 0
        return totals[0], totals[1]

    def _totals_of(self, resource: str, cls: DeviceClass) -> _ClassTotals:
        known = self._classes.get(resource)
        # An update of a class that leaves its selectors alone keeps its members. Another class may
        # also back the resource from now on: then they are found anew.
        if known is not None and known.cls is not cls:
            known = known if known.expressions == _expressions(cls) else None
        if known is None:
            known = self._classes[resource] = _ClassTotals(cls)
            for key in self._pools:
                known.count_pool(self._pools, self._allocated, key)
        known.cls = cls
        known.refresh()
        return known


def _expressions(cls: DeviceClass) -> tuple[str, ...]:
    return tuple(s.cel.expression for s in cls.spec.selectors if s.cel is not None)


def _node_scope_of(spec: ResourceSliceSpec, device: Device) -> NodeScope | None:
    """Return the nodes that reach a device; None if there is none."""
    # A slice that names no nodes counts on all of them in kube-scheduler's scores, though its
    # devices are not allocated. With perDeviceNodeSelection, a device without nodes has none.
    chooser: Device | ResourceSliceSpec = device if spec.per_device_node_selection else spec
    if chooser.all_nodes:
        return ALL_NODES
    if chooser.node_name:
        return chooser.node_name
    if chooser.node_selector is not None:
        return chooser.node_selector
    return None if chooser is device else ALL_NODES
