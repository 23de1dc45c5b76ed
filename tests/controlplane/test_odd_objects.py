"""Valid objects that are hard to decode must not affect the scheduling of other pods."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from envtest import assertions, objects
from envtest.control_plane import ADMIN_TOKEN, ControlPlane
from envtest.schedulers import RunScheduler, configuration, profile

Json = dict[str, Any]

SCHEDULER = "spread-out"
PODS = objects.PODS.format("default")
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
DRIVER = "gpu.example.com"
POD_DEPTH = 1_100
DEEP_PARAMETERS = b'{"a":' + b"[" * 2_500 + b"]" * 2_500 + b"}"


def nested(depth: int) -> str:
    return '{"f:a":' * depth + "{}" + "}" * depth


def pod_with_deep_managed_fields() -> bytes:
    """Return a pod of about 10 KB, of which no scheduler reads more than a few hundred bytes."""
    pod = objects.pod("deep-fields", SCHEDULER)
    pod["metadata"]["managedFields"] = [
        {
            "manager": "somebody",
            "operation": "Update",
            "apiVersion": "v1",
            "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": "FIELDS",
        }
    ]
    return json.dumps(pod).replace('"FIELDS"', nested(POD_DEPTH)).encode()


def claim(name: str, parameters: bytes) -> bytes:
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {
            "devices": {
                "requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}],
                "config": [{"opaque": {"driver": DRIVER, "parameters": "PARAMETERS"}}],
            }
        },
    }
    return json.dumps(body).encode().replace(b'"PARAMETERS"', parameters)


def pod_with_claim(name: str, claim_name: str) -> Json:
    spec = {"resourceClaims": [{"name": "c", "resourceClaimName": claim_name}]}
    pod = objects.pod(name, SCHEDULER, spec=spec)
    pod["spec"]["containers"][0]["resources"]["claims"] = [{"name": "c"}]
    return pod


def create_odd_objects(plane: ControlPlane, suffix: str = "") -> None:
    client = plane.client
    client.create_bytes(CLAIMS, claim(f"deep{suffix}", DEEP_PARAMETERS))
    client.create_bytes(CLAIMS, claim(f"byte{suffix}", b'{"a":"\xff"}'))
    client.create_bytes(CLAIMS, claim(f"half{suffix}", rb'{"a":"\ud800"}'))
    client.create_bytes(
        PODS,
        pod_with_deep_managed_fields().replace(b"deep-fields", b"deep-fields" + suffix.encode()),
    )
    for name in ("deep", "byte", "half"):
        client.create(PODS, pod_with_claim(f"with-{name}{suffix}", name + suffix))


@pytest.fixture(autouse=True)
def raised_recursion_limit() -> Iterator[None]:
    """Raise the recursion limit: this test lists deeply nested pods with Python's JSON parser."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    yield
    sys.setrecursionlimit(before)


def test_odd_objects_are_scheduled_and_do_not_affect_others(
    new_control_plane: ControlPlane, run_scheduler: RunScheduler
) -> None:
    """Some exist before the scheduler starts (list), some are created later (watch)."""
    plane, client = new_control_plane, new_control_plane.client
    client.create_all(objects.NODES, [objects.node(index) for index in range(3)])
    client.create(CLASSES, {"metadata": {"name": "gpu"}, "spec": {}})
    client.create(
        SLICES,
        {
            "metadata": {"name": "gpus"},
            "spec": {
                "driver": DRIVER,
                "pool": {"name": "gpus", "generation": 1, "resourceSliceCount": 1},
                "allNodes": True,
                "devices": [{"name": f"gpu-{index}"} for index in range(6)],
            },
        },
    )
    create_odd_objects(plane)

    scheduler = run_scheduler(configuration([profile(SCHEDULER)], plane.kubeconfig))
    client.create_all(objects.PODS, [objects.pod(f"early-{i}", SCHEDULER) for i in range(10)])
    assertions.wait_until_bound(client, 10 + 4, 60)
    create_odd_objects(plane, "-2")
    client.create_all(objects.PODS, [objects.pod(f"late-{i}", SCHEDULER) for i in range(10)])
    assertions.wait_until_bound(client, 2 * (10 + 4), 60)

    for name in ("deep", "deep-2"):
        found = client.request("GET", f"{CLAIMS}/{name}").data
        assert found.count(DEEP_PARAMETERS) == 2, "the claim's, and its copy in the allocation"

    for name in ("deep-fields", "deep-fields-2"):
        client.delete(f"{PODS}/{name}", gracePeriodSeconds="0")
    client.create_all(objects.PODS, [objects.pod("last", SCHEDULER)])
    assertions.wait_until_bound(client, 2 * (10 + 4) - 2 + 1, 60)
    left_out = scheduler.metrics(ADMIN_TOKEN).get("proreus_objects_unreadable")
    assert left_out is None or not left_out.samples
    scheduler.finish()
