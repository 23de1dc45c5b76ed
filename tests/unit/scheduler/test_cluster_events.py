"""Which events an update of a pod amounts to (core.md 3.2)."""

from __future__ import annotations

import pytest

from proreus.framework.pod_info import PodInfo
from proreus.scheduler.cluster_events import as_assigned, pod_events

TOLERATION = {"key": "a", "operator": "Exists"}


@pytest.mark.parametrize(
    ("before", "after", "events"),
    [
        ({}, {}, ["Update"]),
        ({}, {"labels": {"a": "b"}}, ["UpdatePodLabel"]),
        ({"cpu": "2"}, {"cpu": "1"}, ["UpdatePodScaleDown"]),
        ({"cpu": "1"}, {"cpu": "2"}, ["Update"]),
        ({"cpu": "1"}, {"memory": "1Gi"}, ["UpdatePodScaleDown"]),
        (
            {"spec": {"schedulingGates": [{"name": "a"}]}},
            {},
            ["UpdatePodSchedulingGatesEliminated"],
        ),
        (
            {"spec": {"schedulingGates": [{"name": "a"}, {"name": "b"}]}},
            {"spec": {"schedulingGates": [{"name": "a"}]}},
            ["Update"],
        ),
        ({}, {"tolerations": [TOLERATION]}, ["UpdatePodToleration"]),
        (
            {"tolerations": [TOLERATION]},
            {"tolerations": [{**TOLERATION, "key": "b"}]},
            ["Update"],
        ),
        (
            {},
            {"status": {"resourceClaimStatuses": [{"name": "a", "resourceClaimName": "b"}]}},
            ["UpdatePodGeneratedResourceClaim"],
        ),
        (
            {"cpu": "2"},
            {"cpu": "1", "labels": {"a": "b"}, "tolerations": [TOLERATION]},
            ["UpdatePodLabel", "UpdatePodScaleDown", "UpdatePodToleration"],
        ),
    ],
)
@pytest.mark.parametrize("node_name", ["", "n0"])
def test_pod_events(kit, before, after, events, node_name) -> None:
    old = kit.make_pod(node_name=node_name, **before)
    new = kit.make_pod(node_name=node_name, **after)
    resource = "AssignedPod" if node_name else "UnschedulablePod"
    assert [event.label for event in pod_events(old, new)] == [resource + e for e in events]


def test_a_resized_pod_counts_with_the_larger_of_request_and_hold(kit) -> None:
    """A request that was lowered sets nothing free before the kubelet has done it."""

    def resizing(request: str, held: str) -> PodInfo:
        status = {
            "containerStatuses": [
                {
                    "name": "main",
                    "allocatedResources": {"cpu": held},
                    "resources": {"requests": {"cpu": held}},
                }
            ]
        }
        return kit.make_pod(cpu=request, status=status)

    asked, done = resizing("1", "2"), resizing("1", "1")
    assert [e.label for e in pod_events(resizing("2", "2"), asked)] == ["UnschedulablePodUpdate"]
    assert [e.label for e in pod_events(asked, done)] == ["UnschedulablePodUpdatePodScaleDown"]


def test_as_assigned_changes_the_node_only(kit) -> None:
    pod = kit.make_pod(cpu="1", labels={"a": "b"}).pod
    placed = as_assigned(pod, "n0")
    assert (pod.spec.node_name, placed.spec.node_name) == ("", "n0")
    assert placed.metadata is pod.metadata
    assert placed.spec.containers == pod.spec.containers
