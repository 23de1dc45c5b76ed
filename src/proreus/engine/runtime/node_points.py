"""Running one Filter or Score plugin on rows: over columns for many, node by node for a handful.

The form that the plugin itself defines is called. The form that the base class derives from it is
never called here: it always evaluates rows of ``handle.nodes``, and the table may be a fork.

Example: NodeResourcesFit defines both forms. For 5,000 rows ``filter_all`` is called once; for the
3 rows that changed since the last pod ``filter`` is called three times, which is faster than
gathering the columns of 3 rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from proreus.base.errors import PluginError
from proreus.base.int64 import MAX_INT64, MIN_INT64
from proreus.engine.runtime.plugin_errors import (
    allowed_status,
    as_status,
    check_allowed,
    invalid_result_error,
    plugin_error,
    recorded_error,
)
from proreus.engine.runtime.points import call_plugin, call_plugin_for_each
from proreus.framework.cycle_state import CycleState
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import MAX_SCORE, MIN_SCORE, FilterPlugin, Plugin, ScorePlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Code, Status
from proreus.framework.verdicts import PASSED, IntArray, Rows, Verdicts

_HANDFUL = 8


def run_filter_plugin(
    plugin: FilterPlugin,
    state: CycleState,
    pod: PodInfo,
    nodes: NodeTable,
    verdicts: Verdicts,
    *,
    keep_errors: bool = False,
    earlier: Verdicts | None = None,
    columns: bool = False,
) -> None:
    """Run a Filter plugin on every row of a table; raises ``PluginError``.

    ``keep_errors``: an Error about a row becomes its verdict; ``raise_filter_error`` raises it
    unless an earlier plugin rejected the row. ``earlier``: the verdicts of earlier plugins; the
    per-node form is not called for rows that they rejected. ``columns``: call the columnar form
    where the plugin has one, also for a handful of rows.
    """
    in_columns = columns or len(nodes) > _HANDFUL or not plugin.per_node_filter
    if plugin.columnar_filter and in_columns:
        plugin.evaluations.filter.value += len(nodes)
        call_plugin(plugin, "Filter", state, plugin.filter_all, state, pod, nodes, verdicts)
    else:
        # As in kube-scheduler, a node is not shown to plugins after the one that rejected it.
        # Columns are: leaving rows out would cost more than computing them.
        rows: Sequence[int] = range(len(nodes))
        if earlier is not None and earlier.ids is not None:
            rows = earlier.passed_rows().tolist()
        plugin.evaluations.filter.value += len(rows)
        infos = map(nodes.__getitem__, rows)
        method = partial(plugin.filter, state, pod)
        results = call_plugin_for_each(plugin, "Filter", state, method, infos)
        for row, result in zip(rows, results, strict=True):
            if result is not None and (status := as_status(plugin, "Filter", result)) is not None:
                verdicts.reject_row(row, status)
    if verdicts.ids is not None:
        for number, one in enumerate(verdicts.statuses):
            if one is None:
                continue
            # Recorded as a failure at once, for the plugin did fail; whether it fails the attempt
            # too is decided by ``raise_filter_error``.
            if keep_errors and one.code == Code.ERROR:
                text = str(recorded_error(plugin, "Filter", "error", one.message))
                verdicts.statuses[number] = Status.error(text).with_plugin(plugin.name)
            else:
                check_allowed(plugin, "Filter", one)
                # Whatever the plugin has written there: the pod waits for this plugin's events.
                verdicts.statuses[number] = one.with_plugin(plugin.name)


def raise_filter_error(verdicts: Verdicts) -> None:
    """Raise ``PluginError`` if a row's verdict is an Error."""
    if not any(status is not None and status.code == Code.ERROR for status in verdicts.statuses):
        return
    # ``statuses`` may list an Error that no row has, since a merge keeps an earlier plugin's
    # rejection: only those that are counted are raised.
    for status in verdicts.counts():
        if status.code == Code.ERROR:
            raise PluginError(status.plugin, "Filter", status.message)


