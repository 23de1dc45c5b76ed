"""Queueing hints of DynamicResources."""

from __future__ import annotations

from typing import Any

import pytest

from proreus.framework.event_registrations import registrations_of
from proreus.framework.events import (
    ADD,
    DELETE,
    DEVICE_CLASS,
    NODE,
    POD,
    RESOURCE_CLAIM,
    RESOURCE_SLICE,
    UPDATE,
    UPDATE_NODE_ALLOCATABLE,
    UPDATE_NODE_LABEL,
    UPDATE_NODE_TAINT,
    UPDATE_POD_GENERATED_RESOURCE_CLAIM,
    QueueingHintFn,
)
from proreus.objects.kinds import PODS
from proreus.plugins.dynamic_resources.hints import CLAIM_RESTORED
from proreus.testing import make_pod


def hint_of(devices: Any, resource: str) -> QueueingHintFn:
    (event,) = [e for e in devices.plugin.events_to_register() if e.resource == resource]
    assert event.hint is not None
    return event.hint


def test_registered_events(gpus: Any) -> None:
    events = list(gpus.plugin.events_to_register())
    assert [(event.resource, event.action) for event in events] == [
        (NODE, ADD | UPDATE_NODE_LABEL | UPDATE_NODE_ALLOCATABLE),
        (RESOURCE_CLAIM, ADD | UPDATE | DELETE),
        (POD, UPDATE_POD_GENERATED_RESOURCE_CLAIM),
        (DEVICE_CLASS, ADD | UPDATE),
        (DEVICE_CLASS, DELETE),
        (RESOURCE_SLICE, ADD | UPDATE),
        (CLAIM_RESTORED.resource, UPDATE),
        (RESOURCE_SLICE, DELETE),
    ]
    registered = registrations_of("DynamicResources", events, implied_taint_event=True)
    implicit = registered[-1][1]
    assert (implicit.resource, implicit.action) == (NODE, UPDATE_NODE_TAINT)


def test_released_devices_queue_every_pod(gpus: Any) -> None:
    hint = hint_of(gpus, RESOURCE_CLAIM)
    gpus.claim()
    free = gpus.claim("stranger")
    held = gpus.changed(free, gpus.allocated("gpu-0"))
    assert hint(gpus.pod("claim"), held, free)
    assert not hint(gpus.pod("claim"), free, held)


def test_a_status_change_of_a_claim_queues_its_pod(gpus: Any) -> None:
    hint = hint_of(gpus, RESOURCE_CLAIM)
    claim = gpus.claim()
    pod = gpus.pod("claim")
    assert hint(pod, None, claim)
    assert hint(pod, claim, gpus.changed(claim, gpus.allocated("gpu-0")))
    assert not hint(pod, claim, claim)
    assert not hint(pod, None, gpus.claim("stranger"))


def test_a_pod_with_missing_claims_is_not_queued(gpus: Any) -> None:
    hint = hint_of(gpus, RESOURCE_CLAIM)
    claim = gpus.claim()
    assert not hint(gpus.pod("claim", "missing"), None, claim)


@pytest.mark.parametrize("there", [True, False])
def test_a_generated_claim_in_the_status_queues_its_pod(gpus: Any, there: bool) -> None:
    hint = hint_of(gpus, POD)
    spec = {"resourceClaims": [{"name": "x", "resourceClaimTemplateName": "t"}]}
    old = make_pod(spec=spec)
    statuses = [{"name": "x", "resourceClaimName": "made"}]
    new = make_pod(spec=spec, status={"resourceClaimStatuses": statuses})
    if there:
        owner = {"kind": "Pod", "name": "pod", "uid": old.uid, "controller": True}
        gpus.claim("made", metadata={"ownerReferences": [owner]})
    assert hint(old, old.pod, new.pod) is there
    assert not hint(make_pod("other"), old.pod, new.pod)


# ---- pre-queueing hint ---------------------------------------------------------------------------


def pre_queueing_hint(one: Any) -> Any:
    (event,) = (e for e in one.plugin.events_to_register() if e.resource == RESOURCE_CLAIM)
    return event.pre_queueing_hint


def test_the_pods_of_a_changed_claim_are_named(cluster: Any) -> None:
    one = cluster("n1", kubernetes_version="1.37", gates=["SchedulerPreQueueingHints=true"])
    template = {
        "spec": {"resourceClaims": [{"name": "r", "resourceClaimTemplateName": "t"}]},
        "status": {"resourceClaimStatuses": [{"name": "r", "resourceClaimName": "made"}]},
    }
    pods = {
        "direct": one.pod("made", name="direct"),
        "generated": make_pod("generated", **template),
        "other": one.pod("other", name="other"),
        "waiting": make_pod("waiting", spec=template["spec"]),
    }
    for pod in pods.values():
        one.api.put(PODS, pod.pod)
    for name in ("made", "other"):
        one.claim(name)
    made, named = one.claim_now("made"), pre_queueing_hint(one)
    assert named(None, made) == named(made, made) == {"default/direct", "default/generated"}
    assert named(made, None) == {"default/direct", "default/generated"}
    allocated = one.changed(made, one.allocated("d"))
    assert named(made, allocated) == {"default/direct", "default/generated"}
    assert named(allocated, allocated) == {"default/direct", "default/generated"}
    # Its devices are free for anybody.
    assert named(allocated, made) is None
    assert named(allocated, None) is None
    one.api.remove("Pod", "default/direct")
    assert named(None, made) == {"default/generated"}


def test_without_the_gate_no_pods_are_named_before_hints(cluster: Any) -> None:
    one = cluster("n1", kubernetes_version="1.37")
    assert pre_queueing_hint(one) is None


@pytest.mark.parametrize("version", ["1.36", "1.37"])
def test_an_event_has_pre_enqueue_run_for_the_pods_of_its_claim_alone(
    cluster: Any, version: str
) -> None:
    one = cluster("n1", kubernetes_version=version)
    for name in ("made", "other"):
        one.api.put(PODS, one.pod(name, name=f"pod-of-{name}").pod)
    one.claim("made")
    made = one.claim_now("made")

    ungated = {
        event.resource: set(event.ungated_pods(None, made))
        for event in one.plugin.events_to_register()
    }

    assert ungated.pop(RESOURCE_CLAIM) == {"default/pod-of-made"}
    assert ungated
    assert not any(ungated.values())
