"""How many devices of a class each node can reach, and how many of those are taken.

Scores count so, and only scores: whatever drivers list counts, old generations and incomplete
pools too, and neither taints nor counters are looked at. Counts are kept by who can reach the
devices, and mended pool by pool and row by row, so that a cycle does not walk over devices.
"""

from __future__ import annotations

import weakref
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np

from proreus.framework.node_info import NodeInfo
from proreus.framework.node_parts import Part
from proreus.framework.node_table import NodeTable
from proreus.framework.verdicts import BoolArray, IntArray, Rows
from proreus.objects.devices import Device, DeviceClass, ResourceSliceSpec
from proreus.plugins.dynamic_resources.allocated import AllocatedDevices, Uses
from proreus.plugins.dynamic_resources.cel import CelError
from proreus.plugins.dynamic_resources.devices import DeviceKind
from proreus.plugins.dynamic_resources.pools import PoolKey, Pools
from proreus.plugins.dynamic_resources.reach import PoolError, parsed_selector

Key = TypeVar("Key", str, bytes)

Reach = str | bytes
"""Who can reach a device: the node of this name, or the nodes that an encoded selector selects."""

EVERYWHERE: Reach = b""


class Totals(NamedTuple):
    """Devices taken, devices in the class, and devices of which neither can be said."""

    held: int = 0
    capacity: int = 0
    faults: int = 0


NOTHING = Totals()


@dataclass(slots=True)
class _Members:
    """Devices of one pool and reach that are in the class, by name, and those that fail it."""

    names: Counter[str] = field(default_factory=Counter)
    faults: int = 0

    def totals(self, uses: Uses) -> Totals:
        names = self.names
        return Totals(sum(names[device] for device in uses), names.total(), self.faults)


class _ClassTotals:
    """Totals of one class by reach: ``local`` by node name, ``wide`` by encoded selector.

    ``own``: ``local`` as columns, shape ``(3, rows)``; ``moved``: nodes where it is out of date.
    """

    def __init__(self, cls: DeviceClass) -> None:
        self.cls = cls
        self.expressions = _expressions(cls)
        self.local: dict[str, Totals] = {}
        self.wide: dict[bytes, Totals] = {}
        self.own: IntArray | None = None
        self.moved: set[str] = set()
        self._members: dict[PoolKey, dict[Reach, _Members]] = {}
        self._counted: dict[PoolKey, dict[Reach, Totals]] = {}

    def list_pool(self, pools: Pools, key: PoolKey) -> None:
        """Find the members of the class in a pool that was published anew."""
        members: dict[Reach, _Members] = defaultdict(_Members)
        for spec, kinds in pools.published(key):
            for device, kind in zip(spec.devices, kinds, strict=True):
                reach = _reach_of(spec, device)
                if reach is None:
                    continue
                try:
                    if isinstance(reach, bytes) and reach:
                        parsed_selector(reach)
                    if self._selects(kind):
                        members[reach].names[device.name] += 1
                except PoolError:
                    members[EVERYWHERE].faults += 1
                except CelError:
                    members[reach].faults += 1
        if members:
            self._members[key] = dict(members)
        else:
            self._members.pop(key, None)

    def _selects(self, kind: DeviceKind) -> bool:
        return all(map(kind.matches, self.expressions))

    def count_pool(self, key: PoolKey, uses: Uses) -> None:
        """Bring the totals in step with what a pool lists and what of it is taken."""
        before = self._counted.pop(key, {})
        members = self._members.get(key)
        after = {reach: m.totals(uses) for reach, m in members.items()} if members else {}
        if after:
            self._counted[key] = after
        for reach in before.keys() | after.keys():
            was, now = before.get(reach, NOTHING), after.get(reach, NOTHING)
            if was == now:
                continue
            if isinstance(reach, str):
                _shift(self.local, reach, was, now)
                self.moved.add(reach)
            else:
                _shift(self.wide, reach, was, now)


