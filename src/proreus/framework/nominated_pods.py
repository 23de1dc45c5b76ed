"""Which nominated pods a pod has to respect, row by row, kept in step with what changes.

Hundreds of preemptors may wait for their victims at a time, each nominated to a node. Every attempt
has to know them all; what one more attempt costs must be what has changed since the one before.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Protocol

from proreus.framework.change_log import ChangeLog
from proreus.framework.node_table import NodeTable
from proreus.framework.pod_info import PodInfo
from proreus.framework.post_filter_result import NominatingInfo

_MAX_PRIORITIES = 16
"""For pods of so many priorities it is remembered."""


class Nominator(Protocol):
    """Which pods are to be kept room for, and where."""

    def nominated_pods(self, node_name: str) -> list[PodInfo]:
        """Return the pods nominated to a node."""
        ...

    def nominated_nodes(self) -> Iterable[str]:
        """Return the names of nodes that pods are nominated to."""
        ...

    def nominated_node_of(self, uid: str) -> str | None:
        """Return the name of the node that a pod is nominated to; None if it is not."""
        ...

    @property
    def position(self) -> int:
        """Where the record of changes ends now; to be handed to ``changes_since`` later."""
        ...

    def changes_since(self, position: int) -> Iterable[str] | None:
        """Return the names of nodes whose nominated pods may have changed; None: not known."""
        ...

    def add_nominated_pod(self, pod: PodInfo, nominating: NominatingInfo | None) -> None:
        """Register a nomination (None: the one that the pod's status has)."""
        ...

    def delete_nominated_pod(self, uid: str) -> None:
        """Forget a nomination."""
        ...


class NominatedPodsByRow:
    """The pods nominated to the nodes of a table that count for pods of one priority.

    ``by_row``: only rows with such pods. ``changes``: the rows of which that changed.
    ``excluded_uid``: the UID of a pod that does not count.
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
        """Whether the next pod of this priority is given the same object."""
        self._position = -1
        self._nodes_generation = -1
        self.refresh()

    def refresh(self) -> None:
        """Follow what changed about nominations and nodes."""
        nominator, table = self._nominator, self._table
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
    """``NominatedPodsByRow`` for every priority that was asked about lately, for one table."""

    def __init__(self, nominator: Nominator) -> None:
        self._nominator = nominator
        self._table: NodeTable | None = None
        self._by_priority: OrderedDict[int, NominatedPodsByRow] = OrderedDict()

    def of(self, pod: PodInfo, table: NodeTable) -> NominatedPodsByRow:
        """Return what a pod has to respect; it does not stand in its own way."""
        if table is not self._table:
            self._table = table
            self._by_priority.clear()
        nominated = self._by_priority.get(pod.priority)
        if nominated is None:
            nominated = self._by_priority[pod.priority] = NominatedPodsByRow(
                self._nominator, table, pod.priority
            )
            if len(self._by_priority) > _MAX_PRIORITIES:
                self._by_priority.popitem(last=False)
        else:
            nominated.refresh()
        self._by_priority.move_to_end(pod.priority)
        node_name = self._nominator.nominated_node_of(pod.uid)
        row = None if node_name is None else table.rows.get(node_name)
        if row is not None and any(other.uid == pod.uid for other in nominated.by_row.get(row, ())):
            return NominatedPodsByRow(self._nominator, table, pod.priority, excluded_uid=pod.uid)
        return nominated
