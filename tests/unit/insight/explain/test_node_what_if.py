"""Every proposed change of a node makes it take the pod, and leaves no trace in the cluster."""

from __future__ import annotations

from typing import Any

from proreus.framework.pod_info import PodInfo
from proreus.insight.explain.engine import Engine
from proreus.insight.explain.node_what_if import VerifiedNode, look_for_node_help
from proreus.objects.kinds import NODES, PODS

from .conftest import World, node, pod

TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


def columns(world: World) -> Any:
    table = world.scheduler.cache.table
    return [
        (info.name, dict(info.labels), dict(info.allocatable), dict(info.requested), info.node)
        for info in table
    ]


def help_of(world: World, waiting: Any) -> list[VerifiedNode]:
    """Return what helps; each change has been made for real in the end."""
    world.schedule(waiting)
    key = f"default/{waiting['metadata']['name']}"
    info = PodInfo(world.cluster.api.store(PODS)[key])
    assert not info.pod.spec.node_name, "the pod waits"
    profile = next(iter(world.scheduler.profiles.values()))
    engine = Engine(profile, world.scheduler.scheduling_cycle.node_search, limit_seconds=60)
    before = columns(world)
    found = look_for_node_help(engine, info, 3)
    assert columns(world) == before
    world.scheduler.cache.table.validate()
    assert [one.node for one in world.explain(waiting["metadata"]["name"]).help.changed_nodes] == [
        engine.table[one.row].name for one in found
    ]
    for one in found:
        assert engine.rejection(info, one.row) is not None
        assert engine.rejection_on(one.node, info, one.row) is None
    if found:
        world.cluster.api.put(NODES, found[0].node)
        world.cluster.advance(30)
        world.schedule()
        assert world.explain(waiting["metadata"]["name"]).node == found[0].node.metadata.name
    return found


def texts(found: list[VerifiedNode]) -> list[str]:
    return [change.text for change in found[0].changes]


def test_so_much_more_allocatable(world: World) -> None:
    world.add(node("a"))
    world.schedule(pod("old", cpu="1300m"))
    found = help_of(world, pod("p", cpu="3"))
    assert texts(found) == ["add 300m allocatable cpu: 4300m instead of 4"]
    (change,) = found[0].changes
    assert (change.field, change.after, change.minimal) == ("status.allocatable.cpu", "4300m", True)


def test_several_resources_and_the_number_of_pods(world: World) -> None:
    small = node("a")
    small["status"]["allocatable"] = {"cpu": "1", "memory": "1Gi", "pods": "1"}
    world.add(small)
    world.schedule(pod("old"))
    requests = {"cpu": "1", "memory": "1Gi"}
    found = help_of(world, pod("p", c={"resources": {"requests": requests}}))
    assert sorted(texts(found)) == [
        "add 1 allocatable pods: 2 instead of 1",
        "add 100m allocatable cpu: 1100m instead of 1",
    ]


def test_taints_are_removed_and_it_is_uncordoned(world: World) -> None:
    tainted = node("a", taints=[TAINT, {"key": "b", "effect": "NoExecute"}])
    tainted["spec"]["unschedulable"] = True
    world.add(tainted)
    found = help_of(world, pod("p"))
    assert sorted(texts(found)) == [
        "remove the taint b:NoExecute",
        "remove the taint gpu=yes:NoSchedule",
        "uncordon it",
    ]


def test_with_labels(world: World) -> None:
    world.add(node("a", disk="hdd", old="yes", size="3"))
    expressions = [
        {"key": "old", "operator": "DoesNotExist"},
        {"key": "size", "operator": "Gt", "values": ["7"]},
        {"key": "zone", "operator": "In", "values": ["z1", "z2"]},
        {"key": "any", "operator": "Exists"},
    ]
    required = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    found = help_of(world, pod("p", nodeSelector={"disk": "ssd"}, affinity=affinity))
    assert texts(found) == [
        "add the label any= and add the label disk=ssd and add the label size=8 and "
        "add the label zone=z1 and remove the label old"
    ]
    assert found[0].changes[0].before == "disk=hdd, old=yes, size=3"


def test_the_second_term_where_the_first_cannot_match(world: World) -> None:
    world.add(node("a"))
    other = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}
    label = {"matchExpressions": [{"key": "x", "operator": "In", "values": ["y"]}]}
    required = {"nodeSelectorTerms": [other, label]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    assert texts(help_of(world, pod("p", affinity=affinity))) == ["add the label x=y"]


def test_a_node_without_the_label_of_the_domains_gets_one(world: World) -> None:
    labels = {"app": "x"}
    constraint = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": labels},
    }
    spread = {"topologySpreadConstraints": [constraint]}
    # Zone z1 has a pod, z2 has none and no room; b is in no zone.
    world.add(node("a", zone="z1"), node("full", cpu="0", zone="z2"), node("b"))
    world.schedule(pod("old", labels=labels, nodeSelector={"zone": "z1"}))
    found = help_of(world, pod("p", labels=labels, **spread))
    assert {one.node.metadata.name: texts([one]) for one in found}["b"] == ["add the label zone=z2"]


def test_nothing_is_proposed_where_only_pods_are_in_the_way(world: World) -> None:
    world.add(node("a"))
    ports = {"ports": [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]}
    world.schedule(pod("old", c=ports))
    assert help_of(world, pod("p", c=ports)) == []


def test_pods_are_scheduled_as_before_after_a_question(world: World) -> None:
    """Shared results that were computed before hold no trace of the changed node."""
    world.add(node("a"), node("b", taints=[TAINT]))
    world.schedule(pod("one"), pod("two"))
    world.schedule(
        pod("large", cpu="5"), pod("tolerant", cpu="5", tolerations=[{"operator": "Exists"}])
    )
    assert world.explain("large").help.changed_nodes
    world.schedule(pod("three"), pod("huge", cpu="5"))
    assert world.explain("three").node == "a"
    assert world.explain("huge").state == "waiting"
    (group,) = [one for one in world.explain("huge").attempt.rejected if one.names == ("b",)]
    assert group.plugin == "TaintToleration"
