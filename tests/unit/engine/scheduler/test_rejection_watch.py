"""Kubelets that reject pods just bound: what is noticed, and what the scheduler makes of it."""

from __future__ import annotations

from typing import Any

import pytest

from proreus.base.errors import NotFound
from proreus.engine.guards.avoided_nodes import AvoidanceRules
from proreus.framework.plugin import ScorePlugin
from proreus.objects.codec import decoder_for
from proreus.objects.kinds import PODS
from proreus.offline.cluster import OfflineOptions

OUT_OF_CPU = {"phase": "Failed", "reason": "OutOfcpu", "message": "Pod was rejected: no cpu"}


def owner(kind: str = "ReplicaSet", name: str = "web") -> dict[str, Any]:
    reference = {"kind": kind, "name": name, "uid": f"uid-of-{name}", "controller": True}
    return {"ownerReferences": [reference]}


@pytest.fixture
def world(kit):
    """A world whose nodes are preferred in order, and whose kubelets reject on demand."""
    world = kit.World(
        kit.plugin("InOrder", ScorePlugin, score=lambda self, state, pod, node: _order(node)),
        options=OfflineOptions(avoidance_rules=AvoidanceRules(3, 600)),
    )
    world.reads = []
    world.failed = {}

    async def get(resource, namespace, name):
        world.reads.append(name)
        if name not in world.failed:
            raise NotFound(404, "NotFound", f'pods "{name}" not found')
        return decoder_for(resource.type).convert(world.failed[name])

    world.api.get = get
    world.add_node("n0")
    world.add_node("n1")
    return world


def _order(node) -> int:
    return 100 - int(node.name[1:])


async def fail(world, name: str, status: dict[str, Any] = OUT_OF_CPU) -> None:
    """A kubelet rejects a bound pod: the watch, which leaves it out, says that it is gone."""
    pod = world.pod(name)
    metadata = {"name": name, "namespace": "default", "uid": pod.metadata.uid}
    world.failed[name] = {"metadata": metadata, "status": status}
    world.remove_pod(name)
    await world.settle()


async def place(world, name: str, **fields: Any) -> str:
    world.add_pod(name, **{"metadata": owner(), **fields})
    return await world.attempt()


async def reject(world, count: int, status: dict[str, Any] = OUT_OF_CPU, **fields: Any) -> None:
    for number in range(count):
        name = f"r{number}"
        assert await place(world, name, **fields) == "n0"
        await fail(world, name, status)


def total(family) -> dict[tuple[str, ...], float]:
    return {labels: value for labels, value in family.values() if value}


async def test_a_node_that_rejects_again_and_again_is_avoided_for_a_while(world) -> None:
    await reject(world, 3)
    assert await place(world, "p3") == "n1"
    assert world.notes("NodeAvoided") == [
        "node n0 rejected pods of ReplicaSet default/web repeatedly, last with OutOfcpu: they "
        "avoid it for 30s"
    ]
    assert total(world.metrics.kubelet_rejections_total) == {("OutOfcpu",): 3}
    assert world.metrics.node_avoidances_total.value == 1
    # Another controller's pods, and those without one, may still go there.
    assert await place(world, "other", metadata=owner(name="db")) == "n0"
    assert await place(world, "bare", metadata={}) == "n0"
    world.advance(30)
    assert await place(world, "p4") == "n0"


async def test_a_pod_with_no_other_node_waits_until_it_is_over(world) -> None:
    world.api.remove("Node", "n1")
    await reject(world, 3)
    world.add_pod("p", metadata=owner())
    assert await world.attempt() == ""
    assert world.condition().message == (
        "0/1 nodes are available: 1 node(s) recently rejected pods of the same controller."
    )
    world.advance(29)
    assert "p" in world.places()["unschedulable"]
    world.advance(1)
    # Its back-off is over by now, and nothing else has happened that could have woken it.
    assert "p" in world.places()["active"]
    assert await world.attempt() == "n0"


async def test_no_filter_runs_while_no_node_is_avoided(world) -> None:
    (profile,) = world.scheduler.profiles.values()
    configured = profile.filter
    await reject(world, 3)
    assert [plugin.name for plugin in profile.filter] == [
        *(plugin.name for plugin in configured),
        "KubeletRejections",
    ]
    world.advance(30)
    assert profile.filter == configured


async def test_a_reloaded_configuration_avoids_the_same_nodes(world) -> None:
    await reject(world, 3)
    configuration = world.scheduler.profile_set.configuration
    world.assembly.use(world.assembly.prepare(configuration, world.registry))
    assert await place(world, "p") == "n1"
    world.advance(30)
    (profile,) = world.scheduler.profiles.values()
    assert "KubeletRejections" not in [plugin.name for plugin in profile.filter]


