"""VolumeRestrictions: exclusive claims, exclusive disks, and queueing hints."""

from __future__ import annotations

from typing import Any

import pytest

from proreus.framework.cycle_state import CycleState
from proreus.framework.events import ADD, ASSIGNED_POD, DELETE, NODE, PERSISTENT_VOLUME_CLAIM
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.framework.verdicts import Verdicts
from proreus.objects.codec import decoder_for
from proreus.objects.storage import PersistentVolumeClaim
from proreus.plugins.volume_restrictions import VolumeRestrictions
from proreus.testing import FakeHandle, make_node, make_plugin, make_pod
from proreus.testing.agreement import assert_agreement
from proreus.testing.volumes import make_claim, spec_with_claims

DISK = "node(s) had no available disk"
IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already "
    "in-use by another pod"
)
NODES = [make_node("n0"), make_node("n1")]


def disks(*sources: dict[str, Any]) -> dict[str, Any]:
    return {"volumes": [{"name": f"v{i}", **source} for i, source in enumerate(sources)]}


def gce(name: str, read_only: bool = False) -> dict[str, Any]:
    return {"gcePersistentDisk": {"pdName": name, "readOnly": read_only}}


def iscsi(iqn: str, read_only: bool = False) -> dict[str, Any]:
    return {"iscsi": {"iqn": iqn, "targetPortal": "x", "lun": 1, "readOnly": read_only}}


def rbd(monitors: list[str], pool: str = "p", read_only: bool = False) -> dict[str, Any]:
    return {"rbd": {"monitors": monitors, "pool": pool, "image": "i", "readOnly": read_only}}


EBS = {"awsElasticBlockStore": {"volumeID": "vol-1", "readOnly": True}}


def run_filter(handle: FakeHandle, pod: PodInfo) -> list[Status | None] | Status:
    plugin, state = make_plugin(VolumeRestrictions, handle), CycleState()
    result = plugin.pre_filter(state, pod, handle.nodes)
    if result is not None:
        return result
    assert_agreement(plugin, pod, handle.nodes)
    verdicts = Verdicts(len(handle.nodes), plugin.name)
    plugin.filter_all(state, pod, handle.nodes, verdicts)
    return [verdicts.status(row) for row in range(len(handle.nodes))]


def reasons(results: list[Status | None] | Status) -> list[str]:
    assert isinstance(results, list)
    return [status.message if status is not None else "" for status in results]


@pytest.mark.parametrize(
    "volumes",
    [{}, {"volumes": [{"name": "c", "configMap": {"name": "x"}}]}, spec_with_claims("shared")],
)
def test_ordinary_pods_are_skipped(volumes: dict[str, Any]) -> None:
    other = make_pod("other", node_name="n0", spec=spec_with_claims("shared"))
    handle = FakeHandle(NODES, [other], objects=[make_claim("shared")])
    assert run_filter(handle, make_pod(spec=volumes)) == Status.skip()


def test_a_missing_claim_is_rejected() -> None:
    result = run_filter(FakeHandle(NODES), make_pod(spec=spec_with_claims("c")))
    assert result == Status.unresolvable('persistentvolumeclaim "c" not found')


@pytest.mark.parametrize(
    ("mine", "theirs", "conflict"),
    [
        (gce("a"), gce("a"), True),
        (gce("a", True), gce("a", True), False),
        (gce("a", True), gce("a"), True),
        (gce("a"), gce("b"), False),
        (EBS, EBS, True),
        (iscsi("q"), iscsi("q"), True),
        (iscsi("q", True), iscsi("q", True), False),
        (iscsi("q"), iscsi("r"), False),
        (rbd(["a", "b"]), rbd(["b", "c"]), True),
        (rbd(["a"]), rbd(["b"]), False),
        (rbd(["a"]), rbd(["a"], pool="o"), False),
        (rbd(["a"], read_only=True), rbd(["a"], read_only=True), False),
        (gce("a"), EBS, False),
    ],
)
def test_disks(mine: dict[str, Any], theirs: dict[str, Any], conflict: bool) -> None:
    handle = FakeHandle(NODES, [make_pod("other", node_name="n0", spec=disks(theirs))])
    assert reasons(run_filter(handle, make_pod(spec=disks(mine)))) == [DISK if conflict else "", ""]


def exclusive(*others: PodInfo) -> FakeHandle:
    claim = make_claim("mine", modes=["ReadWriteOncePod"])
    return FakeHandle(NODES, others, objects=[claim])


def test_an_exclusive_claim_in_use_rules_out_every_node_but_preemption_may_help() -> None:
    handle = exclusive(make_pod("other", node_name="n0", spec=spec_with_claims("mine")))
    results = run_filter(handle, make_pod(spec=spec_with_claims("mine")))
    assert reasons(results) == [IN_USE, IN_USE]
    assert {status.code for status in results if status} == {Status.unschedulable().code}


