"""Which nodes are in the same situation: the same devices to give, the same of them taken.

Allocation is worked out once a situation and holds for every node that is in it; a column says
which node is in which. It is mended row by row as devices are taken and published, so its upkeep
costs a few microseconds a pod, whatever the size of the cluster.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.verdicts import IntArray
from proreus.plugins.dynamic_resources.allocated import AllocatedDevices, PoolState
from proreus.plugins.dynamic_resources.pools import PoolKey, Pools, PoolView

_MAX_AVAILABILITIES_PER_NODE = 8


@dataclass(frozen=True, slots=True)
class DeviceAvailability:
    """Pools that can be used, in the order in which they are tried, and what is taken of them.

    ``views`` are those of one of the nodes; on another their names differ, their shapes do not.
    """

    number: int
    views: tuple[PoolView, ...]
    states: tuple[PoolState, ...]


@dataclass(frozen=True, slots=True)
class _Group:
    """Unbound pools that some nodes see alike."""

    number: int
    views: tuple[PoolView, ...]


@dataclass(slots=True)
class _NodeEntry:
    """What is known of a node: its own pools, its group, and how the two interlock."""

    labels: object
    local: tuple[PoolView, ...]
    group: _Group
    interleaving: tuple[tuple[int, int], ...]


class AvailabilityIndex:
    """The situation of each node, by name or as a column of numbers.

    A number stands for one situation as long as ``epoch`` stays the same.
    """

    def __init__(self, pools: Pools, allocated: AllocatedDevices) -> None:
        self._pools = pools
        self._allocated = allocated
        self.epoch = 0
        self._table: weakref.ref[NodeTable] | None = None
        self._column: IntArray = np.empty(0, dtype=np.int64)
        self._group_of_row: IntArray = np.empty(0, dtype=np.int64)
        self._position = -1
        self._dirty_nodes: set[str] = set()
        self._dirty_groups: set[PoolKey] = set()
        self._all_dirty = True
        self._group_count = 0
        self._reset()

    def _reset(self) -> None:
        self.epoch += 1
        self._entries: dict[str, _NodeEntry] = {}
        self._groups: dict[object, _Group] = {}
        self._numbers: dict[object, int] = {}
        self.all: list[DeviceAvailability] = []

    # ---- what changed --------------------------------------------------------------------------

    def pool_changed(self, key: PoolKey) -> None:
        """Take note that devices of a pool were taken or given back."""
        self._dirty_nodes.update(self._pools.nodes_of.get(key, ()))
        if key in self._pools.non_local or key in self._pools.invalid_counter_pools:
            self._dirty_groups.add(key)

    def slices_changed(self, before: set[str], keys: Iterable[PoolKey], non_local: bool) -> None:
        """Take note that pools changed; ``before``: nodes that had them as their own."""
        nodes = set(before)
        for key in keys:
            nodes |= self._pools.nodes_of.get(key, set())
            non_local = (
                non_local
                or key in self._pools.non_local
                or key in self._pools.invalid_counter_pools
            )
        if non_local:
            self._entries.clear()
            self._groups.clear()
            self._all_dirty = True
        else:
            for node in nodes:
                self._entries.pop(node, None)
            self._dirty_nodes |= nodes

    # ---- answers -------------------------------------------------------------------------------

    def column(self, table: NodeTable, nodes: NodeTable) -> IntArray:
        """Return the situation of each of ``nodes``, a part or a fork of ``table`` or itself."""
        self._refresh(table)
        if nodes is table:
            return self._column
        rows = table.rows
        parent_rows = [rows[node.name] for node in nodes]
        return self._column[np.array(parent_rows, dtype=np.intp)]

    def of_node(self, table: NodeTable, name: str) -> DeviceAvailability | None:
        """Return the situation of a node, None for a node that is not there."""
        self._refresh(table)
        row = table.rows.get(name)
        return None if row is None else self.all[int(self._column[row])]

    def views_of(self, table: NodeTable, name: str) -> tuple[PoolView, ...]:
        """Return a node's own pools, in the order of its situation."""
        entry = self._entry_of(table[table.rows[name]])
        return _merged(entry.local, entry.group.views)

    # ---- upkeep --------------------------------------------------------------------------------

    def _refresh(self, table: NodeTable) -> None:
        rows: list[int] | None = None
        if (
            self._table is not None
            and self._table() is table
            and not self._all_dirty
            and len(self._column) == table.size
        ):
            rows = table.changes_since(self._position)
            if self._dirty_nodes:
                known = table.rows
                more = [known[name] for name in self._dirty_nodes if name in known]
                rows = None if rows is None else [*rows, *more]
        if len(self.all) > 1024 + _MAX_AVAILABILITIES_PER_NODE * table.size:
            self._reset()
            self._pools.prune()
            rows = None
        if rows is None:
            self._table = weakref.ref(table)
            entries = [self._entry_of(info) for info in table]
            self._column = np.array(list(map(self._number_at, entries)), dtype=np.int64)
            self._group_of_row = np.array([p.group.number for p in entries], dtype=np.int64)
        else:
            if rows:
                # What was handed out stays as it was: others may still hold it.
                self._column = self._column.copy()
                for row in rows:
                    entry = self._entry_of(table[row])
                    self._column[row] = self._number_at(entry)
                    self._group_of_row[row] = entry.group.number
            if self._dirty_groups:
                self._refresh_groups(table)
        self._dirty_nodes.clear()
        self._dirty_groups.clear()
        self._all_dirty = False
        self._position = table.position

    def _refresh_groups(self, table: NodeTable) -> None:
        """Renumber nodes that see a pool which is not their own."""
        concerned = {
            group.number
            for group in self._groups.values()
            if any(view.key in self._dirty_groups for view in group.views)
        }
        if not concerned:
            return
        rows = np.flatnonzero(np.isin(self._group_of_row, list(concerned)))
        # Nodes of one group that were in one situation go to one situation together.
        both = np.stack((self._group_of_row[rows], self._column[rows]))
        _, first, which = np.unique(both, axis=1, return_index=True, return_inverse=True)
        entries = [self._entries[table[int(rows[index])].name] for index in first.tolist()]
        numbers = np.array([self._number_at(entry) for entry in entries], dtype=np.int64)
        self._column = self._column.copy()
        self._column[rows] = numbers[which.reshape(-1)]

    def _number_at(self, entry: _NodeEntry) -> int:
        group = entry.group
        state_of = self._allocated.state_of
        states = tuple(state_of(view) for view in entry.local)
        shared = tuple(state_of(view) for view in group.views)
        shapes = tuple(view.shape for view in entry.local)
        key = shapes, states, entry.interleaving, group.number, shared
        number = self._numbers.get(key)
        if number is None:
            views = _merged(entry.local, group.views)
            by_key = dict(
                zip((v.key for v in (*entry.local, *group.views)), (*states, *shared), strict=True)
            )
            number = self._numbers[key] = len(self.all)
            self.all.append(DeviceAvailability(number, views, tuple(by_key[v.key] for v in views)))
        return number

    def _entry_of(self, info: NodeInfo) -> _NodeEntry:
        entry = self._entries.get(info.name)
        labels = info.labels
        if entry is not None and (entry.labels is labels or entry.labels == labels):
            return entry
        pools = self._pools
        own = pools.local.get(info.name, ())
        views = [pools.view(key, info.name, labels) for key in own]
        local = tuple(sorted((v for v in views if v is not None), key=lambda view: view.order))
        group = self._group_of(info, own)
        # Own pools sharing a name (of different drivers) share their counters, and where they
        # stand among the others decides what is tried first: both must be alike.
        names = [view.key[1] for view in (*local, *group.views)]
        orders = [view.order for view in group.views]
        interleaving = tuple(
            (sum(order < view.order for order in orders), names.index(view.key[1]))
            for view in local
        )
        entry = self._entries[info.name] = _NodeEntry(labels, local, group, interleaving)
        return entry

    def _group_of(self, info: NodeInfo, own: Iterable[PoolKey]) -> _Group:
        pools = self._pools
        keys = [key for key in pools.non_local if key not in own] if pools.non_local else []
        invalid_counter_pools = [
            key for key in pools.invalid_counter_pools if key not in own and key not in keys
        ]
        visibility_key = (
            tuple((key, pools.reach(key, info.name, info.labels)) for key in keys),
            tuple(invalid_counter_pools),
        )
        group = self._groups.get(visibility_key)
        if group is None:
            views = [pools.view(key, info.name, info.labels) for key in keys]
            views += [pools.invalid_counter_pools[key] for key in invalid_counter_pools]
            found = sorted((v for v in views if v is not None), key=lambda view: view.order)
            self._group_count += 1
            group = self._groups[visibility_key] = _Group(self._group_count, tuple(found))
        return group


def _merged(local: tuple[PoolView, ...], shared: tuple[PoolView, ...]) -> tuple[PoolView, ...]:
    return local if not shared else tuple(sorted((*local, *shared), key=lambda view: view.order))
