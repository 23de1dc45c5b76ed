from collections import Counter
from datetime import UTC, datetime

import pytest

from proreus.addons.coscheduling.groups import Gang, GangSpec
from proreus.controller.pod_group_status import (
    PodGroupStatuses,
    is_given_up,
    settled_phase,
)
from proreus.controller.status_reconciler import WithStatus
from proreus.objects import ObjectMeta, Pod
from proreus.objects.codec import decoder_for

NOW = datetime(2026, 1, 3, tzinfo=UTC).timestamp()


def member(name: str, phase: str = "Pending", namespace: str = "ns", owner: str = "job") -> Pod:
    return decoder_for(Pod).convert(
        {
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": f"{namespace}/{name}",
                "labels": {"scheduling.x-k8s.io/pod-group": "gang"},
                "ownerReferences": [{"kind": "Job", "name": owner, "uid": "u"}],
            },
            "status": {"phase": phase},
        }
    )


def gang(minimum: int = 2) -> Gang:
    return Gang(metadata=ObjectMeta(name="gang", namespace="ns"), spec=GangSpec(min_member=minimum))


@pytest.mark.parametrize(
    ("before", "members", "phases", "after"),
    [
        ("", 0, {}, "Pending"),
        ("", 1, {}, "Pending"),
        ("Pending", 2, {}, "Scheduling"),
        ("", 2, {"Running": 2}, "Running"),
        ("Scheduling", 1, {"Running": 1}, "Pending"),
        ("Scheduling", 2, {"Running": 1}, "Scheduling"),
        ("Running", 2, {"Running": 1, "Failed": 1}, "Failed"),
        ("Running", 3, {"Succeeded": 2, "Failed": 1}, "Finished"),
        ("Running", 3, {"Running": 2, "Failed": 1}, "Failed"),
        ("Running", 2, {"Running": 1, "Succeeded": 1}, "Running"),
        ("Running", 2, {"Running": 1}, "Scheduling"),
        ("Finished", 0, {}, "Finished"),
        ("Failed", 5, {"Running": 5}, "Failed"),
    ],
)
def test_phases(before: str, members: int, phases: dict[str, int], after: str) -> None:
    assert settled_phase(before, 2, members, Counter(phases)) == after


def test_a_status_counts_the_pods_of_its_own_namespace() -> None:
    statuses = PodGroupStatuses()
    assert list(statuses.put("ns/gang", WithStatus(gang(), {}))) == ["ns/gang"]
    assert list(statuses.put_pod(member("a", "Running", owner="b"))) == ["ns/gang"]
    statuses.put_pod(member("b", "Running", owner="a"))
    statuses.put_pod(member("c", "Running", namespace="elsewhere"))
    assert statuses.status("ns/gang", NOW) == {
        "phase": "Running",
        "running": 2,
        "succeeded": 0,
        "failed": 0,
        "scheduleStartTime": "2026-01-03T00:00:00Z",
        "occupiedBy": "ns/a,ns/b",
    }
    assert list(statuses.remove_pod(member("a"))) == ["ns/gang"]
    assert statuses.status("ns/gang", NOW)["phase"] == "Pending"


def test_first_values_and_final_phases_stay() -> None:
    statuses = PodGroupStatuses()
    statuses.put_pod(member("a", "Running"))
    start = {"phase": "Running", "scheduleStartTime": "earlier", "occupiedBy": "ns/x"}
    statuses.put("ns/gang", WithStatus(gang(1), start))
    assert {"scheduleStartTime", "occupiedBy"}.isdisjoint(statuses.status("ns/gang", NOW))
    statuses.put("ns/gang", WithStatus(gang(1), {"phase": "Finished", "succeeded": 1}))
    assert statuses.status("ns/gang", NOW) == {}


def test_a_group_is_given_up_after_48_hours() -> None:
    old = Gang(metadata=ObjectMeta(creation_timestamp=datetime(2026, 1, 1, tzinfo=UTC)))
    assert not is_given_up(old, "Pending", NOW)
    assert is_given_up(old, "Scheduling", NOW + 1)
    assert not is_given_up(old, "Running", NOW + 1)
    assert not is_given_up(gang(), "Pending", NOW)
