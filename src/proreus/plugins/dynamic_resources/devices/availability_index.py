"""The ``DeviceAvailability`` of each node: nodes with equal devices, equally taken, share one.

One search holds for all nodes with the same availability. A column has its number for each node and
is updated row by row, at a few microseconds for each pod, whatever the size of the cluster.

Example: n1, n2 and n3 each have a pool of two equal GPUs: the column is [0, 0, 0], and one search
decides for all. A claim gets the first GPU of n2: ``pool_changed`` marks n2, the next ``column``
finds an availability that is new, and the column is [0, 1, 0]. When the GPU is released, it is
[0, 0, 0] again; results for number 1 are kept for the next time a node has one GPU left.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable

import numpy as np
from msgspec import Struct

from proreus.base.bounded_cache import register
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.node_table_views import rows_in
from proreus.framework.verdicts import IntArray
from proreus.plugins.dynamic_resources.devices.allocated import AllocatedDevices, PoolState
from proreus.plugins.dynamic_resources.devices.pools import PoolKey, Pools, PoolView

_MAX_AVAILABILITIES_PER_NODE = 8
_SPARE_AVAILABILITIES = 1024

OPTIONAL_NODE_OPERATIONS = "DRAOptionalNodeOperations"
"""The feature that a kubelet declares which can leave out operations for devices."""


def can_skip_operations(info: NodeInfo) -> bool:
    """Return whether a node's kubelet can leave out operations for devices."""
    return info.node is not None and OPTIONAL_NODE_OPERATIONS in info.node.status.declared_features


class DeviceAvailability(Struct, frozen=True):
    """Pools in reach of a node, in the order in which they are tried, and what is taken of them.

    ``views`` are those of one of the nodes; on others they have other names and equal shapes.
    ``may_skip``: the nodes' kubelets can leave out operations for devices (gate
    DRAOptionalNodeOperations).
    """

    number: int
    views: tuple[PoolView, ...]
    states: tuple[PoolState, ...]
    may_skip: bool = False


class _NodeEntry(Struct):
    """The pools in reach of a node, in the order in which they are tried.

    ``shared``: those that belong to no single node; one object for nodes that see them alike.
    ``same_names``: for each pool the position of the first one of its name.
    """

    labels: object
    views: tuple[PoolView, ...]
    shared: tuple[PoolView, ...]
    same_names: tuple[int, ...]
    may_skip: bool


