"""How a failed pod is requeued, and its Event and condition (core.md 6.10 to 6.12)."""

from __future__ import annotations

import pytest

from proreus.base.errors import ApiError
from proreus.client.writing.pod_patches import StillRefused
from proreus.framework.plugin import FilterPlugin, PostFilterPlugin
from proreus.framework.post_filter_result import NominatingInfo, PostFilterResult
from proreus.framework.status import Status
from proreus.objects.kinds import PODS

NO = Status.unschedulable("no")


@pytest.fixture
def world(kit):
    """A world whose only node takes nobody."""
    world = kit.World(kit.rejecting("A", NO))
    world.add_node("n0")
    return world


async def attempt_while(world, change) -> None:
    """Make an attempt during which something happens that the queue does not hear of in time."""
    queued = world.queue.pop()
    change()
    await world.scheduler.schedule_one(queued)
    await world.settle()
    world.validate()


async def test_a_pod_that_is_gone_does_not_come_back(world) -> None:
    world.add_pod()
    await attempt_while(world, world.remove_pod)
    assert world.places() == {}
    assert world.queue.in_flight_count == 0
    assert world.notes() == ["0/1 nodes are available: 1 no."]


async def test_a_pod_that_was_bound_meanwhile_does_not_come_back(world, kit) -> None:
    world.add_pod()
    bound = kit.make_pod("p", node_name="n0").pod
    await attempt_while(world, lambda: world.api.put(PODS, bound))
    assert world.places() == {}
    assert world.queue.in_flight_count == 0
    assert world.notes() == ["0/1 nodes are available: 1 no."]


async def test_another_pod_of_the_same_name_is_left_alone(world, kit) -> None:
    world.add_pod()

    def replace() -> None:
        world.remove_pod()
        world.add_pod(metadata={"uid": "another"})

    await attempt_while(world, replace)
    assert world.places() == {"active": ["p"]}
    assert world.queued().uid == "another"
    assert world.queue.in_flight_count == 0
    assert world.notes() == []
    assert world.patches == []


async def test_the_pod_comes_back_as_it_is_now(world) -> None:
    world.add_pod()
    await attempt_while(
        world, lambda: world.change_pod(metadata={"labels": {"changed": "meanwhile"}})
    )
    assert world.queued().info.labels == {"changed": "meanwhile"}


# ---- the condition -------------------------------------------------------------------------------


async def test_the_first_condition(world) -> None:
    world.add_pod(metadata={"generation": 3})
    await world.attempt()
    assert world.patches == [
        (
            "p",
            {
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "0/1 nodes are available: 1 no.",
                        "lastProbeTime": None,
                        "lastTransitionTime": "2023-11-14T22:13:20Z",
                        "observedGeneration": 3,
                    }
                ]
            },
        )
    ]


async def test_what_has_not_changed_is_not_written_again(world) -> None:
    world.add_pod()
    await world.attempt()
    world.queue.activate(["default/p"])
    world.advance(60)
    await world.attempt()
    assert len(world.patches) == 1
    assert len(world.notes()) == 2


async def test_another_message_keeps_the_time_of_the_transition(world) -> None:
    world.add_pod()
    await world.attempt()
    world.advance(60)
    world.add_node("n1")
    await world.attempt()
    [_, (_, status)] = world.patches
    [condition] = status["conditions"]
    assert condition["message"] == "0/2 nodes are available: 2 no."
    assert condition["lastTransitionTime"] == "2023-11-14T22:13:20Z"


async def test_other_conditions_stay(world) -> None:
    ready = {"type": "Ready", "status": "False"}
    world.add_pod(status={"conditions": [ready]})
    await world.attempt()
    assert [c.type for c in world.pod().status.conditions] == ["Ready", "PodScheduled"]


async def test_refused_conditions_of_many_pods_are_few_lines(world, caplog, monkeypatch) -> None:
    refused: set[str] = set()

    async def refuse(pod, patch):
        error = StillRefused if pod.metadata.name in refused else ApiError
        refused.add(pod.metadata.name)
        raise error(403, "Forbidden", "not by you")

    monkeypatch.setattr(world.api, "patch_pod_status", refuse)
    for attempt in range(3):
        for number in range(40):
            if not attempt:
                world.add_pod(f"p{number}")
            else:
                world.queue.activate([f"default/p{number}"])
            await world.attempt()
    lines = [r for r in caplog.records if r.getMessage() == "Error updating pod"]
    assert len(lines) == 10
    world.advance(60)
    world.add_pod("another")
    await world.attempt()
    assert caplog.records[-1].pairs["notLogged"] == 30


