"""Checks that a plugin's columnar and per-node methods agree, on random clusters.

``assert_agreement`` checks one cluster, ``assert_sharing`` one that changes; ``agree`` draws many
clusters and does both:

    def test_forms_agree():
        agree(GpuHeadroom)
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

try:
    from hypothesis import HealthCheck, given, settings
    from hypothesis import strategies as st
except ImportError as error:
    raise ImportError(
        "proreus.testing.agreement needs hypothesis: pip install 'proreus[testing]'"
    ) from error

from proreus.framework.cycle_state import CycleState
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import (
    FilterPlugin,
    Plugin,
    PreFilterPlugin,
    PreScorePlugin,
    ScorePlugin,
)
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Code, Status
from proreus.framework.verdicts import IntArray, Rows, Verdicts
from proreus.runtime.node_points import run_filter_plugin, run_score_plugin
from proreus.runtime.plugin_results import PluginResults
from proreus.testing.builders import make_plugin
from proreus.testing.clusters import Change, Cluster, clusters
from proreus.testing.fake_handle import FakeHandle
from proreus.testing.mutation_guard import guard


def agree(
    plugin: type[Plugin],
    args: Mapping[str, Any] | None = None,
    *,
    gates: tuple[str, ...] = (),
    drawn_from: st.SearchStrategy[Cluster] | None = None,
    examples: int | None = None,
) -> None:
    """Draw clusters, and run ``assert_agreement`` and ``assert_sharing`` on each.

    The plugin is run for the pending pod, and for the existing pods as if they were pending.

    ``args``, ``gates``: the plugin's arguments and the feature gates (``Name=true``).
    ``drawn_from``: a strategy whose clusters have the objects that the plugin reads; those of
    ``clusters()``, the default, have no volumes, devices or affinity between pods. ``examples``:
    how many clusters; ``max_examples`` of hypothesis' profile by default.

    Raises ``AssertionError`` with the smallest cluster found that fails.
    """
    count = settings().max_examples if examples is None else examples

    @settings(max_examples=count, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(clusters() if drawn_from is None else drawn_from)
    def check(cluster: Cluster) -> None:
        handle = cluster.handle(*gates)
        made = make_plugin(plugin, handle, args)
        guard(made)
        pods = (cluster.pod, *cluster.pods)
        for pod in pods:
            assert_agreement(made, pod, handle.nodes)
        assert_sharing(made, pods, handle, cluster.changes)

    check()


# ---- columnar and per-node methods ---------------------------------------------------------------


def assert_agreement(plugin: Plugin, pod: PodInfo, nodes: NodeTable) -> None:
    """Assert that ``filter_all`` agrees with ``filter``, and ``score_all`` with ``score``.

    They are compared for each node, on the whole table and on parts of it. PreFilter and PreScore
    run first; what they skip is not compared. A plugin with per-node methods only is compared with
    itself: the result for a node must not depend on the other nodes in the table.

    Raises ``AssertionError`` that names the node, or a wrong dtype or shape of scores.
    """
    state = CycleState()
    if isinstance(plugin, FilterPlugin) and not _skips_filter(plugin, state, pod, nodes):
        singles = [plugin.filter(state, pod, node) for node in nodes]
        for part, rows in _views(nodes):
            _compare_filter(plugin, state, pod, part, [singles[row] for row in rows.tolist()])
    if isinstance(plugin, ScorePlugin) and not _skips_score(plugin, state, pod, nodes):
        scores = [plugin.score(state, pod, node) for node in nodes]
        for part, rows in _views(nodes):
            _compare_score(plugin, state, pod, part, [scores[row] for row in rows.tolist()])


def _views(nodes: NodeTable) -> Iterable[tuple[NodeTable, Rows]]:
    """Return tables of some of the nodes, each with the rows of ``nodes`` that it contains."""
    everything, some = np.arange(len(nodes)), np.arange(len(nodes))[::-2]
    yield nodes, everything
    for rows in (everything, some, everything[:0]):
        yield nodes.take(rows), rows
    yield nodes.fork(some), some


def _skips_filter(plugin: Plugin, state: CycleState, pod: PodInfo, nodes: NodeTable) -> bool:
    if not isinstance(plugin, PreFilterPlugin):
        return False
    result = plugin.pre_filter(state, pod, nodes)
    return isinstance(result, Status) and result.code != Code.SUCCESS


def _skips_score(plugin: Plugin, state: CycleState, pod: PodInfo, nodes: NodeTable) -> bool:
    if not isinstance(plugin, PreScorePlugin):
        return False
    return plugin.pre_score(state, pod, nodes) is not None


def _compare_filter(
    plugin: FilterPlugin,
    state: CycleState,
    pod: PodInfo,
    nodes: NodeTable,
    singles: Sequence[Status | None],
) -> None:
    verdicts = Verdicts(len(nodes), plugin.name)
    plugin.filter_all(state, pod, nodes, verdicts)
    for row, (node, single) in enumerate(zip(nodes, singles, strict=True)):
        named = None if single is None else single.with_plugin(plugin.name)
        columnar = verdicts.status(row)
        assert columnar == named, f"{node.name}: filter_all says {columnar}, filter {named}"


def _compare_score(
    plugin: ScorePlugin,
    state: CycleState,
    pod: PodInfo,
    nodes: NodeTable,
    singles: Sequence[int],
) -> None:
    scores = plugin.score_all(state, pod, nodes)
    if not isinstance(scores, int):
        assert scores.dtype == np.int64, f"scores are {scores.dtype}, not int64"
        assert scores.shape == (len(nodes),), f"{scores.shape} scores for {len(nodes)} rows"
    for row, (node, single) in enumerate(zip(nodes, singles, strict=True)):
        columnar = scores if isinstance(scores, int) else int(scores[row])
        assert columnar == single, f"{node.name}: score_all says {columnar}, score {single}"


# ---- cached results ---------------------------------------------------------------------------


def assert_sharing(
    plugin: Plugin, pods: Iterable[PodInfo], handle: FakeHandle, changes: Iterable[Change] = ()
) -> None:
    """Assert that results cached for a signature are those that each of its pods would get.

    The plugin is run before the first change and after each one: once with cached results, of which
    only changed rows are computed again, and once without. Plugins that are not ``row_local`` share
    no results, so nothing is checked.

    Raises ``AssertionError`` that names the node: ``sign`` misses something that the plugin reads,
    or the plugin reads more than the row.
    """
    if not plugin.row_local:
        return
    pods = list(pods)
    kept: dict[Hashable, PluginResults] = {}
    for change in (None, *changes):
        if change is not None:
            change(handle)
        for pod in pods:
            signature = plugin.sign(pod)
            if signature is not None:
                results = kept.setdefault(signature, PluginResults(plugin))
                _compare_shared(plugin, results, pod, handle.nodes)


def _compare_shared(plugin: Plugin, results: PluginResults, pod: PodInfo, nodes: NodeTable) -> None:
    state = CycleState()
    if isinstance(plugin, FilterPlugin) and not _skips_filter(plugin, state, pod, nodes):
        results.refresh_filter(state, pod, nodes)
        fresh = Verdicts(len(nodes), plugin.name)
        run_filter_plugin(plugin, state, pod, nodes, fresh)
        for row, node in enumerate(nodes):
            kept, now = results.verdicts.status(row), fresh.status(row)
            assert kept == now, f"{node.name}: cached is {kept}, computed anew {now}"
    if isinstance(plugin, ScorePlugin) and not _skips_score(plugin, state, pod, nodes):
        results.refresh_score(state, pod, nodes)
        raw_scores, scores = results.raw_scores, run_score_plugin(plugin, state, pod, nodes)
        for row, node in enumerate(nodes):
            shared, anew = _score_at(raw_scores, row), _score_at(scores, row)
            assert shared == anew, f"{node.name}: cached is {shared}, computed anew {anew}"


def _score_at(scores: IntArray | int, row: int) -> int:
    return scores if isinstance(scores, int) else int(scores[row])
