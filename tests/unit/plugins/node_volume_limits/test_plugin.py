"""NodeVolumeLimits: which volumes count, on which nodes, and queueing hints."""

from __future__ import annotations

from typing import Any

import pytest

from proreus.framework.cycle_state import CycleState
from proreus.framework.events import (
    ADD,
    ASSIGNED_POD,
    CSI_DRIVER,
    CSI_NODE,
    DELETE,
    NODE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    UPDATE,
    VOLUME_ATTACHMENT,
)
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Code, Status
from proreus.framework.verdicts import Verdicts
from proreus.objects.codec import decoder_for
from proreus.objects.kinds import BY_KIND
from proreus.objects.storage import PERSISTENT_VOLUMES
from proreus.plugins.node_volume_limits import NodeVolumeLimits
from proreus.testing import FakeHandle, make_node, make_plugin, make_pod
from proreus.testing.agreement import assert_agreement
from proreus.testing.volumes import (
    DRIVER,
    make_attachment,
    make_claim,
    make_csi_node,
    make_storage_class,
    make_volume,
    spec_with_claims,
)

FULL = "node(s) exceed max volume count"
EBS = "ebs.csi.aws.com"
NODES = [make_node("n0"), make_node("n1")]


def typed(obj: dict[str, Any]) -> Any:
    return decoder_for(BY_KIND[obj["kind"]].type).convert(obj)


def bound(*names: str) -> list[dict[str, Any]]:
    """Return claims with a volume each."""
    return [
        obj
        for name in names
        for obj in (make_claim(name, volume=f"pv-{name}"), make_volume(f"pv-{name}"))
    ]


def running(name: str, *claims: str, node: str = "n0") -> PodInfo:
    return make_pod(name, node_name=node, spec=spec_with_claims(*claims))


def run_filter(handle: FakeHandle, pod: PodInfo) -> list[Status | None] | Status:
    plugin, state = make_plugin(NodeVolumeLimits, handle), CycleState()
    result = plugin.pre_filter(state, pod, handle.nodes)
    if result is not None:
        return result
    assert_agreement(plugin, pod, handle.nodes)
    verdicts = Verdicts(len(handle.nodes), plugin.name)
    plugin.filter_all(state, pod, handle.nodes, verdicts)
    plugin._attached.refresh()
    plugin._attached.validate()
    return [verdicts.status(row) for row in range(len(handle.nodes))]


def full(handle: FakeHandle, pod: PodInfo) -> list[bool]:
    results = run_filter(handle, pod)
    assert isinstance(results, list)
    rejected = {status for status in results if status is not None}
    assert rejected <= {Status.unschedulable(FULL).with_plugin("NodeVolumeLimits")}
    return [status is not None for status in results]


@pytest.mark.parametrize(
    "volumes",
    [
        {},
        {"volumes": [{"name": "c", "configMap": {"name": "x"}}, {"name": "e", "emptyDir": {}}]},
        {"volumes": [{"name": "i", "csi": {"driver": DRIVER}}]},
        {"volumes": [{"name": "r", "rbd": {"image": "i", "monitors": ["m"]}}]},
    ],
)
def test_ordinary_pods_are_skipped(volumes: dict[str, Any]) -> None:
    assert run_filter(FakeHandle(NODES), make_pod(spec=volumes)) == Status.skip()


@pytest.mark.parametrize(
    ("limit", "rejected"), [(0, True), (1, True), (2, True), (3, False), (None, False)]
)
def test_limits(limit: int | None, rejected: bool) -> None:
    objects = [*bound("a", "b", "c"), make_csi_node("n0", {DRIVER: limit, "other": 0})]
    handle = FakeHandle(NODES, [running("r", "a", "b")], objects=objects)
    assert full(handle, make_pod(spec=spec_with_claims("c"))) == [rejected, False]


