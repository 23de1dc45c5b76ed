"""The cached results of one plugin for pods that it signs alike: a verdict and raw score a row.

Invariant: an ``PluginResults`` whose position equals the table's says of every row what its plugin
would say if it were asked now. What all plugins together said is a ``EquivalenceClass``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import numpy as np

from proreus.framework.change_log import ChangeLog
from proreus.framework.cycle_state import CycleState
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import FilterPlugin, Plugin, ScorePlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.verdicts import PASSED, IntArray, Verdicts
from proreus.runtime.calls import plugin_error
from proreus.runtime.node_points import (
    run_filter_plugin,
    run_filter_plugin_on_rows,
    run_score_plugin,
    run_score_plugin_on_rows,
)

_FEW_ROWS = 64
"""Up to so many changed rows are evaluated one by one; where it is more, all rows are."""


class PodSignatures(dict[Plugin, Hashable]):
    """The signature of one pod a plugin: the part that the plugin reads; None: not to be shared."""

    def __init__(self, pod: PodInfo) -> None:
        self._pod = pod

    def sign(self, plugins: Iterable[Plugin]) -> None:
        """Let plugins sign that have not signed the pod yet; raises ``PluginError``."""
        for plugin in plugins:
            if plugin in self:
                continue
            signature = None
            if plugin.row_local:
                try:
                    signature = plugin.sign(self._pod)
                    hash(signature)
                except BaseException as error:
                    raise plugin_error(plugin, "Sign", error) from error
            self[plugin] = signature


class PluginResults:
    """What one plugin said of every row, for one signature."""

    __slots__ = (
        "_filter_at",
        "_has_invalidation_key",
        "_invalidation_key",
        "_looks_at_pods",
        "_score_at",
        "depends_on_nodes_only",
        "full_evaluations",
        "plugin",
        "raw",
        "raw_version",
        "verdicts",
    )

    def __init__(self, plugin: Plugin) -> None:
        self.plugin = plugin
        self.verdicts = Verdicts(0)
        self.full_evaluations = 0
        """How often all verdicts were made anew."""
        self.raw: IntArray | int = 0
        self.raw_version = 0
        """Moves whenever a raw score changes."""
        self._filter_at = -1
        self._score_at = -1
        self._looks_at_pods = plugin.looks_at_pods
        self._has_invalidation_key = type(plugin).invalidation_key is not Plugin.invalidation_key
        self._invalidation_key: Hashable = None
        self.depends_on_nodes_only = not (plugin.looks_at_pods or self._has_invalidation_key)
        """Whether the answers hold until a node comes, goes or changes itself."""

    def refresh_filter(self, state: CycleState, pod: PodInfo, table: NodeTable) -> None:
        """Bring the verdicts up to date."""
        changes = table.changes if self._looks_at_pods else table.node_changes
        size = self.verdicts.size
        if self._has_invalidation_key:
            self._check_invalidation_key(table)
        if self._filter_at == changes.position and size == table.size:
            return
        plugin = self.plugin
        assert isinstance(plugin, FilterPlugin)
        rows = few_rows(changes, self._filter_at, size, table.size)
        if rows is None:
            # Should the plugin fail half-way, what it said so far must not pass for an answer.
            self._filter_at = -1
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
                    ids[row] = PASSED
        self._filter_at = changes.position
        if rows is None:
            # Only now: what the plugin has found out is kept for the next attempt.
            state.check_budget(plugin.name, "Filter")

    def refresh_score(self, state: CycleState, pod: PodInfo, table: NodeTable) -> None:
        """Bring the raw scores up to date."""
        changes = table.changes if self._looks_at_pods else table.node_changes
        size = table.size if isinstance(self.raw, int) else len(self.raw)
        if self._has_invalidation_key:
            self._check_invalidation_key(table)
        if self._score_at == changes.position and size == table.size:
            return
        plugin = self.plugin
        assert isinstance(plugin, ScorePlugin)
        rows = few_rows(changes, self._score_at, size, table.size)
        if rows is None:
            self.raw = run_score_plugin(plugin, state, pod, table)
            self.raw_version += 1
        else:
            for row, score in run_score_plugin_on_rows(plugin, state, pod, table, rows):
                raw = self.raw
                if score == (raw if isinstance(raw, int) else raw[row]):
                    continue
                if isinstance(raw, int):
                    raw = self.raw = np.full(table.size, raw, dtype=np.int64)
                raw[row] = score
                self.raw_version += 1
        self._score_at = changes.position
        if rows is None:
            state.check_budget(plugin.name, "Score")

    def _check_invalidation_key(self, table: NodeTable) -> None:
        """Forget all answers if what they depend on beside row and pod has changed."""
        invalidation_key = self.plugin.invalidation_key(table)
        if invalidation_key != self._invalidation_key:
            self._invalidation_key = invalidation_key
            self._filter_at = self._score_at = -1


def few_rows(
    changes: ChangeLog, position: int, known_size: int, table_size: int
) -> list[int] | None:
    """Return the rows to ask again since a position in the changes; None for all of them."""
    if position < 0 or known_size != table_size:
        return None
    rows = changes.since(position, table_size)
    return rows if rows is not None and len(rows) <= _FEW_ROWS else None
