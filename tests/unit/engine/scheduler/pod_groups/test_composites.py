"""Groups of groups: their condition, and errors below them."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from proreus.base.kubernetes_version import V1_37, V1_38
from proreus.framework.plugin import FilterPlugin, ReservePlugin
from proreus.framework.status import Status


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


class Reserving(ReservePlugin):
    """Reserves each pod the first time only."""

    seen: ClassVar[dict[str, int]] = {}

    def reserve(self, state: Any, pod: Any, node: Any) -> Status | None:
        self.seen[pod.name] = self.seen.get(pod.name, 0) + 1
        return Status.error("not again") if self.seen[pod.name] > 1 else None


async def test_pods_are_held_for_the_siblings_after_them_alone(kit, monkeypatch) -> None:
    monkeypatch.setattr(Reserving, "seen", {})
    cluster = kit.Cluster(*kit.COMPOSITE, version=V1_38, plugins=(Reserving,))
    tree(cluster)
    cluster.pods("p", group="g")
    cluster.pods("q", group="h")

    await cluster.cycle()
    assert not cluster.placed()
    child = "failed to assume child default/g subtree in snapshot: running Reserve plugin"
    assert child in cluster.condition("g").message
    why = f'composite pod group "c" evaluation failed due to child "g" error: {child}'
    assert cluster.composite_condition("c").message.startswith(why)
    assert Reserving.seen == {"p": 2}, "q was not tried"


class Failing(FilterPlugin):
    """Raises for pods of one name."""

    def filter(self, state: Any, pod: Any, node: Any) -> Status | None:
        if pod.name == "q":
            raise ValueError("broken")
        return None


@pytest.mark.parametrize(
    ("version", "of_pod"),
    [(V1_37, "composite pod group evaluation failed due to child error"), (V1_38, "broken")],
)
async def test_an_error_below_keeps_the_results_of_the_groups_there_since_1_38(
    kit, version, of_pod
) -> None:
    cluster = kit.Cluster(*kit.COMPOSITE, version=version, plugins=(Failing,))
    tree(cluster)
    cluster.pods("p", group="g")
    cluster.pods("q", group="h")

    await cluster.cycle()
    assert of_pod in cluster.message("q")
    own = cluster.condition("h").message
    assert own.startswith("failed to schedule other pod") == (version == V1_38)


@pytest.mark.parametrize(("version", "nominated"), [(V1_37, {"p", "q", "r"}), (V1_38, {"r"})])
async def test_nothing_is_evicted_for_groups_that_do_not_fit_either_since_1_38(
    kit, version, nominated
) -> None:
    cluster = kit.Cluster(*kit.COMPOSITE, version=version)
    cluster.nodes(a="2")
    cluster.pods("old", group="", cpu="2", node_name="a")
    cluster.composite("c", priority=5)
    cluster.group("g", 3, priority=5, parentCompositePodGroupName="c")
    cluster.group("h", 1, priority=5, parentCompositePodGroupName="c")
    cluster.pods("p", "q", "x", group="g", spec={"priority": 5})
    cluster.pods("r", group="h", spec={"priority": 5})

    await cluster.cycle()
    pods = {name: cluster.pod(name).status.nominated_node_name for name in ("p", "q", "x", "r")}
    assert {name for name, node in pods.items() if node} == nominated
