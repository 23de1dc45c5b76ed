from __future__ import annotations

import asyncio

import pytest

from proreus.addons.reservation import Reservation
from proreus.addons.reservation.book import reservation_of
from proreus.addons.reservation.matching import (
    EXACT_MATCH,
    RESERVATION_AFFINITY,
    ReservationDemand,
)
from proreus.addons.reservation.objects import RESERVATIONS
from proreus.testing import Harness, make_node, make_pod

KEY = "scheduling.koordinator.sh/"
ALLOCATED = f"{KEY}reservation-allocated"


def reservation(name: str = "r", cpu: str = "4", **spec) -> dict:
    labels = spec.pop("labels", {})
    metadata = {"name": name, "uid": f"uid-of-{name}", "labels": labels}
    template = spec.pop("template", {})
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": metadata,
        "spec": {
            "template": {"spec": {"containers": [container], **template}},
            "owners": [{"labelSelector": {"matchLabels": {"app": "web"}}}],
            "allocateOnce": False,
            **spec,
        },
        "status": {},
    }


def cluster(*objects: dict, nodes: int = 1, cpu: str = "4") -> Harness:
    made = [make_node(name, cpu) for name in "abcd"[:nodes]]
    return Harness([Reservation], made, objects)


def web(name: str = "web", cpu: str = "1", **given):
    metadata = {"annotations": given.pop("annotations", {})}
    labels = {"app": "web", **given.pop("labels", {})}
    return make_pod(name, cpu, labels=labels, metadata=metadata, **given)


def status(harness: Harness, name: str = "r") -> dict:
    found = harness.api.store(RESERVATIONS)[name]
    return {"phase": found.status.phase, "node": found.status.node_name}


def requested(harness: Harness, node: str = "a") -> int:
    return harness.node(node).requested["cpu"]


def held(**spec) -> Harness:
    """Return a cluster of one node, all of whose 4 CPUs are reserved."""
    harness = cluster(reservation(**spec))
    harness.schedule_all()
    return harness


DEEP = "[" * 100_000


def test_annotations_that_are_nested_too_deep_say_nothing() -> None:
    assert reservation_of(web(annotations={ALLOCATED: DEEP}).pod) == ""
    assert not ReservationDemand(web(annotations={EXACT_MATCH: DEEP}).pod).is_valid
    affinity = {RESERVATION_AFFINITY: f'{{"x": {DEEP}'}
    assert not ReservationDemand(web(annotations=affinity).pod).is_valid


# ---- the pod that holds the room -----------------------------------------------------------------


def test_a_reservation_is_scheduled_like_a_pod_and_holds_room() -> None:
    harness = held()
    assert status(harness) == {"phase": "Available", "node": "a"}
    assert requested(harness) == 4000
    outcome = harness.schedule(make_pod("other", "1"))
    assert "Insufficient cpu" in outcome.message
    harness.scheduler.cache.validate()
    assert harness.events() == [one for one in harness.events() if "reservation" not in one.pod]


def test_a_reservation_that_fits_nowhere_waits_and_says_why() -> None:
    harness = cluster(reservation(cpu="8"))
    harness.schedule_all()
    assert status(harness) == {"phase": "Pending", "node": ""}
    harness.add(make_node("b", "8"))
    harness.advance(10)
    harness.schedule_all()
    assert status(harness) == {"phase": "Available", "node": "b"}


def test_the_template_may_name_its_node_and_its_priority_class() -> None:
    value = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1000}
    named = reservation(cpu="2", template={"nodeName": "b", "priorityClassName": "high"})
    harness = cluster({**value, "metadata": {"name": "high"}}, named, nodes=3)
    harness.schedule_all()
    assert status(harness)["node"] == "b"
    (pod,) = harness.node("b").pods.values()
    assert pod.priority == 1000


def test_a_deleted_reservation_gives_its_room_back() -> None:
    harness = held()
    harness.schedule(make_pod("other", "1"))
    harness.api.remove("Reservation", "r")
    harness.advance(2)
    harness.schedule_all()
    assert harness.pod("other").spec.node_name == "a"
    assert requested(harness) == 1000


@pytest.mark.parametrize("spec", [{"ttl": "1m"}, {"expires": "2023-11-14T22:14:20Z"}])
def test_a_reservation_expires(spec: dict) -> None:
    made = reservation(**spec)
    made["metadata"]["creationTimestamp"] = "2023-11-14T22:13:20Z"
    harness = cluster(made)
    harness.schedule_all()
    harness.schedule(make_pod("other", "1"))
    harness.advance(55)
    assert requested(harness) == 4000
    harness.advance(15)
    assert status(harness)["phase"] == "Failed"
    harness.schedule_all()
    assert harness.pod("other").spec.node_name == "a"


def test_a_pod_of_higher_priority_takes_the_room() -> None:
    harness = held()
    harness.schedule(make_pod("important", "3", priority=1000))
    harness.advance(2)
    harness.schedule_all()
    assert status(harness)["phase"] == "Failed"
    assert harness.pod("important").spec.node_name == "a"


