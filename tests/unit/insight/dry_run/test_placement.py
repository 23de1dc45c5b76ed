"""Where pods would be placed, and why they would not."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from proreus.engine.cache.cache import Cache
from proreus.insight.dry_run.objects import InvalidDryRun

from .conftest import World, node, pod


def placed(answer: Any) -> list[str]:
    return [one.node for one in answer.pods]


def test_each_pod_sees_those_before_it(world: World) -> None:
    world.add(node("a", cpu="2"), node("b", cpu="2"))
    answer = world.ask({"pod": pod("p", cpu="1500m"), "count": 3})
    assert sorted(placed(answer)) == ["", "a", "b"]
    assert [one.pod for one in answer.pods] == ["default/p-0", "default/p-1", "default/p-2"]
    assert not answer.all_fit
    last = answer.pods[2]
    assert last.reason == "Unschedulable"
    assert last.message == "0/2 nodes are available: 2 Insufficient cpu."
    assert [(one.plugin, one.reasons, one.nodes) for one in last.rejections] == [
        ("NodeResourcesFit", ("Insufficient cpu",), 2)
    ]
    assert answer.pods[0].feasible_nodes == 2
    assert answer.pods[1].feasible_nodes == 1


def test_pods_asked_about_by_themselves(world: World) -> None:
    world.add(node("a", cpu="2"), node("b", cpu="1"))
    question = {"pod": pod("p", cpu="1500m"), "count": 3}
    answer = world.ask(question, placement="Independent", nodeNames=5)
    assert placed(answer) == ["a", "a", "a"]
    assert all(one.feasible_node_names == ("a",) for one in answer.pods)


def test_it_leaves_no_trace(world: World) -> None:
    world.add(node("a", cpu="2"))
    table = world.scheduler.cache.table
    position, generation = table.position, table.nodes_generation
    for _ in range(2):
        template = {"name": "new", "count": 2, "node": node("x", cpu="8")}
        answer = world.ask(
            {"pod": pod("p", cpu="1500m"), "count": 5}, nodeTemplates=[template], ignoredNodes=["a"]
        )
        assert answer.all_fit
        assert set(placed(answer)) <= {"new-0", "new-1"}
    assert (table.position, table.nodes_generation) == (position, generation)
    assert not world.scheduler.queue.active_pods()
    # And the copy is as it was: without the nodes of the last dry run, with the ignored one.
    answer = world.ask(pod("p", cpu="1500m"))
    assert placed(answer) == ["a"]
    assert answer.cluster_nodes == 1
    world.scheduler.cache.validate()
    world.service._environment.replica.cache.validate()


def test_it_follows_the_cluster(world: World) -> None:
    world.add(node("a", cpu="2"), node("b", cpu="2"))
    assert world.ask({"pod": pod("p", cpu="2"), "count": 2}).all_fit
    world.schedule(pod("taken", cpu="2"))
    (on,) = (one.name for one in world.scheduler.cache.table if one.pods)
    (free,) = {"a", "b"} - {on}
    assert placed(world.ask(pod("p", cpu="2"))) == [free]
    world.cluster.api.remove("Node", free)
    assert world.ask(pod("p", cpu="2")).pods[0].message == (
        "0/1 nodes are available: 1 Insufficient cpu."
    )
    world.add(*(node(f"n{number}", cpu="3") for number in range(50)))
    answer = world.ask(pod("p", cpu="3"))
    assert answer.pods[0].feasible_nodes == 50
    world.service._environment.replica.cache.validate()


def test_templates(world: World) -> None:
    world.add(node("small", cpu="1"), node("group-0", cpu="1"))
    daemon = pod("agent", cpu="1")
    template = {
        "name": "group",
        "count": 3,
        "node": node("any", cpu="4", zone="z"),
        "pods": [daemon],
    }
    wanted = pod("p", cpu="3", nodeSelector={"zone": "z"})
    answer = world.ask({"pod": wanted, "count": 2}, nodeTemplates=[template])
    # The name of a node that exists is not taken a second time.
    assert set(placed(answer)) < {"group-1", "group-2", "group-3"}
    assert {one.node_template for one in answer.pods} == {"group"}
    (use,) = answer.node_templates
    assert (use.name, use.nodes, use.nodes_used, use.pods) == ("group", 3, 2, 2)


def test_capacity_counts_where_nothing_is_allocatable(world: World) -> None:
    template = {"name": "g", "node": {"status": {"capacity": {"cpu": "4", "pods": "10"}}}}
    assert placed(world.ask(pod("p"), nodeTemplates=[template])) == ["g-0"]


def test_pods_that_are_not_tried(world: World) -> None:
    world.add(node("a"))
    gated = pod("gated", schedulingGates=[{"name": "wait"}])
    other = pod("other", schedulerName="somebody-else")
    bound = pod("bound", nodeName="a")
    reasons = [one.reason for one in world.ask(gated, other, bound).pods]
    assert reasons == ["SchedulingGated", "OtherScheduler", "AlreadyAssigned"]


def test_unknown_ignored_nodes_are_named(world: World) -> None:
    world.add(node("a"), node("b"))
    answer = world.ask(pod("p"), ignoredNodes=["a", "gone"])
    assert answer.unknown_nodes == ("gone",)
    assert answer.cluster_nodes == 1
    assert placed(answer) == ["b"]


def test_spread_over_hypothetical_zones(world: World) -> None:
    world.add(node("a", zone="1"))
    constraint = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "x"}},
    }
    spread = pod("p", labels={"app": "x"}, topologySpreadConstraints=[constraint])
    template = {"name": "g", "count": 1, "node": node("any", zone="2")}
    answer = world.ask({"pod": spread, "count": 4}, nodeTemplates=[template])
    assert sorted(placed(answer)) == ["a", "a", "g-0", "g-0"]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"nodeTemplates": [{"name": "g", "count": 1, "node": {}}]}, "status.allocatable"),
        ({"nodeTemplates": [{"name": "g", "node": node("x")}] * 2}, "once only"),
        (
            {
                "nodeTemplates": [
                    {"name": "g", "count": 2000, "node": node("x")},
                    {"name": "h", "count": 1, "node": node("x")},
                ]
            },
            "2001 nodes",
        ),
    ],
)
def test_invalid_questions(world: World, fields: Any, problem: str) -> None:
    world.add(node("a"))
    with pytest.raises(InvalidDryRun, match=problem):
        world.ask(pod("p"), **fields)
    # Nothing is left behind of what had been added before.
    assert world.ask(pod("p")).cluster_nodes == 1


def test_too_large_answers_and_templates(world: World) -> None:
    with pytest.raises(InvalidDryRun, match="100000 names"):
        world.ask({"pod": pod("p"), "count": 100}, nodeNames=1000)
    template = {"name": "g", "count": 2000, "node": node("x"), "pods": [pod("d")] * 6}
    with pytest.raises(InvalidDryRun, match="12000 pods on nodes"):
        world.ask(pod("p"), nodeTemplates=[template])


@pytest.mark.parametrize(
    "many",
    [
        {"metadata": {"labels": {f"label-{n}": "" for n in range(5_000)}}},
        {"spec": {"taints": [{"key": f"t{n}", "effect": "NoSchedule"} for n in range(5_000)]}},
        {"status": {"allocatable": {f"example.com/{n}": "1" for n in range(5_000)}}},
        {"status": {"images": [{"names": [f"image-{n}"]} for n in range(5_000)]}},
    ],
    ids=["labels", "taints", "resources", "images"],
)
def test_nodes_times_what_they_have_is_limited(
    world: World, monkeypatch: pytest.MonkeyPatch, many: dict[str, Any]
) -> None:
    world.add(node("a"))
    large = {**node("x"), **many}
    built = []
    add_node = Cache.add_node
    monkeypatch.setattr(
        Cache, "add_node", lambda self, one: built.append(one) or add_node(self, one)
    )
    template = {"name": "g", "count": 1_000, "node": large}
    with pytest.raises(InvalidDryRun, match=r"nodeTemplates\[0\]: with 1000 nodes of \d+ values"):
        world.ask(pod("p"), nodeTemplates=[template])
    assert built == []


def test_pods_times_what_they_have_is_limited(world: World) -> None:
    world.add(node("a"))
    labels = {f"label-{n}": "" for n in range(5_000)}
    large = {**pod("p"), "metadata": {"name": "p", "labels": labels}}
    with pytest.raises(InvalidDryRun, match=r"spec.pods\[1\]: with 1000 pods of 50\d\d values"):
        world.ask(pod("q"), {"pod": large, "count": 1_000})
    template = {"name": "g", "count": 1_000, "node": node("x"), "pods": [pod("d"), large]}
    with pytest.raises(InvalidDryRun, match=r"nodeTemplates\[0\].pods\[1\]: with 1000 pods of 50"):
        world.ask(pod("q"), nodeTemplates=[template])
    assert world.ask({"pod": large, "count": 3}).all_fit


def test_each_resource_is_a_column_of_all_nodes(world: World) -> None:
    resources = {f"example.com/{n}": "1" for n in range(300)}
    first = {**node("x"), "status": {"allocatable": resources}}
    requests = {f"example.org/{n}": "1" for n in range(300)}
    daemon = pod("d")
    daemon["spec"]["containers"][0]["resources"] = {"requests": requests}
    templates = [
        {"name": "g", "node": first},
        {"name": "h", "node": node("x"), "pods": [daemon]},
    ]
    with pytest.raises(
        InvalidDryRun, match=r"nodeTemplates\[1\]: 60\d different resources are more"
    ):
        world.ask(pod("p"), nodeTemplates=templates)


@pytest.mark.parametrize(
    ("amount", "problem"),
    [("-5", "-5 must be greater than or equal to 0"), ("1e30", "1e30 is too large for an int64")],
)
@pytest.mark.parametrize("field", ["allocatable", "capacity"])
def test_amounts_that_no_node_has(world: World, field: str, amount: str, problem: str) -> None:
    status = {**node("x")["status"], field: {"cpu": amount}}
    template = {"name": "g", "node": {**node("x"), "status": status}}
    where = rf"spec.nodeTemplates\[0\].node: status.{field}.cpu: "
    with pytest.raises(InvalidDryRun, match=where + re.escape(problem)):
        world.ask(pod("p"), nodeTemplates=[template])


def test_added_nodes_are_removed_in_slices_once_all_is_answered(world: World) -> None:
    world.add(node("a"))
    assert world.ask(pod("p"), nodeTemplates=[{"name": "g", "count": 50, "node": node("x")}])
    environment = world.service._environment
    assert environment is not None

    async def undone() -> None:
        await asyncio.gather(*world.service._undoing)

    world.run(undone())
    assert list(environment.replica.cache.table.rows) == ["a"]


def test_invalid_pods(world: World) -> None:
    with pytest.raises(InvalidDryRun, match=r"spec.pods\[0\].pod"):
        world.ask({"pod": {"spec": {"containers": 3}}})
    with pytest.raises(InvalidDryRun, match="this is a Deployment; send a pod"):
        world.ask({"pod": {"kind": "Deployment", "spec": {"template": pod("p")}}})
    with pytest.raises(InvalidDryRun, match="container is required"):
        world.ask({"pod": {"spec": {}}})
    for field, spec in (
        ("overhead.cpu", {"overhead": {"cpu": "?"}}),
        (
            r"containers\[0\].resources.requests.cpu",
            {"containers": [{"name": "c", "resources": {"requests": {"cpu": "abc"}}}]},
        ),
    ):
        asked = {"spec": {"containers": [{"name": "c"}], **spec}}
        with pytest.raises(InvalidDryRun, match=field + ": quantity"):
            world.ask({"pod": asked})
    with pytest.raises(InvalidDryRun, match="4000 pods"):
        world.ask(*[{"pod": pod("p"), "count": 2000}] * 2)


def test_a_pod_without_scheduler_name_is_of_the_default_scheduler(world: World) -> None:
    world.add(node("a"))
    plain = {"spec": {"containers": [{"name": "c"}]}}
    assert world.ask(plain).pods[0].node == "a"
