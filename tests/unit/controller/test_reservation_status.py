"""Statuses of reservations: owners, what they have taken, and their end."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proreus.addons.reservation.objects import ReservationObject
from proreus.controller.reservation_status import ReservationStatuses
from proreus.controller.status_reconciler import WithStatus
from proreus.objects import Pod
from proreus.objects.codec import decoder_for

CREATED = 1_767_225_600.0
"""2026-01-01T00:00:00Z"""
AVAILABLE = {"phase": "Available", "nodeName": "n", "allocatable": {"cpu": "4000m"}}


def reservation(status: dict[str, Any], **spec: Any) -> WithStatus[ReservationObject]:
    meta = {"name": "web", "uid": "r", "creationTimestamp": "2026-01-01T00:00:00Z"}
    owners = [{"labelSelector": {"matchLabels": {"app": "web"}}}]
    given = {"ttl": "1h", "allocateOnce": False, "owners": owners, **spec}
    obj = {"metadata": meta, "spec": given, "status": status}
    return WithStatus(decoder_for(ReservationObject).convert(obj), status)


def owner(
    name: str,
    cpu: str = "1",
    node: str = "n",
    phase: str = "Running",
    of: str = "r",
    app: str = "web",
    bound: str = "",
) -> Pod:
    taken = json.dumps({"name": "web", "uid": of})
    annotations = {"scheduling.koordinator.sh/reservation-allocated": taken}
    meta = {"name": name, "namespace": "ns", "uid": name, "annotations": annotations}
    meta["labels"] = {"app": app}
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": bound}
    containers = [{"resources": {"requests": {"cpu": cpu}}}]
    return decoder_for(Pod).convert(
        {
            "metadata": meta,
            "spec": {"nodeName": node, "containers": containers},
            "status": {"phase": phase, "conditions": [scheduled]},
        }
    )


def statuses_of(one: WithStatus[ReservationObject], *pods: Pod) -> ReservationStatuses:
    statuses = ReservationStatuses()
    assert list(statuses.put("web", one)) == ["web"]
    for pod in pods:
        statuses.put_pod(pod)
    return statuses


def listed(*names: str) -> list[dict[str, str]]:
    return [{"namespace": "ns", "name": name, "uid": name} for name in names]


def test_owners_on_its_node_have_taken_what_they_request() -> None:
    others = owner("elsewhere", node="m"), owner("of-another", of="s"), owner("waits", node="")
    statuses = statuses_of(reservation(AVAILABLE), owner("b"), owner("a", "5"), *others)
    assert statuses.status("web", CREATED) == {
        "currentOwners": listed("a", "b"),
        "allocated": {"cpu": "4"},
    }


@pytest.mark.parametrize("once", [False, True])
def test_a_pod_that_is_no_owner_has_taken_nothing(once: bool) -> None:
    statuses = statuses_of(reservation(AVAILABLE, allocateOnce=once), owner("thief", app="other"))
    assert statuses.status("web", CREATED) == {}
    # What a pod writes once it runs changes nothing, as in the scheduler.
    statuses.put_pod(owner("thief"))
    assert statuses.status("web", CREATED) == {}
    statuses.put_pod(owner("late", of=""))
    statuses.put_pod(owner("late"))
    assert statuses.status("web", CREATED) == {}
    statuses.remove_pod(owner("late"))
    statuses.put_pod(owner("late"))
    assert statuses.status("web", CREATED)["currentOwners"] == listed("late")


def test_an_owner_stays_one_whatever_it_writes() -> None:
    statuses = statuses_of(reservation(AVAILABLE), owner("a", node=""), owner("a"))
    statuses.put_pod(owner("a", of="", app="other"))
    assert statuses.status("web", CREATED)["currentOwners"] == listed("a")


def test_of_two_owners_the_first_bound_has_what_is_allocated_once() -> None:
    early, late = "2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z"
    once = reservation(AVAILABLE, allocateOnce=True)
    pods = [owner("a", bound=late), owner("b", bound=early)]
    for order in (1, -1):
        status = statuses_of(once, *pods[::order]).status("web", CREATED)
        assert status["currentOwners"] == listed("b")


def test_owners_stay_in_the_order_that_the_scheduler_wrote() -> None:
    written = {"currentOwners": listed("b", "a"), "allocated": {"cpu": "2000m"}}
    statuses = statuses_of(reservation(AVAILABLE | written), owner("a"), owner("b"))
    assert statuses.status("web", CREATED) == {}


@pytest.mark.parametrize("how", ["deleted", "finished"])
def test_owners_that_are_gone_have_given_back_what_they_took(how: str) -> None:
    written = {"currentOwners": listed("a"), "allocated": {"cpu": "1"}}
    statuses = statuses_of(reservation(AVAILABLE | written), owner("a"))
    if how == "deleted":
        assert list(statuses.remove_pod(owner("a"))) == ["web"]
    else:
        assert list(statuses.put_pod(owner("a", phase="Succeeded"))) == ["web"]
    assert statuses.status("web", CREATED) == {"currentOwners": [], "allocated": {"cpu": "0"}}


def test_one_that_is_allocated_once_has_succeeded_also_after_its_owner() -> None:
    once = reservation(AVAILABLE, allocateOnce=None)
    assert statuses_of(once).status("web", CREATED) == {}
    status = statuses_of(once, owner("a", phase="Failed")).status("web", CREATED + 9999)
    assert (status["phase"], status["currentOwners"]) == ("Succeeded", listed("a"))


@pytest.mark.parametrize("phase", ["", "Pending", "Available"])
def test_its_time_is_over(phase: str) -> None:
    scheduled = {"type": "Scheduled", "status": "True"}
    conditions = [scheduled, {"type": "Ready", "status": "True"}]
    statuses = statuses_of(reservation({**AVAILABLE, "phase": phase, "conditions": conditions}))
    assert statuses.status("web", CREATED + 3599) == {}
    status = statuses.status("web", CREATED + 3600)
    assert status["phase"] == "Failed"
    assert status["conditions"][0] == scheduled
    [ready] = status["conditions"][1:]
    assert (ready["status"], ready["reason"]) == ("False", "Expired")
    assert ready["lastTransitionTime"] == "2026-01-01T01:00:00Z"


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_one_that_is_over_stays_as_it_is(phase: str) -> None:
    statuses = statuses_of(reservation({**AVAILABLE, "phase": phase}), owner("a"))
    assert statuses.status("web", CREATED + 9999) == {}
