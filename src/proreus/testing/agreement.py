"""Checks that a plugin's columnar and per-node methods agree, on random clusters.

``assert_agreement`` checks one cluster, ``assert_sharing`` one that changes; ``agree`` draws many
clusters and does both:

    def test_forms_agree():
        agree(GpuHeadroom)

Clusters that lack what the plugin reads would prove nothing. So the drawn ones have the resources
and labels that it looks up (``vocabulary``), and results that never varied are a failure.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

try:
    from hypothesis import HealthCheck, given, seed, settings
    from hypothesis import strategies as st
except ImportError as error:
    raise ImportError(
        "proreus.testing.agreement needs hypothesis: pip install hypothesis"
    ) from error

from proreus.engine.runtime.node_points import run_filter_plugin, run_score_plugin
from proreus.engine.runtime.plugin_results import PluginResults
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
from proreus.testing.builders import make_plugin
from proreus.testing.clusters import Change, Cluster, clusters
from proreus.testing.fake_handle import FakeHandle
from proreus.testing.mutation_check import fail_on_mutation
from proreus.testing.vocabulary import Vocabulary, vocabulary_of

__all__ = ["agree", "assert_agreement", "assert_row_local", "assert_sharing"]

# A plugin may react to few of the clusters; the runs end as soon as its results have varied.
_MOST_RUNS = 16


@dataclass
class SeenResults:
    """The results of a plugin's Filter and Score in all comparisons so far.

    ``filter``: whether nodes passed; ``score``: scores; None for a point that the plugin lacks.
    """

    filter: set[bool] | None = field(default_factory=set)
    score: set[int] | None = field(default_factory=set)

    @classmethod
    def of(cls, plugin: type[Plugin]) -> SeenResults:
        """Return an empty record for the extension points of a plugin."""
        return cls(
            set() if issubclass(plugin, FilterPlugin) else None,
            set() if issubclass(plugin, ScorePlugin) else None,
        )

    def constant_points(self) -> list[tuple[str, str]]:
        """Return each point that had the same result on every node, with that result."""
        found = []
        if self.filter is not None and len(self.filter) < 2:
            result = "passed" if True in self.filter else "rejected"
            text = f"Filter {result} every node" if self.filter else "Filter never ran"
            found.append(("Filter", text))
        if self.score is not None and len(self.score) < 2:
            texts = [f"Score was {score} for every node" for score in self.score]
            found.append(("Score", texts[0] if texts else "Score never ran"))
        return found


def agree(
    plugin: type[Plugin],
    args: Mapping[str, Any] | None = None,
    *,
    gates: tuple[str, ...] = (),
    drawn_from: st.SearchStrategy[Cluster] | None = None,
    vocabulary: Vocabulary | None = None,
    may_be_constant: Collection[Literal["Filter", "Score"]] = (),
    examples: int | None = None,
) -> None:
    """Draw clusters, and run the assertions of this module on each.

    The plugin is run for the pending pod, and for the existing pods as if they were pending.

    ``args``, ``gates``: the plugin's arguments and the feature gates (``Name=true``).
    ``drawn_from``: a strategy whose clusters have the objects that the plugin reads; those of
    ``clusters()``, the default, have no volumes, devices or affinity between pods. ``vocabulary``:
    resources, labels and values that the default clusters have in addition to those that ``args``
    name and that the plugin looks up. ``may_be_constant``: extension points that give the same
    result for every node as they are configured here. ``examples``: how many clusters;
    ``max_examples`` of hypothesis' profile by default; many times as many if results did not
    vary yet.

    Raises ``AssertionError`` with the smallest cluster found that fails, or if no cluster made a
    difference to the plugin.
    """
    count = settings().max_examples if examples is None else examples
    known = Vocabulary() if vocabulary is None else vocabulary
    if drawn_from is None:
        known = vocabulary_of(plugin, args, gates, known)
    elif vocabulary is not None:
        raise TypeError("vocabulary is for the default clusters: give it to the strategy instead")
    if not issubclass(plugin, FilterPlugin | ScorePlugin):
        raise TypeError(f"{plugin.name} has neither Filter nor Score: there is nothing to compare")
    seen = SeenResults.of(plugin)

    @settings(max_examples=count, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(clusters(vocabulary=known) if drawn_from is None else drawn_from)
    def check(cluster: Cluster) -> None:
        handle = cluster.handle(*gates)
        made = make_plugin(plugin, handle, args)
        fail_on_mutation(made)
        pods = (cluster.pod, *cluster.pods)
        for pod in pods:
            assert_agreement(made, pod, handle.nodes, seen)
        assert_row_local(plugin, args, cluster, gates)
        assert_sharing(made, pods, handle, cluster.changes)

    for run in range(_MOST_RUNS):
        # Derandomized (as hypothesis does where CI is set), each run would draw the same clusters.
        check_run = seed(run)(check) if settings().derandomize else check
        check_run()
        constant = [text for point, text in seen.constant_points() if point not in may_be_constant]
        if not constant:
            break
    assert not constant, _too_narrow(plugin, constant, known if drawn_from is None else None)


def _too_narrow(plugin: type[Plugin], constant: Sequence[str], known: Vocabulary | None) -> str:
    had = (
        f"The clusters had, besides the usual names, {known}. Name what else the plugin reads by "
        "vocabulary=Vocabulary(resources=..., node_labels=..., pod_labels=..., values=...), or "
        "draw clusters that have it by drawn_from="
        if known is not None
        else "Let drawn_from= draw objects that make a difference to it"
    )
    return (
        f"{plugin.name}: {'; '.join(constant)}. So nothing was proved: the clusters lack what the "
        f"plugin reads. {had}"
    )


# ---- columnar and per-node methods ---------------------------------------------------------------


def assert_agreement(
    plugin: Plugin, pod: PodInfo, nodes: NodeTable, seen: SeenResults | None = None
) -> None:
    """Assert that ``filter_all`` agrees with ``filter``, and ``score_all`` with ``score``.

    They are compared for each node, on the whole table and on parts of it. PreFilter and PreScore
    run first; what they skip is not compared. A plugin with per-node methods only is compared with
    itself: the result for a node must not depend on the other nodes in the table. ``seen`` gets
    the results.

    Raises ``AssertionError`` that names the node, or a wrong dtype or shape of scores.
    """
    state = CycleState()
    if isinstance(plugin, FilterPlugin) and not _skips_filter(plugin, state, pod, nodes):
        singles = [plugin.filter(state, pod, node) for node in nodes]
        if seen is not None and seen.filter is not None:
            seen.filter.update(single is None for single in singles)
        for part, rows in _views(nodes):
            _compare_filter(plugin, state, pod, part, [singles[row] for row in rows.tolist()])
    if isinstance(plugin, ScorePlugin) and not _skips_score(plugin, state, pod, nodes):
        scores = [plugin.score(state, pod, node) for node in nodes]
        if seen is not None and seen.score is not None:
            seen.score.update(scores)
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


# ---- row_local -----------------------------------------------------------------------------------


def assert_row_local(
    plugin: type[Plugin],
    args: Mapping[str, Any] | None,
    cluster: Cluster,
    gates: tuple[str, ...] = (),
) -> None:
    """Assert that the results of a ``row_local`` plugin for a node ignore the other nodes.

    They are computed in the cluster and in each half of it, which lacks the nodes of the other half
    and their pods. Not compared: plugins with an ``invalidation_key``, and pods whose ``sign``
    differs between the two: by these a plugin says that its results depend on more than the node.

    Raises ``AssertionError`` that names the node.
    """
    if not plugin.row_local:
        return
    whole = cluster.handle(*gates)
    made = make_plugin(plugin, whole, args)
    for nodes in (cluster.nodes[::2], cluster.nodes[1::2]):
        names = {node.metadata.name for node in nodes}
        pods = [pod for pod in cluster.pods if pod.pod.spec.node_name in names]
        part = FakeHandle(nodes, pods, objects=cluster.objects, gates=gates)
        alone = make_plugin(plugin, part, args)
        # Its value cannot be compared: most are counters, which mean something in one table only.
        if alone.invalidation_key(part.nodes) is not None:
            return
        for pod in (cluster.pod, *cluster.pods):
            if alone.sign(pod) == made.sign(pod):
                _compare_parts(made, alone, pod, whole.nodes, part.nodes)


def _compare_parts(
    made: Plugin, alone: Plugin, pod: PodInfo, whole: NodeTable, part: NodeTable
) -> None:
    for results in (_filter_results, _score_results):
        everywhere, here = results(made, pod, whole), results(alone, pod, part)
        for name in here.keys() & everywhere.keys():
            assert here[name] == everywhere[name], (
                f"{name}: {made.name} is row_local, but its result depends on other nodes: "
                f"{everywhere[name]}, and without some of them {here[name]}"
            )


def _filter_results(plugin: Plugin, pod: PodInfo, nodes: NodeTable) -> dict[str, Any]:
    state = CycleState()
    if not isinstance(plugin, FilterPlugin) or _skips_filter(plugin, state, pod, nodes):
        return {}
    return {node.name: plugin.filter(state, pod, node) for node in nodes}


def _score_results(plugin: Plugin, pod: PodInfo, nodes: NodeTable) -> dict[str, Any]:
    state = CycleState()
    if not isinstance(plugin, ScorePlugin) or _skips_score(plugin, state, pod, nodes):
        return {}
    return {node.name: plugin.score(state, pod, node) for node in nodes}


# ---- cached results ---------------------------------------------------------------------------


def assert_sharing(
    plugin: Plugin, pods: Iterable[PodInfo], handle: FakeHandle, changes: Iterable[Change] = ()
) -> None:
    """Assert that the cached results for a signature are right for each of its pods.

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