def run_filter_plugin_on_node(
    plugin: FilterPlugin, state: CycleState, pod: PodInfo, nodes: NodeTable, row: int
) -> Status | None:
    """Run a Filter plugin on one row of a table; raises ``PluginError``."""
    if not plugin.per_node_filter:
        verdicts = Verdicts(1, plugin.name)
        run_filter_plugin(plugin, state, pod, nodes.take(np.array([row], dtype=np.intp)), verdicts)
        return verdicts.status(0)
    plugin.evaluations.filter.value += 1
    result = call_plugin(plugin, "Filter", state, plugin.filter, state, pod, nodes.infos[row])
    return None if result is None else allowed_status(plugin, "Filter", result)


def filter_function(
    plugin: FilterPlugin, state: CycleState, pod: PodInfo, nodes: NodeTable
) -> Callable[[int], Status | None]:
    """Return ``run_filter_plugin_on_node`` as a function of the row, for hundreds of calls."""
    if state.timer is not None or not plugin.per_node_filter:
        return partial(run_filter_plugin_on_node, plugin, state, pod, nodes)
    # Attribute look-ups and the call through ``call_plugin`` would cost as much as a small plugin.
    method, infos, evaluations = plugin.filter, nodes.infos, plugin.evaluations.filter

    def run_filter(row: int) -> Status | None:
        evaluations.value += 1
        try:
            result = method(state, pod, infos[row])
        except BaseException as error:
            raise plugin_error(plugin, "Filter", error) from error
        return None if result is None else allowed_status(plugin, "Filter", result)

    return run_filter


def run_filter_plugin_on_rows(
    plugin: FilterPlugin, state: CycleState, pod: PodInfo, nodes: NodeTable, rows: list[int]
) -> list[tuple[int, Status | None]]:
    """Run a Filter plugin on some rows and return ``(row, status)`` of each."""
    if plugin.per_node_filter and (len(rows) <= _HANDFUL or not plugin.columnar_filter):
        return [(row, run_filter_plugin_on_node(plugin, state, pod, nodes, row)) for row in rows]
    if not rows:
        return []
    verdicts = Verdicts(len(rows), plugin.name)
    part = nodes.take(np.array(rows, dtype=np.intp))
    run_filter_plugin(plugin, state, pod, part, verdicts)
    return [(row, verdicts.status(number)) for number, row in enumerate(rows)]


def run_filter_plugins_on_node(
    plugins: Sequence[FilterPlugin], state: CycleState, pod: PodInfo, nodes: NodeTable, row: int
) -> Status | None:
    """Run Filter plugins in order on one row of a table, without nominated pods.

    Return the first rejection. Raises ``PluginError``.
    """
    for plugin in plugins:
        if plugin.name not in state.skip_filter:
            status = run_filter_plugin_on_node(plugin, state, pod, nodes, row)
            state.check_budget(plugin.name, "Filter")
            if status is not None:
                return status
    return None


def run_filter_plugins(
    plugins: Sequence[FilterPlugin],
    state: CycleState,
    pod: PodInfo,
    nodes: NodeTable,
    *,
    keep_errors: bool = False,
) -> Verdicts:
    """Run Filter plugins in order on every row of a table, without nominated pods.

    Each row has the verdict of the first plugin that rejected it. Raises ``PluginError``.
    """
    verdicts = Verdicts(len(nodes))
    for plugin in plugins:
        if plugin.name not in state.skip_filter:
            own = Verdicts(len(nodes), plugin.name)
            run_filter_plugin(plugin, state, pod, nodes, own, keep_errors=True, earlier=verdicts)
            verdicts.merge(own)
            state.check_budget(plugin.name, "Filter")
    if not keep_errors:
        raise_filter_error(verdicts)
    return verdicts


def override_verdict(verdicts: Verdicts, row: int, status: Status) -> None:
    """Set a row's verdict, whatever it was."""
    if verdicts.ids is not None:
        verdicts.ids[row] = PASSED
    verdicts.reject_row(row, status)


def override_verdicts(verdicts: Verdicts, rows: Rows, status: Status) -> None:
    """Set the verdict of rows, whatever it was."""
    if verdicts.ids is not None:
        verdicts.ids[rows] = PASSED
    verdicts.reject_with(rows, status)


