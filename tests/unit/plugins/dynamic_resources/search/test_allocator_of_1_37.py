"""What the allocator of Kubernetes 1.37 says and refuses otherwise than that of 1.36."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace

from proreus.plugins.dynamic_resources.features import Features

NO = "cannot allocate all claims"
ADVICE = (
    ". consider using CEL optional chaining (.? followed by orValue()) or guarding the check with "
    "has() for optional fields"
)


@pytest.fixture
def one(cluster: Any) -> Any:
    found = cluster("n1", kubernetes_version="1.37")
    found.device_class()
    return found


@pytest.mark.parametrize("all_devices", [False, True])
def test_a_selector_that_fails_names_the_device(one: Any, all_devices: bool) -> None:
    one.slice(one.device("a", size=2), one.device("b"), one.device("c", size=2))
    cel = 'device.attributes["gpu.example.com"].size > 2'
    one.claim("x", one.request(cel=cel, all_devices=all_devices))
    assert one.filter(one.pod("x")) == {
        "n1": "!claim default/x: selector #0 on device gpu.example.com/n1/b: CEL runtime error: "
        f"no such key: size{ADVICE}"
    }


def test_a_selector_of_a_class_that_fails_names_the_device(one: Any) -> None:
    one.device_class("sized", 'device.attributes["gpu.example.com"].size > 2')
    one.slice("a")
    one.claim("x", one.request(cls="sized"))
    assert one.filter(one.pod("x"))["n1"] == (
        "!class sized: selector #0 on device gpu.example.com/n1/a: CEL runtime error: no such key: "
        f"size{ADVICE}"
    )


def test_a_selector_that_does_not_compile_names_no_device(one: Any) -> None:
    one.slice("a")
    one.claim("x", one.request(cel="device.driver == 1"))
    text = one.filter(one.pod("x"))["n1"]
    assert text.startswith("!claim default/x: selector #0: CEL compile error: ")
    assert ADVICE not in text


def test_too_many_devices_are_noticed_at_their_request(one: Any) -> None:
    one.slice(*(f"d{n}" for n in range(40)))
    one.claim("x", one.request("a", count=20), one.request("b", count=13))
    assert one.filter(one.pod("x")) == {
        "n1": "!claim default/x, request b: adding 13 devices exceeds the claim limit of 32, with "
        "20 already accounted for"
    }


def shared(one: Any, name: str, value: str) -> dict[str, Any]:
    memory = {"value": value, "requestPolicy": {"validRange": {"min": "1", "step": "5E"}}}
    found: dict[str, Any] = one.device(name, capacity={"memory": memory})
    return found | {"allowMultipleAllocations": True}


@pytest.mark.parametrize(("all_devices", "device"), [(False, "gpu.example.com/n1/b"), (True, "b")])
def test_an_amount_that_cannot_be_represented_names_the_device(
    one: Any, all_devices: bool, device: str
) -> None:
    plain = one.device("a", capacity={"memory": {"value": "8E"}})
    one.slice(plain | {"nodeName": "n2"}, shared(one, "b", "8E") | {"nodeName": "n1"},
              node="", name="s", pool="n1", perDeviceNodeSelection=True)  # fmt: skip
    memory = {"requests": {"memory": "7E"}}
    one.claim("x", one.request(all_devices=all_devices, capacity=memory))
    assert one.filter(one.pod("x"))["n1"] == (
        f'!claim default/x, request r: checking capacity for device {device}: capacity "memory": '
        "capacity request cannot be represented in the device's range arithmetic: rounding request "
        "7E up to the next step passes MaxInt64"
    )


def test_derived_attributes_are_refused(one: Any) -> None:
    one.slice("a")
    derived = [{"name": "example.com/x", "expression": "1"}]
    one.claim("x", one.request(derivedAttributes=derived))
    assert one.filter(one.pod("x"))["n1"] == (
        "!claim default/x, request r: cannot handle request with derived attributes, the feature "
        "is disabled"
    )


@pytest.mark.parametrize("version", ["1.36", "1.37"])
def test_a_slice_with_compatibility_groups_makes_its_pool_incomplete(
    cluster: Any, version: str
) -> None:
    one = cluster("n1", kubernetes_version=version)
    one.device_class()
    consumed = {"counterSet": "c", "counters": {"x": {"value": "1"}}}
    grouped = {"name": "g", "consumesCounters": [{**consumed, "compatibilityGroups": ["a"]}]}
    counters = [{"name": "c", "counters": {"x": {"value": "2"}}}]
    one.slice(name="counters", pool="p", count=3, sharedCounters=counters)
    one.slice(grouped, name="grouped", pool="p", count=3)
    one.slice("plain", name="plain", pool="p", count=3)
    one.claim("x")
    one.claim("all", one.request(all_devices=True))
    assert one.filter(one.pod("x")) == ({} if version == "1.36" else {"n1": NO})
    if version == "1.37":
        text = one.filter(one.pod("all"))["n1"]
        assert text.endswith("resource pool gpu.example.com/p is currently being updated")


# ---- compatibility groups ------------------------------------------------------------------------


def grouped(name: str, *groups: str) -> dict[str, Any]:
    consumed = {"counterSet": "c", "counters": {"x": {"value": "1"}}}
    return {"name": name, "consumesCounters": [{**consumed, "compatibilityGroups": list(groups)}]}


@pytest.fixture
def grouping(cluster: Any) -> Any:
    one = cluster(
        "n1", "n2", kubernetes_version="1.37", gates=["DRADeviceCompatibilityGroups=true"]
    )
    one.device_class()
    counters = [{"name": "c", "counters": {"x": {"value": "9"}}}]
    one.slice(name="counters", pool="p", count=2, sharedCounters=counters)
    one.slice(
        grouped("ab", "a", "b"), grouped("bc", "b", "c"), grouped("a", "a"), grouped("none"),
        grouped("none2"), name="devices", pool="p", count=2,
    )  # fmt: skip
    return one


async def test_devices_of_a_counter_set_have_a_group_in_common(grouping: Any) -> None:
    grouping.claim("x", grouping.request(count=2))
    assert await grouping.devices_given(grouping.pod("x")) == ["r=ab", "r=bc"]
    # b is the only group left: neither a nor a device without groups goes with the two.
    grouping.claim("y")
    assert grouping.filter(grouping.pod("y", name="q"))["n1"] == NO


def test_three_devices_without_a_common_group(grouping: Any) -> None:
    grouping.claim("x", grouping.request(count=3))
    assert grouping.filter(grouping.pod("x"))["n1"] == NO


async def test_devices_without_groups_go_together(grouping: Any) -> None:
    grouping.api.add(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": "had", "namespace": "default", "uid": "had"},
            "spec": {"devices": {"requests": [grouping.request()]}},
            "status": {
                "allocation": {
                    "devices": {
                        "results": [
                            {
                                "request": "r",
                                "driver": "gpu.example.com",
                                "pool": "p",
                                "device": "none2",
                            }
                        ]
                    }
                }
            },
        }
    )
    grouping.claim("x")
    assert await grouping.devices_given(grouping.pod("x")) == ["r=none"]
    grouping.claim("y")
    assert grouping.filter(grouping.pod("y", name="q"))["n1"] == NO


async def test_without_enforcement_in_1_36_groups_mean_nothing(cluster: Any) -> None:
    one = cluster("n1")
    one.device_class()
    counters = [{"name": "c", "counters": {"x": {"value": "9"}}}]
    one.slice(name="counters", pool="p", count=2, sharedCounters=counters)
    one.slice(grouped("a", "a"), grouped("b", "b"), name="devices", pool="p", count=2)
    one.claim("x", one.request(count=2))
    assert await one.devices_given(one.pod("x")) == ["r=a", "r=b"]


# ---- optional node operations --------------------------------------------------------------------


def declare(one: Any, *features: str) -> None:
    """Let n2 declare features."""
    info = one.handle.nodes[1]
    status = structs.replace(info.node.status, declared_features=features)
    info.set_node(structs.replace(info.node, status=status))
    one.handle.nodes.update_node(info)


def skipping_cluster(cluster: Any, *gates: str, version: str = "1.37") -> Any:
    """Two nodes that reach a device; only the kubelet of n2 can leave out operations."""
    one = cluster("n1", "n2", kubernetes_version=version, gates=gates)
    declare(one, "DRAOptionalNodeOperations")
    one.device_class()
    one.slice("a", node="", name="s", pool="p", allNodes=True, skipNodeOperations=["*"])
    one.claim("x")
    return one


OPTIONAL = "DRAOptionalNodeOperations=true"


async def test_a_device_without_node_operations_needs_a_kubelet_that_leaves_them_out(
    cluster: Any,
) -> None:
    one = skipping_cluster(cluster, OPTIONAL)
    pod = one.pod("x")
    assert one.filter(pod) == {"n1": NO}
    assert await one.devices_given(pod, "n2") == ["r=a"]
    (result,) = one.claim_now("x").status.allocation.devices.results
    assert result.skip_node_operations == ("*",)
    # The claim can be used there only, too.
    assert one.filter(one.pod("x", name="q")) == {"n1": "resourceclaim not available on the node"}


def test_availability_follows_the_declared_features(cluster: Any) -> None:
    one = skipping_cluster(cluster, OPTIONAL)
    assert one.filter(one.pod("x")) == {"n1": NO}
    declare(one)
    assert one.filter(one.pod("x")) == {"n1": NO, "n2": NO}


def test_without_the_gate_the_allocator_of_other_new_gates_does_not_give_such_devices(
    cluster: Any,
) -> None:
    one = skipping_cluster(cluster, "DRAListTypeAttributes=true")
    assert one.filter(one.pod("x")) == {"n1": NO, "n2": NO}
    one = skipping_cluster(cluster, "DRAListTypeAttributes=true", version="1.36")
    assert one.filter(one.pod("x")) == {}


def test_the_stable_allocator_is_chosen_if_it_supports_all_features() -> None:
    few = Features(consumable_capacity=False, binding_conditions=False)
    assert few.stable_allocator
    assert not replace(few, list_attributes=True).stable_allocator
    assert not replace(few, consumable_capacity=True).stable_allocator


@pytest.mark.parametrize("version", ["1.36", "1.37"])
async def test_without_the_gate_all_operations_are_made(cluster: Any, version: str) -> None:
    one = skipping_cluster(cluster, version=version)
    pod = one.pod("x")
    assert one.filter(pod) == {}
    assert await one.devices_given(pod, "n1") == ["r=a"]
    (result,) = one.claim_now("x").status.allocation.devices.results
    assert result.skip_node_operations == ()
