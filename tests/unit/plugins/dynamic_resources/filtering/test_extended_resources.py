"""Extended resources that are backed by devices (KEP-5004)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from proreus.framework.status import Code
from proreus.objects.codec import decoder_for
from proreus.objects.devices import DEVICE_CLASSES, DeviceClass
from proreus.objects.pod import Pod
from proreus.objects.resource_claims import RESOURCE_CLAIMS
from proreus.plugins.dynamic_resources.filtering.extended_resources import requests_for
from proreus.plugins.extended_resources import ExtendedResourceClasses
from proreus.testing import make_pod

GPU = "example.com/gpu"


def device_class(name: str, resource: str | None = None, created: int = 0) -> DeviceClass:
    return decoder_for(DeviceClass).convert(
        {
            "metadata": {
                "name": name,
                "creationTimestamp": datetime.fromtimestamp(created, UTC).isoformat(),
            },
            "spec": {"extendedResourceName": resource},
        }
    )


def test_the_newest_class_backs_a_resource_then_the_first_by_name() -> None:
    classes = ExtendedResourceClasses()
    for cls in (device_class("b", GPU, 5), device_class("ab", GPU, 5), device_class("z", GPU, 1)):
        classes.put(None, cls)
    assert classes.get(GPU).metadata.name == "ab"  # type: ignore[union-attr]
    classes.put(device_class("ab", GPU, 5), None)
    assert classes.get(GPU).metadata.name == "b"  # type: ignore[union-attr]
    assert classes.get("deviceclass.resource.kubernetes.io/z") is not None
    assert classes.dra_backed({GPU: 1, "deviceclass.resource.kubernetes.io/z": 0, "cpu": 3}) == (
        GPU,
    )


def test_requests_and_mappings_of_containers() -> None:
    def container(name: str, **requests: Any) -> dict[str, Any]:
        named = {{"gpu": GPU}.get(key, key): value for key, value in requests.items()}
        return {"name": name, "resources": {"requests": named}}

    pod = decoder_for(Pod).convert(
        {
            "spec": {
                "initContainers": [container("i0", gpu=3)],
                "containers": [container("c1", cpu=1, gpu=1), container("c2", gpu=1, memory=1)],
            }
        }
    )
    requests, mappings = requests_for(pod, [GPU], lambda _: device_class("gpu"))
    assert [(r.name, r.exactly.count) for r in requests if r.exactly] == [
        ("container-0-request-0", 1),
        ("container-1-request-1", 1),
        ("container-2-request-0", 1),
    ]
    assert [(m.container_name, m.request_name) for m in mappings] == [
        ("c1", "container-1-request-1"),
        ("c2", "container-2-request-0"),
        ("i0", "container-1-request-1"),
        ("i0", "container-2-request-0"),
        ("i0", "container-0-request-0"),
    ]


@pytest.fixture
def mixed(cluster: Any) -> Any:
    """Return n1 with the resource itself, n2 with devices, n3 with neither."""
    devices = cluster("n1", "n2", "n3", resources={"n1": {GPU: 2}})
    devices.device_class("gpu", extendedResourceName=GPU)
    devices.slice("d0", "d1", node="n2")
    return devices


def gpu_pod(amount: int = 1, name: str = "pod", **more: int) -> Any:
    return make_pod(name, resources={GPU: amount, **more})


def test_devices_are_allocated_where_the_node_has_none(mixed: Any) -> None:
    assert mixed.plugin.sign(gpu_pod()) is None
    assert mixed.filter(gpu_pod()) == {"n3": "cannot allocate all claims"}
    assert mixed.filter(gpu_pod(3)) == {
        "n2": "cannot allocate all claims",
        "n3": "cannot allocate all claims",
    }


def test_a_resource_that_no_class_backs_must_be_on_the_node(mixed: Any) -> None:
    pod = make_pod(resources={GPU: 1, "example.com/fpga": 1})
    assert mixed.filter(pod)["n2"] == "cannot fit resource"


async def test_the_claim_is_created_and_named_in_the_pods_status(mixed: Any) -> None:
    pod = gpu_pod()
    mixed.handle.add({"kind": "Pod", "metadata": {"name": "pod", "namespace": "default"}})
    assert await mixed.bind(pod, "n2") is None
    (claim,) = mixed.handle.store(RESOURCE_CLAIMS).values()
    assert claim.metadata.name.startswith("pod-extended-resources-")
    assert claim.metadata.owner_references[0].uid == pod.uid
    assert claim.status.allocation.devices.results[0].device == "d0"
    assert claim.status.reserved_for[0].uid == pod.uid
    live = mixed.api._stores["Pod"]["default/pod"].status.extended_resource_claim_status
    assert live.resource_claim_name == claim.metadata.name
    (mapping,) = live.request_mappings
    assert (mapping.container_name, mapping.resource_name) == ("main", GPU)
    assert not mixed.plugin.manager.allocated.in_flight


async def test_no_claim_is_created_where_the_node_has_the_resource(mixed: Any) -> None:
    assert await mixed.bind(gpu_pod(), "n1") is None
    assert not mixed.handle.store(RESOURCE_CLAIMS)


async def test_a_claim_of_an_earlier_attempt_is_deleted_first(mixed: Any) -> None:
    pod = gpu_pod()
    mixed.claim(
        "left",
        metadata={
            "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
            "ownerReferences": [{"kind": "Pod", "uid": pod.uid, "controller": True}],
        },
    )
    assert set(mixed.filter(pod).values()) == {"cannot schedule extended resource claim"}
    assert (await mixed.post_filter(pod)).message == "deletion of ResourceClaim completed"
    assert not mixed.handle.store(RESOURCE_CLAIMS)
    assert mixed.filter(pod) == {"n3": "cannot allocate all claims"}


async def test_unreserve_deletes_the_claim(mixed: Any) -> None:
    pod = gpu_pod()
    mixed.handle.add({"kind": "Pod", "metadata": {"name": "pod", "namespace": "default"}})
    assert await mixed.bind(pod, "n2") is None
    mixed.plugin.unreserve(mixed.state, pod, "n2")
    await mixed.settle()
    assert not mixed.handle.store(RESOURCE_CLAIMS)
    assert mixed.filter(gpu_pod(2)) == {"n3": "cannot allocate all claims"}


def test_with_the_gate_off_no_devices_are_allocated(cluster: Any) -> None:
    old = cluster("n1", gates=["DRAExtendedResource=false"])
    old.device_class("gpu", extendedResourceName=GPU)
    status = old.pre_filter(gpu_pod())
    assert status.code == Code.SKIP
    assert len(old.handle.store(DEVICE_CLASSES)) == 1
