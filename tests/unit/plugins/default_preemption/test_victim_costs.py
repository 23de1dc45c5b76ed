"""What the victims on a node cost, and which of them cost nothing any more."""

from __future__ import annotations

import pytest

from proreus.framework.pod_group import PlacedPod
from proreus.plugins.default_preemption.domain_victims import (
    COMPOSITE_POD_GROUP,
    POD,
    POD_GROUP,
    DomainVictim,
)
from proreus.plugins.default_preemption.victim_costs import NO_VICTIMS, VictimCosts
from proreus.testing import make_pod


def unit(*nodes: str, priority: int = 0, rank: int = POD) -> DomainVictim:
    """Return a unit with a pod on each node."""
    return DomainVictim(priority, rank, [PlacedPod(make_pod("p"), node) for node in nodes])


def cost_of(*units: DomainVictim, violations: dict[int, int] | None = None) -> tuple:
    return VictimCosts(units, violations or {}).cost("a")


def test_a_node_without_victims_costs_least() -> None:
    assert cost_of() == cost_of(unit("b")) == NO_VICTIMS < cost_of(unit("a", priority=-5))


@pytest.mark.parametrize(
    ("less", "more"),
    [
        # The highest priority decides, then how many pods have it, then the next priority.
        ([unit("a", priority=1), unit("a", priority=1)], [unit("a", priority=2)]),
        ([unit("a", priority=2)], [unit("a", priority=2), unit("a", priority=2)]),
        ([unit("a", priority=2)], [unit("a", priority=2), unit("a", priority=1)]),
        # The pods of a unit count on whatever node they are.
        ([unit("a")], [unit("a", "b", rank=POD_GROUP)]),
        # With as many pods of each priority: kind and size of the most important unit.
        ([unit("a"), unit("a")], [unit("a", "b", rank=POD_GROUP)]),
        (
            [unit("a", "b", rank=POD_GROUP), unit("a", "b", rank=POD_GROUP)],
            [unit("a", "b", "c", "d", rank=POD_GROUP)],
        ),
        ([unit("a", "b", rank=POD_GROUP)], [unit("a", "b", rank=COMPOSITE_POD_GROUP)]),
    ],
)
def test_the_order_of_costs(less: list[DomainVictim], more: list[DomainVictim]) -> None:
    assert cost_of(*less) < cost_of(*more)
    assert cost_of(*reversed(less)) == cost_of(*less)


def test_budgets_count_before_priorities() -> None:
    cheap, guarded = unit("a", priority=50), unit("a", priority=1)
    assert cost_of(cheap) < cost_of(guarded, violations={id(guarded): 1})


def test_a_condemned_unit_costs_nothing_on_any_node_until_it_is_released() -> None:
    whole, alone = unit("a", "b", "b", priority=5, rank=POD_GROUP), unit("b", priority=1)
    costs = VictimCosts([whole, alone], {})
    before = costs.cost("b")
    assert costs.condemn("a") == [whole]
    assert costs.cost("a") == NO_VICTIMS
    assert costs.cost("b") == (0, ((1, 1),), ((POD, 1),))
    assert costs.condemn("b") == [alone], "the other one was condemned before"
    costs.release([whole])
    assert costs.cost("b") == (0, ((5, 3),), ((POD_GROUP, 3),))
    costs.release([alone])
    assert costs.cost("b") == before
