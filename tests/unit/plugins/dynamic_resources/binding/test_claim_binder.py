"""Writes of claims in PreBind, and what Unreserve and PostFilter undo."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from proreus.framework.status import Code
from proreus.plugins.dynamic_resources.hints import CLAIM_RESTORED


async def test_allocation_and_reservation_are_written_once(gpus: Any) -> None:
    gpus.claim()
    pod = gpus.pod("claim")
    assert gpus.plugin.pre_bind_pre_flight(gpus.state, pod, "n1").code == Code.SKIP
    assert await gpus.bind(pod) is None
    assert gpus.plugin.pre_bind_pre_flight(gpus.state, pod, "n1") is None
    claim = gpus.claim_now()
    assert claim.metadata.finalizers == ("resource.kubernetes.io/delete-protection",)
    (consumer,) = claim.status.reserved_for
    assert (consumer.resource, consumer.name, consumer.uid) == ("pods", "pod", pod.uid)
    (result,) = claim.status.allocation.devices.results
    assert (result.request, result.pool, result.device) == ("r", "n1", "gpu-0")
    (term,) = claim.status.allocation.node_selector.node_selector_terms
    assert term.match_fields[0].values == ("n1",)
    assert claim.status.allocation.allocation_timestamp is not None
    assert [subresource for _, subresource, _ in gpus.api.patches] == ["", "status"]
    assert not gpus.plugin.manager.allocated.in_flight


async def test_opaque_configuration_is_not_changed(gpus: Any) -> None:
    opaque = {"opaque": {"driver": "gpu.example.com", "parameters": {"mode": "fast"}}}
    gpus.claim(config=[opaque])
    pod = gpus.pod("claim")
    added: list[str] = []
    original = gpus.api.add_finalizer

    async def note(*arguments: Any) -> None:
        added.append(arguments[-1])
        await original(*arguments)

    gpus.api.add_finalizer = note
    assert await gpus.bind(pod) is None
    assert added == ["resource.kubernetes.io/delete-protection"]
    assert gpus.claim_now().metadata.finalizers == tuple(added)
    (config,) = gpus.claim_now().status.allocation.devices.config
    assert bytes(config.opaque.parameters) == b'{"mode":"fast"}'


async def test_a_shared_claim_is_only_reserved(gpus: Any) -> None:
    gpus.claim(status=gpus.allocated("gpu-0"))
    pod = gpus.pod("claim")
    assert await gpus.bind(pod) is None
    assert [c.name for c in gpus.claim_now().status.reserved_for] == ["other", "pod"]
    gpus.api.patches.clear()
    assert await gpus.bind(pod) is None
    assert not gpus.api.patches


async def test_a_conflict_is_tried_again_with_the_live_claim(gpus: Any) -> None:
    gpus.claim()
    pod = gpus.pod("claim")
    assert gpus.reserve(pod) is None
    touch = {"metadata": {"labels": {"touched": "yes"}}}
    gpus.api.before_patch = lambda: gpus.api.merge("ResourceClaim", "default/claim", touch)
    assert await gpus.plugin.pre_bind(gpus.state, pod, "n1") is None
    claim = gpus.claim_now()
    assert claim.metadata.labels == {"touched": "yes"}
    assert claim.status.allocation is not None


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"status": {"allocation": {"devices": {"results": [{"device": "x"}]}}}},
         "claim default/claim got allocated elsewhere in the meantime"),
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
         "claim default/claim got deleted in the meantime"),
    ],
)  # fmt: skip
async def test_a_change_of_the_claim_in_between_fails_the_binding(
    gpus: Any, change: Any, text: str
) -> None:
    gpus.claim()
    pod = gpus.pod("claim")
    assert gpus.reserve(pod) is None
    gpus.api.merge("ResourceClaim", "default/claim", change)
    status = await gpus.plugin.pre_bind(gpus.state, pod, "n1")
    assert (status.code, status.message) == (Code.ERROR, text)


async def test_a_reserved_claim_that_lost_its_allocation(gpus: Any) -> None:
    gpus.claim(status=gpus.allocated("gpu-0"))
    pod = gpus.pod("claim")
    assert gpus.reserve(pod) is None
    gpus.api.merge("ResourceClaim", "default/claim", {"status": {"allocation": None}})
    status = await gpus.plugin.pre_bind(gpus.state, pod, "n1")
    assert status.message == "claim default/claim got deallocated elsewhere in the meantime"


def test_unreserve_releases_devices_in_flight(gpus: Any) -> None:
    gpus.claim("all", gpus.request(count=2))
    gpus.claim("one")
    pod, other = gpus.pod("all"), gpus.pod("one", name="other")
    assert gpus.reserve(pod) is None
    state = gpus.state
    assert gpus.filter(other) == {"n1": "cannot allocate all claims"}
    gpus.plugin.unreserve(state, pod, "n1")
    assert gpus.filter(other) == {}


async def test_unreserve_removes_the_reservation_of_the_pod(gpus: Any) -> None:
    gpus.claim()
    pod = gpus.pod("claim")
    assert await gpus.bind(pod) is None
    gpus.plugin.unreserve(gpus.state, pod, "n1")
    await gpus.settle()
    claim = gpus.claim_now()
    assert not claim.status.reserved_for
    assert claim.status.allocation is not None
    assert gpus.filter(pod) == {"n2": "resourceclaim not available on the node"}


async def test_devices_of_a_written_allocation_are_not_free_while_the_watch_is_behind(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices = cluster("n1")
    devices.device_class()
    devices.slice(devices.device("d"))
    devices.claim("x")
    devices.claim("y")
    pod, other = devices.pod("x"), devices.pod("y", name="other")
    claims, api = devices.plugin.manager.claims, devices.handle.api
    monkeypatch.setattr(claims, "_watched", dict(claims._watched))
    monkeypatch.setitem(api._handlers, "ResourceClaim", [])
    assert await devices.bind(pod) is None
    state = devices.state
    assert devices.filter(other) == {"n1": "cannot allocate all claims"}

    # The binding failed: the claim stays allocated, for the next attempt of its pod.
    devices.plugin.unreserve(state, pod, "n1")

    assert devices.filter(other) == {"n1": "cannot allocate all claims"}


async def test_two_profiles_share_allocations_in_flight(gpus: Any) -> None:
    other = type(gpus.plugin)(gpus.plugin.args, gpus.handle)
    assert other.manager is gpus.plugin.manager


# ---- binding conditions ------------------------------------------------------------------------


@pytest.fixture
def slow(cluster: Any) -> Any:
    """Return a node whose device has binding conditions."""
    return with_slow_device(cluster("n1", args={"bindingTimeout": "60s"}))


@pytest.fixture
def slow_in_1_37(cluster: Any) -> Any:
    return with_slow_device(
        cluster("n1", args={"bindingTimeout": "60s"}, kubernetes_version="1.37")
    )


def with_slow_device(devices: Any) -> Any:
    devices.device_class()
    fields = {"bindingConditions": ["Ready"], "bindingFailureConditions": ["Broken"]}
    devices.slice(devices.device("d", **fields))
    devices.claim("x")
    return devices


def reported(condition: str, **more: str) -> dict[str, Any]:
    conditions = [{"type": condition, "status": "True", **more}]
    device = {"driver": "gpu.example.com", "pool": "n1", "device": "d", "conditions": conditions}
    return {"status": {"devices": [device]}}


async def begin(slow: Any, monkeypatch: pytest.MonkeyPatch) -> asyncio.Task[Any]:
    """Run until PreBind waits; the virtual clock skips the five seconds of each poll."""

    async def pass_time(seconds: float) -> None:
        slow.handle.clock.advance(seconds)
        await original(0)

    original = asyncio.sleep
    assert slow.reserve(slow.pod("x")) is None
    monkeypatch.setattr(asyncio, "sleep", pass_time)
    task = asyncio.ensure_future(slow.plugin.pre_bind(slow.state, slow.pod("x"), "n1"))
    while not slow.handle.event_recorder.events:
        await original(0)
    return task


async def test_pre_bind_waits_until_devices_are_ready(
    slow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = await begin(slow, monkeypatch)
    assert slow.handle.event_recorder.events == [
        (
            "default/pod",
            "BindingConditionsPending",
            "waiting for binding conditions for device on node n1",
        )
    ]
    slow.api.merge("ResourceClaim", "default/x", reported("Ready"))
    assert await task is None


async def test_a_device_that_fails_ends_the_wait(
    slow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = await begin(slow, monkeypatch)
    broken = reported("Broken", reason="Fire", message="it burns")
    slow.api.merge("ResourceClaim", "default/x", broken)
    status = await task
    assert (status.code, status.message) == (
        Code.ERROR,
        'device binding failed: claim=x, reason=Fire, message="it burns"',
    )


async def test_after_the_timeout_the_claim_is_deallocated(
    slow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = await (await begin(slow, monkeypatch))
    assert (status.code, status.message) == (
        Code.ERROR,
        "device binding timeout: context deadline exceeded",
    )
    # The next attempt comes later than this, for allocations have their time in whole seconds.
    slow.handle.clock.advance(1)
    pod = slow.pod("x")
    assert slow.filter(pod) == {"n1": "resourceclaim not available on the node"}
    assert (await slow.post_filter(pod)).message == "deallocation of ResourceClaim completed"
    assert slow.filter(pod) == {}


@pytest.mark.parametrize("gone", [False, True])
async def test_a_pod_that_waits_holds_its_devices(
    slow_in_1_37: Any, monkeypatch: pytest.MonkeyPatch, gone: bool
) -> None:
    """Even if its claim is deleted meanwhile; a failure releases them then."""
    slow = slow_in_1_37
    task = await begin(slow, monkeypatch)
    if gone:
        slow.api.remove("ResourceClaim", "default/x")
    slow.claim("y")
    state, other = slow.state, slow.pod("y", name="other")
    assert slow.filter(other) == {"n1": "cannot allocate all claims"}
    assert (await task).code == Code.ERROR
    slow.plugin.unreserve(state, slow.pod("x"), "n1")
    assert slow.filter(other) == ({} if gone else {"n1": "cannot allocate all claims"})


@pytest.mark.parametrize("changed", [False, True])
async def test_a_failed_binding_wakes_others_unless_the_claim_was_changed_by_somebody_else(
    slow_in_1_37: Any, monkeypatch: pytest.MonkeyPatch, changed: bool
) -> None:
    """A reservation for another pod is our own change: it wakes them, too."""
    slow = slow_in_1_37
    task = await begin(slow, monkeypatch)
    state = slow.state
    sharer = slow.pod("x", name="sharer")
    assert slow.reserve(sharer) is None
    other = asyncio.ensure_future(slow.plugin.pre_bind(slow.state, sharer, "n1"))
    await asyncio.sleep(0)
    if changed:
        slow.api.merge("ResourceClaim", "default/x", reported("Broken"))
    await asyncio.gather(task, other)
    slow.plugin.unreserve(state, slow.pod("x"), "n1")
    assert ([event for event, *_ in slow.handle.announced] == [CLAIM_RESTORED]) is not changed


async def test_since_1_38_a_failed_binding_wakes_nobody_as_its_devices_stay_in_use(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = with_slow_device(
        cluster("n1", args={"bindingTimeout": "12s"}, kubernetes_version="1.38")
    )
    task = await begin(slow, monkeypatch)
    state = slow.state
    await task
    slow.plugin.unreserve(state, slow.pod("x"), "n1")
    assert not slow.handle.announced
    slow.claim("y")
    assert slow.filter(slow.pod("y")) == {"n1": "cannot allocate all claims"}


async def test_a_pod_that_came_to_share_a_claim_ends_the_wait_for_it(
    slow_in_1_37: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = slow_in_1_37
    task = await begin(slow, monkeypatch)
    sharer = slow.pod("x", name="sharer")
    assert slow.reserve(sharer) is None
    slow.plugin.unreserve(slow.state, sharer, "n1")
    slow.api.merge("ResourceClaim", "default/x", {"status": {"allocation": None}})
    assert slow.filter(sharer) == {}
    await task


def test_with_the_gate_off_such_devices_are_not_allocated(cluster: Any) -> None:
    old = cluster("n1", gates=["DRADeviceBindingConditions=false"])
    old.device_class()
    old.slice(old.device("d", bindingConditions=["Ready"]))
    old.claim("x")
    assert old.filter(old.pod("x")) == {"n1": "cannot allocate all claims"}