class AvailabilityIndex:
    """The availability of each node, by name or as a column of numbers.

    ``all`` has the availabilities by number. A number means the same as long as ``epoch`` does not
    change; results that are kept by number are void with a new epoch.
    """

    def __init__(self, pools: Pools, allocated: AllocatedDevices, table: NodeTable) -> None:
        """``table``: all nodes; referred to weakly, since managers are kept by their table."""
        self._pools = pools
        self._allocated = allocated
        self._table = weakref.ref(table)
        self._optional_node_operations = pools.features.optional_node_operations
        self.epoch = 0
        self._column: IntArray = np.empty(0, dtype=np.int64)
        self._position = -1
        self._dirty_nodes: set[str] = set()
        self._dirty_shared: set[PoolKey] = set()
        self._all_dirty = True
        self._reset()
        register(self)

    def _reset(self) -> None:
        self.epoch += 1
        self._entries: dict[str, _NodeEntry] = {}
        self._shared: dict[object, tuple[PoolView, ...]] = {}
        self._numbers: dict[object, int] = {}
        self.all: list[DeviceAvailability] = []

    def age(self) -> None:
        """Forget nodes that are gone; begin anew if most of what is known is of no use any more."""
        table = self._table()
        if table is None:
            return
        # Availabilities that no node has any more are kept, since the same ones come back. Devices
        # that are published with ever new attributes would make them grow without end, though.
        # Availabilities and their results refer to kinds of devices by number.
        most = _SPARE_AVAILABILITIES + _MAX_AVAILABILITIES_PER_NODE * table.size
        if len(self.all) > most or self._pools.has_many_unused_kinds():
            self.begin_epoch()
        self._entries = {n: one for n, one in self._entries.items() if n in table.rows}
        # It may be days until a pod with claims comes, while nodes come and go with their pools.
        self._dirty_nodes.intersection_update(table.rows)

    def begin_epoch(self) -> None:
        """Forget all availabilities, and with them the kinds of devices that are gone."""
        self._reset()
        self._pools.forget_shapes()
        self._all_dirty = True

    # ---- what changed --------------------------------------------------------------------------

    def pool_changed(self, key: PoolKey) -> None:
        """Mark the nodes of a pool of which devices were taken or released."""
        # Only marked: several devices may change before anybody looks at the column again.
        self._dirty_nodes |= self._pools.nodes_of.get(key, set())
        if key in self._pools.non_local or key in self._pools.invalid_counter_pools:
            self._dirty_shared.add(key)

    def slices_changed(self, before: set[str], keys: Iterable[PoolKey], non_local: bool) -> None:
        """Mark nodes whose pools changed; ``before``: nodes that had them as their own.

        ``non_local``: whether one of the pools was in reach of several nodes before the change.
        """
        # Where a pool was, and where it is now: a node that lost its pool has changed as well.
        nodes = set(before)
        for key in keys:
            nodes |= self._pools.nodes_of.get(key, set())
            non_local = (
                non_local
                or key in self._pools.non_local
                or key in self._pools.invalid_counter_pools
            )
        # The nodes that reach the pool are known only after matching it with every node, so nothing
        # that is kept by node is still good.
        if non_local:
            self._entries.clear()
            self._shared.clear()
            self._all_dirty = True
        else:
            for node in nodes:
                self._entries.pop(node, None)
            self._dirty_nodes |= nodes

    # ---- queries -------------------------------------------------------------------------------

    def column(self, nodes: NodeTable) -> IntArray:
        """Return the number of the availability of each node in ``nodes``.

        ``nodes``: all, a part or a fork of them. Shape ``(len(nodes),)``; not to be written to.
        """
        # The column is kept for the whole table. Devices do not change in a fork (a dry run of
        # preemption removes pods, and their claims keep their devices), so it is good for those.
        table = self._refreshed()
        return self._column if nodes is table else self._column[rows_in(table, nodes)]

    def of_node(self, name: str) -> DeviceAvailability:
        """Return the availability of a node."""
        row = self._refreshed().rows[name]
        return self.all[int(self._column[row])]

    def views_of(self, name: str) -> tuple[PoolView, ...]:
        """Return the pools in reach of a node, with their own names, in the order of the search."""
        table = self._table()
        assert table is not None
        return self._entry_of(table[table.rows[name]]).views

    # ---- upkeep --------------------------------------------------------------------------------

    def _refreshed(self) -> NodeTable:
        """Bring the column up to date with the table of all nodes; return that."""
        table = self._table()
        assert table is not None
        rows: list[int] | None = None
        if not self._all_dirty and len(self._column) == table.size:
            # Changed nodes matter for their labels, which node selectors of slices match. None: the
            # table no longer knows what has changed since, so that every row is computed anew.
            rows = table.changes_since(self._position)
            if rows is not None:
                rows += [table.rows[name] for name in self._dirty_nodes if name in table.rows]
        if rows is None:
            numbers = [self._number_at(self._entry_of(info)) for info in table]
            self._column = np.array(numbers, dtype=np.int64)
        elif rows or self._dirty_shared:
            # Copied, not changed in place: callers may still hold the old column.
            self._column = self._column.copy()
            for row in rows:
                self._column[row] = self._number_at(self._entry_of(table[row]))
            self._refresh_shared(table)
        self._dirty_nodes.clear()
        self._dirty_shared.clear()
        self._all_dirty = False
        self._position = table.position
        return table

    def _refresh_shared(self, table: NodeTable) -> None:
        """Renumber nodes that reach a changed pool which is not their own."""
        # Nodes that had one number, and see the same shared pools, get one number together: it is
        # computed a few times instead of thousands.
        numbers: dict[tuple[int, int], int] = {}
        for row, info in enumerate(table if self._dirty_shared else ()):
            entry = self._entries[info.name]
            if any(view.key in self._dirty_shared for view in entry.shared):
                key = int(self._column[row]), id(entry.shared)
                if key not in numbers:
                    numbers[key] = self._number_at(entry)
                self._column[row] = numbers[key]

    def _number_at(self, entry: _NodeEntry) -> int:
        views = entry.views
        states = tuple(map(self._allocated.state_of, views))
        # All that the search looks at, and no names of nodes, pools and devices: on nodes with
        # equal keys it takes the same path, so its result holds for all of them by position.
        shapes = tuple(view.shape for view in views)
        key = shapes, states, entry.same_names, entry.may_skip
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.all)
            self.all.append(DeviceAvailability(number, views, states, entry.may_skip))
        return number

    def _entry_of(self, info: NodeInfo) -> _NodeEntry:
        entry = self._entries.get(info.name)
        labels = info.labels
        # Most updates of a node leave its labels alone; matching pools anew is the costly part.
        may_skip = self._optional_node_operations and can_skip_operations(info)
        if (
            entry is not None
            and (entry.labels is labels or entry.labels == labels)
            and entry.may_skip == may_skip
        ):
            return entry
        pools = self._pools
        own = pools.local.get(info.name, ())
        found = [pools.view(key, info.name, labels) for key in own]
        shared = self._shared_by(info, own)
        local = (view for view in found if view is not None)
        views = tuple(sorted((*local, *shared), key=lambda view: view.order))
        # Pools of one name, of different drivers, share counters (see ``ConsumedCounters``).
        names = [view.key[1] for view in views]
        same_names = tuple(map(names.index, names))
        entry = self._entries[info.name] = _NodeEntry(labels, views, shared, same_names, may_skip)
        return entry

    def _shared_by(self, info: NodeInfo, own: Iterable[PoolKey]) -> tuple[PoolView, ...]:
        """Return the pools in reach of a node that belong to no single node."""
        pools = self._pools
        # A pool that has slices for this node by name is among the node's own already, with all
        # that the node sees of it.
        keys = [key for key in pools.non_local if key not in own] if pools.non_local else []
        invalid_counter_pools = [
            key for key in pools.invalid_counter_pools if key not in own and key not in keys
        ]
        visibility_key = (
            tuple((key, pools.reach(key, info.name, info.labels)) for key in keys),
            tuple(invalid_counter_pools),
        )
        shared = self._shared.get(visibility_key)
        if shared is None:
            views = [pools.view(key, info.name, info.labels) for key in keys]
            views += [pools.invalid_counter_pools[key] for key in invalid_counter_pools]
            shared = tuple(view for view in views if view is not None)
            self._shared[visibility_key] = shared
        return shared
