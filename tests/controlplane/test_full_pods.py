"""Pods as large as an apiserver stores them, each full of one thing, affect no other pod."""

from __future__ import annotations

import random
import time

from envtest import assertions, objects
from envtest.control_plane import ADMIN_TOKEN, ControlPlane
from envtest.schedulers import ELECTION, LEASE, RunScheduler, configuration, profile
from envtest.waiting import eventually
from hostile.full_pods import FULL_PODS, accepted

SCHEDULER = "spread-out"
PODS = objects.PODS.format("default")
SCALE = 0.4
"""Of the largest pod: the apiserver adds managedFields, and etcd takes 1.5 MB with them."""
EACH = 2
MAX_WAIT_SECONDS = 5.0
"""What apiserver and etcd need on a busy machine while they store megabytes."""


def test_other_pods_are_bound_and_the_lease_is_kept_next_to_full_pods(
    new_control_plane: ControlPlane, run_scheduler: RunScheduler
) -> None:
    plane, client = new_control_plane, new_control_plane.client
    client.create_all(objects.NODES, [objects.node(index) for index in range(20)])
    scheduler = run_scheduler(configuration([profile(SCHEDULER)], plane.kubeconfig, ELECTION))
    eventually(20, "a leader", lambda: scheduler.is_leader(ADMIN_TOKEN))
    client.create_all(objects.PODS, [objects.pod("warm", SCHEDULER)])
    assertions.wait_until_bound(client, 1, 30)
    led_before = client.get(LEASE)["spec"]
    rng, waits = random.Random(1), {}

    for number, make in enumerate(FULL_PODS * EACH):
        client.create(PODS, accepted(make(rng, SCALE), objects.pod(f"full-{number}", SCHEDULER)))
        created, name = time.monotonic(), f"plain-{number}"
        client.create(PODS, objects.pod(name, SCHEDULER))
        eventually(
            10,
            f"{name} bound",
            lambda name=name: client.get(f"{PODS}/{name}")["spec"].get("nodeName"),
            every=0.01,
        )
        waits[f"{make.__name__} {number}"] = time.monotonic() - created

    print({name: round(seconds, 3) for name, seconds in waits.items()})
    assert max(waits.values()) < MAX_WAIT_SECONDS
    led_after = client.get(LEASE)["spec"]
    assert led_after["holderIdentity"] == led_before["holderIdentity"]
    assert led_after["leaseTransitions"] == led_before["leaseTransitions"]
    assert "Traceback" not in scheduler.log.read_text()
    scheduler.finish()
