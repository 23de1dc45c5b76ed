"""A copy of the cache, with columns of its own, that dry runs may change.

Rows are copied as they change in the cache, in slices; the last rows are copied without letting
anything else run, so that the copy is that of one moment. It does not follow the cache by itself:
a dry run that takes several turns of the event loop sees the cluster of its beginning.

Pods and nodes are shared with the cache, which never changes them; ``NodeInfo`` and columns are
not. All pods count as assumed, which no plugin can tell from assigned ones.
"""

from __future__ import annotations

from collections.abc import Iterable

from proreus.base.clock import Clock
from proreus.base.errors import ProreusError
from proreus.engine.cache.cache import Cache
from proreus.framework.node_info import NodeInfo
from proreus.insight.dry_run.slices import Slices

_MAX_ROUNDS = 50
_ROWS_AT_ONCE = 16
"""So few rows are copied without a pause at the end: about a millisecond."""


class ClusterChanged(ProreusError):
    """The cluster changes faster than it can be copied: ask again."""


class ClusterReplica:
    """A copy of a cache.

    ``cache``: the copy, to be changed at will until the next ``sync``.
    """

    def __init__(self, original: Cache, clock: Clock) -> None:
        self._original = original
        self.cache = Cache(clock)
        # While there are none: grouping all pods of a large cluster at once would take too long.
        self.cache.table.pod_index.group_pods()
        self._position: int | None = None
        self._generation = -1
        self._changed_here: set[str] = set()

    def differs_at(self, node_names: Iterable[str]) -> None:
        """Mark nodes for a new copy by ``sync``, since the copy was changed there."""
        self._changed_here.update(node_names)

    async def sync(self, slices: Slices) -> None:
        """Make the copy equal to the original; raises ``ClusterChanged`` if that does not end."""
        for _ in range(_MAX_ROUNDS):
            position = self._original.table.position
            names = self._names_to_copy()
            if len(names) <= _ROWS_AT_ONCE:
                for name in names:
                    self._copy_node(name)
                self._changed_here.clear()
                self._position = position
                self._generation = self._original.table.nodes_generation
                return
            # The next round finds later changes.
            for name in names:
                self._copy_node(name)
                self._changed_here.discard(name)
                await slices.pause_if_due()
            self._position = position
        raise ClusterChanged("the cluster changed while it was copied: ask again")

    def _names_to_copy(self) -> list[str]:
        table, copied = self._original.table, self.cache.table
        rows = None if self._position is None else table.changes_since(self._position)
        changed = table if rows is None else (table[row] for row in rows)
        names = {info.name for info in changed}
        if rows is None or table.nodes_generation != self._generation:
            # A removed node may have been the last row, which no change log names.
            names.update(copied.rows.keys() ^ table.rows.keys())
        return [*dict.fromkeys((*sorted(names), *sorted(self._changed_here)))]

    def _copy_node(self, name: str) -> None:
        row = self._original.table.rows.get(name)
        own = self.cache.node_info(name)
        if row is None:
            if own is not None:
                self._remove_node(own)
            return
        info = self._original.table[row]
        assert info.node is not None
        if own is None or own.node is None:
            self.cache.add_node(info.node)
        elif own.node is not info.node:
            self.cache.update_node(info.node)
        own = self.cache.node_info(name)
        assert own is not None
        for uid, pod in list(own.pods.items()):
            if info.pods.get(uid) is not pod:
                self.cache.forget(pod, name)
        for uid, pod in info.pods.items():
            if uid not in own.pods:
                where = self.cache.node_of(uid)
                if where:  # it has moved, and its former node is copied later
                    former = self.cache.get_pod(uid)
                    assert former is not None
                    self.cache.forget(former, where)
                self.cache.assume(pod, name)

    def _remove_node(self, own: NodeInfo) -> None:
        for pod in list(own.pods.values()):
            self.cache.forget(pod, own.name)
        if own.node is not None:
            self.cache.remove_node(own.name)

    def remove_node(self, name: str) -> bool:
        """Take a node and its pods out of the copy; return whether it was there."""
        own = self.cache.node_info(name)
        if own is None or own.node is None:
            return False
        self.differs_at([name])
        self._remove_node(own)
        return True
