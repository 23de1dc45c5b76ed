"""The extension points of a whole PodGroup.

    groups/algorithm ─► run_placement_generate       the sets of nodes where it may be scheduled
                     ├► run_placement_feasible       before the first pod, and after each
                     │  cycles/scheduling_cycle ─► run_rank_nodes      for each pod, before Filter
                     └► run_placement_score          one of the placements that hold it
    groups/cycle     ─► run_pod_group_post_filter    once, if the group does not fit

A placement is a set of nodes on which a whole group may be scheduled (KEP-5732).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import reduce
from itertools import product
from time import perf_counter
from typing import Any

import numpy as np

from proreus.base.errors import PluginError
from proreus.engine.runtime.node_points import as_scores
from proreus.engine.runtime.plugin_errors import (
    allowed_status,
    as_status,
    invalid_result_error,
    raise_status,
    refuse_status,
)
from proreus.engine.runtime.points import await_plugin, call_plugin
from proreus.engine.runtime.profile import Profile
from proreus.framework.cycle_state import CycleState
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import MAX_SCORE, MIN_SCORE, Plugin
from proreus.framework.pod_group import (
    OrderedPlacements,
    Placement,
    PlacementProgress,
    PodGroupAssignments,
    PodGroupInfo,
    PodGroupPostFilterResult,
    SchedulePodGroup,
    reasons_of_placements,
)
from proreus.framework.pod_group_plugin import PlacementScorePlugin
from proreus.framework.status import Code, Status, code_of
from proreus.framework.verdicts import IntArray

NO_PLACEMENTS = Status.unschedulable("no feasible placements found")
_ALL_NODES: Sequence[Placement] = (Placement("all-nodes", None),)


def run_placement_generate(
    profile: Profile, state: CycleState, group: PodGroupInfo, nodes: NodeTable | None = None
) -> Sequence[Placement] | Status:
    """Return the group's possible placements, or the rejection; raises ``PluginError``.

    ``nodes``: the nodes that the placement of its parent leaves, None for all. Without a plugin it
    is one placement with all nodes. Placements of several plugins are intersected.
    """
    started = perf_counter()
    generated: list[Sequence[Placement]] = []
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
            if not placements:
                code = Code.UNSCHEDULABLE
                # A status of its own for each group: kube-scheduler appends reasons to it.
                return NO_PLACEMENTS.with_plugin(plugin.name)
            generated.append(placements)
        merged = reduce(_intersections, generated, _ALL_NODES)
        if all(placement.lacking for placement in merged):
            code, text = Code.UNSCHEDULABLE, "no feasible merged placements found"
            return Status.unschedulable(text, *reasons_of_placements(merged))
        code = Code.SUCCESS
        return merged
    finally:
        profile.point_seconds[point, code].observe(perf_counter() - started)


def _as_placements(plugin: Plugin, point: str, result: object) -> Sequence[Placement]:
    # Their number is told before the first is tried, and ``OrderedPlacements`` is a tuple too.
    if isinstance(result, (tuple, list)) and set(map(type, result)) <= {Placement}:
        return result
    raise invalid_result_error(plugin, point, "Placements or a Status", result)


def _intersections(some: Sequence[Placement], others: Sequence[Placement]) -> Sequence[Placement]:
    """Return the nodes that each two placements share, in the order of the first."""
    if len(some) == 1 and some[0].node_names is None:
        return others
    if len(others) == 1 and others[0].node_names is None:
        return some
    shared = (
        Placement(f"{one.name}/{other.name}", names, one.lacking or other.lacking)
        for one, other in product(some, others)
        if (names := _shared_names(one.node_names, other.node_names))
    )
    ordered = isinstance(some, OrderedPlacements) or isinstance(others, OrderedPlacements)
    return OrderedPlacements(shared) if ordered else tuple(shared)


def _shared_names(
    some: Collection[str] | None, others: Collection[str] | None
) -> Collection[str] | None:
    if some is None or others is None:
        return others if some is None else some
    return frozenset(some).intersection(others)


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
            scores = _placement_scores(
                plugin, state, group, candidates, states or [state] * len(candidates)
            )
            totals += scores * profile.placement_weights[plugin.name]
        code = Code.SUCCESS
        return totals
    finally:
        profile.point_seconds["PlacementScore", code].observe(perf_counter() - started)


def _placement_scores(
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


def run_placement_feasible(
    profile: Profile, state: CycleState, group: PodGroupInfo, progress: PlacementProgress
) -> Status | None:
    """Return whether the group can be scheduled: None, Wait, Unschedulable or Error."""
    started = perf_counter()
    status = _placement_feasible(profile, state, group, progress)
    profile.point_seconds["PlacementFeasible", code_of(status)].observe(perf_counter() - started)
    return status


def _placement_feasible(
    profile: Profile, state: CycleState, group: PodGroupInfo, progress: PlacementProgress
) -> Status | None:
    waits: Status | None = None
    for plugin in profile.placement_feasible:
        point, method = "PlacementFeasible", plugin.placement_feasible
        try:
            result = call_plugin(plugin, point, state, method, state, group, progress)
            status = as_status(plugin, point, result)
        except PluginError as error:
            return Status.error(f"running PlacementFeasible plugin: {error}")
        if status is None:
            continue
        match status.code:
            case Code.WAIT:
                waits = status.with_plugin(plugin.name)
            case Code.UNSCHEDULABLE:
                return status.with_plugin(plugin.name)
            case Code.ERROR:
                return Status.error(f"running PlacementFeasible plugin: {status.message}")
            case other:
                return Status.error(
                    f"unexpected status code ({other.label}) from PlacementFeasible plugin: "
                    f"{status.message}"
                )
    return waits


def run_rank_nodes(profile: Profile, state: CycleState) -> IntArray | None:
    """Return the rank of each row of the table, None if all are equal; raises ``PluginError``."""
    started, point = perf_counter(), "RankNodes"
    ranks = None
    for plugin in profile.rank_nodes:
        ranks = call_plugin(plugin, point, state, plugin.rank_nodes)
        if ranks is not None:
            break
    profile.point_seconds[point, Code.SUCCESS].observe(perf_counter() - started)
    return ranks


async def run_pod_group_post_filter(
    profile: Profile, state: CycleState, group: PodGroupInfo, schedule: SchedulePodGroup
) -> PodGroupPostFilterResult:
    """Return the result of the first plugin that ends the point, or the reasons of all."""
    started = perf_counter()
    result = await _pod_group_post_filter(profile, state, group, schedule)
    seconds = perf_counter() - started
    profile.point_seconds["PodGroupPostFilter", result.status.code].observe(seconds)
    return result


async def _pod_group_post_filter(
    profile: Profile, state: CycleState, group: PodGroupInfo, schedule: SchedulePodGroup
) -> PodGroupPostFilterResult:
    reasons: list[str] = []
    for plugin in profile.pod_group_post_filter:
        point, method = "PodGroupPostFilter", plugin.pod_group_post_filter
        try:
            result = await await_plugin(plugin, point, state, method, state, group, schedule)
            if not isinstance(result, PodGroupPostFilterResult):
                raise invalid_result_error(plugin, point, "a PodGroupPostFilterResult", result)
        except PluginError as error:
            return _failed(plugin.name, str(error))
        if result.status.code in (Code.SUCCESS, Code.UNRESOLVABLE):
            return result
        if result.status.code != Code.UNSCHEDULABLE:
            return _failed(plugin.name, result.status.message)
        reasons += result.status.reasons
    return PodGroupPostFilterResult(Status.unschedulable(*reasons))


def _failed(plugin: str, text: str) -> PodGroupPostFilterResult:
    return PodGroupPostFilterResult(
        Status.error(f'error in "{plugin}" PodGroupPostFilter plugins: {text}')
    )
