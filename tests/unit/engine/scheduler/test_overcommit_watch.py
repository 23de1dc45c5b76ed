"""Bindings by other schedulers that over-commit a node together with a pod of ours."""

from __future__ import annotations

import logging
import random
from typing import Any

import pytest

from proreus.base.errors import Forbidden
from proreus.framework.plugin import PermitPlugin
from proreus.framework.status import Status
from proreus.objects.kinds import NODES, PODS
from proreus.offline.cluster import OfflineOptions

OWNED = {
    "ownerReferences": [{"kind": "ReplicaSet", "name": "web", "uid": "web", "controller": True}]
}
BOUND = {"conditions": [{"type": "PodScheduled", "status": "True"}]}
STARTED = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}


@pytest.fixture
def make_world(kit):
    """A function that makes a world with one node of 4 cores."""

    def make(*plugins: Any, give_up: bool = False):
        options = OfflineOptions(shares_nodes=True, delete_overcommitting_pods=give_up)
        world = kit.World(*plugins, options=options)
        world.add_node("n0", cpu="4", pods=5)
        return world

    return make


async def place(world, name: str, cpu: str = "2", **fields: Any) -> None:
    """Bind a pod of ours."""
    world.add_pod(name, cpu=cpu, **{"metadata": OWNED, **fields})
    assert await world.attempt() == "n0"


def add_other(world, name: str = "other", cpu: str = "3", **fields: Any) -> None:
    """Another scheduler binds a pod."""
    where = {"node_name": "n0", "scheduler_name": "somebody-else", "status": BOUND}
    world.add_pod(name, cpu=cpu, **{**where, **fields})


def counted(world) -> tuple[float, float]:
    """How many episodes there were, and how many go on."""
    metrics = world.metrics
    ((_, going_on),) = metrics.overcommitted_nodes.values()
    return metrics.node_overcommits_total.value, going_on


def warnings(caplog) -> list[dict[str, object]]:
    return [record.pairs for record in caplog.records if record.levelno == logging.WARNING]


# ---- noticed -------------------------------------------------------------------------------------


async def test_the_race_is_named_and_counted_once_an_episode(make_world, caplog) -> None:
    world = make_world()
    await place(world, "p")
    add_other(world)
    add_other(world, "another")
    assert warnings(caplog) == [
        {
            "node": "n0",
            "pod": "default/other",
            "scheduler": "somebody-else",
            "exceeded": {"cpu": 1000},
            "ours": ["default/p"],
        }
    ]
    assert counted(world) == (1, 1)
    assert world.pod("p").spec.node_name == "n0"
    world.remove_pod("another")
    world.advance(1)
    assert counted(world) == (1, 1)
    world.remove_pod("other")
    world.advance(1)
    assert counted(world) == (1, 0)
    add_other(world)
    assert counted(world) == (2, 1)


async def test_a_binding_of_theirs_between_our_decision_and_its_answer(make_world) -> None:
    world = make_world()
    world.add_pod("p", cpu="2")
    info = world.queue.pop().info
    world.cache.assume(info, "n0")
    add_other(world)
    assert counted(world) == (1, 1)


async def test_the_number_of_pods_may_be_exceeded_too(make_world, caplog) -> None:
    world = make_world()
    for number in range(5):
        await place(world, f"p{number}", cpu="100m")
    add_other(world, cpu="100m")
    assert warnings(caplog)[0]["exceeded"] == {"pods": 1}


async def test_a_node_that_goes_ends_its_episode(make_world) -> None:
    world = make_world()
    await place(world, "p")
    add_other(world)
    world.api.remove("Node", "n0")
    world.advance(1)
    assert counted(world) == (1, 0)


async def fits(world) -> None:
    await place(world, "p", cpu="1")
    add_other(world)


async def has_started(world) -> None:
    await place(world, "p")
    world.change_pod("p", status=STARTED)
    add_other(world)