def test_an_attached_volume_does_not_count_twice() -> None:
    handle = FakeHandle(
        NODES,
        [running("r", "a", "b"), running("s", "b")],
        objects=[*bound("a", "b", "c"), make_csi_node("n0", {DRIVER: 2})],
    )
    assert full(handle, make_pod(spec=spec_with_claims("a", "b"))) == [False, False]
    assert full(handle, make_pod(spec=spec_with_claims("a", "c"))) == [True, False]


def test_attachments_count_even_if_no_pod_uses_them_but_only_once() -> None:
    objects = [*bound("a", "b", "c"), make_csi_node("n0", {DRIVER: 2})]
    pods, pod = [running("r", "a")], make_pod(spec=spec_with_claims("c"))
    own = make_attachment("va-a", "n0", "pv-a")
    assert full(FakeHandle(NODES, pods, objects=[*objects, own]), pod) == [False, False]
    left = make_attachment("va-b", "n0", "pv-b")
    assert full(FakeHandle(NODES, pods, objects=[*objects, own, left]), pod) == [True, False]
    # A volume of the new pod that is attached still counts as both, as in kube-scheduler.
    new = make_attachment("va-c", "n0", "pv-c")
    assert full(FakeHandle(NODES, pods, objects=[*objects, own, new]), pod) == [True, False]
    for nothing in (
        make_attachment("va-b", "n1", "pv-b"),
        make_attachment("va-b", "n0", None),
        make_attachment("va-b", "n0", "gone"),
        make_attachment("va-b", "n0", "pv-b", attacher="other"),
    ):
        handle = FakeHandle(NODES, pods, objects=[*objects, own, nothing])
        assert full(handle, pod) == [False, False]


def test_claims_without_a_volume_count_with_the_provisioner() -> None:
    objects = [
        make_storage_class(),
        make_claim("a"),
        make_claim("b"),
        make_csi_node("n0", {DRIVER: 1}),
    ]
    handle = FakeHandle(NODES, [running("r", "a")], objects=objects)
    assert full(handle, make_pod(spec=spec_with_claims("b"))) == [True, False]
    assert full(handle, make_pod(spec=spec_with_claims("a"))) == [False, False]


@pytest.mark.parametrize("claim", [make_claim("b", class_name=None), make_claim("b")])
def test_claims_without_a_class_do_not_count(claim: dict[str, Any]) -> None:
    handle = FakeHandle(NODES, objects=[claim, make_csi_node("n0", {DRIVER: 0})])
    assert full(handle, make_pod(spec=spec_with_claims("b"))) == [False, False]


def test_a_missing_claim() -> None:
    handle = FakeHandle(NODES, objects=[make_csi_node("n0", {DRIVER: 1})])
    results = run_filter(handle, make_pod(spec=spec_with_claims("b")))
    text = 'looking up PVC default/b: persistentvolumeclaim "b" not found'
    assert results == [Status.unresolvable(text).with_plugin("NodeVolumeLimits")] * 2
    # Of a pod that runs it is passed over.
    handle = FakeHandle(
        NODES,
        [running("r", "gone", "a")],
        objects=[*bound("a", "b"), make_csi_node("n0", {DRIVER: 2})],
    )
    assert full(handle, make_pod(spec=spec_with_claims("b"))) == [False, False]


def test_ephemeral_volumes_count_and_must_be_the_pods_own() -> None:
    spec = {"volumes": [{"name": "v", "ephemeral": {}}]}
    pod = make_pod("p", spec=spec)
    objects = [make_storage_class(), make_csi_node("n0", {DRIVER: 0})]
    mine = make_claim("p-v", owner_uid=pod.uid)
    assert full(FakeHandle(NODES, objects=[*objects, mine]), pod) == [True, False]
    theirs = make_claim("p-v", owner_uid="another")
    results = run_filter(FakeHandle(NODES, objects=[*objects, theirs]), pod)
    text = "PVC default/p-v was not created for pod default/p (pod is not owner)"
    assert results == [Status.error(text).with_plugin("NodeVolumeLimits")] * 2


