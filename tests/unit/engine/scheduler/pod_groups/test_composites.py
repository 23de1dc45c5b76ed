"""Groups of groups: their condition."""

from __future__ import annotations

import pytest

from proreus.base.kubernetes_version import V1_37, V1_38


def tree(cluster) -> None:
    cluster.nodes(a="2")
    cluster.composite("c", 2)
    for name in ("g", "h"):
        cluster.group(name, 1, parentCompositePodGroupName="c")


async def test_the_condition_of_a_composite_follows_its_groups(kit) -> None:
    cluster = kit.Cluster(*kit.COMPOSITE, version=V1_38)
    tree(cluster)
    cluster.pods("p", group="g")
    cluster.pods("q", group="h", cpu="2")

    await cluster.cycle()
    condition = cluster.composite_condition("c")
    assert (condition.status, condition.reason) == ("False", "Unschedulable")

    cluster.nodes(b="2")
    cluster.advance(10)
    await cluster.cycle()
    condition = cluster.composite_condition("c")
    assert (condition.status, condition.reason, condition.message) == ("True", "Scheduled", "")
    assert cluster.condition("g").status == "True"


async def test_a_composite_once_scheduled_keeps_its_condition(kit) -> None:
    cluster = kit.Cluster(*kit.COMPOSITE, version=V1_38)
    tree(cluster)
    cluster.pods("p", group="g")
    cluster.pods("q", group="h")
    await cluster.cycle()

    cluster.pods("late", group="h")
    await cluster.cycle()
    assert "late" not in cluster.placed()
    assert cluster.composite_condition("c").status == "True"


@pytest.mark.parametrize(("version", "has_condition"), [(V1_37, False), (V1_38, True)])
async def test_composites_have_a_condition_since_1_38(kit, version, has_condition) -> None:
    cluster = kit.Cluster(*kit.COMPOSITE, version=version)
    tree(cluster)
    cluster.pods("p", group="g")
    cluster.pods("q", group="h")

    await cluster.cycle()
    assert set(cluster.placed()) == {"p", "q"}
    assert (cluster.composite_condition("c") is not None) == has_condition