async def none_of_ours(world) -> None:
    add_other(world, "other")
    add_other(world, "another")


async def a_static_pod(world) -> None:
    world.add_pod("static", cpu="2", node_name="n0", metadata={"annotations": {_MIRROR: "hash"}})
    add_other(world)


async def another_resource(world) -> None:
    await place(world, "p", cpu="0")
    add_other(world, cpu="5")


async def a_resource_that_nodes_do_not_count(world) -> None:
    await place(world, "p", resources={"example.com/managed": "1"})
    add_other(world, cpu="1", resources={"example.com/managed": "1"})


async def our_own_binding(world) -> None:
    await place(world, "p")
    await place(world, "q", cpu="3")


_MIRROR = "kubernetes.io/config.mirror"


@pytest.mark.parametrize(
    "case",
    [
        fits,
        has_started,
        none_of_ours,
        a_static_pod,
        another_resource,
        a_resource_that_nodes_do_not_count,
        our_own_binding,
    ],
)
async def test_what_is_not_the_race(make_world, case) -> None:
    world = make_world()
    await case(world)
    assert counted(world) == (0, 0)


# ---- given up ------------------------------------------------------------------------------------


async def test_opted_in_our_unstarted_pod_is_deleted(make_world) -> None:
    world = make_world(give_up=True)
    await place(world, "p")
    version = world.pod("p").metadata.resource_version
    asked = []
    delete = world.api.delete

    async def recorded(resource, namespace, name, **preconditions):
        asked.append((name, preconditions))
        await delete(resource, namespace, name, **preconditions)

    world.api.delete = recorded
    add_other(world)
    await world.settle()
    assert asked == [("p", {"uid": "uid-of-default-p", "version": version})]
    assert sorted(world.api.store(PODS)) == ["default/other"]
    assert world.notes("Overcommitted") == [
        "node n0 is over-committed by a pod that another scheduler has bound: deleted before it "
        "has started"
    ]
    assert world.metrics.overcommitting_pods_deleted_total.value == 1
    world.advance(1)
    assert counted(world) == (1, 0)


async def test_a_pod_that_names_its_node_itself_costs_nobody_a_pod(make_world) -> None:
    world = make_world(give_up=True)
    await place(world, "p")
    add_other(world, status={})  # created by whoever may create pods
    await world.settle()
    world.advance(1)
    await world.settle()
    assert sorted(world.api.store(PODS)) == ["default/other", "default/p"]
    assert counted(world) == (1, 1)

    world.change_pod("other", status=BOUND)  # its kubelet admits it: there is no room for ours
    world.advance(1)
    await world.settle()
    assert sorted(world.api.store(PODS)) == ["default/other"]


async def test_no_more_pods_than_it_takes_the_least_important_first(make_world) -> None:
    world = make_world(give_up=True)
    for name, priority, day in (("high", 9, 3), ("old", 0, 1), ("new", 0, 2)):
        created = {**OWNED, "creationTimestamp": f"2026-01-0{day}T00:00:00Z"}
        await place(world, name, cpu="1", priority=priority, metadata=created)
    add_other(world, cpu="2")
    await world.settle()
    assert sorted(world.api.store(PODS)) == ["default/high", "default/old", "default/other"]


async def test_none_is_deleted_where_that_would_not_be_enough(make_world) -> None:
    world = make_world(give_up=True)
    await place(world, "p", cpu="1")
    add_other(world, cpu="5")
    await world.settle()
    assert sorted(world.api.store(PODS)) == ["default/other", "default/p"]
    assert counted(world) == (1, 1)


@pytest.mark.parametrize(
    "fields",
    [
        {"metadata": {}},
        {"metadata": {"ownerReferences": [{"kind": "DaemonSet", "uid": "d", "controller": True}]}},
        {"metadata": {**OWNED, "deletionTimestamp": "2026-01-01T00:00:00Z"}},
    ],
)
async def test_pods_that_would_be_lost_or_could_go_nowhere_else_stay(make_world, fields) -> None:
    world = make_world(give_up=True)
    world.add_pod("p", cpu="2", node_name="n0", **fields)
    add_other(world)
    await world.settle()
    assert "default/p" in world.api.store(PODS)


