"""Results of one plugin, kept for the pods with one signature."""

from __future__ import annotations

from typing import Any

import numpy as np

from proreus.engine.runtime.plugin_results import PluginResults
from proreus.framework.cycle_state import CycleState
from proreus.framework.plugin import ScorePlugin
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
