"""The nominated pods that a pod must respect, by row, updated incrementally.

Hundreds of preemptors may be nominated at a time, waiting for their victims to end. Every attempt
needs them all, but must only pay for what has changed since the attempt before.

    NominatedPodsFilter.by_row ─► NominatedPodsByPriority.of ─► NominatedPodsByRow.refresh

Example: pods of priority 5 and 10 are nominated to nodes a and b. For a pod of priority 10,
``by_row`` has row b only; for one of priority 0 it has both. A new nomination to c updates one row.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from proreus.base.bounded_cache import BoundedCache
from proreus.framework.change_log import ChangeLog
from proreus.framework.node_table import NodeTable
from proreus.framework.pod_info import PodInfo
from proreus.framework.post_filter_result import NominatingInfo

_MAX_PRIORITIES = 16
"""For at least so many priorities the nominated pods by row are cached."""


class Nominator(Protocol):
    """The nominations (kube-scheduler's ``PodNominator``), as plugins and filters use them."""

    def nominated_pods(self, node_name: str) -> list[PodInfo]:
        """Return the pods nominated to a node."""
        ...

    def nominated_nodes(self) -> Iterable[str]:
        """Return the names of nodes that pods are nominated to."""
        ...

    def nominated_node_of(self, uid: str) -> str | None:
        """Return the name of the node that a pod is nominated to, or None."""
        ...

    @property
    def position(self) -> int:
        """A number that grows with each change of the nominations."""
        ...

    def changes_since(self, position: int) -> Iterable[str] | None:
        """Return the nodes whose nominated pods may have changed; None if that is forgotten."""
        ...

    def add_nominated_pod(self, pod: PodInfo, nominating: NominatingInfo | None) -> None:
        """Add a nomination; None is that of ``status.nominatedNodeName``."""
        ...

    def delete_nominated_pod(self, uid: str) -> None:
        """Delete a pod's nomination."""
        ...


class NominatedPodsByRow:
    """The nominated pods of at least a given priority, by row of a table.

    ``by_row``: only rows with such pods. ``changes``: the rows whose nominated pods changed.
    ``excluded_uid``: a pod whose own nomination does not count.
    """

    def __init__(
        self, nominator: Nominator, table: NodeTable, priority: int, excluded_uid: str | None = None
    ) -> None:
        self.by_row: dict[int, tuple[PodInfo, ...]] = {}
        self.changes = ChangeLog()
        self._nominator = nominator
        self._table = table
        self._priority = priority
        self._excluded_uid = excluded_uid
        self.is_cached = excluded_uid is None
        """Whether the object is kept for the next pod of this priority."""
        self._position = -1
        self._nodes_generation = -1
        self.refresh()

    def refresh(self) -> None:
        """Update the rows whose nominations or nodes changed."""
        nominator, table = self._nominator, self._table
        # Nominations are by node name, and rows move when nodes are removed: after any node event
        # every nominated row is looked up again, those that had nominated pods before included.
        names = None
        if self._nodes_generation == table.nodes_generation:
            names = nominator.changes_since(self._position)
        self._position, self._nodes_generation = nominator.position, table.nodes_generation
        if names is None:
            rows = {table.rows.get(name) for name in nominator.nominated_nodes()}
            rows.update(self.by_row)
        else:
            rows = {table.rows.get(name) for name in names}
        for row in rows:
            if row is not None:
                self._refresh_row(row)

    def _refresh_row(self, row: int) -> None:
        pods = self._pods(row) if row < self._table.size else ()
        # Recording a row that did not change would filter its node again for every cached key. The
        # log is about nodes; at this priority most of its entries change nothing.
        if pods == self.by_row.get(row, ()):
            return
        if pods:
            self.by_row[row] = pods
        else:
            del self.by_row[row]
        self.changes.record(row)

    def _pods(self, row: int) -> tuple[PodInfo, ...]:
        return tuple(
            pod
            for pod in self._nominator.nominated_pods(self._table[row].name)
            if pod.priority >= self._priority and pod.uid != self._excluded_uid
        )


class NominatedPodsByPriority:
    """``NominatedPodsByRow`` of the priorities used lately, for one table."""

    def __init__(self, nominator: Nominator) -> None:
        self._nominator = nominator
        self._table: NodeTable | None = None
        self._by_priority: BoundedCache[int, NominatedPodsByRow] = BoundedCache(2 * _MAX_PRIORITIES)

    def of(self, pod: PodInfo, table: NodeTable) -> NominatedPodsByRow:
        """Return the nominated pods that a pod must respect; its own nomination is excluded."""
        # Rows of another table are other nodes: nothing that is cached holds for it.
        if table is not self._table:
            self._table = table
            self._by_priority.clear()
        nominated = self._by_priority.get(pod.priority)
        if nominated is None:
            nominated = NominatedPodsByRow(self._nominator, table, pod.priority)
            self._by_priority.put(pod.priority, nominated, 1)
        else:
            nominated.refresh()
        node_name = self._nominator.nominated_node_of(pod.uid)
        row = None if node_name is None else table.rows.get(node_name)
        # A preemptor comes back to the node that it is nominated to. Counted there itself it would
        # be rejected for the space that was made for it. It gets an object of its own, since the
        # cached one serves all other pods of its priority.
        if row is not None and any(other.uid == pod.uid for other in nominated.by_row.get(row, ())):
            return NominatedPodsByRow(self._nominator, table, pod.priority, excluded_uid=pod.uid)
        return nominated
