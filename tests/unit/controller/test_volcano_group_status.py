"""Phases of Volcano's PodGroups, which operators wait for before they create pods."""

import pytest

from proreus.addons.coscheduling.groups import Gang, GangSpec
from proreus.controller.pod_group_status import VolcanoPodGroupStatuses
from proreus.controller.status_reconciler import WithStatus
from proreus.objects import ObjectMeta, Pod
from proreus.objects.codec import decoder_for


def member(name: str, phase: str, node: str = "n") -> Pod:
    meta = {
        "name": name,
        "namespace": "ns",
        "uid": name,
        "annotations": {"scheduling.k8s.io/group-name": "gang"},
    }
    return decoder_for(Pod).convert(
        {"metadata": meta, "spec": {"nodeName": node}, "status": {"phase": phase}}
    )


def statuses_of(*pods: Pod, minimum: int = 2) -> VolcanoPodGroupStatuses:
    statuses = VolcanoPodGroupStatuses()
    meta = ObjectMeta(name="gang", namespace="ns")
    statuses.put("ns/gang", WithStatus(Gang(metadata=meta, spec=GangSpec(min_member=minimum)), {}))
    for pod in pods:
        assert list(statuses.put_pod(pod)) == ["ns/gang"]
    return statuses


@pytest.mark.parametrize(
    ("phases", "after"),
    [
        ([], "Inqueue"),
        (["Running"], "Inqueue"),
        (["Pending", "Running"], "Running"),
        (["Succeeded", "Running"], "Running"),
        (["Succeeded", "Succeeded"], "Completed"),
        (["Failed", "Running"], "Inqueue"),
    ],
)
def test_phases(phases: list[str], after: str) -> None:
    pods = [member(str(number), phase) for number, phase in enumerate(phases)]
    assert statuses_of(*pods).status("ns/gang", 0.0)["phase"] == after


def test_pods_without_a_node_are_not_allocated() -> None:
    statuses = statuses_of(member("a", "Running"), member("b", "Pending", node=""))
    assert statuses.status("ns/gang", 0.0) == {
        "phase": "Inqueue",
        "running": 1,
        "succeeded": 0,
        "failed": 0,
    }


def test_a_group_of_no_minimum_has_not_run_before_it_has_pods() -> None:
    assert statuses_of(minimum=0).status("ns/gang", 0.0)["phase"] == "Inqueue"
