"""prioritizeNodes: PreScore, Score, NormalizeScore and weights, a total for each feasible node.

    run_pre_score ─► PreScore of each plugin; who returns Skip does not score
    prioritize_nodes
      ├► _shared_scores ─► ClassScores.refresh               scores of plugins that sign the pod
      └► _score ─► run_score_plugin, run_normalize_score     scores of the others, feasible rows
      ─► CachedTotals (all scores cached) or AttemptTotals (some were computed for this pod)

Shared: the totals of the equivalence class, from pod to pod, for each set of scoring plugins and
their signatures. Invalidated: see ``plugin_results``.

Example: 3 feasible nodes, NodeResourcesFit cached with 60, 80, 80 and InterPodAffinity, uncached,
with 100, 0, 50 and weight 2: the totals are 260, 80 and 180, in ``AttemptTotals``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from proreus.engine.runtime.equivalence_cache import EquivalenceClass
from proreus.engine.runtime.find_nodes import FeasibleNodes
from proreus.engine.runtime.node_points import check_range, run_normalize_score, run_score_plugin
from proreus.engine.runtime.out_of_tree import is_out_of_tree
from proreus.engine.runtime.plugin_results import ClassScores, Scorer
from proreus.engine.runtime.profile import Profile
from proreus.engine.runtime.select_host import AttemptTotals, NodeScores
from proreus.framework.cycle_state import CycleState
from proreus.framework.node_table import NodeTable
from proreus.framework.node_table_views import NodeTableView
from proreus.framework.nodes_without_pods import NodesWithoutPods
from proreus.framework.plugin import ScorePlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.verdicts import IntArray, Rows


class ComputedScores:
    """The scores of plugins that were computed for one attempt, in the order of ``found.rows``.

    By name of the plugin; an int if all are the same. ``raw``: as Score returned them, not there
    for plugins whose cached raw scores were normalised anew. ``weighted``: normalised and weighted.
    """

    # Made for each recorded pod, and filled for few: two dicts for each would cost more than that.
    raw: Mapping[str, IntArray | int] = MappingProxyType({})
    weighted: Mapping[str, IntArray | int] = MappingProxyType({})


def run_pre_score(profile: Profile, state: CycleState, pod: PodInfo, found: FeasibleNodes) -> None:
    """Run PreScore; plugins that return Skip are noted in ``state``. Raises ``PluginError``."""
    skipped: list[str] = []
    # Every other answer than Skip is an error.
    for _ in profile.pre_score.run(state, pod, _feasible(profile, found), skipped):
        pass
    state.skip_score = frozenset(skipped)


def prioritize_nodes(
    profile: Profile,
    state: CycleState,
    pod: PodInfo,
    found: FeasibleNodes,
    scores: dict[str, IntArray] | None = None,
    computed: ComputedScores | None = None,
) -> NodeScores:
    """Return the total score of each feasible node.

    ``run_pre_score`` comes first. ``scores``, where given, is filled with the weighted scores of
    each plugin, in the order of ``found.rows``. ``computed`` is filled with those that were not
    cached. Raises ``PluginError``.
    """
    equivalence_class, subset = found.equivalence_class, not found.all_from_cache
    scoring = [plugin for plugin in profile.score if plugin.name not in state.skip_score]
    unshared, shared = scoring, None
    if equivalence_class is not None:
        found.signatures.sign(scoring)
        shared = _shared_scores(profile, state, found, equivalence_class)
        feasible, version = equivalence_class.feasible, equivalence_class.feasible_version
        totals = shared.refresh(state, pod, profile.table, feasible, version)
        unshared = [plugin for plugin in scoring if found.signatures[plugin] is None]
        # The usual end: every score came from the cache, and the totals are used as they are. A
        # subset cannot use them, since they were normalised over rows that are no longer feasible.
        if not (unshared or subset or scores is not None):
            shared.check_range()
            return totals
    # A slice is a view; indexing by the rows of all 5,000 nodes would copy every column.
    where = slice(None) if found.all_nodes_feasible else found.rows
    total: IntArray | int = 0
    each: dict[str, IntArray | int] = {}
    raw: dict[str, IntArray | int] | None = None if computed is None else {}
    if shared is not None:
        # The cached totals are normalised over all rows of the class. If an uncached plugin or an
        # extender removed some, kube-scheduler would have normalised over the rest alone.
        if scores is None and not (subset and shared.depends_on_others):
            total = shared.total(where)
        else:
            each = shared.scores(state, pod, where, subset=subset)
    for plugin in unshared:
        each[plugin.name] = _score(profile, plugin, state, pod, found, raw)
    if computed is not None and raw is not None:
        computed.raw, computed.weighted = raw, each
    if scores is not None:
        for name, added in each.items():
            scores[name] = np.full(found.count, added, dtype=np.int64)
    total = sum(each.values(), total)
    if isinstance(total, int):
        total = np.full(found.count, total, dtype=np.int64)
    return AttemptTotals(profile.table.size, found.rows, total)


def _shared_scores(
    profile: Profile, state: CycleState, found: FeasibleNodes, equivalence_class: EquivalenceClass
) -> ClassScores:
    """Return the scores of the cached plugins for pods such as this one, not refreshed."""
    cache, skipped, signatures = profile.equivalence_cache, state.skip_score, found.signatures
    # The class's key has the signatures of Filter plugins alone. Plugins that only score may sign
    # two of its pods differently, and PreScore may skip a plugin for one of them.
    scorer_signatures = [None if p.name in skipped else signatures[p] for p in profile.score]
    if scorer_signatures == equivalence_class.scores.signatures:
        return equivalence_class.scores

    def scorers() -> list[Scorer]:
        return [
            Scorer(plugin, profile.weights[plugin.name], cache.results(plugin, signature))
            for plugin, signature in zip(profile.score, scorer_signatures, strict=True)
            if signature is not None
        ]

    return cache.use_scores(equivalence_class, scorer_signatures, scorers)


_NO_ROWS: Rows = np.empty(0, dtype=np.intp)


class _FeasibleView(NodeTableView):
    """The feasible nodes; their rows are computed when a plugin reads them."""

    def __init__(self, parent: NodeTable, found: FeasibleNodes) -> None:
        # Most PreScore plugins look at the pod alone, and the size is known without the rows.
        super().__init__(parent, _NO_ROWS)
        self._found = found
        self.size = found.count

    @property
    def parent_rows(self) -> Rows:
        """The rows of the feasible nodes."""
        return self._found.rows


def _feasible(profile: Profile, found: FeasibleNodes) -> NodeTable:
    """Return the feasible nodes as PreScore and Score see them."""
    if found.without_pods:
        return NodesWithoutPods(profile.table, found.rows)
    if found.all_nodes_feasible:
        return profile.table
    return _FeasibleView(profile.table, found)


def _score(
    profile: Profile,
    plugin: ScorePlugin,
    state: CycleState,
    pod: PodInfo,
    found: FeasibleNodes,
    raw_scores: dict[str, IntArray | int] | None,
) -> IntArray | int:
    """Return one plugin's scores of the feasible nodes: normalised, checked and weighted.

    ``raw_scores``, where given, is filled with what Score returned.
    """
    raw = run_score_plugin(plugin, state, pod, _feasible(profile, found))
    state.check_budget(plugin.name, "Score")
    if raw_scores is not None:
        # NormalizeScore may write to the array that it gets; those of our own do not.
        copied = plugin.normalizes and is_out_of_tree(type(plugin)) and not isinstance(raw, int)
        raw_scores[plugin.name] = np.copy(raw) if copied else raw
    scores = np.array([raw], dtype=np.int64) if isinstance(raw, int) else raw
    if plugin.normalizes:
        scores = run_normalize_score(plugin, state, pod, scores)
    check_range(plugin, scores)
    weight = profile.weights[plugin.name]
    return int(scores[0]) * weight if isinstance(raw, int) else scores * weight
