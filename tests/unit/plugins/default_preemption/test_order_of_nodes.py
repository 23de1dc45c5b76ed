"""The order in which DefaultPreemption tries nodes."""

from __future__ import annotations

import numpy as np

from proreus.plugins.default_preemption.eviction import Preemptor
from proreus.plugins.default_preemption.plugin import DefaultPreemption, DefaultPreemptionArgs
from proreus.plugins.default_preemption.select_candidate import Candidate
from proreus.testing import FakeHandle, make_node, make_pod


def _plugin() -> DefaultPreemption:
    handle = FakeHandle([make_node(f"n{number}") for number in range(300)])
    return DefaultPreemption(DefaultPreemptionArgs(), handle)


def test_from_a_random_node_on() -> None:
    plugin = _plugin()
    rows = np.arange(300)
    orders = [plugin.order_of_nodes(rows).tolist() for _ in range(3)]
    assert len({order[0] for order in orders}) == 3
    for order in orders:
        assert order == [(order[0] + number) % 300 for number in range(300)]


async def test_nodes_that_lose_pods_anyway_are_among_the_candidates() -> None:
    """A group is evicted from n5, n7, n8 and n9 for a pod that will run on n9."""
    plugin = _plugin()
    nodes = ["n5", "n7", "n7", "n8", "n9", "n9", "n9"]
    victims = tuple(make_pod(f"v{i}", node_name=name) for i, name in enumerate(nodes))
    preemptor = make_pod("p", priority=9)
    plugin._evictor.evict_in_background(Candidate("n9", victims, 0), Preemptor.of_pod(preemptor))
    plugin.handle.nominator.pods["n8"] = [make_pod("q", priority=9)]  # type: ignore[attr-defined]
    rows = np.array([row for row in range(300) if row != 20])
    order = plugin.order_of_nodes(rows).tolist()
    assert sorted(order) == rows.tolist()
    wanted = plugin.num_candidates(299)
    assert order[wanted - 2 : wanted] == [5, 7], "the one that loses most is the last"
    assert order[-1] == 8, "somebody else will run there"
