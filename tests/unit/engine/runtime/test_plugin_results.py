"""Results of one plugin, kept for the pods with one signature."""

from __future__ import annotations

from typing import Any

import numpy as np

from proreus.engine.runtime.plugin_results import PluginResults
from proreus.framework.cycle_state import CycleState
from proreus.framework.plugin import FilterPlugin, ScorePlugin
from proreus.framework.status import Status
from proreus.testing import FakeHandle, make_node, make_pod
from proreus.testing.builders import make_plugin

POD = make_pod("pending")


class PodCount(ScorePlugin):
    """Returns a column of the table as it is."""

    row_local = True

    def score(self, state: Any, pod: Any, node: Any) -> int:
        return len(node.pods)

    def score_all(self, state: Any, pod: Any, nodes: Any) -> Any:
        return nodes.pod_count


def test_a_column_that_a_plugin_returns_is_not_kept_itself() -> None:
    handle = FakeHandle([make_node(f"n{number}") for number in range(40)])
    results = PluginResults(make_plugin(PodCount, handle))
    results.refresh_score(CycleState(), POD, handle.nodes)
    version = results.raw_version
    handle.nodes.add_pod(7, make_pod("p", node_name="n7"))

    results.refresh_score(CycleState(), POD, handle.nodes)

    assert not isinstance(results.raw_scores, int)
    assert results.raw_scores.tolist() == [0] * 7 + [1] + [0] * 32
    assert results.raw_version > version


class OwnArray(PodCount):
    """Returns an array that it keeps, and that nobody may write to."""

    kept: Any = None

    def score_all(self, state: Any, pod: Any, nodes: Any) -> Any:
        self.kept = np.array(nodes.pod_count)
        self.kept.setflags(write=False)
        return self.kept


def test_an_array_that_a_plugin_keeps_is_not_written_to() -> None:
    handle = FakeHandle([make_node(f"n{number}") for number in range(40)])
    plugin = make_plugin(OwnArray, handle)
    results = PluginResults(plugin)
    results.refresh_score(CycleState(), POD, handle.nodes)
    handle.nodes.add_pod(7, make_pod("p", node_name="n7"))

    results.refresh_score(CycleState(), POD, handle.nodes)

    assert not isinstance(results.raw_scores, int)
    assert results.raw_scores.tolist() == [0] * 7 + [1] + [0] * 32
    assert not plugin.kept.any()


class NoPods(FilterPlugin):
    """Rejects nodes with pods, one by one."""

    row_local = True
    calls = 0

    def filter(self, state: Any, pod: Any, node: Any) -> Status | None:
        type(self).calls += 1
        return Status.unschedulable("pods") if node.pods else None


def test_verdicts_in_parts_are_those_of_all_rows() -> None:
    handle = FakeHandle([make_node(f"n{number}") for number in range(40)])
    for row in (3, 20, 39):
        handle.nodes.add_pod(row, make_pod(f"p{row}", node_name=f"n{row}"))
    whole, parts = (PluginResults(make_plugin(NoPods, handle)) for _ in range(2))
    whole.refresh_filter(CycleState(), POD, handle.nodes)

    assert len(list(parts.refresh_filter_in_parts(CycleState(), POD, handle.nodes, 15))) == 3

    assert parts.verdicts.passed().tolist() == whole.verdicts.passed().tolist()
    assert parts.verdicts.status(20) == whole.verdicts.status(20)
    assert parts.full_evaluations == 1
    # Up to date: nothing is evaluated again, and of a change only its row.
    before = NoPods.calls
    assert list(parts.refresh_filter_in_parts(CycleState(), POD, handle.nodes, 15)) == []
    assert NoPods.calls == before
    handle.nodes.remove_pod(3, handle.nodes[3].order[0])
    assert list(parts.refresh_filter_in_parts(CycleState(), POD, handle.nodes, 15)) == []
    assert NoPods.calls == before + 1
    assert parts.verdicts.status(3) is None
