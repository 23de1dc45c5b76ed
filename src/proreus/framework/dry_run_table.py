"""The fork of the node table that preemption's dry run removes victims from and reprieves them on.

The potential victims are known when it is created, so that removing or reprieving hundreds of them
is one subtraction or addition on a matrix. The ``NodeInfo`` objects of its rows are filled when
their pods are read, which plugins that evaluate columns never do.

Valid only as long as the table that it was created from does not change.

Worked example: node ``a`` runs two victims that request 1 and 2 CPUs, node ``b`` one that requests
3. Their numbers are 0, 1 and 2, ``row_of`` is ``[0, 0, 1]`` and ``first`` is ``[0, 2, 3]``.
``remove_all_victims`` subtracts ``[3, 3]`` from the CPU line; ``reprieve([0, 2])`` adds ``[1, 3]``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.node_table_views import Fork
from proreus.framework.pod_info import PodInfo
from proreus.framework.verdicts import IntArray, Rows

# The sum of two such amounts does not overflow int64. Rows with greater ones are computed from
# their NodeInfo, whose integers have no limit.
_MAX_EXACT = 2**61


class DryRunTable(Fork):
    """A fork whose potential victims can be removed and reprieved by their numbers.

    ``potential_victims``: all of them, row by row. ``row_of``: the row of each, shape (victims,).
    ``first``: the number of the first one of each row, and their count at the end, shape (rows+1,).
    """

    def __init__(
        self, parent: NodeTable, rows: Rows, potential_victims: Sequence[Sequence[PodInfo]]
    ) -> None:
        self.potential_victims = list(chain.from_iterable(potential_victims))
        counts = np.array([len(pods) for pods in potential_victims], dtype=np.intp)
        self.row_of: Rows = np.repeat(np.arange(len(rows)), counts)
        self.first: Rows = np.concatenate(([0], np.cumsum(counts)))
        self._moves = _VictimMoves(self.potential_victims, self.first.tolist())
        super().__init__(parent, rows)
        self._cells = self._stack_columns()
        self._amounts = self._amounts_of(self.potential_victims)
        self._inexact = set(np.flatnonzero((self._cells > _MAX_EXACT).any(axis=0)).tolist())
        # Sets of ports are no sums: removing one pod's ports needs those of the pods that stay.
        self._with_ports: set[int] = set()
        if self._node_state.port_set.any():
            self._with_ports.update(
                n for n, pod in enumerate(self.potential_victims) if pod.host_ports
            )

    def _copy_infos(self, parent: NodeTable, rows: Rows) -> list[NodeInfo]:
        return [_LazyNodeInfo(parent[row], self._moves) for row in rows.tolist()]

    def _stack_columns(self) -> IntArray:
        """Stack the columns that pods change; each column becomes a view of its line.

        Returns the matrix, shape (columns, rows).
        """
        sums = (self.requested, self.nonzero_requested)
        # A sparse column has no entries for rows without the resource, hence nothing to view.
        for columns in sums:
            columns.densify()
        arrays = [array for columns in sums for array in columns.arrays.values()]
        cells: IntArray = np.vstack([*arrays, self._node_state.pod_count])
        lines = iter(cells)
        for columns in sums:
            columns.arrays.update(zip(columns.arrays, lines, strict=False))
        self._node_state.pod_count = cells[-1]
        return cells

    def _amounts_of(self, pods: Sequence[PodInfo]) -> IntArray:
        """Return the amount of each pod in each line of the matrix, shape (columns, victims)."""
        # Most pods are replicas with equal requests: one line of the table for each kind of them.
        held_by = [pod.accounted_requests for pod in pods]
        kinds = {
            accounted_requests: code
            for code, accounted_requests in enumerate(dict.fromkeys(held_by))
        }
        codes = [*map(kinds.__getitem__, held_by)]
        table = np.empty((len(kinds), len(self._cells)), dtype=np.int64)
        for accounted_requests, code in kinds.items():
            nonzero = dict(zip(("cpu", "memory"), accounted_requests.nonzero, strict=True))
            table[code] = [
                *(
                    min(accounted_requests.amounts.get(name, 0), _MAX_EXACT)
                    for name in self.requested.arrays
                ),
                *(min(nonzero.get(name, 0), _MAX_EXACT) for name in self.nonzero_requested.arrays),
                1,
            ]
        # Each step reads whole lines of some victims; the transposed view would be strided.
        return np.ascontiguousarray(table[codes].T)

    def remove_all_victims(self) -> None:
        """Remove every potential victim from its row."""
        if not self.potential_victims:
            return
        # `reduceat` returns the element itself for an empty range, and not 0.
        has_some = np.flatnonzero(np.diff(self.first))
        sums = np.add.reduceat(self._amounts, self.first[has_some], axis=1)
        self._cells[:, has_some] -= sums
        self._moved(np.arange(len(self.potential_victims)), -1)

    def remove_victims(self, numbers: Rows) -> None:
        """Remove some potential victims, at most one of each row."""
        # Two on one row would count once: NumPy applies repeated indices only one time.
        self._cells[:, self.row_of[numbers]] -= self._amounts[:, numbers]
        self._moved(numbers, -1)

    def reprieve(self, numbers: Rows) -> None:
        """Add some potential victims back, at most one of each row."""
        self._cells[:, self.row_of[numbers]] += self._amounts[:, numbers]
        self._moved(numbers, 1)

    def _moved(self, numbers: Rows, step: int) -> None:
        """Update all but the sums: NodeInfo objects, ports, the pod index, the change log."""
        self._moves.record(numbers, step, self.infos)
        self.changes.record_all(self.row_of[numbers].tolist())
        if self._with_ports:
            for number in self._with_ports.intersection(numbers.tolist()):
                row = int(self.row_of[number])
                self._node_state.port_set[row] = self.port_sets.code(
                    frozenset(self.infos[row].used_ports)
                )
        if self._inexact:
            for row in self._inexact.intersection(self.row_of[numbers].tolist()):
                self._put_pods(row)
        if self._pod_index is not None:
            count = self._pod_index.add if step > 0 else self._pod_index.remove
            for number in numbers.tolist():
                count(int(self.row_of[number]), self.potential_victims[number])


class _VictimMoves:
    """The log of removals and reprieves, replayed on a ``NodeInfo`` whose pods are first read."""

    # It refers to no NodeInfo: they refer to it, and a cycle would outlive the dry run until the
    # garbage collector finds it.

    __slots__ = ("_filled", "_first", "_log", "_pods")

    def __init__(self, pods: Sequence[PodInfo], first: Sequence[int]) -> None:
        self._pods = pods
        self._first = first
        self._log: list[tuple[Rows, int]] = []
        self._filled: set[int] = set()

    def record(self, numbers: Rows, step: int, infos: Sequence[NodeInfo]) -> None:
        """Log a step (1: added, -1: removed), and apply it to the nodes that are filled."""
        self._log.append((numbers, step))
        for row in self._filled:
            self._replay(infos[row], row, numbers, step)

    def fill(self, info: NodeInfo, row: int) -> None:
        """Apply the log to a node whose pods were just copied."""
        self._filled.add(row)
        for numbers, step in self._log:
            self._replay(info, row, numbers, step)

    def _replay(self, info: NodeInfo, row: int, numbers: Rows, step: int) -> None:
        # Numbers ascend, and those of one row are a range.
        begin, end = np.searchsorted(numbers, self._first[row : row + 2]).tolist()
        for number in numbers[begin:end].tolist():
            if step > 0:
                info.add_pod(self._pods[number])
            else:
                info.remove_pod(self._pods[number].uid)


class _LazyNodeInfo(NodeInfo):
    """A copy of a ``NodeInfo`` whose pods are copied when they are first read."""

    __slots__ = ("_moves", "_origin")

    def __init__(self, origin: NodeInfo, moves: _VictimMoves) -> None:
        self._copy_node_from(origin)
        self._origin = origin
        self._moves = moves

    def __getattr__(self, name: str) -> Any:
        """Fill all attributes; called by Python for an unset attribute."""
        # Without this an unknown attribute would recurse for ever: filling never sets it.
        if name not in NodeInfo.__slots__:
            raise AttributeError(name)
        self._copy_pods_from(self._origin)
        self._moves.fill(self, self.row)
        return getattr(self, name)
