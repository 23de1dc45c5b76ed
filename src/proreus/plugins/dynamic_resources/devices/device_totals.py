"""How many devices of a class are in reach of each node, and how many of those are taken.

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
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np
from msgspec import Struct, field

from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.node_table_views import NodeTableView
from proreus.framework.verdicts import BoolArray, IntArray, Rows
from proreus.objects.devices import Device, DeviceClass, ResourceSliceSpec
from proreus.plugins.dynamic_resources.cel.expressions import CelError
from proreus.plugins.dynamic_resources.devices.allocated import AllocatedDevices, Uses
from proreus.plugins.dynamic_resources.devices.kinds import DeviceKind
from proreus.plugins.dynamic_resources.devices.node_matching import PoolError, parsed_selector
from proreus.plugins.dynamic_resources.devices.pools import PoolKey, Pools

Key = TypeVar("Key", str, bytes)

NodeScope = str | bytes
"""The nodes that reach a device: the one of this name, or those of an encoded node selector."""

ALL_NODES: NodeScope = b""


class DeviceCounts(NamedTuple):
    """Devices taken, devices in the class, and devices that its selectors fail to evaluate for."""

    held: int = 0
    capacity: int = 0
    errors: int = 0


NO_DEVICES = DeviceCounts()
_SPARE_POOLS = 1024


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
    """Totals of one class: ``local`` by node name, ``by_selector`` by encoded node selector.

    ``local_columns``: ``local`` as columns, shape ``(3, rows)``, rows taken, capacity and errors.
    ``stale_nodes``: the nodes where it is out of date.
    """

    def __init__(self, cls: DeviceClass) -> None:
        self.cls = cls
        self.expressions = _expressions(cls)
        self.local: dict[str, DeviceCounts] = {}
        self.by_selector: dict[bytes, DeviceCounts] = {}
        self.local_columns: IntArray | None = None
        self.stale_nodes: set[str] = set()
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
                    if isinstance(node_scope, bytes) and node_scope:
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
        """Update the totals with what a pool lists and what of it is taken."""
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
            if isinstance(node_scope, str):
                _adjust(self.local, node_scope, was, now)
                self.stale_nodes.add(node_scope)
            else:
                _adjust(self.by_selector, node_scope, was, now)


class DeviceTotals:
    """Totals of the device classes behind the resources that plugins score.

    A class is counted from its first query on; without queries nothing is kept up to date.
    """

    def __init__(self, pools: Pools, allocated: AllocatedDevices) -> None:
        self._pools = pools
        self._allocated = allocated
        self._classes: dict[str, _ClassTotals] = {}
        self._changed_pools: set[PoolKey] = set()
        self._changed_allocations: set[PoolKey] = set()
        self._table: weakref.ref[NodeTable] | None = None
        self._size = 0
        self._position = -1
        self._masks: dict[bytes, BoolArray] = {}

    # ---- what changed --------------------------------------------------------------------------

    def allocations_changed(self, key: PoolKey) -> None:
        """Mark a pool of which devices were taken or released."""
        if self._classes:
            self._changed_allocations.add(key)
            self._drop_if_unused()

    def slices_changed(self, keys: Iterable[PoolKey]) -> None:
        """Mark pools whose slices changed."""
        if self._classes:
            self._changed_pools.update(keys)
            self._drop_if_unused()

    def _drop_if_unused(self) -> None:
        # Pools come and go with their nodes, and their names are new ones. A later query counts
        # everything anew, which takes no longer than to count so many pools again.
        changed = len(self._changed_pools) + len(self._changed_allocations)
        if changed > _SPARE_POOLS + 2 * len(self._pools):
            self._classes.clear()
            self._masks.clear()
            self._changed_pools.clear()
            self._changed_allocations.clear()

    # ---- queries -------------------------------------------------------------------------------

    def at(self, resource: str, cls: DeviceClass, node: NodeInfo) -> tuple[int, int]:
        """Return how many devices are taken on a node, and how many it reaches.

        ``(0, 0)`` if a selector of the class cannot be evaluated for one of them.
        """
        known = self._totals_of(resource, cls)
        held, capacity, errors = known.local.get(node.name, NO_DEVICES)
        for selector, more in known.by_selector.items():
            if _selected(selector, node):
                held, capacity, errors = held + more[0], capacity + more[1], errors + more[2]
        return (0, 0) if errors else (held, capacity)

    def columns(
        self, resource: str, cls: DeviceClass, table: NodeTable, nodes: NodeTable
    ) -> tuple[IntArray, IntArray]:
        """Return the same for each node, as two columns of shape ``(len(nodes),)``.

        ``nodes``: ``table``, a part or a fork of it.
        """
        known = self._totals_of(resource, cls)
        self._refresh(table)
        assert known.local_columns is not None
        totals = known.local_columns.copy()
        # Few selectors, many nodes: masks are added up at each query instead of being kept in the
        # columns, where a change of one network pool would rewrite every row.
        for selector, more in known.by_selector.items():
            column = np.array(more, dtype=np.int64)[:, None]
            totals += column * self._mask(selector, table) if selector else column
        totals[:2, totals[2] > 0] = 0
        if nodes is not table:
            totals = totals[:, _rows_of(nodes, table)]
        return totals[0], totals[1]

    # ---- upkeep --------------------------------------------------------------------------------

    def _totals_of(self, resource: str, cls: DeviceClass) -> _ClassTotals:
        if self._changed_pools or self._changed_allocations:
            self._recount()
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

    def _recount(self) -> None:
        for known in self._classes.values():
            for key in self._changed_pools:
                known.list_pool(self._pools, key)
            for key in self._changed_pools | self._changed_allocations:
                known.count_pool(key, self._allocated.uses.get(key, {}))
        # Masks of selectors that no slice has any more would stay for ever.
        if self._changed_pools:
            wanted = {
                selector for known in self._classes.values() for selector in known.by_selector
            }
            self._masks = {s: mask for s, mask in self._masks.items() if s in wanted}
        self._changed_pools.clear()
        self._changed_allocations.clear()

    def _refresh(self, table: NodeTable) -> None:
        """Update all columns with nodes that were added, deleted or changed."""
        rows: list[int] | None = None
        if self._table is not None and self._table() is table and self._size == table.size:
            rows = table.changes_since(self._position)
        if rows is None:
            self._table = weakref.ref(table)
            self._masks.clear()
        else:
            for selector, mask in self._masks.items():
                for row in rows:
                    mask[row] = _selected(selector, table[row])
        for known in self._classes.values():
            _refresh_local_columns(known, table, rows)
        self._size, self._position = table.size, table.position

    def _mask(self, selector: bytes, table: NodeTable) -> BoolArray:
        mask = self._masks.get(selector)
        if mask is None:
            each = [_selected(selector, node) for node in table]
            mask = self._masks[selector] = np.array(each, dtype=np.bool_)
        return mask


def _refresh_local_columns(
    known: _ClassTotals, table: NodeTable, rows: Sequence[int] | None
) -> None:
    local = known.local
    if rows is None or known.local_columns is None:
        each = [local.get(node.name, NO_DEVICES) for node in table]
        known.local_columns = np.array(each, dtype=np.int64).reshape(-1, 3).T.copy()
    else:
        places = table.rows
        for row in (*rows, *(places[name] for name in known.stale_nodes if name in places)):
            known.local_columns[:, row] = local.get(table[row].name, NO_DEVICES)
    known.stale_nodes.clear()


def _rows_of(nodes: NodeTable, table: NodeTable) -> Rows:
    if isinstance(nodes, NodeTableView) and nodes.parent is table:
        return nodes.parent_rows
    rows = table.rows
    return np.array([rows[node.name] for node in nodes], dtype=np.intp)


def _expressions(cls: DeviceClass) -> tuple[str, ...]:
    return tuple(s.cel.expression for s in cls.spec.selectors if s.cel is not None)


def _node_scope_of(spec: ResourceSliceSpec, device: Device) -> NodeScope | None:
    """Return which nodes reach a device; None: no node."""
    # A slice that names no nodes counts on all of them in kube-scheduler's scores, though its
    # devices are not allocated. With perDeviceNodeSelection, a device without nodes has none.
    chooser: Device | ResourceSliceSpec = device if spec.per_device_node_selection else spec
    if chooser.all_nodes:
        return ALL_NODES
    if chooser.node_name:
        return chooser.node_name
    if chooser.node_selector is not None:
        return msgspec.json.encode(chooser.node_selector)
    return None if chooser is device else ALL_NODES


def _selected(selector: bytes, node: NodeInfo) -> bool:
    return not selector or parsed_selector(selector).matches(node.labels, node.name)


def _adjust(
    totals: dict[Key, DeviceCounts], node_scope: Key, was: DeviceCounts, now: DeviceCounts
) -> None:
    """Subtract from a total what a pool counted before, and add what it counts now."""
    have = totals.get(node_scope, NO_DEVICES)
    total = DeviceCounts(*(h - w + n for h, w, n in zip(have, was, now, strict=True)))
    if total == NO_DEVICES:
        totals.pop(node_scope, None)
    else:
        totals[node_scope] = total
