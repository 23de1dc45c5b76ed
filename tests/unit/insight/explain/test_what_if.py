"""Every proposed change makes the pod fit, and is found plugin by plugin."""

from __future__ import annotations

from typing import Any

import pytest

from proreus.framework.pod_info import PodInfo
from proreus.insight.explain.engine import Engine
from proreus.insight.explain.pod_changes import quantity
from proreus.insight.explain.what_if import Verified, help_for, look_for_help
from proreus.objects.kinds import PODS

from .conftest import World, node, pod

TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


def help_of(world: World, waiting: Any) -> tuple[Engine, list[Verified], int | None]:
    world.schedule(waiting)
    key = f"default/{waiting['metadata']['name']}"
    info = PodInfo(world.cluster.api.store(PODS)[key])
    assert not info.pod.spec.node_name, "the pod waits"
    profile = next(iter(world.scheduler.profiles.values()))
    engine = Engine(profile, world.scheduler.scheduling_cycle.node_search, limit_seconds=60)
    found, new_node, _ = look_for_help(engine, info)
    for one in found:
        assert engine.rejection(info, one.row) is not None
        if one.without:
            assert engine.rejection_without(one.pod, one.row, one.without) is None
        else:
            assert engine.rejection(one.pod, one.row) is None
    return engine, found, new_node


def texts(found: list[Verified]) -> list[str]:
    return [change.text for change in found[0].changes]


def test_so_much_less_cpu_is_exact(world: World) -> None:
    world.add(node("a"))
    world.schedule(pod("old", cpu="1300m"))
    _, found, _ = help_of(world, pod("p", cpu="3"))
    assert texts(found) == ["request 300m less cpu: 2700m instead of 3"]
    assert found[0].changes[0].minimal
    assert found[0].pod.requests.amounts["cpu"] == 2700


def test_several_resources_and_containers(world: World) -> None:
    world.add(node("a"))
    requests = {"cpu": "3", "memory": "12Gi"}
    waiting = pod("p")
    one = {"name": "c", "resources": {"requests": requests}}
    waiting["spec"]["containers"] = [one, {**one, "name": "d"}]
    _, found, _ = help_of(world, waiting)
    assert {change.field.rpartition(".")[2] for change in found[0].changes} == {"cpu", "memory"}
    assert dict(found[0].pod.requests.amounts) == {"cpu": 4000, "memory": 16 * 2**30}


def test_a_toleration(world: World) -> None:
    other = {"key": "b", "effect": "NoExecute"}
    world.add(node("a", taints=[TAINT, other]))
    _, found, new_node = help_of(world, pod("p"))
    assert texts(found) == [
        "tolerate the taint gpu=yes:NoSchedule",
        "tolerate the taint b:NoExecute",
    ]
    assert new_node is None, "a node like it has the same taints"


def test_a_cordoned_node(world: World) -> None:
    cordoned = node("a")
    cordoned["spec"]["unschedulable"] = True
    world.add(cordoned)
    _, found, _ = help_of(world, pod("p"))
    assert "node.kubernetes.io/unschedulable" in texts(found)[0]


def test_labels(world: World) -> None:
    world.add(node("a", disk="hdd"))
    selector = {"disk": "ssd", "zone": "z1"}
    _, found, _ = help_of(world, pod("p", nodeSelector=selector))
    assert texts(found) == ["do not select disk=ssd, zone=z1"]


def test_the_nearest_node_comes_first(world: World) -> None:
    world.add(node("far", cpu="1", taints=[TAINT]), node("near", cpu="3"), node("less", cpu="2"))
    engine, found, _ = help_of(world, pod("p", cpu="4"))
    names = [engine.table[one.row].name for one in found]
    assert names == ["near", "less", "far"]
    assert len(found[2].changes) == 2


def test_host_ports(world: World) -> None:
    world.add(node("a"))
    ports = {"ports": [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]}
    world.schedule(pod("old", c=ports))
    _, found, new_node = help_of(world, pod("p", c=ports))
    assert texts(found) == ["do without host port 80, which is in use there"]
    assert new_node == 0


def test_spread_and_affinity(world: World) -> None:
    world.add(node("a", zone="z1"), node("b", zone="z2", cpu="1"))
    labels = {"app": "x"}
    selector = {"matchLabels": labels}
    constraint = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selector,
    }
    spread = {"topologySpreadConstraints": [constraint]}
    world.schedule(pod("old", labels=labels, cpu="1"), pod("fill", cpu="1", nodeName="b"))
    _, found, _ = help_of(world, pod("p", labels=labels, **spread))
    all_texts = {change.text for one in found for change in one.changes}
    assert "allow a skew of 2 instead of 1 over zone" in all_texts

    term = {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}
    anti = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    world.add(node("c", **{"kubernetes.io/hostname": "c"}))
    world.cluster.api.remove("Node", "a")
    world.cluster.api.remove("Node", "b")
    world.schedule(pod("third", labels=labels))
    _, found, new_node = help_of(world, pod("q", labels=labels, affinity=anti))
    assert texts(found) == ["do not require this podAntiAffinity over kubernetes.io/hostname"]
    assert new_node == 0


def test_one_pod_less(world: World) -> None:
    small = node("a")
    small["status"]["allocatable"]["pods"] = "2"
    world.add(small)
    world.schedule(pod("one", priority=5), pod("two"))
    _, found, new_node = help_of(world, pod("p"))
    assert texts(found) == ["remove default/two"]
    assert new_node == 0


def test_a_pod_that_fits_by_now_has_only_to_be_tried(world: World) -> None:
    world.add(node("a", cpu="1"))
    world.schedule(pod("old", cpu="1"), pod("p", cpu="1"))
    world.cluster.api.remove("Pod", "default/old")
    info = PodInfo(world.cluster.api.store(PODS)["default/p"])
    profile = next(iter(world.scheduler.profiles.values()))
    found = help_for(Engine(profile, world.scheduler.scheduling_cycle.node_search), info)
    assert (found.fits_now, found.nodes) == (1, ())


def test_questions_end_in_time(world: World) -> None:
    world.add(node("a"))
    world.schedule(pod("p", cpu="9"))
    info = PodInfo(world.cluster.api.store(PODS)["default/p"])
    profile = next(iter(world.scheduler.profiles.values()))
    engine = Engine(profile, world.scheduler.scheduling_cycle.node_search, limit_seconds=-1)
    found = help_for(engine, info)
    assert found.incomplete
    assert not found.nodes


def test_asking_changes_nothing(world: World) -> None:
    world.add(node("a"), node("b", taints=[TAINT]))
    world.schedule(pod("old", cpu="3"))
    table = world.scheduler.cache.table
    position = table.position
    help_of(world, pod("p", cpu="3", nodeSelector={"disk": "ssd"}))
    assert table.position == position
    table.validate()
    world.scheduler.queue.validate()


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("cpu", 1500, "1500m"),
        ("cpu", 2000, "2"),
        ("memory", 512 * 2**20, "512Mi"),
        ("memory", 1000, "1000"),
        ("nvidia.com/gpu", 2**20, "1048576"),
    ],
)
def test_quantities(resource: str, amount: int, text: str) -> None:
    assert quantity(resource, amount) == text