def test_an_unused_exclusive_claim_is_skipped() -> None:
    elsewhere = make_pod(
        "other", namespace="elsewhere", node_name="n0", spec=spec_with_claims("mine")
    )
    assert (
        run_filter(exclusive(elsewhere), make_pod(spec=spec_with_claims("mine"))) == Status.skip()
    )


def test_dry_runs_count_conflicts_on_a_copy() -> None:
    other = make_pod("other", node_name="n0", spec=spec_with_claims("mine"))
    handle, pod = exclusive(other), make_pod(spec=spec_with_claims("mine"))
    plugin, state = make_plugin(VolumeRestrictions, handle), CycleState()
    plugin.pre_filter(state, pod, handle.nodes)
    cloned_state, node = state.clone(), handle.nodes[0]
    plugin.remove_pod(cloned_state, pod, other, node)
    assert plugin.filter(cloned_state, pod, node) is None
    assert plugin.filter(state, pod, node) is not None
    plugin.add_pod(cloned_state, pod, other, node)
    assert plugin.filter(cloned_state, pod, node) is not None


def test_events() -> None:
    registered = make_plugin(VolumeRestrictions, FakeHandle()).events_to_register()
    assert [(event.resource, event.action) for event in registered] == [
        (ASSIGNED_POD, DELETE),
        (NODE, ADD),
        (PERSISTENT_VOLUME_CLAIM, ADD),
        (NODE, DELETE),
    ]


@pytest.mark.parametrize(
    ("mine", "gone", "queued"),
    [
        (spec_with_claims("a"), make_pod("o", spec=spec_with_claims("a", "b")), True),
        (spec_with_claims("a"), make_pod("o", spec=spec_with_claims("b")), False),
        (
            spec_with_claims("a"),
            make_pod("o", namespace="elsewhere", spec=spec_with_claims("a")),
            False,
        ),
        (disks(gce("d")), make_pod("o", spec=disks(gce("d"))), True),
        (disks(gce("d")), make_pod("o", namespace="elsewhere", spec=disks(gce("d"))), True),
        (disks(gce("d", True)), make_pod("o", spec=disks(gce("d", True))), False),
    ],
)
def test_deleted_pods(mine: dict[str, Any], gone: PodInfo, queued: bool) -> None:
    hint = make_plugin(VolumeRestrictions, FakeHandle()).events_to_register()[0].hint
    assert hint(make_pod(spec=mine), gone.pod, None) is queued


@pytest.mark.parametrize(
    ("claim", "node_name", "queued"),
    [("mine", "n0", True), ("mine", "n1", False), ("mine", "gone", False), ("other", "n0", False)],
)
def test_deleted_nodes(claim: str, node_name: str, queued: bool) -> None:
    user = make_pod("other", node_name="n0", spec=spec_with_claims("mine", "other"))
    plugin = make_plugin(VolumeRestrictions, exclusive(user))
    event = [*plugin.events_to_register()][-1]
    gone = make_node(node_name)
    assert event.hint is not None
    assert event.hint(make_pod(spec=spec_with_claims(claim)), gone, None) is queued


def test_a_node_that_the_table_has_no_more_may_have_had_the_claims() -> None:
    event = [*make_plugin(VolumeRestrictions, exclusive()).events_to_register()][-1]
    assert event.hint is not None
    assert event.hint(make_pod(spec=spec_with_claims("mine")), make_node("gone"), None)


@pytest.mark.parametrize(("gone", "queued"), [(True, True), (False, False)])
def test_a_deleted_node_frees_nothing_while_another_node_has_one_of_the_claims(
    gone: bool, queued: bool
) -> None:
    users = [make_pod("first", node_name="n0", spec=spec_with_claims("mine"))]
    if not gone:
        users.append(make_pod("second", node_name="n1", spec=spec_with_claims("too")))
    handle = exclusive(*users)
    handle.add(make_claim("too", modes=["ReadWriteOncePod"]))
    plugin = make_plugin(VolumeRestrictions, handle)
    event = [*plugin.events_to_register()][-1]
    assert event.hint is not None
    mine = make_pod(spec=spec_with_claims("mine", "too"))
    assert event.hint(mine, make_node("n0"), None) is queued


@pytest.mark.parametrize(
    ("name", "namespace", "queued"),
    [("a", "default", True), ("b", "default", False), ("a", "elsewhere", False)],
)
def test_added_claims(name: str, namespace: str, queued: bool) -> None:
    hint = make_plugin(VolumeRestrictions, FakeHandle()).events_to_register()[2].hint
    claim = make_claim(name, namespace=namespace)
    new = decoder_for(PersistentVolumeClaim).convert(claim)
    assert hint(make_pod(spec=spec_with_claims("a")), None, new) is queued