def run_score_plugin(
    plugin: ScorePlugin, state: CycleState, pod: PodInfo, nodes: NodeTable
) -> IntArray | int:
    """Score every row of a table; raises ``PluginError``."""
    plugin.evaluations.score.value += len(nodes)
    if plugin.columnar_score and (len(nodes) > _HANDFUL or not plugin.per_node_score):
        scores = call_plugin(plugin, "Score", state, plugin.score_all, state, pod, nodes)
        if issubclass(type(scores), (int, np.integer)):
            return _as_score(plugin, scores)
        return as_scores(plugin, "Score", scores, len(nodes))
    score = partial(plugin.score, state, pod)
    each = call_plugin_for_each(plugin, "Score", state, score, nodes)
    return as_scores(plugin, "Score", each, len(nodes))


def as_scores(
    plugin: Plugin, point: str, result: Any, size: int, of_each: str = "node"
) -> IntArray:
    """Return a result as an int64 for each node (or placement); raises ``PluginError``.

    Fractions are an error: truncated silently, scores of 0..1 would all become 0.
    """
    try:
        given = np.asarray(result)
    except ValueError as error:
        raise invalid_result_error(plugin, point, f"an integer a {of_each}", result) from error
    except BaseException as error:
        # Arrays of other libraries convert themselves, and some refuse to: a tensor on a GPU, say.
        raise plugin_error(plugin, point, error) from error
    if given.dtype.kind not in "iu" and given.size:
        raise invalid_result_error(plugin, point, f"an integer a {of_each}", result)
    scores: IntArray = given.astype(np.int64, copy=False)
    if scores.shape != (size,):
        raise invalid_result_error(
            plugin, point, f"{size} scores", f"an array of shape {scores.shape}"
        )
    return scores


def _as_score(plugin: ScorePlugin, result: Any) -> int:
    """Return a result as one int64; raises ``PluginError`` if it is none."""
    # ``True`` is an int to Python; as a score it is far more likely a mistake than a 1.
    if issubclass(type(result), (int, np.integer)) and type(result) is not bool:
        score = int(result)
        if MIN_INT64 <= score <= MAX_INT64:
            return score
    raise invalid_result_error(plugin, "Score", "an integer of 64 bits", result)


def run_score_plugin_on_rows(
    plugin: ScorePlugin, state: CycleState, pod: PodInfo, nodes: NodeTable, rows: list[int]
) -> list[tuple[int, int]]:
    """Score some rows and return ``(row, score)`` of each."""
    if plugin.per_node_score and (len(rows) <= _HANDFUL or not plugin.columnar_score):
        plugin.evaluations.score.value += len(rows)
        infos, score = nodes.infos, partial(plugin.score, state, pod)
        return [
            (row, _as_score(plugin, call_plugin(plugin, "Score", state, score, infos[row])))
            for row in rows
        ]
    if not rows:
        return []
    scores = run_score_plugin(plugin, state, pod, nodes.take(np.array(rows, dtype=np.intp)))
    if isinstance(scores, int):
        return [(row, scores) for row in rows]
    return list(zip(rows, scores.tolist(), strict=True))


def run_normalize_score(
    plugin: ScorePlugin, state: CycleState, pod: PodInfo, scores: IntArray
) -> IntArray:
    """Run NormalizeScore on the scores of all feasible nodes; raises ``PluginError``."""
    point = "ScoreExtensionNormalize"
    result = call_plugin(plugin, point, state, plugin.normalize, state, pod, scores)
    return as_scores(plugin, point, result, len(scores))


def out_of_range(scores: IntArray) -> int | None:
    """Return a score that is outside 0..100, if there is one."""
    # Read as unsigned, a negative score is huge: the maximum alone finds both kinds.
    if not len(scores) or scores.view(np.uint64).max() <= MAX_SCORE:
        return None
    lowest = int(scores.min())
    return lowest if lowest < MIN_SCORE else int(scores.max())


def check_range(plugin: ScorePlugin, scores: IntArray) -> None:
    """Raise ``PluginError`` when a final score is outside 0..100."""
    beyond = out_of_range(scores)
    if beyond is not None:
        plugin.health.note("Score", "invalid_answer")
        raise PluginError(
            plugin.name,
            "Score",
            f'applying score defaultWeights on Score plugins: plugin "{plugin.name}" returns '
            f"an invalid score {beyond}, it should in the range of [0, 100] after normalizing",
        )