class DeviceTotals:
    """Totals of the classes that are asked about, one class a resource."""

    def __init__(self, pools: Pools, allocated: AllocatedDevices) -> None:
        self._pools = pools
        self._allocated = allocated
        self._classes: dict[str, _ClassTotals] = {}
        self._listed_anew: set[PoolKey] = set()
        self._taken_anew: set[PoolKey] = set()
        self._table: weakref.ref[NodeTable] | None = None
        self._size = 0
        self._position = -1
        self._masks: dict[bytes, BoolArray] = {}

    # ---- what changed --------------------------------------------------------------------------

    def taken_changed(self, key: PoolKey) -> None:
        """Take note that devices of a pool were taken or given back."""
        if self._classes:
            self._taken_anew.add(key)

    def slices_changed(self, keys: Iterable[PoolKey]) -> None:
        """Take note that pools were published anew."""
        if self._classes:
            self._listed_anew.update(keys)

    # ---- answers -------------------------------------------------------------------------------

    def at(self, resource: str, cls: DeviceClass, node: NodeInfo) -> tuple[int, int]:
        """Return how many devices are taken, of how many; ``(0, 0)`` where that cannot be said."""
        known = self._known(resource, cls)
        held, capacity, faults = known.local.get(node.name, NOTHING)
        for selector, more in known.wide.items():
            if _selected(selector, node):
                held, capacity, faults = held + more[0], capacity + more[1], faults + more[2]
        return (0, 0) if faults else (held, capacity)

    def columns(
        self, resource: str, cls: DeviceClass, table: NodeTable, nodes: NodeTable
    ) -> tuple[IntArray, IntArray]:
        """Return the same for each of ``nodes``, a part or a fork of ``table`` or itself."""
        known = self._known(resource, cls)
        self._refresh(table)
        assert known.own is not None
        totals = known.own.copy()
        for selector, more in known.wide.items():
            column = np.array(more, dtype=np.int64)[:, None]
            totals += column * self._mask(selector, table) if selector else column
        totals[:2, totals[2] > 0] = 0
        if nodes is not table:
            totals = totals[:, _rows_of(nodes, table)]
        return totals[0], totals[1]

    # ---- upkeep --------------------------------------------------------------------------------

    def _known(self, resource: str, cls: DeviceClass) -> _ClassTotals:
        if self._listed_anew or self._taken_anew:
            self._recount()
        known = self._classes.get(resource)
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
            for key in self._listed_anew:
                known.list_pool(self._pools, key)
            for key in self._listed_anew | self._taken_anew:
                known.count_pool(key, self._allocated.uses.get(key, {}))
        if self._listed_anew:
            wanted = {selector for known in self._classes.values() for selector in known.wide}
            self._masks = {s: mask for s, mask in self._masks.items() if s in wanted}
        self._listed_anew.clear()
        self._taken_anew.clear()

    def _refresh(self, table: NodeTable) -> None:
        """Bring all columns in step with nodes that came, went or changed."""
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
            _refresh_own(known, table, rows)
        self._size, self._position = table.size, table.position

    def _mask(self, selector: bytes, table: NodeTable) -> BoolArray:
        mask = self._masks.get(selector)
        if mask is None:
            each = [_selected(selector, node) for node in table]
            mask = self._masks[selector] = np.array(each, dtype=np.bool_)
        return mask


def _refresh_own(known: _ClassTotals, table: NodeTable, rows: Sequence[int] | None) -> None:
    local = known.local
    if rows is None or known.own is None:
        each = [local.get(node.name, NOTHING) for node in table]
        known.own = np.array(each, dtype=np.int64).reshape(-1, 3).T.copy()
    else:
        places = table.rows
        for row in (*rows, *(places[name] for name in known.moved if name in places)):
            known.own[:, row] = local.get(table[row].name, NOTHING)
    known.moved.clear()


def _rows_of(nodes: NodeTable, table: NodeTable) -> Rows:
    if isinstance(nodes, Part) and nodes.parent is table:
        return nodes.picked
    rows = table.rows
    return np.array([rows[node.name] for node in nodes], dtype=np.intp)


def _expressions(cls: DeviceClass) -> tuple[str, ...]:
    return tuple(s.cel.expression for s in cls.spec.selectors if s.cel is not None)


def _reach_of(spec: ResourceSliceSpec, device: Device) -> Reach | None:
    """Return who can reach a device; None for nobody.

    A slice that does not say who is open to all here: kube-scheduler's scores have it so. A device
    that is to say so itself is not.
    """
    chooser: Device | ResourceSliceSpec = device if spec.per_device_node_selection else spec
    if chooser.all_nodes:
        return EVERYWHERE
    if chooser.node_name:
        return chooser.node_name
    if chooser.node_selector is not None:
        return msgspec.json.encode(chooser.node_selector)
    return None if chooser is device else EVERYWHERE


def _selected(selector: bytes, node: NodeInfo) -> bool:
    return not selector or parsed_selector(selector).matches(node.labels, node.name)


def _shift(totals: dict[Key, Totals], reach: Key, was: Totals, now: Totals) -> None:
    """Take from a sum what a pool counted before, and add what it counts now."""
    have = totals.get(reach, NOTHING)
    total = Totals(*(h - w + n for h, w, n in zip(have, was, now, strict=True)))
    if total == NOTHING:
        totals.pop(reach, None)
    else:
        totals[reach] = total
