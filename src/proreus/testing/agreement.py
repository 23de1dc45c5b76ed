"""Whether a plugin's two forms say the same, for every node of random clusters.

``assert_agreement`` looks at one cluster, ``agree`` draws many:

    def test_forms_agree():
        agree(GpuHeadroom)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import given, settings

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
from proreus.framework.verdicts import Rows, Verdicts
from proreus.testing.builders import make_plugin
from proreus.testing.clusters import Cluster, clusters


def agree(
    plugin: type[Plugin],
    args: Mapping[str, Any] | None = None,
    *,
    gates: tuple[str, ...] = (),
    examples: int = 150,
) -> None:
    """Draw clusters and assert that the plugin's forms agree on each.

    They are asked about the pending pod, and about those that are there as if they were pending.
    """

    @settings(max_examples=examples, deadline=None)
    @given(clusters())
    def check(cluster: Cluster) -> None:
        handle = cluster.handle(*gates)
        made = make_plugin(plugin, handle, args)
        for pod in (cluster.pod, *cluster.pods):
            assert_agreement(made, pod, handle.nodes)

    check()


def assert_agreement(plugin: Plugin, pod: PodInfo, nodes: NodeTable) -> None:
    """Assert that columns and single nodes get the same answers, whole table and parts of it.

    PreFilter and PreScore are asked first; what they skip is not compared.
    """
    state = CycleState()
    picks = [np.arange(len(nodes)), np.arange(len(nodes))[::-2], np.arange(0)]
    if isinstance(plugin, FilterPlugin) and not _skips_filter(plugin, state, pod, nodes):
        for rows in picks:
            _compare_filter(plugin, state, pod, nodes, rows)
    if isinstance(plugin, ScorePlugin) and not _skips_score(plugin, state, pod, nodes):
        for rows in picks:
            _compare_score(plugin, state, pod, nodes, rows)


def _skips_filter(plugin: Plugin, state: CycleState, pod: PodInfo, nodes: NodeTable) -> bool:
    if not isinstance(plugin, PreFilterPlugin):
        return False
    answer = plugin.pre_filter(state, pod, nodes)
    return isinstance(answer, Status) and answer.code != Code.SUCCESS


def _skips_score(plugin: Plugin, state: CycleState, pod: PodInfo, nodes: NodeTable) -> bool:
    if not isinstance(plugin, PreScorePlugin):
        return False
    return plugin.pre_score(state, pod, nodes) is not None


def _compare_filter(
    plugin: FilterPlugin, state: CycleState, pod: PodInfo, nodes: NodeTable, rows: Rows
) -> None:
    part = nodes.take(rows)
    verdicts = Verdicts(len(rows), plugin.name)
    plugin.filter_all(state, pod, part, verdicts)
    for row, node in enumerate(part):
        single = plugin.filter(state, pod, node)
        single = None if single is None else single.of(plugin.name)
        columnar = verdicts.status(row)
        assert columnar == single, f"{node.name}: columns say {columnar}, the node {single}"


def _compare_score(
    plugin: ScorePlugin, state: CycleState, pod: PodInfo, nodes: NodeTable, rows: Rows
) -> None:
    part = nodes.take(rows)
    scores = plugin.score_all(state, pod, part)
    if not isinstance(scores, int):
        assert scores.dtype == np.int64, f"scores are {scores.dtype}, not int64"
        assert scores.shape == (len(rows),), f"{scores.shape} scores for {len(rows)} rows"
    for row, node in enumerate(part):
        single = plugin.score(state, pod, node)
        columnar = scores if isinstance(scores, int) else int(scores[row])
        assert columnar == single, f"{node.name}: columns say {columnar}, the node {single}"
