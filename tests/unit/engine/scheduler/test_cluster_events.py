"""Which events an update of a pod amounts to (core.md 3.2)."""

from __future__ import annotations

from functools import partial

import pytest
from msgspec import structs

from proreus.engine.cluster_events import as_assigned, node_events, pod_events
from proreus.framework.pod_events import PodEvents
from proreus.framework.pod_info import PodInfo
from proreus.objects.node import PodPreemptionPolicy
from proreus.testing.builders import make_node

PREEMPTION_POLICY = "NodeUpdateNodePreemptionPolicy"
ENDING = {"deletionTimestamp": "2025-01-01T00:00:00Z"}
TOLERATION = {"key": "a", "operator": "Exists"}


@pytest.mark.parametrize(
    ("before", "after", "events"),
    [
        ({}, {}, ["Update"]),
        ({}, {"labels": {"a": "b"}}, ["UpdatePodLabel"]),
        ({"cpu": "2"}, {"cpu": "1"}, ["UpdatePodScaleDown"]),
        ({"cpu": "1"}, {"cpu": "2"}, ["UpdatePodScaleUp"]),
        ({"cpu": "1"}, {"cpu": "1", "memory": "1Gi"}, ["UpdatePodScaleUp"]),
        ({"cpu": "1"}, {"memory": "1Gi"}, ["UpdatePodScaleDown", "UpdatePodScaleUp"]),
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
        ({}, {"metadata": ENDING}, ["Update"]),
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
    resource = "AssignedPod" if node_name else "TargetPod"
    found = pod_events(old, new, PodEvents(target_pods=True))
    assert [event.label for event in found] == [resource + e for e in events]
    # Up to 1.36 a scale-up had no name of its own, and a waiting pod was unschedulable.
    events = [event for event in events if event != "UpdatePodScaleUp"] or ["Update"]
    resource = "AssignedPod" if node_name else "UnschedulablePod"
    found = pod_events(old, new, PodEvents(target_pods=False))
    assert [event.label for event in found] == [resource + e for e in events]


@pytest.mark.parametrize(("emulated", "expected"), [(False, []), (True, [PREEMPTION_POLICY])])
def test_a_changed_preemption_policy_of_a_node_is_an_event_since_1_37(emulated, expected) -> None:
    old = make_node("n0")
    policy = PodPreemptionPolicy(disable_resize_preemption=("someone",))
    new = structs.replace(old, spec=structs.replace(old.spec, pod_preemption_policy=policy))
    found = node_events(old, new, preemption_policy=emulated)
    assert [event.label for event in found] == expected
    assert not node_events(new, new, preemption_policy=emulated)


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

    of = partial(pod_events, events_of=PodEvents())
    asked, done = resizing("1", "2"), resizing("1", "1")
    assert [e.label for e in of(resizing("2", "2"), asked)] == ["UnschedulablePodUpdate"]
    assert [e.label for e in of(asked, done)] == ["UnschedulablePodUpdatePodScaleDown"]


def test_as_assigned_changes_the_node_only(kit) -> None:
    pod = kit.make_pod(cpu="1", labels={"a": "b"}).pod
    placed = as_assigned(pod, "n0")
    assert (pod.spec.node_name, placed.spec.node_name) == ("", "n0")
    assert placed.metadata is pod.metadata
    assert placed.spec.containers == pod.spec.containers
