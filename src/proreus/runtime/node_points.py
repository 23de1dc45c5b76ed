"""How a plugin is asked about rows: over columns for many, one by one for a handful.

A plugin's own form is preferred where both would do; the form that the base class derives is never
called here, since it does not know which table it is about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from proreus.errors import PluginError
from proreus.framework.attempt_budget import ROWS_BETWEEN_LOOKS
from proreus.framework.cycle_state import CycleState
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import MAX_SCORE, MIN_SCORE, FilterPlugin, Plugin, ScorePlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Code, Status
from proreus.framework.verdicts import PASSED, IntArray, Rows, Verdicts
from proreus.runtime.calls import (
    as_status,
    call_plugin,
    call_plugin_for_nodes,
    invalid_answer_error,
    plugin_error,
    raise_status,
    recorded_error,
)

_HANDFUL = 8
_MOST_INT64 = 2**63 - 1

_VERDICT_CODES = frozenset({Code.UNSCHEDULABLE, Code.UNRESOLVABLE, Code.PENDING})


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
    """Ask about every row of a table; raises ``PluginError``.

    ``keep_errors``: an Error about a row becomes its verdict, to be raised by
    ``raise_filter_error`` once it is known that no plugin before this one rejected the row.
    ``earlier``: what plugins before this one said; the per-node form is not asked about rows that
    they rejected. ``columns``: ask about columns wherever the plugin can, also for a handful of
    rows.
    """
    in_columns = columns or len(nodes) > _HANDFUL or not plugin.per_node_filter
    if plugin.columnar_filter and in_columns:
        plugin.evaluations.filter.value += len(nodes)
        call_plugin(plugin, "Filter", state, plugin.filter_all, state, pod, nodes, verdicts)
    else:
        rows: Sequence[int] = range(len(nodes))
        if earlier is not None and earlier.ids is not None:
            rows = earlier.passed_rows().tolist()
        plugin.evaluations.filter.value += len(rows)
        for number, row in enumerate(rows):
            if number % ROWS_BETWEEN_LOOKS == 0:
                state.check_budget(plugin.name, "Filter")
            answer = call_plugin(plugin, "Filter", state, plugin.filter, state, pod, nodes[row])
            if answer is not None and (status := as_status(plugin, "Filter", answer)) is not None:
                verdicts.reject_row(row, status)
    if verdicts.ids is not None:
        for number, one in enumerate(verdicts.statuses):
            if one is None:
                continue
            if keep_errors and one.code == Code.ERROR:
                text = str(recorded_error(plugin, "Filter", "error", one.message))
                verdicts.statuses[number] = Status.error(text).with_plugin(plugin.name)
            else:
                check_verdict(plugin, one)


def raise_filter_error(verdicts: Verdicts) -> None:
    """Raise ``PluginError`` if a row's verdict is an Error."""
    if not any(status is not None and status.code == Code.ERROR for status in verdicts.statuses):
        return
    for status in verdicts.counts():
        if status.code == Code.ERROR:
            raise PluginError(status.plugin, "Filter", status.message)


def run_filter_plugin_on_node(
    plugin: FilterPlugin, state: CycleState, pod: PodInfo, nodes: NodeTable, row: int
) -> Status | None:
    """Ask about one row of a table; raises ``PluginError``."""
    if not plugin.per_node_filter:
        verdicts = Verdicts(1, plugin.name)
        run_filter_plugin(plugin, state, pod, nodes.take(np.array([row], dtype=np.intp)), verdicts)
        return verdicts.status(0)
    plugin.evaluations.filter.value += 1
    answer = call_plugin(plugin, "Filter", state, plugin.filter, state, pod, nodes[row])
    if answer is None or (status := as_status(plugin, "Filter", answer)) is None:
        return None
    check_verdict(plugin, status)
    return status.with_plugin(plugin.name)


def filter_function(
    plugin: FilterPlugin, state: CycleState, pod: PodInfo, nodes: NodeTable
) -> Callable[[int], Status | None]:
    """Return ``run_filter_plugin_on_node`` as a function of the row alone, for hundreds of rows one
    by one."""
    if state.timer is not None or not plugin.per_node_filter:
        return partial(run_filter_plugin_on_node, plugin, state, pod, nodes)
    method, infos, asked = plugin.filter, nodes.infos, plugin.evaluations.filter

    def run_filter(row: int) -> Status | None:
        asked.value += 1
        try:
            answer = method(state, pod, infos[row])
        except BaseException as error:
            raise plugin_error(plugin, "Filter", error) from error
        if answer is None or (status := as_status(plugin, "Filter", answer)) is None:
            return None
        check_verdict(plugin, status)
        return status.with_plugin(plugin.name)

    return run_filter