async def test_a_pod_that_its_kubelet_has_seen_meanwhile_stays(make_world) -> None:
    world = make_world(give_up=True)
    await place(world, "p")
    world.advance(1)
    add_other(world)  # the deletion is on its way, and comes too late
    world.change_pod("p", status=STARTED)
    await world.settle()
    world.advance(1)
    await world.settle()
    assert "default/p" in world.api.store(PODS)
    assert world.metrics.overcommitting_pods_deleted_total.value == 0


async def test_a_pod_that_has_changed_is_deleted_by_its_new_version(make_world) -> None:
    world = make_world(give_up=True)
    await place(world, "p")
    add_other(world)
    world.change_pod("p", metadata={"labels": {"a": "b"}})
    await world.settle()
    assert "default/p" in world.api.store(PODS)
    world.advance(1)
    await world.settle()
    assert "default/p" not in world.api.store(PODS)


async def test_a_deletion_that_is_refused_is_not_repeated(make_world) -> None:
    world = make_world(give_up=True)
    await place(world, "p")
    asked = []

    async def refuse(resource, namespace, name, **preconditions):
        asked.append(name)
        raise Forbidden(403, "Forbidden", "no")

    world.api.delete = refuse
    add_other(world)
    await world.settle()
    world.advance(5)
    await world.settle()
    assert asked == ["p"]


async def test_a_pod_whose_binding_is_on_its_way_is_deleted_once_it_is_bound(make_world) -> None:
    world = make_world(give_up=True)
    world.add_pod("p", cpu="2", metadata=OWNED)
    info = world.queue.pop().info
    world.cache.assume(info, "n0")
    add_other(world)
    await world.settle()
    assert "default/p" in world.api.store(PODS)
    world.change_pod("p", spec={"nodeName": "n0"})
    await world.settle()
    assert "default/p" not in world.api.store(PODS)


async def test_a_pod_that_permit_holds_goes_back_to_the_queue(make_world, kit) -> None:
    world = make_world(kit.plugin("Hold", PermitPlugin, permit=Status.wait(60)), give_up=True)
    world.add_pod("p", cpu="2")
    await world.scheduler.schedule_one(world.queue.pop())
    await world.settle()
    add_other(world)
    await world.settle()
    assert not world.cache.is_assumed("uid-of-default-p")
    assert world.places() == {"backoff": ["p"]}
    world.advance(3)
    assert world.places() == {"active": ["p"]}


# ---- two schedulers that give up pods ------------------------------------------------------------


def both_bound(seed: int) -> list[tuple[str, str, dict[str, Any]]]:
    """Pods that two schedulers bind to one node of 20 cores: scheduler, name, fields."""
    rng = random.Random(seed)
    pods = []
    for number in range(28):
        second = rng.choice((0, 0, 1))
        created = f"2026-01-01T00:00:0{second}Z"
        fields = {
            "cpu": str(rng.choice((1, 1, 2, 3))),
            "priority": rng.choice((0, 0, 5)),
            "metadata": {**OWNED, "creationTimestamp": created},
        }
        pods.append(("one" if number % 2 else "another", f"p{number}", fields))
    rng.shuffle(pods)
    return pods


async def given_up_by(kit, scheduler: str, pods: Any) -> set[str]:
    """Return the pods that a scheduler deletes, which sees them arrive in an order of its own."""
    options = OfflineOptions(shares_nodes=True, delete_overcommitting_pods=True)
    world = kit.World(options=options)
    world.add_node("n0", cpu="20", pods=100)
    for owner, name, fields in pods:
        ours = {} if owner == scheduler else {"scheduler_name": owner}
        world.add_pod(name, node_name="n0", status=BOUND, **ours, **fields)
        if random.Random(name).random() < 0.5:
            await world.settle()
    for _ in range(3):
        await world.settle()
        world.advance(1)
    return {name for _, name, _ in pods} - {key.partition("/")[2] for key in world.api.store(PODS)}