# ---- owners --------------------------------------------------------------------------------------


def test_owners_take_from_it_until_it_is_used_up() -> None:
    harness = held()
    assert harness.schedule(web("w0", "3")).node == "a"
    assert requested(harness) == 4000
    assert ALLOCATED in harness.pod("w0").metadata.annotations
    assert status(harness)["phase"] == "Available"
    assert not harness.schedule(make_pod("other", "1")).node
    assert harness.schedule(web("w1", "1")).node == "a"
    assert not harness.schedule(web("w2", "1")).node
    assert requested(harness) == 4000
    # What an owner gives back is reserved again.
    harness.remove("Pod", "w0")
    assert requested(harness) == 4000
    harness.advance(10)
    harness.schedule_all()
    assert harness.pod("w2").spec.node_name == "a"
    assert not harness.pod("other").spec.node_name
    harness.scheduler.cache.validate()


def test_one_that_is_allocated_once_ends_with_its_first_owner() -> None:
    harness = held(allocateOnce=True)
    assert harness.schedule(web()).node == "a"
    assert status(harness)["phase"] == "Succeeded"
    assert requested(harness) == 1000
    assert harness.schedule(make_pod("other", "3")).node == "a"


def test_an_owner_may_need_more_than_is_reserved_unless_it_is_restricted() -> None:
    aligned = cluster(reservation(cpu="2"))
    aligned.schedule_all()
    assert aligned.schedule(web(cpu="3")).node == "a"
    assert requested(aligned) == 3000
    restricted = cluster(reservation(cpu="2", allocatePolicy="Restricted"))
    restricted.schedule_all()
    assert not restricted.schedule(web(cpu="3")).node
    assert restricted.schedule(web("small", cpu="2")).node == "a"


@pytest.mark.parametrize(
    ("owners", "matches"),
    [
        ([{"object": {"name": "web", "namespace": "default"}}], True),
        ([{"object": {"name": "web", "namespace": "other"}}], False),
        ([{"controller": {"kind": "Job", "name": "j"}}], True),
        ([{"controller": {"kind": "Job", "name": "k"}}], False),
        ([{"object": {"name": "x"}}, {"object": {"name": "web"}}], True),
        (
            [{"object": {"name": "web"}, "labelSelector": {"matchLabels": {"app": "x"}}}],
            False,
        ),
        ([{}], False),
    ],
)
def test_whose_pods_are_owners(owners: list, matches: bool) -> None:
    harness = held(owners=owners)
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}
    pod = make_pod("web", "1", labels={"app": "web"}, metadata={"ownerReferences": [job]})
    assert bool(harness.schedule(pod).node) == matches


def test_an_unschedulable_or_tainted_reservation_takes_no_owner() -> None:
    taint = {"key": "k", "effect": "NoSchedule"}
    assert not held(unschedulable=True).schedule(web()).node
    assert not held(taints=[taint]).schedule(web()).node
    affinity = '{"tolerations": [{"key": "k", "operator": "Exists"}]}'
    tolerant = web(annotations={f"{KEY}reservation-affinity": affinity})
    assert held(taints=[taint]).schedule(tolerant).node == "a"


def test_owners_prefer_nodes_with_a_reservation_and_the_lowest_order() -> None:
    orders = {f"r{n}": n for n in (2, 1)}
    made = [
        reservation(
            name, "1", labels={f"{KEY}reservation-order": str(order)}, template={"nodeName": node}
        )
        for (name, order), node in zip(orders.items(), "bc", strict=True)
    ]
    harness = cluster(*made, nodes=4)
    harness.schedule_all()
    outcome = harness.schedule(web())
    assert [outcome.score(name, "Reservation") for name in "abcd"] == [0, 99, 100, 0]


def test_of_several_on_a_node_the_one_that_fits_best_is_taken() -> None:
    made = [reservation(name, cpu) for name, cpu in (("big", "3"), ("fits", "1"))]
    harness = cluster(*made)
    harness.schedule_all()
    harness.schedule(web(cpu="1"))
    assert '"fits"' in harness.pod("web").metadata.annotations[ALLOCATED]
    assert requested(harness) == 4000


@pytest.mark.parametrize(
    ("affinity", "node"),
    [
        ('{"name": "r1"}', "b"),
        ('{"reservationSelector": {"tier": "1"}}', "b"),
        (
            '{"requiredDuringSchedulingIgnoredDuringExecution": {"reservationSelectorTerms": '
            '[{"matchExpressions": [{"key": "tier", "operator": "In", "values": ["1"]}]}]}}',
            "b",
        ),
        ('{"name": "missing"}', ""),
        ("{", ""),
    ],
)
def test_a_pod_may_ask_for_a_reservation(affinity: str, node: str) -> None:
    made = [
        reservation(f"r{n}", "1", labels={"tier": str(n)}, template={"nodeName": "ab"[n]})
        for n in range(2)
    ]
    harness = cluster(*made, nodes=2)
    harness.schedule_all()
    pod = web(annotations={f"{KEY}reservation-affinity": affinity})
    assert harness.schedule(pod).node == node


