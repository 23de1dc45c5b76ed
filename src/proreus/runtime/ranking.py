"""How good each feasible node is: PreScore, Score, NormalizeScore, weights.

Where all scores are shared the ranking comes ready from the pod's face; otherwise plugins that
share nothing score the feasible nodes, and their scores are added to what the face has.
"""

from __future__ import annotations

import numpy as np

from proreus.framework.cycle_state import CycleState
from proreus.framework.emptied_part import EmptiedPart
from proreus.framework.node_parts import FeasiblePart
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import ScorePlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import SKIP
from proreus.framework.verdicts import IntArray
from proreus.runtime.asking import check_range, normalize_scores, score_table
from proreus.runtime.calls import as_status, ask, failed, refuse
from proreus.runtime.face import Face, Scorer
from proreus.runtime.profile import Profile
from proreus.runtime.search import Found
from proreus.runtime.totals import PassingTotals, Ranking, Totals


def run_pre_score(profile: Profile, state: CycleState, pod: PodInfo, found: Found) -> None:
    """Let plugins prepare; notes in ``state`` who has nothing to score. Raises ``PluginError``."""
    nodes = _feasible(profile, found)
    skipped = []
    point, timed = "PreScore", state.timer is not None
    for plugin in profile.pre_score:
        if timed:
            answer = ask(plugin, point, state, plugin.pre_score, state, pod, nodes)
        else:  # see ``run_pre_filter``
            try:
                answer = plugin.pre_score(state, pod, nodes)
            except BaseException as error:
                raise failed(plugin, point, error) from error
        if answer is not None and (status := as_status(plugin, point, answer)) is not None:
            if status.code != SKIP:
                refuse(plugin, point, status)
            skipped.append(plugin.name)
        else:
            plugin.evaluations.pre_score.value += 1
    state.skip_score = frozenset(skipped)


def rank(
    profile: Profile,
    state: CycleState,
    pod: PodInfo,
    found: Found,
    scores: dict[str, IntArray] | None = None,
) -> Ranking:
    """Return the total score of each feasible node.

    PreScore has been run. ``scores``, where given, is filled with what each plugin added, as
    ``found.rows`` go. Raises ``PluginError``.
    """
    face, fewer = found.face, not found.all_shared
    apart = [plugin for plugin in profile.score if plugin.name not in state.skip_score]
    if face is not None:
        shared = _rank_shared(profile, state, pod, found, face)
        apart = [plugin for plugin in apart if found.signatures[plugin] is None]
        if not (apart or fewer or scores is not None):
            face.check_range()
            return shared
    where = slice(None) if found.everywhere else found.rows
    total: IntArray | int = 0
    each: dict[str, IntArray | int] = {}
    if face is not None and scores is None:
        total = face.total(state, pod, where, fewer=fewer)
    elif face is not None:
        each = face.scores(state, pod, where, fewer=fewer)
    for plugin in apart:
        each[plugin.name] = _score(profile, plugin, state, pod, found)
    if scores is not None:
        for name, added in each.items():
            scores[name] = np.full(found.count, added, dtype=np.int64)
    total = sum(each.values(), total)
    if isinstance(total, int):
        total = np.full(found.count, total, dtype=np.int64)
    return PassingTotals(profile.table.size, found.rows, total)


def _rank_shared(
    profile: Profile, state: CycleState, pod: PodInfo, found: Found, face: Face
) -> Totals:
    """Return what the plugins that share add up to, by row of the table."""
    skipped, signatures = state.skip_score, found.signatures
    scored_by = [None if p.name in skipped else signatures[p] for p in profile.score]
    if scored_by != face.scored_by:
        scorers = [
            Scorer(plugin, profile.weights[plugin.name], profile.shared.answers(plugin, signature))
            for plugin, signature in zip(profile.score, scored_by, strict=True)
            if signature is not None
        ]
        face.score_with(scorers, scored_by)
    return face.refresh_ranking(state, pod, profile.table)


def _feasible(profile: Profile, found: Found) -> NodeTable:
    """Return the feasible nodes as score plugins are to see them."""
    if found.emptied:
        return EmptiedPart(profile.table, found.rows)
    if found.everywhere:
        return profile.table
    return FeasiblePart(profile.table, found)


def _score(
    profile: Profile, plugin: ScorePlugin, state: CycleState, pod: PodInfo, found: Found
) -> IntArray | int:
    """Return one plugin's scores of the feasible nodes: normalised, checked and weighted."""
    raw = score_table(plugin, state, pod, _feasible(profile, found))
    scores = np.array([raw], dtype=np.int64) if isinstance(raw, int) else raw
    if plugin.normalizes:
        scores = normalize_scores(plugin, state, pod, scores)
    check_range(plugin, scores)
    weight = profile.weights[plugin.name]
    return int(scores[0]) * weight if isinstance(raw, int) else scores * weight