def test_a_pod_with_undeterminable_volumes_is_an_error_on_its_node() -> None:
    odd = make_pod("odd", node_name="n0", spec={"volumes": [{"name": "v", "ephemeral": {}}]})
    claim = make_claim("odd-v", owner_uid="another")
    limits = [make_csi_node("n0", {DRIVER: 9}), make_csi_node("n1", {DRIVER: 9})]
    handle = FakeHandle(NODES, [odd], objects=[*bound("a"), claim, *limits])
    results = run_filter(handle, make_pod(spec=spec_with_claims("a")))
    assert isinstance(results, list)
    assert [status and status.code for status in results] == [Code.ERROR, None]


# ---- in-tree volumes -----------------------------------------------------------------------------

IN_TREE_PLUGINS = {"awsElasticBlockStore": {"volumeID": "aws://a/vol-1"}}


@pytest.mark.parametrize(
    ("volume", "rejected"),
    [
        (IN_TREE_PLUGINS, True),
        ({"azureFile": {"shareName": "s"}}, False),
        ({"vsphereVolume": {"volumePath": "s"}}, False),
    ],
)
def test_inline_volumes_count_for_the_driver_they_are_migrated_to(
    volume: dict[str, Any], rejected: bool
) -> None:
    limits = {EBS: 0, "file.csi.azure.com": 0, "csi.vsphere.vmware.com": 0}
    handle = FakeHandle(NODES, objects=[make_csi_node("n0", limits)])
    pod = make_pod(spec={"volumes": [{"name": "v", **volume}]})
    assert full(handle, pod) == [rejected, False]


def test_the_same_disk_in_tree_and_csi_is_one() -> None:
    csi = {"csi": {"driver": EBS, "volumeHandle": "vol-1"}}
    objects = [
        make_claim("a", volume="pv-a"),
        make_volume("pv-a", source=csi),
        make_claim("b", volume="pv-b"),
        make_volume("pv-b", source=IN_TREE_PLUGINS),
        make_csi_node("n0", {EBS: 1}),
    ]
    handle = FakeHandle(NODES, [running("r", "a")], objects=objects)
    assert full(handle, make_pod(spec=spec_with_claims("b"))) == [False, False]


def test_in_tree_provisioners() -> None:
    objects = [
        make_storage_class("ebs", "kubernetes.io/aws-ebs"),
        make_storage_class("file", "kubernetes.io/azure-file"),
        make_claim("a", class_name="ebs"),
        make_claim("b", class_name="file"),
        make_csi_node("n0", {EBS: 0, "file.csi.azure.com": 0}),
    ]
    handle = FakeHandle(NODES, objects=objects)
    assert full(handle, make_pod(spec=spec_with_claims("a"))) == [True, False]
    assert full(handle, make_pod(spec=spec_with_claims("b"))) == [False, False]


def test_a_disk_without_a_name() -> None:
    bad = {"awsElasticBlockStore": {"volumeID": "aws://a/disk"}}
    handle = FakeHandle(NODES, objects=[make_csi_node("n0", {EBS: 9})])
    results = run_filter(handle, make_pod(spec={"volumes": [{"name": "v", **bad}]}))
    assert isinstance(results, list)
    assert results[0] is not None
    assert results[0].code == Code.ERROR


# ---- VolumeLimitScaling --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prevent", "gate", "rejected"),
    [(True, "true", True), (True, "false", False), (False, "true", False)],
)
def test_drivers_that_prevent_scheduling_if_missing(
    prevent: bool, gate: str, rejected: bool
) -> None:
    driver = {
        "kind": "CSIDriver",
        "metadata": {"name": DRIVER},
        "spec": {"preventPodSchedulingIfMissing": prevent},
    }
    objects = [*bound("a"), driver, make_csi_node("n0", {DRIVER: None})]
    handle = FakeHandle(NODES, objects=objects, gates=[f"VolumeLimitScaling={gate}"])
    results = run_filter(handle, make_pod(spec=spec_with_claims("a")))
    text = f"{DRIVER} CSI driver is not installed on the node"
    expected = Status.unschedulable(text).with_plugin("NodeVolumeLimits") if rejected else None
    assert results == [None, expected]


