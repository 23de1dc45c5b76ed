"""The cached results of one plugin for one signature: a verdict and a raw score a row.

    EquivalenceClass.refresh_filter ─► PluginResults.refresh_filter ─► Filter, on changed rows
    EquivalenceClass.refresh_totals ─► PluginResults.refresh_score  ─► Score, on changed rows

Shared: one ``PluginResults`` serves every equivalence class in which the plugin has this signature.
Invalidated: a row, when the table's change log names it (the log of node changes alone, where the
plugin does not look at pods); all rows, when nodes were added or removed, when more than
64 rows changed, or when the plugin's ``invalidation_key`` changed.

Example: NodePorts signs pods by their host ports. A pod with port 80 is bound to row 7; the next
pod with port 80 costs one Filter call, for row 7, and the other 4,999 verdicts are reused.

Invariant: a ``PluginResults`` whose position equals the table's holds for every row what its plugin
would return if it were called now.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from proreus.engine.runtime.node_points import (
    run_filter_plugin,
    run_filter_plugin_on_rows,
    run_score_plugin,
    run_score_plugin_on_rows,
)
from proreus.framework.cycle_state import CycleState
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import FilterPlugin, Plugin, ScorePlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.verdicts import PASSED, IntArray, Verdicts


class PluginResults:
    """One plugin's verdict and raw score of every row, for one signature."""

    __slots__ = (
        "_filter_position",
        "_has_invalidation_key",
        "_invalidation_key",
        "_looks_at_pods",
        "_score_position",
        "depends_on_nodes_only",
        "full_evaluations",
        "plugin",
        "raw_scores",
        "raw_version",
        "verdicts",
    )

    def __init__(self, plugin: Plugin) -> None:
        self.plugin = plugin
        self.verdicts = Verdicts(0)
        self.full_evaluations = 0
        """How often Filter ran over all rows; a class that merged them before then merges again."""
        self.raw_scores: IntArray | int = 0
        self.raw_version = 0
        """Incremented whenever a raw score changes."""
        self._filter_position = -1
        self._score_position = -1
        self._looks_at_pods = plugin.looks_at_pods
        # Looked up once: for most plugins the method is the base class's, and not worth a call.
        self._has_invalidation_key = type(plugin).invalidation_key is not Plugin.invalidation_key
        self._invalidation_key: Hashable = None
        self.depends_on_nodes_only = not (plugin.looks_at_pods or self._has_invalidation_key)
        """Whether the results hold until a node is added, removed or updated, whatever pods do."""

    def refresh_filter(self, state: CycleState, pod: PodInfo, table: NodeTable) -> None:
        """Bring the verdicts up to date."""
        changes = table.changes if self._looks_at_pods else table.node_changes
        size = self.verdicts.size
        if self._has_invalidation_key:
            self._check_invalidation_key(table)
        if self._filter_position == changes.position and size == table.size:
            return
        plugin = self.plugin
        assert isinstance(plugin, FilterPlugin)
        rows = changes.few_since(self._filter_position, size, table.size)
        if rows is None:
            # Should the plugin raise half-way, the rows that it reached must not pass for results.
            self._filter_position = -1
            self.verdicts = Verdicts(table.size, plugin.name)
            run_filter_plugin(plugin, state, pod, table, self.verdicts)
            self.full_evaluations += 1
        else:
            ids = self.verdicts.ids
            for row, status in run_filter_plugin_on_rows(plugin, state, pod, table, rows):
                if status is not None:
                    if ids is None:
                        ids = self.verdicts.ids = np.zeros(table.size, dtype=np.int32)
                    ids[row] = self.verdicts.id_of(status)
                elif ids is not None:
                    # The row was rejected before and passes now: a pod has left the node, say.
                    ids[row] = PASSED
        self._filter_position = changes.position
        if rows is None:
            # Checked last: an attempt that ends here has at least paid for the next one's cache.
            state.check_budget(plugin.name, "Filter")

    def refresh_score(self, state: CycleState, pod: PodInfo, table: NodeTable) -> None:
        """Bring the raw scores up to date."""
        changes = table.changes if self._looks_at_pods else table.node_changes
        size = table.size if isinstance(self.raw_scores, int) else len(self.raw_scores)
        if self._has_invalidation_key:
            self._check_invalidation_key(table)
        if self._score_position == changes.position and size == table.size:
            return
        plugin = self.plugin
        assert isinstance(plugin, ScorePlugin)
        rows = changes.few_since(self._score_position, size, table.size)
        if rows is None:
            raw_scores = run_score_plugin(plugin, state, pod, table)
            # Scores of changed rows are written to it later. A plugin may return a column of the
            # table, which changes with the next pod, or an array that it keeps, or a read-only one.
            self.raw_scores = raw_scores if isinstance(raw_scores, int) else raw_scores.copy()
            self.raw_version += 1
        else:
            for row, score in run_score_plugin_on_rows(plugin, state, pod, table, rows):
                raw_scores = self.raw_scores
                # An unchanged score leaves ``raw_version`` alone, and with it every class's totals:
                # what NormalizeScore made of the column still holds.
                if score == (raw_scores if isinstance(raw_scores, int) else raw_scores[row]):
                    continue
                # The first row that differs ends the constant; the column is filled with it.
                if isinstance(raw_scores, int):
                    raw_scores = self.raw_scores = np.full(table.size, raw_scores, dtype=np.int64)
                raw_scores[row] = score
                self.raw_version += 1
        self._score_position = changes.position
        if rows is None:
            state.check_budget(plugin.name, "Score")

    def _check_invalidation_key(self, table: NodeTable) -> None:
        """Discard all results if what they depend on besides row and pod has changed."""
        invalidation_key = self.plugin.invalidation_key(table)
        if invalidation_key != self._invalidation_key:
            self._invalidation_key = invalidation_key
            self._filter_position = self._score_position = -1
