"""How good each feasible node is: PreScore, Score, NormalizeScore, weights.

Where all scores are shared the ranking comes ready from the pod's face; otherwise the feasible
nodes are scored as a part of the table.
"""

from __future__ import annotations

import numpy as np

from proreus.framework.cycle_state import CycleState
from proreus.framework.emptied_part import EmptiedPart
from proreus.framework.node_parts import FeasiblePart
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import ScorePlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Code
from proreus.framework.verdicts import IntArray
from proreus.runtime.asking import check_range, normalize_scores, score_table
from proreus.runtime.calls import as_status, ask, refuse
from proreus.runtime.profile import Profile
from proreus.runtime.search import Found
from proreus.runtime.shared_answers import Scorer
from proreus.runtime.totals import INFEASIBLE, Totals


def run_pre_score(profile: Profile, state: CycleState, pod: PodInfo, found: Found) -> None:
    """Let plugins prepare; notes in ``state`` who has nothing to score. Raises ``PluginError``."""
    nodes = _feasible(profile, found)
    skipped = []
    for plugin in profile.pre_score:
        answer = ask(plugin, "PreScore", state, plugin.pre_score, state, pod, nodes)
        status = as_status(plugin, "PreScore", answer)
        if status is None:
            plugin.evaluations.pre_score.inc()
        elif status.code == Code.SKIP:
            skipped.append(plugin.name)
        else:
            refuse(plugin, "PreScore", status)
    state.skip_score = frozenset(skipped)


def rank(
    profile: Profile,
    state: CycleState,
    pod: PodInfo,
    found: Found,
    scores: dict[str, IntArray] | None = None,
) -> Totals:
    """Return the total score of each feasible node, by row of the table.

    PreScore has been run. ``scores``, where given, is filled with what each plugin added, as
    ``found.rows`` go. Raises ``PluginError``.
    """
    face = found.face
    active = _active(profile, state)
    if face is not None and all(plugin.name in found.signatures for plugin in active):
        signatures = found.signatures
        key = tuple(signatures[p.name] for p in active), state.skip_score

        def scorers() -> list[Scorer]:
            shared, weights = profile.shared, profile.weights
            return [
                Scorer(p, weights[p.name], shared.answers(p, signatures[p.name])) for p in active
            ]

        face.score_with(key, scorers)
        shared = face.refresh_ranking(state, pod, profile.table)
        if scores is not None:
            scores |= face.scores(found.rows)
        return shared

    by_row = np.full(profile.table.size, INFEASIBLE, dtype=np.int64)
    each = _weighted(profile, state, pod, found)
    alike = sum(added for added in each.values() if isinstance(added, int))
    totals = np.full(len(found.rows), alike, dtype=np.int64)
    for added in each.values():
        if not isinstance(added, int):
            totals += added
    if scores is not None:
        scores |= _spread_out(each, len(found.rows))
    by_row[found.rows] = totals
    return Totals(by_row)


def score_each(
    profile: Profile, state: CycleState, pod: PodInfo, found: Found
) -> dict[str, IntArray]:
    """Return each plugin's weighted scores of the feasible nodes, as ``found.rows`` go."""
    return _spread_out(_weighted(profile, state, pod, found), len(found.rows))


def _weighted(
    profile: Profile, state: CycleState, pod: PodInfo, found: Found
) -> dict[str, IntArray | int]:
    """Return each plugin's weighted scores; one int where it is the same for all nodes."""
    weighted = {}
    for plugin in _active(profile, state):
        scores, weight = _score(profile, plugin, state, pod, found), profile.weights[plugin.name]
        weighted[plugin.name] = scores if weight == 1 else scores * weight
    return weighted


def _spread_out(each: dict[str, IntArray | int], size: int) -> dict[str, IntArray]:
    return {
        name: np.full(size, added, dtype=np.int64) if isinstance(added, int) else added
        for name, added in each.items()
    }


def _feasible(profile: Profile, found: Found) -> NodeTable:
    """Return the feasible nodes as score plugins are to see them."""
    if found.emptied:
        return EmptiedPart(profile.table, found.rows)
    return FeasiblePart(profile.table, found)


def _active(profile: Profile, state: CycleState) -> list[ScorePlugin]:
    return [plugin for plugin in profile.score if plugin.name not in state.skip_score]


def _score(
    profile: Profile, plugin: ScorePlugin, state: CycleState, pod: PodInfo, found: Found
) -> IntArray | int:
    """Return one plugin's scores of the feasible nodes, normalised and checked."""
    rows = found.rows
    if plugin.name in found.signatures and found.evaluated is None and not found.emptied:
        answers = profile.shared.answers(plugin, found.signatures[plugin.name])
        answers.refresh_score(state, pod, profile.table)
        if isinstance(answers.raw, int):
            return int(_finished(plugin, state, pod, np.array([answers.raw], dtype=np.int64))[0])
        return _finished(plugin, state, pod, answers.raw[rows])
    raw = score_table(plugin, state, pod, _feasible(profile, found))
    if isinstance(raw, int):
        raw = np.full(len(rows), raw, dtype=np.int64)
    return _finished(plugin, state, pod, raw)


def _finished(plugin: ScorePlugin, state: CycleState, pod: PodInfo, raw: IntArray) -> IntArray:
    scores = normalize_scores(plugin, state, pod, raw) if plugin.normalizes else raw
    check_range(plugin, scores)
    return scores