# ---- events --------------------------------------------------------------------------------------


def events() -> Any:
    return make_plugin(NodeVolumeLimits, FakeHandle()).events_to_register()


def test_events() -> None:
    assert [(event.resource, event.action) for event in events()] == [
        (CSI_NODE, ADD | UPDATE | DELETE),
        (ASSIGNED_POD, DELETE),
        (PERSISTENT_VOLUME_CLAIM, ADD | UPDATE),
        (VOLUME_ATTACHMENT, DELETE),
        (NODE, ADD),
        (CSI_DRIVER, UPDATE | DELETE),
        (PERSISTENT_VOLUME, ADD | DELETE),
    ]


def test_drivers_matter_only_where_pods_wait_for_them() -> None:
    handle = FakeHandle(gates=["VolumeLimitScaling=false"])
    registered = make_plugin(NodeVolumeLimits, handle).events_to_register()
    assert CSI_DRIVER not in {event.resource for event in registered}


def test_the_end_of_a_volume_helps_where_an_attachment_refers_to_it() -> None:
    objects = [*bound("a", "b"), make_csi_node("n0"), make_attachment("va", "n0", "pv-a")]
    handle = FakeHandle(NODES, objects=objects)
    hint = list(make_plugin(NodeVolumeLimits, handle).events_to_register())[6].hint
    assert hint is not None
    volumes = handle.store(PERSISTENT_VOLUMES)
    assert hint(WAITING, volumes["pv-a"], None) is True
    assert hint(WAITING, volumes["pv-b"], None) is False


def hint_of_volumes(number: int, *claims: dict[str, Any]) -> Any:
    """Return a hint beside the volume ``same``, of the class's driver, and one of no driver."""
    volumes = [make_volume("same"), make_volume("local", source={"local": {"path": "/d"}})]
    handle = FakeHandle(NODES, objects=[*volumes, *claims, make_storage_class()])
    return list(make_plugin(NodeVolumeLimits, handle).events_to_register())[number].hint


@pytest.mark.parametrize(
    ("name", "volume", "queued"),
    [("c", "local", True), ("c", "same", False), ("d", "local", False)],
)
def test_a_volume_that_appears_helps_where_a_claim_counts_for_another_driver(
    name: str, volume: str, queued: bool
) -> None:
    hint = hint_of_volumes(6, make_claim(name, volume=volume))
    assert hint(WAITING, None, typed(make_volume(volume))) is queued


@pytest.mark.parametrize(
    ("name", "volume", "queued"),
    [("c", "local", True), ("c", "same", False), ("c", "absent", False), ("d", "local", False)],
)
def test_a_claim_that_is_bound_helps_where_it_counts_for_another_driver(
    name: str, volume: str, queued: bool
) -> None:
    hint = hint_of_volumes(2)
    old, new = typed(make_claim(name)), typed(make_claim(name, volume=volume))
    assert hint(WAITING, old, new) is queued


