"""Reservation: pods' owners write what they like; only the pods that it is for take from one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from proreus.addons.reservation import Reservation
from proreus.addons.reservation.objects import RESERVATIONS
from proreus.objects import PODS, Pod
from proreus.testing import Harness, make_node, make_pod
from unit.addons.test_reservation import (
    ALLOCATED,
    cluster,
    held,
    requested,
    reservation,
    status,
    web,
)
from unit.growth import MOST_FOR_FOUR_TIMES, growth

CLAIM = json.dumps({"name": "r", "uid": "uid-of-r"})
CLAIMING = {"annotations": {ALLOCATED: CLAIM}}
REFUSED = "AllocationRefused"


def claim(harness: Harness, pod: str, text: str | None = CLAIM, **labels: str) -> None:
    """Change annotation and labels of a pod, as its owner may."""
    metadata: dict[str, Any] = {"annotations": {ALLOCATED: text}}
    harness.patch("Pod", pod, {"metadata": {**metadata, **({"labels": labels} if labels else {})}})


def restarted(harness: Harness, first: str = "pods", cpu: str = "4") -> Harness:
    """Return the same state in a new process; ``first``: what its watches report first."""
    pods, found = harness.api.store(PODS), harness.api.store(RESERVATIONS)
    nodes = [make_node(one.name, cpu) for one in harness.nodes]
    after = Harness([Reservation], nodes)
    if first == "pods":
        after.add(*pods.values())
    for one in found.values():
        after.put(RESERVATIONS, one)
    if first != "pods":
        after.add(*pods.values())
    return after


def said(harness: Harness, pod: str) -> int:
    return sum(one.reason == REFUSED for one in harness.events(pod))


@pytest.mark.parametrize("once", [False, True])
def test_a_running_pod_takes_nothing_by_what_it_writes(once: bool) -> None:
    harness = cluster(make_pod("thief", "1", node_name="a"), cpu="5")
    harness.add(reservation(allocateOnce=once))
    harness.schedule_all()
    claim(harness, "thief", app="web")
    harness.advance(30)
    assert status(harness)["phase"] == "Available"
    assert requested(harness) == 5000
    assert not harness.schedule(make_pod("accomplice", "1")).node
    assert harness.schedule(web(cpu="4")).node == "a"


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("first", ["pods", "reservations"])
def test_a_pod_that_is_no_owner_takes_nothing_after_a_restart(once: bool, first: str) -> None:
    before = held(allocateOnce=once)
    before.add(make_pod("thief", "1", node_name="a", metadata=CLAIMING))
    harness = restarted(before, first, "5")
    harness.advance(30)
    assert status(harness)["phase"] == "Available"
    assert not harness.schedule(make_pod("accomplice", "1")).node
    assert said(harness, "thief") == 1
    assert harness.metric("proreus_refused_allocations_total", "Reservation") == 1
    assert harness.schedule(web(cpu="4")).node == "a"


def test_an_owner_stays_one_whatever_it_writes() -> None:
    harness = held()
    harness.schedule(web("w", "3"))
    for text in (None, "{", json.dumps({"uid": "of another"}), CLAIM):
        claim(harness, "w", text, app="other")
        assert requested(harness) == 4000
        assert not harness.schedule(make_pod(f"p{len(text or '')}", "1")).node
    assert harness.schedule(web("w1", "1")).node == "a"


def test_an_owner_counts_after_a_restart_though_the_reservation_takes_no_more() -> None:
    before = held()
    before.schedule(web("w", "3"))
    found = before.api.store(RESERVATIONS)["r"]
    patch = {"spec": {"unschedulable": True}, "status": {"nodeName": found.status.node_name}}
    before.patch("Reservation", "r", patch, "")
    harness = restarted(before)
    assert requested(harness) == 4000
    assert not said(harness, "w")
    assert not harness.schedule(web("w1", "1")).node


def test_of_two_owners_the_first_bound_has_what_is_allocated_once() -> None:
    def ready(minute: int) -> dict[str, Any]:
        when = f"2026-01-01T00:{minute:02}:00Z"
        condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": when}
        return {"status": {"phase": "Running", "conditions": [condition]}}

    before = held(allocateOnce=True)
    for name, minute, cpu in (("b", 1, "2"), ("a", 2, "1")):
        pod = web(name, cpu, annotations={ALLOCATED: CLAIM}, node_name="a", **ready(minute))
        before.add(pod)
    harness = restarted(before)
    assert (said(harness, "a"), said(harness, "b")) == (1, 0)


def test_an_annotation_that_comes_before_the_binding_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = held()
    harness.add(make_node("b", "4"))
    bind = harness.api.bind

    async def annotate(pod: Pod, node_name: str) -> None:
        metadata = {**CLAIMING, "labels": {"app": "web"}}
        await harness.api.patch(PODS, "default", pod.metadata.name, {"metadata": metadata})
        await bind(pod, node_name)

    monkeypatch.setattr(harness.api, "bind", annotate)
    assert harness.schedule(make_pod("p", "0")).node
    monkeypatch.undo()
    assert requested(harness) == 4000


@pytest.mark.parametrize(
    "text",
    ["{", "[" * 100_000, '{"uid": {}}', f'{{"uid": {"9" * 5_000}}}', '{"uid": [[]]}', "1", "null"],
)
def test_any_text_concerns_its_own_pod_alone(text: str) -> None:
    harness = held()
    metadata = {"annotations": {ALLOCATED: text}}
    harness.add(make_pod("odd", "0", node_name="a", metadata=metadata))
    assert harness.schedule(web(cpu="4")).node == "a"


# ---- many owners ---------------------------------------------------------------------------------


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("app", ["web", "other"])
def test_four_times_as_many_claims_are_no_more_than_six_times_the_work(
    once: bool, app: str
) -> None:
    def cluster_and_pods(number: int) -> tuple[Harness, list[Any]]:
        given = {"labels": {"app": app}, "annotations": {ALLOCATED: CLAIM}, "node_name": "a"}
        pods = [web(f"w{one:03}", "0", **given) for one in range(number)]
        return held(allocateOnce=once), pods

    def come(number: int) -> Callable[[], None]:
        harness, pods = cluster_and_pods(number)
        return lambda: harness.add(*pods)

    def go(number: int) -> Callable[[], None]:
        harness, pods = cluster_and_pods(number)
        harness.add(*pods)

        def remove_all() -> None:
            for pod in reversed(pods):
                harness.remove("Pod", pod.name)

        return remove_all

    assert growth(come, 50) < MOST_FOR_FOUR_TIMES
    assert growth(go, 50) < MOST_FOR_FOUR_TIMES
