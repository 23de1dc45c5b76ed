"""Which nodes cost least by their victims, and which victims cost nothing any more."""

from __future__ import annotations

import pytest

from proreus.framework.pod_group import PlacedPod
from proreus.plugins.default_preemption.domain_victims import (
    COMPOSITE_POD_GROUP,
    POD,
    POD_GROUP,
    DomainVictim,
)
from proreus.plugins.default_preemption.victim_costs import VictimCosts
from proreus.testing import make_node, make_pod, make_table


def unit(*nodes: str, priority: int = 0, rank: int = POD) -> DomainVictim:
    """Return a unit with a pod on each node."""
    return DomainVictim(priority, rank, [PlacedPod(make_pod("p"), node) for node in nodes])


def costs_of(*units: DomainVictim, violations: dict[int, int] | None = None) -> VictimCosts:
    """Return the costs of nodes ``a`` to ``e``."""
    nodes = make_table([make_node(name) for name in "abcde"])
    return VictimCosts(nodes, units, violations or {})


def ranks(costs: VictimCosts) -> list[int]:
    return costs.ranks.tolist()


def test_nodes_without_victims_rank_first() -> None:
    assert ranks(costs_of()) == [0, 0, 0, 0, 0]
    assert ranks(costs_of(unit("b", priority=-5), unit("d"))) == [0, 1, 0, 2, 0]


def test_nodes_with_equal_costs_have_one_rank() -> None:
    assert ranks(costs_of(unit("a"), unit("b", priority=1), unit("c"))) == [1, 2, 1, 0, 0]


@pytest.mark.parametrize(
    ("less", "more"),
    [
        # The highest priority decides, then how many pods have it, then the next priority.
        ([unit("a", priority=1), unit("a", priority=1)], [unit("b", priority=2)]),
        ([unit("a", priority=2)], [unit("b", priority=2), unit("b", priority=2)]),
        ([unit("a", priority=2)], [unit("b", priority=2), unit("b", priority=1)]),
        # The pods of a unit count on whatever node they are.
        ([unit("a")], [unit("b", "c", rank=POD_GROUP)]),
        # With as many pods of each priority: kind and size of the most important unit.
        ([unit("a"), unit("a")], [unit("b", "b", rank=POD_GROUP)]),
        (
            [unit("a", "c", rank=POD_GROUP), unit("a", "d", rank=POD_GROUP)],
            [unit("b", "c", "d", "e", rank=POD_GROUP)],
        ),
        ([unit("a", "a", rank=POD_GROUP)], [unit("b", "b", rank=COMPOSITE_POD_GROUP)]),
    ],
)
def test_the_order_of_costs(less: list[DomainVictim], more: list[DomainVictim]) -> None:
    for units in (less + more, [*reversed(less), *reversed(more)]):
        a, b, *_ = ranks(costs_of(*units))
        assert a < b


def test_budgets_count_before_priorities() -> None:
    cheap, guarded = unit("a", priority=50), unit("b", priority=1)
    assert ranks(costs_of(cheap, guarded, violations={id(guarded): 1})) == [1, 2, 0, 0, 0]


def test_a_condemned_unit_costs_nothing_on_any_node_until_it_is_released() -> None:
    whole, alone, other = unit("a", "b", priority=5, rank=POD_GROUP), unit("b"), unit("c")
    costs = costs_of(whole, alone, other)
    assert ranks(costs) == [2, 3, 1, 0, 0]
    assert costs.condemn("a") == [whole]
    assert ranks(costs) == [0, 1, 1, 0, 0]
    assert costs.condemn("b") == [alone], "the other one was condemned before"
    assert ranks(costs) == [0, 0, 1, 0, 0]
    costs.release([whole])
    assert ranks(costs) == [2, 2, 1, 0, 0]
    costs.release([alone])
    assert ranks(costs) == [2, 3, 1, 0, 0]