def make_csi_driver(keeps_pods_out: bool) -> dict[str, Any]:
    spec = {"preventPodSchedulingIfMissing": keeps_pods_out}
    meta = {"name": DRIVER}
    return {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": meta, "spec": spec}


def migrated(csi_node: dict[str, Any]) -> dict[str, Any]:
    key = "storage.alpha.kubernetes.io/migrated-plugins"
    csi_node["metadata"]["annotations"] = {key: "kubernetes.io/gce-pd"}
    return csi_node


PLAIN = make_pod("w")
WAITING = make_pod("w", spec=spec_with_claims("c"))
EPHEMERAL = make_pod("w", spec={"volumes": [{"name": "v", "ephemeral": {}}]})
INLINE = make_pod("w", spec={"volumes": [{"name": "v", **IN_TREE_PLUGINS}]})


@pytest.mark.parametrize(
    ("number", "pod", "old", "new", "queued"),
    [
        (0, WAITING, None, make_csi_node("n"), True),
        (0, WAITING, make_csi_node("n", {"d": 1}), make_csi_node("n", {"d": 2}), True),
        (0, WAITING, make_csi_node("n", {"d": 2}), make_csi_node("n", {"d": 1}), False),
        (0, WAITING, make_csi_node("n", {"d": 1}), make_csi_node("n", {"d": 1, "e": 1}), True),
        (0, WAITING, make_csi_node("n", {"d": 1}), make_csi_node("n", {"d": None}), True),
        (0, WAITING, make_csi_node("n", {"d": 1}), make_csi_node("n"), True),
        (0, WAITING, make_csi_node("n", {"d": 1}), migrated(make_csi_node("n", {"d": 1})), True),
        (0, WAITING, make_csi_node("n", {"d": 1}), None, True),
        (2, WAITING, None, make_claim("c"), True),
        (2, WAITING, None, make_claim("d"), False),
        (2, WAITING, None, make_claim("c", namespace="elsewhere"), False),
        (2, EPHEMERAL, None, make_claim("w-v"), True),
        (3, WAITING, make_attachment("va", "n", "pv"), None, True),
        (3, EPHEMERAL, make_attachment("va", "n", "pv"), None, True),
        (3, PLAIN, make_attachment("va", "n", "pv"), None, False),
        (3, INLINE, make_attachment("va", "n", "pv"), None, False),
        (3, INLINE, make_attachment("va", "n", "pv", attacher=EBS), None, True),
        (5, WAITING, make_csi_driver(True), make_csi_driver(False), True),
        (5, WAITING, make_csi_driver(True), None, True),
        (5, WAITING, make_csi_driver(True), make_csi_driver(True), False),
        (5, WAITING, make_csi_driver(False), None, False),
    ],
)
def test_hints(number: int, pod: PodInfo, old: Any, new: Any, queued: bool) -> None:
    before, after = (None if obj is None else typed(obj) for obj in (old, new))
    assert events()[number].hint(pod, before, after) is queued


@pytest.mark.parametrize(
    ("gone", "queued"),
    [
        (running("o", "any"), True),
        (make_pod("o", spec=spec_with_claims("any")), False),
        (make_pod("o", spec=spec_with_claims("any"), status={"nominatedNodeName": "n0"}), True),
        (make_pod("o", node_name="n0"), False),
        (make_pod("o", node_name="n0", spec={"volumes": [{"name": "v", **IN_TREE_PLUGINS}]}), True),
        (make_pod("o", node_name="n0", spec={"volumes": [{"name": "v", "secret": {}}]}), False),
    ],
)
def test_deleted_pods(gone: PodInfo, queued: bool) -> None:
    assert events()[1].hint(WAITING, gone.pod, None) is queued


def test_volumes_are_looked_up_by_filter_where_pre_filter_is_disabled() -> None:
    objects = [*bound("a", "b"), make_csi_node("n0", {DRIVER: 1})]
    handle = FakeHandle([make_node("n0")], [running("there", "a")], objects=objects)
    plugin = make_plugin(NodeVolumeLimits, handle)

    def verdicts_of(pod: PodInfo) -> list[Status | None]:
        verdicts = Verdicts(1, plugin.name)
        plugin.filter_all(CycleState(), pod, handle.nodes, verdicts)
        return [plugin.filter(CycleState(), pod, handle.nodes[0]), verdicts.status(0)]

    assert verdicts_of(make_pod("without")) == [None, None]
    assert verdicts_of(make_pod("same", spec=spec_with_claims("a"))) == [None, None]
    assert None not in verdicts_of(make_pod("other", spec=spec_with_claims("b")))
