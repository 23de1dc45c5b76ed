"""The numbers of a class' devices that each node reaches, and that are taken of these.

For scores only (``calculateDRAResourceTotals`` upstream): old generations and incomplete
pools count, taints and counters do not matter. Totals are kept by ``NodeScope`` and updated pool by
pool and row by row, so that a cycle does not walk over devices.

Example: n1 lists the GPUs a and b; a network pool has c for nodes with ``rack=a``, n1 and n2. Then
``local`` is {n1: (0 taken, 2 in all)}, ``by_selector`` {rack=a: (0, 1)}: n1 reaches 3 GPUs, n2 one.
A claim gets b: only the pool of n1 is counted again, (1, 2), and only its row is rewritten.
"""

from __future__ import annotations

import weakref
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct, field

from proreus.framework.node_affinity import matches_selector
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.verdicts import IntArray
from proreus.objects.devices import Device, DeviceClass, ResourceSliceSpec
from proreus.objects.selectors import NodeSelector
from proreus.plugins.dynamic_resources.cel.expressions import CelError
from proreus.plugins.dynamic_resources.devices.allocated import AllocatedDevices, Uses
from proreus.plugins.dynamic_resources.devices.availability_index import rows_in
from proreus.plugins.dynamic_resources.devices.kinds import DeviceKind
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


NO_DEVICES = DeviceCounts()
_SPARE_NODES = 1024


class _Members(Struct):
    """Devices of one pool and scope that are in the class, by name, and how many are errors.

    A counter of names: while a driver replaces a generation, both may list the same device.
    """

    names: Counter[str] = field(default_factory=Counter)
    errors: int = 0

    def totals(self, uses: Uses) -> DeviceCounts:
        names = self.names
        return DeviceCounts(sum(names[device] for device in uses), names.total(), self.errors)


class _ClassTotals:
    """Totals of one class: ``local`` by node name or ``ALL_NODES``, ``by_selector`` by selector."""

    def __init__(self, cls: DeviceClass) -> None:
        self.cls = cls
        self.expressions = _expressions(cls)
        self.local: dict[str, DeviceCounts] = {}
        self.by_selector: dict[NodeSelector, DeviceCounts] = {}
        self._columns: IntArray = np.empty((3, 0), dtype=np.int64)
        self._position = -1
        self._stale_nodes: set[str] = set()
        """The nodes whose totals differ from their columns."""
        self._members: dict[PoolKey, dict[NodeScope, _Members]] = {}
        self._counted: dict[PoolKey, dict[NodeScope, DeviceCounts]] = {}

    def list_pool(self, pools: Pools, key: PoolKey) -> None:
        """Find the members of the class in a pool whose slices changed."""
        members: dict[NodeScope, _Members] = defaultdict(_Members)
        for spec, kinds in pools.published(key):
            for device, kind in zip(spec.devices, kinds, strict=True):
                node_scope = _node_scope_of(spec, device)
                if node_scope is None:
                    continue
                # An error is counted where the device is in reach, and makes it 0 of 0 there: the
                # resource then does not count in the score, as upstream where evaluation fails.
                try:
                    if isinstance(node_scope, NodeSelector):
                        parsed_selector(node_scope)
                    if self._selects(kind):
                        members[node_scope].names[device.name] += 1
                except PoolError:
                    # Matching such a selector fails on every node, also upstream.
                    members[ALL_NODES].errors += 1
                except CelError:
                    members[node_scope].errors += 1
        if members:
            self._members[key] = dict(members)
        else:
            self._members.pop(key, None)

    def _selects(self, kind: DeviceKind) -> bool:
        return all(map(kind.matches, self.expressions))

    def count_pool(self, key: PoolKey, uses: Uses) -> None:
        """Update the totals with the members of a pool and their uses."""
        # The difference to what the pool counted before is added, so the cost does not depend on
        # how many pools there are. Sums over all pools would be computed for each pod.
        before = self._counted.pop(key, {})
        members = self._members.get(key)
        after = {node_scope: m.totals(uses) for node_scope, m in members.items()} if members else {}
        if after:
            self._counted[key] = after
        for node_scope in before.keys() | after.keys():
            was, now = before.get(node_scope, NO_DEVICES), after.get(node_scope, NO_DEVICES)
            if was == now:
                continue
            totals: dict[Any, DeviceCounts] = self.by_selector
            if isinstance(node_scope, str):
                totals = self.local
                self._stale_nodes.add(node_scope)
            have = totals.pop(node_scope, NO_DEVICES)
            total = DeviceCounts(*(h - w + n for h, w, n in zip(have, was, now, strict=True)))
            if total != NO_DEVICES:
                totals[node_scope] = total
        # Nodes come and go with their pools, and it may be long until the next query.
        if len(self._stale_nodes) > _SPARE_NODES + len(self.local):
            self._position = -1
            self._stale_nodes.clear()

    def local_columns(self, table: NodeTable) -> IntArray:
        """Return ``local`` for the rows of the table: taken, capacity and errors, shape (3, rows).

        Not to be written to.
        """
        rows = None
        if self._position >= 0 and self._columns.shape[1] == table.size:
            rows = table.changes_since(self._position)
        if rows is None:
            each = [self.local.get(node.name, NO_DEVICES) for node in table]
            self._columns = np.array(each, dtype=np.int64).reshape(-1, 3).T.copy()
        else:
            rows += [table.rows[name] for name in self._stale_nodes if name in table.rows]
            for row in rows:
                self._columns[:, row] = self.local.get(table[row].name, NO_DEVICES)
        self._stale_nodes.clear()
        self._position = table.position
        return self._columns


