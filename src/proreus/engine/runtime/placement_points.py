"""The extension points for the placements of a PodGroup: PlacementGenerate and PlacementScore.

A placement is a set of nodes on which a whole group may be scheduled (KEP-5732).
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np

from proreus.base.errors import PluginError
from proreus.engine.runtime.node_points import as_scores
from proreus.engine.runtime.plugin_errors import (
    allowed_status,
    invalid_result_error,
    raise_status,
    refuse_status,
)
from proreus.engine.runtime.points import call_plugin
from proreus.engine.runtime.profile import Profile
from proreus.framework.cycle_state import CycleState
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import MAX_SCORE, MIN_SCORE, Plugin
from proreus.framework.pod_group import Placement, PodGroupAssignments, PodGroupInfo
from proreus.framework.pod_group_plugin import PlacementScorePlugin
from proreus.framework.status import Code, Status
from proreus.framework.verdicts import IntArray

NO_PLACEMENTS = Status.unschedulable("no feasible placements found")
_ALL_NODES = (Placement("all-nodes", None),)


def run_placement_generate(
    profile: Profile, state: CycleState, group: PodGroupInfo, nodes: NodeTable | None = None
) -> Sequence[Placement] | Status:
    """Return the group's possible placements, or the rejection; raises ``PluginError``.

    ``nodes``: the nodes that the placement of its parent leaves, None for all. Without a plugin it
    is one placement with all nodes.
    """
    started = perf_counter()
    placements: Sequence[Placement] = _ALL_NODES
    nodes = profile.table if nodes is None else nodes
    point, code = "PlacementGenerate", Code.ERROR
    try:
        for plugin in profile.placement_generate:
            result = call_plugin(
                plugin, point, state, plugin.generate_placements, state, group, nodes
            )
            if isinstance(result, Status):
                status = allowed_status(plugin, point, result)
                if status is None:
                    raise_status(plugin, point, result)
                code = status.code
                return status
            placements = _as_placements(plugin, point, result)
        code = Code.SUCCESS if placements else Code.UNSCHEDULABLE
        # A status of its own for each group: kube-scheduler appends reasons to it.
        return placements or NO_PLACEMENTS.with_plugin(plugin.name)
    finally:
        profile.point_seconds[point, code].observe(perf_counter() - started)


def _as_placements(plugin: Plugin, point: str, result: object) -> Sequence[Placement]:
    # Their number is told before the first is tried, and ``OrderedPlacements`` is a tuple too.
    if isinstance(result, (tuple, list)) and set(map(type, result)) <= {Placement}:
        return result
    raise invalid_result_error(plugin, point, "Placements or a Status", result)


def run_placement_score(
    profile: Profile,
    state: CycleState,
    group: PodGroupInfo,
    candidates: Sequence[PodGroupAssignments],
    states: Sequence[CycleState] | None = None,
) -> IntArray:
    """Return the weighted total of each placement; raises ``PluginError``.

    ``states``: what plugins keep about the try in each placement; up to 1.36 that is ``state``.
    """
    started = perf_counter()
    totals = np.zeros(len(candidates), dtype=np.int64)
    code = Code.ERROR
    try:
        for plugin in profile.placement_score:
            scores = _score(plugin, state, group, candidates, states or [state] * len(candidates))
            totals += scores * profile.placement_weights[plugin.name]
        code = Code.SUCCESS
        return totals
    finally:
        profile.point_seconds["PlacementScore", code].observe(perf_counter() - started)


def _score(
    plugin: PlacementScorePlugin,
    state: CycleState,
    group: PodGroupInfo,
    candidates: Sequence[PodGroupAssignments],
    states: Sequence[CycleState],
) -> IntArray:
    """Return one plugin's scores, normalised and checked."""
    point = "PlacementScore"
    raw: list[Any] = []
    for candidate, own in zip(candidates, states, strict=True):
        result = call_plugin(plugin, point, own, plugin.score_placement, own, group, candidate)
        refuse_status(plugin, point, result)
        raw.append(result)
    scores = as_scores(plugin, point, raw, len(raw), "placement")
    point = "PlacementScoreExtensionNormalize"
    normal = call_plugin(plugin, point, state, plugin.normalize_placements, state, group, scores)
    refuse_status(plugin, point, normal)
    scores = as_scores(plugin, point, normal, len(raw), "placement")
    for score in scores.tolist():
        if not MIN_SCORE <= score <= MAX_SCORE:
            plugin.health.note(point, "invalid_answer")
            raise PluginError(
                plugin.name,
                point,
                "applying score defaultWeights on PlacementScore plugins: plugin "
                f'"{plugin.name}" returns an invalid score {score}, it should in the range of '
                "[0, 100] after normalizing",
            )
    return scores