async def test_a_pod_that_fails_for_days_is_a_few_lines(kit, caplog) -> None:
    world = kit.World(kit.rejecting("A", Status.error("its webhook is down")))
    world.add_node("n0")
    world.add_pod()
    for _ in range(100):
        await world.attempt()
        world.advance(11)
    lines = [r.pairs for r in caplog.records if r.getMessage() == "Error scheduling pod; retrying"]
    assert [line["errorsInARow"] for line in lines] == [1, 2, 4, 8, 16, 32, 64]


# ---- the nomination ------------------------------------------------------------------------------


def preempting(kit, result: PostFilterResult):
    return kit.World(
        kit.plugin("A", FilterPlugin, filter=NO),
        kit.plugin("Evictor", PostFilterPlugin, post_filter=result),
    )


async def test_condition_and_nomination_go_in_one_patch(kit) -> None:
    world = preempting(kit, PostFilterResult(None, NominatingInfo("n0")))
    world.add_node("n0")
    world.add_pod()
    await world.attempt()
    [(_, status)] = world.patches
    assert status["nominatedNodeName"] == "n0"
    assert status["conditions"][0]["message"] == "0/1 nodes are available: 1 no."
    assert world.pod().status.nominated_node_name == "n0"
    assert [p.name for p in world.queue.nominator.nominated_pods("n0")] == ["p"]


@pytest.mark.parametrize(
    ("result", "kept"),
    [
        (PostFilterResult(NO), True),
        (PostFilterResult(Status.error("boom")), True),
        (PostFilterResult(NO, NominatingInfo("")), False),
    ],
)
async def test_a_nomination_is_cleared_only_on_request(kit, result, kept) -> None:
    world = preempting(kit, result)
    world.add_node("n0")
    world.add_pod(status={"nominatedNodeName": "n0"})
    await world.attempt()
    assert world.pod().status.nominated_node_name == ("n0" if kept else "")
    assert [p.name for p in world.queue.nominator.nominated_pods("n0")] == ["p"] * kept
    [(_, status)] = world.patches
    assert status.get("nominatedNodeName", "untouched") == ("untouched" if kept else None)


async def test_without_post_filter_a_nomination_is_cleared(world) -> None:
    world.add_pod(status={"nominatedNodeName": "n0"})
    await world.attempt()
    assert world.pod().status.nominated_node_name == ""


async def test_a_nomination_alone_is_patched_alone(kit) -> None:
    world = kit.World(kit.rejecting("A", NO))
    world.add_node("n0")
    world.add_pod()
    await world.attempt()
    world.change_pod(status={"nominatedNodeName": "n0"})
    world.queue.activate(["default/p"])
    await world.attempt()
    assert world.patches[-1] == ("p", {"nominatedNodeName": None})


async def test_an_apiserver_that_refuses_the_patch_is_no_ones_end(world) -> None:
    world.add_pod()
    queued = world.queue.pop()
    world.remove_pod()
    await world.scheduler.schedule_one(queued)
    await world.settle()
    assert len(world.patches) == 1


# ---- the Event -----------------------------------------------------------------------------------


async def test_the_events_note_is_a_format_as_in_kube_scheduler(kit) -> None:
    world = kit.World(kit.rejecting("A", Status.unschedulable("50% full, %d")))
    world.add_node("n0")
    world.add_pod()
    await world.attempt()
    condition = world.condition()
    assert condition is not None
    assert condition.message == "0/1 nodes are available: 1 50% full, %d."
    assert world.notes() == ["0/1 nodes are available: 1 50%!f(MISSING)ull, %!d(MISSING)."]


async def test_a_long_note_is_cut_and_the_condition_is_not(kit) -> None:
    world = kit.World(kit.rejecting("A", Status.unschedulable("x" * 2000)))
    world.add_node("n0")
    world.add_pod()
    await world.attempt()
    [note] = world.notes()
    assert len(note) == 1024
    assert note.endswith("x ...")
    condition = world.condition()
    assert condition is not None
    assert len(condition.message) > 2000