def run_filter_plugin_on_rows(
    plugin: FilterPlugin, state: CycleState, pod: PodInfo, nodes: NodeTable, rows: list[int]
) -> Iterator[tuple[int, Status | None]]:
    """Ask about some rows and yield ``(row, status)``."""
    if plugin.per_node_filter and (len(rows) <= _HANDFUL or not plugin.columnar_filter):
        for row in rows:
            yield row, run_filter_plugin_on_node(plugin, state, pod, nodes, row)
    elif rows:
        verdicts = Verdicts(len(rows), plugin.name)
        part = nodes.take(np.array(rows, dtype=np.intp))
        run_filter_plugin(plugin, state, pod, part, verdicts)
        for number, row in enumerate(rows):
            yield row, verdicts.status(number)


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
        if isinstance(scores, (int, np.integer)):
            return _as_score(plugin, scores)
        return as_scores(plugin, "Score", scores, len(nodes))
    each = call_plugin_for_nodes(plugin, "Score", state, plugin.score, pod, nodes)
    return as_scores(plugin, "Score", each, len(nodes))


def as_scores(
    plugin: Plugin, point: str, answer: Any, size: int, of_each: str = "node"
) -> IntArray:
    """Return an answer as one int64 a node, or whatever is scored; raises ``PluginError``.

    Fractions are refused: cut off in silence, scores of 0..1 would all be 0.
    """
    try:
        given = np.asarray(answer)
    except ValueError as error:
        raise invalid_answer_error(plugin, point, f"an integer a {of_each}", answer) from error
    if given.dtype.kind not in "iu" and given.size:
        raise invalid_answer_error(plugin, point, f"an integer a {of_each}", answer)
    scores: IntArray = given.astype(np.int64, copy=False)
    if scores.shape != (size,):
        raise invalid_answer_error(
            plugin, point, f"{size} scores", f"an array of shape {scores.shape}"
        )
    return scores


def _as_score(plugin: ScorePlugin, answer: Any) -> int:
    """Return an answer as one int64; raises ``PluginError`` if it is none."""
    if isinstance(answer, (int, np.integer)) and not isinstance(answer, bool):
        score = int(answer)
        if abs(score) <= _MOST_INT64:
            return score
    raise invalid_answer_error(plugin, "Score", "an integer of 64 bits", answer)


def run_score_plugin_on_rows(
    plugin: ScorePlugin, state: CycleState, pod: PodInfo, nodes: NodeTable, rows: list[int]
) -> Iterator[tuple[int, int]]:
    """Score some rows and yield ``(row, score)``."""
    if plugin.per_node_score and (len(rows) <= _HANDFUL or not plugin.columnar_score):
        plugin.evaluations.score.value += len(rows)
        for row in rows:
            answer = call_plugin(plugin, "Score", state, plugin.score, state, pod, nodes[row])
            yield row, _as_score(plugin, answer)
    elif rows:
        scores = run_score_plugin(plugin, state, pod, nodes.take(np.array(rows, dtype=np.intp)))
        for number, row in enumerate(rows):
            yield row, scores if isinstance(scores, int) else int(scores[number])


def run_normalize_score(
    plugin: ScorePlugin, state: CycleState, pod: PodInfo, scores: IntArray
) -> IntArray:
    """Bring the scores of all nodes that passed to 0..100; raises ``PluginError``."""
    point = "ScoreExtensionNormalize"
    answer = call_plugin(plugin, point, state, plugin.normalize, state, pod, scores)
    return as_scores(plugin, point, answer, len(scores))


def out_of_range(scores: IntArray) -> int | None:
    """Return a score that is outside 0..100, if there is one."""
    # Read as unsigned, negative scores are huge ones: one look at the maximum finds both.
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


def check_verdict(plugin: FilterPlugin, status: Status) -> None:
    """Raise ``PluginError`` for a status that Filter does not allow."""
    if status.code not in _VERDICT_CODES:
        raise_status(plugin, "Filter", status)