@pytest.mark.parametrize("seed", range(20))
async def test_two_that_give_up_pods_give_up_no_more_than_it_takes(kit, seed) -> None:
    pods = both_bound(seed)
    one = await given_up_by(kit, "one", pods)
    another = await given_up_by(kit, "another", list(reversed(pods)))
    assert all(int(name[1:]) % 2 for name in one), "its own only"
    assert not any(int(name[1:]) % 2 for name in another)
    cores = {name: int(fields["cpu"]) for _, name, fields in pods}
    left = sum(cores.values()) - sum(cores[name] for name in one | another)
    assert left <= 20
    assert all(left + cores[name] > 20 for name in _last_to_go(pods, one | another))


def _last_to_go(pods: Any, gone: set[str]) -> list[str]:
    """Return the most important of the pods that are gone: without it, it would not be enough."""

    def order(pod: Any) -> tuple[int, Any, str]:
        _, name, fields = pod
        seconds = int(fields["metadata"]["creationTimestamp"][-2])
        return fields["priority"], -seconds, f"uid-of-default-{name}"

    return [max((pod for pod in pods if pod[1] in gone), key=order)[1]]


async def test_pods_of_a_scheduler_that_gives_none_up_are_taken_to_stay(make_world) -> None:
    world = make_world(give_up=True)
    created = {**OWNED, "creationTimestamp": "2026-01-01T00:00:00Z"}
    await place(world, "p", metadata=created)
    add_other(world, metadata={**OWNED, "creationTimestamp": "2026-01-01T00:00:01Z"})
    for _ in range(19):
        await world.settle()
        world.advance(1)
    assert sorted(world.api.store(PODS)) == ["default/other", "default/p"]
    for _ in range(2):
        await world.settle()
        world.advance(1)
    await world.settle()
    assert sorted(world.api.store(PODS)) == ["default/other"]


async def test_a_later_conflict_of_an_episode_waits_anew(make_world) -> None:
    world = make_world(give_up=True)
    await place(world, "p", metadata={**OWNED, "creationTimestamp": "2026-01-01T00:00:00Z"})
    first = {**OWNED, "creationTimestamp": "2026-01-01T00:00:01Z"}
    add_other(world, "first", metadata=first)
    world.advance(1)
    world.change_pod("first", metadata={**first, "deletionTimestamp": "2026-01-01T00:00:05Z"})
    for _ in range(30):  # the episode goes on: the pod takes long to end
        await world.settle()
        world.advance(1)
    add_other(world, "second", metadata={**OWNED, "creationTimestamp": "2026-01-01T00:00:40Z"})
    for _ in range(19):
        await world.settle()
        world.advance(1)
    assert counted(world) == (1, 1)
    assert "default/p" in world.api.store(PODS)
    for _ in range(2):
        await world.settle()
        world.advance(1)
    await world.settle()
    assert "default/p" not in world.api.store(PODS)


async def test_a_pod_that_is_on_its_way_out_costs_no_other_its_place(make_world) -> None:
    world = make_world(give_up=True)
    await place(world, "p")
    leaving = {**OWNED, "deletionTimestamp": "2026-01-01T00:00:00Z"}
    add_other(world, metadata=leaving)
    await world.settle()
    assert "default/p" in world.api.store(PODS)


async def test_a_larger_node_ends_it(make_world, kit) -> None:
    world = make_world()
    await place(world, "p")
    add_other(world)
    world.api.put(NODES, kit.make_node("n0", cpu="8"))
    world.advance(1)
    assert counted(world) == (1, 0)
