"""What one plugin said of every row, kept for pods that look alike to it.

Invariant: an ``Answers`` whose position equals the table's says of every row what its plugin would
say if it were asked now. What all plugins together said is a ``Face``.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from proreus.framework.change_log import ChangeLog
from proreus.framework.cycle_state import CycleState
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import FilterPlugin, Plugin, ScorePlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.verdicts import PASSED, IntArray, Verdicts
from proreus.runtime.asking import filter_some, filter_table, score_some, score_table

_FEW_ROWS = 64
"""Up to so many changed rows are mended one by one; more are evaluated as a whole."""


class Answers:
    """What one plugin said of every row, for one signature."""

    __slots__ = (
        "_filter_at",
        "_has_outlook",
        "_looks_at_pods",
        "_outlook",
        "_score_at",
        "about_nodes",
        "judged_whole",
        "plugin",
        "raw",
        "raw_version",
        "verdicts",
    )

    def __init__(self, plugin: Plugin) -> None:
        self.plugin = plugin
        self.verdicts = Verdicts(0)
        self.judged_whole = 0
        """How often all verdicts were made anew."""
        self.raw: IntArray | int = 0
        self.raw_version = 0
        """Moves whenever a raw score changes."""
        self._filter_at = -1
        self._score_at = -1
        self._looks_at_pods = plugin.looks_at_pods
        self._has_outlook = type(plugin).outlook is not Plugin.outlook
        self._outlook: Hashable = None
        self.about_nodes = not (plugin.looks_at_pods or self._has_outlook)
        """Whether the answers hold until a node comes, goes or changes itself."""

    def refresh_filter(self, state: CycleState, pod: PodInfo, table: NodeTable) -> None:
        """Bring the verdicts up to date."""
        changes = table.changes if self._looks_at_pods else table.node_changes
        size = self.verdicts.size
        if self._has_outlook:
            self._look_out(table)
        if self._filter_at == changes.position and size == table.size:
            return
        plugin = self.plugin
        assert isinstance(plugin, FilterPlugin)
        rows = few_rows(changes, self._filter_at, size, table.size)
        if rows is None:
            # Should the plugin fail half-way, what it said so far must not pass for an answer.
            self._filter_at = -1
            self.verdicts = Verdicts(table.size, plugin.name)
            filter_table(plugin, state, pod, table, self.verdicts)
            self.judged_whole += 1
        else:
            ids = self.verdicts.ids
            for row, status in filter_some(plugin, state, pod, table, rows):
                if status is not None:
                    if ids is None:
                        ids = self.verdicts.ids = np.zeros(table.size, dtype=np.int32)
                    ids[row] = self.verdicts.id_of(status)
                elif ids is not None:
                    ids[row] = PASSED
        self._filter_at = changes.position

    def refresh_score(self, state: CycleState, pod: PodInfo, table: NodeTable) -> None:
        """Bring the raw scores up to date."""
        changes = table.changes if self._looks_at_pods else table.node_changes
        size = table.size if isinstance(self.raw, int) else len(self.raw)
        if self._has_outlook:
            self._look_out(table)
        if self._score_at == changes.position and size == table.size:
            return
        plugin = self.plugin
        assert isinstance(plugin, ScorePlugin)
        rows = few_rows(changes, self._score_at, size, table.size)
        if rows is None:
            self.raw = score_table(plugin, state, pod, table)
            self.raw_version += 1
        else:
            for row, score in score_some(plugin, state, pod, table, rows):
                raw = self.raw
                if score == (raw if isinstance(raw, int) else raw[row]):
                    continue
                if isinstance(raw, int):
                    raw = self.raw = np.full(table.size, raw, dtype=np.int64)
                raw[row] = score
                self.raw_version += 1
        self._score_at = changes.position

    def _look_out(self, table: NodeTable) -> None:
        """Forget all answers if what they depend on beside row and pod has changed."""
        outlook = self.plugin.outlook(table)
        if outlook != self._outlook:
            self._outlook = outlook
            self._filter_at = self._score_at = -1


def few_rows(
    changes: ChangeLog, position: int, known_size: int, table_size: int
) -> list[int] | None:
    """Return the rows to ask again since a position in the changes; None for all of them."""
    if position < 0 or known_size != table_size:
        return None
    rows = changes.since(position, table_size)
    return rows if rows is not None and len(rows) <= _FEW_ROWS else None
