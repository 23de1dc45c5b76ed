"""Volumes and claims are assumed, written, awaited and restored."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from proreus.base.errors import Conflict
from proreus.framework.status import Status
from proreus.objects.storage import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from proreus.plugins.volume_binding import VolumeBinding
from proreus.testing import make_node, make_plugin
from proreus.testing.volumes import (
    BIND_COMPLETED,
    make_claim,
    make_csi_node,
    make_storage_class,
    make_volume,
)

SELECTED = "volume.kubernetes.io/selected-node"
BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
IN_A = {"zone": ["a"]}

Make = Callable[..., Any]


async def turns(number: int = 5) -> None:
    """Let the other tasks run."""
    for _ in range(number):
        await asyncio.sleep(0)


def waiting(one: Any, node_name: str = "a1") -> asyncio.Task[Status | None]:
    """Reserve, and begin to bind."""
    assert one.reserve(node_name) is None
    assert one.pre_flight(node_name) is None
    return asyncio.ensure_future(one.plugin.pre_bind(one.state, one.pod, node_name))


def dynamic(attempt: Make, **more: Any) -> Any:
    return attempt([make_storage_class(), make_claim("c")], "c", **more)


def static_bindings(attempt: Make) -> Any:
    return attempt([make_storage_class(), make_volume("pv", where=IN_A), make_claim("c")], "c")


def test_bound_claims_are_skipped(attempt: Make) -> None:
    one = attempt([make_claim("c", volume="pv"), make_volume("pv")], "c")
    assert one.reserve("a1") is None
    assert one.pre_flight("a1") == Status.skip()


# ---- promises ------------------------------------------------------------------------------------


def test_an_assumed_volume_is_taken_at_once(attempt: Make) -> None:
    one = static_bindings(attempt)
    assert one.reserve("a1") is None
    volume, claim = one.volume("pv"), one.claim("c")
    ref = volume.spec.claim_ref
    assert (ref.kind, ref.api_version) == ("PersistentVolumeClaim", "v1")
    assert (ref.namespace, ref.name, ref.uid) == ("default", "c", claim.metadata.uid)
    assert ref.resource_version == claim.metadata.resource_version
    assert volume.metadata.annotations == {BY_CONTROLLER: "yes"}
    assert one.handle.store(PERSISTENT_VOLUMES)["pv"].spec.claim_ref is None
    assert list(one.plugin._storage.free_volumes("wait")) == []

    one.plugin.unreserve(one.state, one.pod, "a1")
    assert one.volume("pv").spec.claim_ref is None
    assert [v.metadata.name for v in one.plugin._storage.free_volumes("wait")] == ["pv"]


def test_a_prebound_volume_is_completed_without_the_annotation(attempt: Make) -> None:
    kept = make_volume("pv", claim="default/c", claim_uid="")
    one = attempt([make_storage_class(), kept, make_claim("c")], "c")
    assert one.reserve("a1") is None
    assert one.volume("pv").spec.claim_ref.uid == "uid-of-default/c"
    assert one.volume("pv").metadata.annotations == {}


def test_a_claim_to_provision_gets_the_selected_node(attempt: Make) -> None:
    one = dynamic(attempt)
    assert one.reserve("b1") is None
    assert one.claim("c").metadata.annotations == {SELECTED: "b1"}
    one.plugin.unreserve(one.state, one.pod, "b1")
    assert one.claim("c").metadata.annotations == {}


def test_a_claim_that_has_changed_is_an_error_and_nothing_is_assumed(attempt: Make) -> None:
    objects = [make_storage_class(), make_storage_class("static", "kubernetes.io/no-provisioner")]
    claims = [make_claim("c", class_name="static"), make_claim("d")]
    one = attempt([*objects, make_volume("pv", class_name="static"), *claims], "c", "d")
    assert one.pre_filter() is None
    one.handle.add(make_claim("d", annotations={"by": "another"}))
    status = one.plugin.reserve(one.state, one.pod, "a1")
    assert status.code == Status.error("").code
    assert one.volume("pv").spec.claim_ref is None
    assert one.claim("d").metadata.annotations == {"by": "another"}


def test_profiles_share_assumed_volumes(attempt: Make) -> None:
    one = static_bindings(attempt)
    other = make_plugin(VolumeBinding, one.handle)
    one.reserve("a1")
    assert list(other._storage.free_volumes("wait")) == []


# ---- writes and waiting --------------------------------------------------------------------------


async def test_static_binding(attempt: Make) -> None:
    one = static_bindings(attempt)
    work = waiting(one)
    await turns()
    volume = one.handle.store(PERSISTENT_VOLUMES)["pv"]
    assert volume.spec.claim_ref.uid == "uid-of-default/c"
    assert volume.metadata.annotations == {BY_CONTROLLER: "yes"}
    assert not work.done()
    one.handle.add(make_claim("c", volume="pv"))
    await turns()
    assert work.result() is None


async def test_dynamic_binding(attempt: Make) -> None:
    one = dynamic(attempt)
    work = waiting(one)
    await turns()
    claim = one.handle.store(PERSISTENT_VOLUME_CLAIMS)["default/c"]
    assert claim.metadata.annotations == {SELECTED: "a1"}
    assert not work.done()
    one.handle.add(make_volume("new", claim="default/c", where=IN_A))
    one.handle.add(make_claim("c", selected_node="a1", spec={"volumeName": "new"}))
    await turns()
    assert not work.done()
    one.handle.add(make_claim("c", selected_node="a1", volume="new"))
    await turns()
    assert work.result() is None


async def test_written_objects_stay_while_the_watch_lags(attempt: Make) -> None:
    objects = [make_storage_class(), make_storage_class("static", "kubernetes.io/no-provisioner")]
    claims = [make_claim("c", class_name="static"), make_claim("d")]
    one = attempt([*objects, make_volume("pv", class_name="static"), *claims], "c", "d")

    async def answer_only(resource: Any, namespace: str, name: str, patch: Any) -> dict[str, Any]:
        cache = one.plugin._storage.volumes if "spec" in patch else one.plugin._storage.claims
        result = msgspec.to_builtins(cache.get(f"{namespace}/{name}".strip("/")))
        result["metadata"]["resourceVersion"] = "1000"
        return result

    one.handle.api.patch = answer_only
    work = waiting(one)
    await turns()
    assert not work.done()
    work.cancel()
    one.plugin.unreserve(one.state, one.pod, "a1")
    assert one.volume("pv").spec.claim_ref is not None
    assert one.claim("d").metadata.annotations == {SELECTED: "a1"}


async def test_written_objects_stay_if_the_pod_fails_later(attempt: Make) -> None:
    one = dynamic(attempt)
    work = waiting(one)
    await turns()
    work.cancel()
    one.plugin.unreserve(one.state, one.pod, "a1")
    assert one.claim("c").metadata.annotations == {SELECTED: "a1"}
    assert one.filter()["a2"] != []


async def test_a_failed_write_is_an_error_and_the_rest_is_restored(attempt: Make) -> None:
    objects = [make_storage_class(), make_storage_class("static", "kubernetes.io/no-provisioner")]
    claims = [make_claim("c", class_name="static"), make_claim("d")]
    one = attempt([*objects, make_volume("pv", class_name="static"), *claims], "c", "d")

    async def refuse(*arguments: Any) -> dict[str, Any]:
        raise Conflict(409, "Conflict", "the object has been modified")

    one.handle.api.patch = refuse
    status = await waiting(one)
    assert status == Status.error("the object has been modified")
    one.plugin.unreserve(one.state, one.pod, "a1")
    assert one.volume("pv").spec.claim_ref is None
    assert one.claim("d").metadata.annotations == {}


async def test_patches_have_a_resource_version_as_precondition(attempt: Make) -> None:
    one = static_bindings(attempt)
    version = one.volume("pv").metadata.resource_version
    seen: list[Any] = []
    original = one.handle.api.patch

    async def note(*arguments: Any) -> Any:
        seen.append(arguments[-1])
        return await original(*arguments)

    one.handle.api.patch = note
    work = waiting(one)
    await turns()
    work.cancel()
    (patch,) = seen
    assert patch["metadata"]["resourceVersion"] == version
    assert patch["metadata"]["uid"] == one.volume("pv").metadata.uid
    assert set(patch) == {"metadata", "spec"}
    assert set(patch["spec"]) == {"claimRef"}


async def test_binding_times_out(attempt: Make) -> None:
    one = dynamic(attempt, args={"bindTimeoutSeconds": 30})
    work = waiting(one)
    await turns()
    assert not work.done()
    one.handle.clock.advance(31)
    one.handle.add(make_claim("c", selected_node="a1", annotations={"wake": "up"}))
    await turns()
    assert work.result() == Status.error("binding volumes: context deadline exceeded")


async def test_binding_is_checked_every_second_without_events(
    attempt: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = dynamic(attempt)
    monkeypatch.setattr(
        "proreus.plugins.volume_binding.assumed_volumes._POLL_INTERVAL_SECONDS", 0.001
    )
    work = waiting(one)
    await turns()
    one.handle.remove("Pod", one.pod.key)
    status = await asyncio.wait_for(work, 5)
    assert status is not None
    assert status.message == 'binding volumes: pod does not exist any more: pod "p" not found'


DEAD_ENDS = {
    "the annotation is gone": (
        [make_claim("c")],
        'provisioning failed for PVC "c"',
    ),
    "the provisioner gave up": (
        [make_claim("c", annotations={"other": "mark"})],
        'provisioning failed for PVC "c"',
    ),
    "the volume is elsewhere": (
        [
            make_volume("new", claim="default/c", where={"zone": ["b"]}),
            make_claim("c", selected_node="a1", volume="new"),
        ],
        'pv "new" node affinity doesn\'t match node "a1": no matching NodeSelectorTerms',
    ),
}


@pytest.mark.parametrize("name", DEAD_ENDS)
async def test_failures_of_provisioning(attempt: Make, name: str) -> None:
    objects, text = DEAD_ENDS[name]
    one = dynamic(attempt)
    work = waiting(one)
    await turns()
    for obj in objects:
        one.handle.add(obj)
    await turns()
    assert work.result() == Status.error(f"binding volumes: {text}")


async def test_a_claim_ref_that_is_reset(attempt: Make) -> None:
    one = static_bindings(attempt)
    work = waiting(one)
    await turns()
    one.handle.add(make_volume("pv"))
    await turns()
    assert work.result() == Status.error('binding volumes: ClaimRef got reset for pv "pv"')


async def test_objects_that_are_deleted(attempt: Make) -> None:
    one = static_bindings(attempt)
    work = waiting(one)
    await turns()
    one.handle.remove("PersistentVolume", "pv")
    await turns()
    assert "persistentvolumes" in work.result().message

    one = dynamic(attempt)
    work = waiting(one)
    await turns()
    one.handle.nodes.remove_node(one.handle.nodes[one.handle.nodes.rows["a1"]])
    one.handle.add(make_claim("c", selected_node="a1", annotations={"wake": "up"}))
    await turns()
    text = 'binding volumes: failed to get node "a1": node "a1" not found'
    assert work.result() == Status.error(text)


async def test_a_migrated_volume_is_checked_by_the_label_of_its_driver(attempt: Make) -> None:
    zone = "topology.kubernetes.io/zone"
    legacy = make_volume(
        "pv", where={zone: ["z"]}, source={"awsElasticBlockStore": {"volumeID": "vol-1"}}
    )
    node = make_node("n", labels={zone: "z"})
    one = attempt([make_storage_class(), legacy, make_claim("c")], "c", nodes=(node,))
    work = waiting(one, "n")
    await turns()
    one.handle.add(make_csi_node("n", migrated=["kubernetes.io/aws-ebs"]))
    one.handle.add(make_claim("c", annotations=BIND_COMPLETED, spec={"volumeName": "pv"}))
    await turns()
    assert "node affinity doesn't match" in work.result().message