async def test_one_more_rejection_makes_it_longer(world) -> None:
    await reject(world, 3)
    world.advance(30)
    await reject(world, 1)
    assert world.notes("NodeAvoided")[-1].endswith("they avoid it for 60s")
    world.advance(59)
    assert await place(world, "p") == "n1"


@pytest.mark.parametrize(
    ("status", "label"),
    [
        ({"phase": "Failed", "reason": "UnexpectedAdmissionError"}, "UnexpectedAdmissionError"),
        ({"phase": "Failed", "reason": "OutOfexample.com/gpu"}, "OutOfExtendedResource"),
        (
            {"phase": "Failed", "reason": "Evicted", "message": "Pod was rejected: pressure"},
            "other",
        ),
    ],
)
async def test_reasons_that_count(world, status, label) -> None:
    await reject(world, 1, status)
    assert total(world.metrics.kubelet_rejections_total) == {(label,): 1}


@pytest.mark.parametrize(
    "status",
    [
        {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource"},
        {"phase": "Failed", "reason": "Preempting"},
        {"phase": "Failed"},
        {"phase": "Succeeded"},
    ],
)
async def test_other_ends_do_not_count(world, status) -> None:
    await reject(world, 4, status)
    assert total(world.metrics.kubelet_rejections_total) == {}


@pytest.mark.parametrize(
    "fields",
    [
        {"metadata": owner("DaemonSet")},
        {"metadata": {}},
        {"metadata": {**owner(), "deletionTimestamp": "2026-01-01T00:00:00Z"}},
        {"metadata": owner(), "status": {"startTime": "2026-01-01T00:00:00Z"}},
        {"metadata": owner(), "status": {"phase": "Running"}},
        {"metadata": owner(), "scheduler_name": "somebody-else"},
    ],
)
async def test_pods_that_are_not_even_read(world, fields) -> None:
    world.add_pod("p", node_name="n0", **fields)
    await fail(world, "p")
    assert world.reads == []


async def test_a_pod_that_is_simply_gone_does_not_count(world) -> None:
    await place(world, "p")
    world.remove_pod("p")
    await world.settle()
    assert world.reads == ["p"]
    assert total(world.metrics.kubelet_rejections_total) == {}


async def test_another_pod_of_the_name_does_not_count(world) -> None:
    await place(world, "p")
    metadata = {"name": "p", "namespace": "default", "uid": "another"}
    world.failed["p"] = {"metadata": metadata, "status": OUT_OF_CPU}
    world.remove_pod("p")
    await world.settle()
    assert total(world.metrics.kubelet_rejections_total) == {}


async def test_what_is_avoided_is_not_read_again(world) -> None:
    for number in range(5):
        assert await place(world, f"r{number}") == "n0"
    for number in range(5):
        await fail(world, f"r{number}")
    assert len(world.reads) == 3
    assert world.scheduler.avoided_nodes.of("default/uid-of-web") == {"n0"}


async def test_the_nominated_node_is_avoided_too(world) -> None:
    await reject(world, 3)
    assert await place(world, "p", status={"nominatedNodeName": "n0"}) == "n1"


async def test_by_default_nothing_is_watched(kit) -> None:
    world = kit.World()
    assert world.scheduler.avoided_nodes is None


async def test_a_node_that_is_replaced_is_not_avoided(world) -> None:
    """The machine was the fault, and another one has its name now."""
    world.api.remove("Node", "n1")
    await reject(world, 3)
    assert await place(world, "waiting") == ""
    world.api.remove("Node", "n0")
    assert not world.scheduler.avoided_nodes.active
    world.add_node("n0")
    world.advance(10)
    assert await world.attempt() == "n0"


async def test_pods_of_another_namespace_do_not_count(world) -> None:
    """Their owner reference is forged: it has the UID of the ReplicaSet of namespace default."""
    for number in range(3):
        name = f"forged-{number}"
        world.add_pod(name, metadata={**owner(), "namespace": "tenant"})
        assert await world.attempt() == "n0"
        pod = world.api.store(PODS)[f"tenant/{name}"]
        metadata = {"name": name, "namespace": "tenant", "uid": pod.metadata.uid}
        world.failed[name] = {"metadata": metadata, "status": OUT_OF_CPU}
        world.api.remove("Pod", f"tenant/{name}")
        await world.settle()
    assert world.scheduler.avoided_nodes.active
    assert await place(world, "p") == "n0"