class DeviceTotals:
    """Totals of the device classes behind the resources that plugins score.

    A class is counted from its first query on; without queries nothing is kept up to date.
    ``table``: all nodes.
    """

    def __init__(self, pools: Pools, allocated: AllocatedDevices, table: NodeTable) -> None:
        self._pools = pools
        self._allocated = allocated
        self._table = weakref.ref(table)
        self._classes: dict[str, _ClassTotals] = {}

    def allocations_changed(self, key: PoolKey) -> None:
        """Count a pool of which devices were taken or released."""
        for known in self._classes.values():
            known.count_pool(key, self._allocated.uses.get(key, {}))

    def slices_changed(self, keys: Iterable[PoolKey]) -> None:
        """Find the members in pools whose slices changed, and count them."""
        for known in self._classes.values():
            for key in keys:
                known.list_pool(self._pools, key)
                known.count_pool(key, self._allocated.uses.get(key, {}))

    def at(self, resource: str, cls: DeviceClass, node: NodeInfo) -> tuple[int, int]:
        """Return the numbers of devices that are taken on a node, and that it reaches.

        ``(0, 0)`` if a selector of the class cannot be evaluated for one of them.
        """
        known = self._totals_of(resource, cls)
        held, capacity, errors = known.local.get(node.name, NO_DEVICES)
        reached = [
            more
            for selector, more in known.by_selector.items()
            if parsed_selector(selector).matches(node.labels, node.name)
        ]
        for more in (*reached, known.local.get(ALL_NODES, NO_DEVICES)):
            held, capacity, errors = held + more[0], capacity + more[1], errors + more[2]
        return (0, 0) if errors else (held, capacity)

    def columns(
        self, resource: str, cls: DeviceClass, nodes: NodeTable
    ) -> tuple[IntArray, IntArray]:
        """Return ``at`` for each node, as two columns of shape ``(len(nodes),)``.

        ``nodes``: all, a part or a fork of them.
        """
        known, table = self._totals_of(resource, cls), self._table()
        assert table is not None
        columns = known.local_columns(table)
        totals = columns.copy() if nodes is table else columns[:, rows_in(table, nodes)]
        # Few selectors, many nodes: they are matched at each query instead of being kept in the
        # columns, where a change of one network pool would rewrite every row.
        totals += np.array(known.local.get(ALL_NODES, NO_DEVICES), dtype=np.int64)[:, None]
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
                known.list_pool(self._pools, key)
                known.count_pool(key, self._allocated.uses.get(key, {}))
        known.cls = cls
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