def test_a_pod_that_asks_for_a_reservation_is_woken_by_it() -> None:
    harness = cluster()
    harness.schedule(web(annotations={f"{KEY}reservation-affinity": '{"name": "r"}'}))
    harness.add(reservation())
    harness.advance(10)
    harness.schedule_all()
    harness.advance(10)
    harness.schedule_all()
    assert harness.pod("web").spec.node_name == "a"


def test_a_pod_may_ask_for_exactly_what_it_requests() -> None:
    exact = {f"{KEY}exact-match-reservation": '{"resourceNames": ["cpu"]}'}
    harness = held()
    assert not harness.schedule(web("small", "1", annotations=exact)).node
    assert harness.schedule(web("same", "4", annotations=exact)).node == "a"


def test_a_pod_may_ignore_reservations_and_owners_do_not_over_commit_then() -> None:
    harness = held()
    ignoring = make_pod("filler", "3", labels={f"{KEY}reservation-ignored": "true"})
    assert harness.schedule(ignoring).node == "a"
    assert harness.schedule(web("w0", "1")).node == "a"
    assert not harness.schedule(web("w1", "1")).node


def test_what_a_pod_took_is_given_back_if_it_is_not_bound(monkeypatch) -> None:
    harness = held(allocateOnce=True)

    async def fail(*_: object) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(harness.api, "bind", fail)
    with pytest.raises(RuntimeError):
        harness.schedule(web())
    assert requested(harness) == 4000
    assert status(harness)["phase"] == "Available"


# ---- restarts ------------------------------------------------------------------------------------


def test_a_restart_finds_reservations_and_owners_again() -> None:
    first = held()
    first.schedule(web("w0", "3"))
    found = first.api.store(RESERVATIONS)["r"]
    second = Harness([Reservation], [make_node("a", "4")], [first.pod("w0")])
    second.put(RESERVATIONS, found)
    assert requested(second) == 4000
    assert not second.schedule(make_pod("other", "1")).node
    assert second.schedule(web("w1", "1")).node == "a"
    assert not second.schedule(web("w2", "1")).node


def test_a_restart_reports_what_was_allocated_once() -> None:
    first = held(allocateOnce=True)
    unreported = first.api.store(RESERVATIONS)["r"]
    first.schedule(web("w0", "3"))
    second = Harness([Reservation], [make_node("a", "4")], [first.pod("w0")])
    second.put(RESERVATIONS, unreported)
    assert requested(second) == 3000
    second.advance(10)
    assert status(second)["phase"] == "Succeeded"


def test_a_note_of_an_earlier_attempt_is_removed() -> None:
    note = {ALLOCATED: '{"name": "gone", "uid": "gone"}'}
    harness = cluster()
    harness.schedule(web(annotations=note))
    assert ALLOCATED not in harness.pod("web").metadata.annotations
    assert harness.pod("web").spec.node_name == "a"


def test_a_pod_on_another_node_takes_nothing_whatever_it_says() -> None:
    harness = held()
    harness.add(make_node("b", "4"))
    note = {ALLOCATED: '{"name": "r", "uid": "uid-of-r"}'}
    harness.add(make_pod("elsewhere", "4", node_name="b", metadata={"annotations": note}))
    assert requested(harness) == 4000
    assert harness.schedule(web(cpu="4")).node == "a"


def test_an_owner_that_is_resized_takes_as_much_as_it_requests() -> None:
    harness = held()
    harness.schedule(web(cpu="3"))
    container = {"name": "main", "resources": {"requests": {"cpu": "1"}}}
    harness.patch("Pod", "web", {"spec": {"containers": [container]}})
    assert requested(harness) == 4000
    assert harness.schedule(web("more", "3")).node == "a"


def test_owners_that_were_tried_too_early_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = cluster(reservation(cpu="4"), nodes=1)
    answered, patch = asyncio.Event(), harness.api.patch

    async def slow(resource, *given):
        await answered.wait()
        return await patch(resource, *given)

    monkeypatch.setattr(harness.api, "patch", slow)
    # The room is taken, and who may have it is not known yet.
    harness.schedule_all()
    ignored = make_pod("ignores", "1", labels={f"{KEY}reservation-ignored": "true"})
    harness.add(web("owner", "2"), ignored, make_pod("other", "2"))
    harness.schedule_all()
    assert {harness.queue_of(name) for name in ("owner", "ignores")} == {"unschedulable"}
    answered.set()
    harness.advance(20)
    assert harness.queue_of("other") == "unschedulable"
    harness.schedule_all()
    assert [harness.pod(name).spec.node_name for name in ("owner", "ignores")] == ["a", "a"]


def test_owners_that_wait_are_tried_again_when_another_gives_back_its_room() -> None:
    harness = held()
    harness.add(web("first", "4"))
    harness.schedule_all()
    harness.add(web("second", "4"), make_pod("other", "4"))
    harness.schedule_all()
    harness.remove("Pod", "first")
    harness.advance(20)
    harness.schedule_all()
    assert harness.pod("second").spec.node_name == "a"
    assert not harness.pod("other").spec.node_name
