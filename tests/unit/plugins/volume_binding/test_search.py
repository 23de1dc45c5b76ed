"""Which nodes VolumeBinding accepts for a pod's volumes, and why it rejects others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from proreus.framework.status import Status
from proreus.testing import make_node
from proreus.testing.volumes import (
    DRIVER,
    make_capacity,
    make_claim,
    make_csi_node,
    make_storage_class,
    make_volume,
)

CONFLICT = "node(s) didn't match PersistentVolume's node affinity"
NO_MATCH = "node(s) didn't find available persistent volumes to bind"
NO_SPACE = "node(s) did not have enough free storage"
MISSING = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
EPHEMERAL = [{"name": "v", "ephemeral": {}}]
IN_A, IN_B = {"zone": ["a"]}, {"zone": ["b"]}
STATIC = make_storage_class("static", "kubernetes.io/no-provisioner")
POD_UID = "uid-of-default-p"

Make = Callable[..., Any]
Objects = list[dict[str, Any]]


def local(name: str, storage: str = "10Gi", **more: Any) -> dict[str, Any]:
    return make_volume(name, storage, "static", source={"local": {"path": "/d"}}, **more)


def wish(name: str, storage: str | None = "10Gi", **more: Any) -> dict[str, Any]:
    return make_claim(name, storage, "static", **more)


# ---- PreFilter -----------------------------------------------------------------------------------


def test_pods_without_claims_are_skipped_and_share_results(attempt: Make) -> None:
    for volumes in ([], [{"name": "c", "configMap": {"name": "x"}}]):
        one = attempt([], volumes=volumes)
        assert one.pre_filter() == Status.skip()
        assert one.plugin.filter(one.state, one.pod, one.handle.nodes[0]) is None
        assert one.plugin.reserve(one.state, one.pod, "a1") is None
        assert one.pre_flight("a1") == Status.skip()
    assert attempt([], volumes=[]).plugin.sign(attempt([], volumes=[]).pod) == ()
    assert one.plugin.sign(one.pod) is None


@pytest.mark.parametrize(
    ("objects", "text"),
    [
        ([], 'persistentvolumeclaim "c" not found'),
        (
            [make_claim("c", phase="Lost", spec={"volumeName": "pv"})],
            'persistentvolumeclaim "c" bound to non-existent persistentvolume "pv"',
        ),
        (
            [make_claim("c", deletionTimestamp="2026-01-01T00:00:00Z")],
            'persistentvolumeclaim "c" is being deleted',
        ),
        ([make_claim("c")], "pod has unbound immediate PersistentVolumeClaims"),
        (
            [make_claim("c"), make_storage_class(mode="Immediate")],
            "pod has unbound immediate PersistentVolumeClaims",
        ),
        (
            [make_claim("c", class_name=None), make_storage_class()],
            "pod has unbound immediate PersistentVolumeClaims",
        ),
        (
            [make_claim("c", spec={"volumeName": "pv"}), make_storage_class(), make_volume("pv")],
            "pod has unbound immediate PersistentVolumeClaims",
        ),
        (
            [
                make_claim("c", annotations={"volume.beta.kubernetes.io/storage-class": ""}),
                make_storage_class(),
            ],
            "pod has unbound immediate PersistentVolumeClaims",
        ),
    ],
)
def test_claims_that_rule_out_every_node(attempt: Make, objects: Objects, text: str) -> None:
    assert attempt(objects, "c").pre_filter() == Status.unresolvable(text)


def test_a_class_without_a_binding_mode(attempt: Make) -> None:
    one = attempt([make_claim("c"), make_storage_class(mode=None)], "c")
    assert one.pre_filter() == Status.error('VolumeBindingMode not set for StorageClass "wait"')


def test_ephemeral_volumes(attempt: Make) -> None:
    text = 'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-v"'
    assert attempt([], volumes=EPHEMERAL).pre_filter() == Status.unresolvable(text)
    text = "PVC default/p-v was not created for pod default/p (pod is not owner)"
    theirs = attempt(
        [make_claim("p-v", owner_uid="another"), make_storage_class()], volumes=EPHEMERAL
    )
    assert theirs.pre_filter() == Status.unresolvable(text)
    mine = attempt([make_claim("p-v", owner_uid=POD_UID), make_storage_class()], volumes=EPHEMERAL)
    assert mine.filter() == {"a1": [], "a2": [], "b1": []}


def test_of_two_sources_the_claim_counts(attempt: Make) -> None:
    both = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}, "ephemeral": {}}]
    missing = 'persistentvolumeclaim "c" not found'
    assert attempt([], volumes=both).pre_filter() == Status.unresolvable(missing)
    one = attempt([make_claim("c"), make_storage_class()], volumes=both)
    assert one.filter() == {"a1": [], "a2": [], "b1": []}


# ---- bound claims --------------------------------------------------------------------------------


def test_bound_volumes_are_matched_by_labels_and_not_by_names(attempt: Make) -> None:
    named = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b1"]}]}
    in_a = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    terms = {"required": {"nodeSelectorTerms": [in_a | named]}}
    volume = make_volume("pv", claim="default/c", spec={"nodeAffinity": terms})
    one = attempt([make_claim("c", volume="pv"), volume], "c")
    assert one.filter() == {"a1": [], "a2": [], "b1": [CONFLICT]}


@pytest.mark.parametrize(
    ("affinity", "conflict"),
    [
        ({}, False),
        ({"required": {"nodeSelectorTerms": []}}, True),
        ({"required": {"nodeSelectorTerms": [{}]}}, True),
        (
            {
                "required": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "zone", "operator": "Near"}]},
                        {"matchExpressions": [{"key": "zone", "operator": "Exists"}]},
                    ]
                }
            },
            False,
        ),
    ],
)
def test_odd_affinity(attempt: Make, affinity: dict[str, Any], conflict: bool) -> None:
    volume = make_volume("pv", claim="default/c", spec={"nodeAffinity": affinity})
    one = attempt([make_claim("c", volume="pv"), volume], "c")
    assert one.filter()["a1"] == ([CONFLICT] if conflict else [])


def test_a_missing_volume(attempt: Make) -> None:
    claims = [make_claim("c", volume="gone"), make_claim("d", volume="pv")]
    volume = make_volume("pv", claim="default/d", where=IN_A)
    assert attempt([*claims, volume], "c", "d").filter()["b1"] == [MISSING]
    # The first claim whose volume will not do decides.
    assert attempt([*claims, volume], "d", "c").filter() == {
        "a1": [MISSING],
        "a2": [MISSING],
        "b1": [CONFLICT],
    }


@pytest.mark.parametrize("migrated", [True, False])
def test_migrated_volumes_are_matched_by_the_drivers_label(attempt: Make, migrated: bool) -> None:
    zone = "topology.kubernetes.io/zone"
    volume = make_volume(
        "pv",
        claim="default/c",
        where={zone: ["a"]},
        source={"awsElasticBlockStore": {"volumeID": "vol-1"}},
    )
    plugins = ["kubernetes.io/aws-ebs"] if migrated else []
    nodes = (
        make_node("tree", labels={zone: "a"}),
        make_node("csi", labels={"topology.ebs.csi.aws.com/zone": "a"}),
    )
    announced = [make_csi_node("csi", migrated=plugins), make_csi_node("tree")]
    one = attempt([make_claim("c", volume="pv"), volume, *announced], "c", nodes=nodes)
    assert one.filter() == {"tree": [], "csi": [] if migrated else [CONFLICT]}
    # What a node announces may change.
    one.handle.add(make_csi_node("tree", migrated=["kubernetes.io/aws-ebs"]))
    assert one.filter()["tree"] == [CONFLICT]


def test_a_volume_that_cannot_be_translated_is_an_error_where_migrated(attempt: Make) -> None:
    bad = {"awsElasticBlockStore": {"volumeID": "aws://a/disk"}}
    volume = make_volume("pv", claim="default/c", source=bad)
    node = make_csi_node("a1", migrated=["kubernetes.io/aws-ebs"])
    results = attempt([make_claim("c", volume="pv"), volume, node], "c").filter()
    assert isinstance(results["a1"], str)
    assert (results["a2"], results["b1"]) == ([], [])


# ---- static volumes ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("volume", "claim", "found"),
    [
        (local("pv"), wish("c"), True),
        (local("pv", "9Gi"), wish("c"), False),
        (local("pv", "1"), wish("c", None), True),
        (local("pv", phase="Released"), wish("c"), False),
        (local("pv", claim="default/other"), wish("c"), False),
        (local("pv", deletionTimestamp="2026-01-01T00:00:00Z"), wish("c"), False),
        (local("pv"), wish("c", modes=["ReadWriteMany"]), False),
        (local("pv", spec={"accessModes": ["ReadWriteOnce", "ReadWriteMany"]}), wish("c"), True),
        (local("pv", spec={"volumeMode": "Block"}), wish("c"), False),
        (local("pv", spec={"volumeMode": "Filesystem"}), wish("c"), True),
        (local("pv", spec={"volumeAttributesClassName": "gold"}), wish("c"), False),
        (
            local("pv", spec={"volumeAttributesClassName": "gold"}),
            wish("c", spec={"volumeAttributesClassName": "gold"}),
            True,
        ),
        (local("pv"), wish("c", spec={"volumeAttributesClassName": ""}), True),
        (local("pv"), wish("c", spec={"selector": {}}), True),
        (local("pv"), wish("c", spec={"selector": {"matchLabels": {"disk": "ssd"}}}), False),
        (
            local("pv", labels={"disk": "ssd"}),
            wish("c", spec={"selector": {"matchLabels": {"disk": "ssd"}}}),
            True,
        ),
        (
            local("pv", annotations={"volume.beta.kubernetes.io/storage-class": "other"}),
            wish("c"),
            False,
        ),
        (
            local(
                "pv",
                annotations={"volume.beta.kubernetes.io/storage-class": "static"},
                spec={"storageClassName": "other"},
            ),
            wish("c"),
            True,
        ),
        (local("pv", "1", claim="default/c"), wish("c", "1"), True),
        (local("pv", claim="default/c", claim_uid="another"), wish("c"), False),
        (local("pv", claim="default/c", claim_uid=""), wish("c"), True),
        (local("pv", "9Gi", claim="default/c"), wish("c"), False),
    ],
)
def test_volumes_for_a_claim(
    attempt: Make, volume: dict[str, Any], claim: dict[str, Any], found: bool
) -> None:
    one = attempt([STATIC, volume, claim], "c")
    assert one.filter()["a1"] == ([] if found else [NO_MATCH])


def test_the_smallest_accessible_volume_is_selected(attempt: Make) -> None:
    volumes = [
        local("large", "30Gi"),
        local("small", "20Gi", where=IN_A),
        local("smaller", "15Gi", where=IN_B),
    ]
    one = attempt([STATIC, *volumes, wish("c")], "c")
    assert one.filter() == {"a1": [], "a2": [], "b1": []}
    for node_name, chosen in (("a1", "small"), ("b1", "smaller")):
        assert one.reserve(node_name) is None
        assumed = one.plugin._state_data(one.state).assumed
        assert [volume.metadata.name for _, volume in assumed.volumes] == [chosen]
        one.plugin.unreserve(one.state, one.pod, node_name)


def test_a_volume_prebound_to_the_claim_is_the_only_candidate(attempt: Make) -> None:
    volumes = [local("small", "10Gi"), local("kept", "90Gi", claim="default/c", where=IN_A)]
    one = attempt([STATIC, *volumes, wish("c")], "c")
    assert one.filter() == {"a1": [], "a2": [], "b1": [NO_MATCH]}


def test_two_claims_do_not_get_the_same_volume(attempt: Make) -> None:
    volumes = [local("in-a", "20Gi", where=IN_A), local("anywhere", "30Gi")]
    one = attempt([STATIC, *volumes, wish("c", "1Gi"), wish("d", "15Gi")], "c", "d")
    assert one.filter() == {"a1": [], "a2": [], "b1": [NO_MATCH]}


def test_the_smaller_claim_is_matched_first(attempt: Make) -> None:
    volumes = [local("small", "10Gi"), local("large", "20Gi")]
    one = attempt([STATIC, *volumes, wish("c", "15Gi"), wish("d", "1Gi")], "c", "d")
    assert one.filter()["a1"] == []


def test_a_selector_that_does_not_parse_is_an_error(attempt: Make) -> None:
    odd = {"matchExpressions": [{"key": "k", "operator": "Near"}]}
    one = attempt([STATIC, wish("c", spec={"selector": odd})], "c")
    assert all(isinstance(result, str) for result in one.filter().values())


# ---- volumes to be made --------------------------------------------------------------------------

COUNTING = {
    "kind": "CSIDriver",
    "metadata": {"name": DRIVER},
    "spec": {"storageCapacity": True},
}


def test_volumes_are_provisioned_where_the_class_allows_it(attempt: Make) -> None:
    for allowed, nodes in (
        ([], ["a1", "a2", "b1"]),
        ([{"zone": ["a"]}], ["a1", "a2"]),
        ([{"zone": ["a"]}, {"zone": ["b"]}], ["a1", "a2", "b1"]),
        ([{"zone": ["a"], "kubernetes.io/hostname": ["a2", "b1"]}], ["a2"]),
        ([{}], []),
    ):
        results = attempt([make_storage_class(allowed=allowed), make_claim("c")], "c").filter()
        assert [name for name, reasons in results.items() if not reasons] == nodes
        assert {tuple(r) for r in results.values()} <= {(), (NO_MATCH,)}


@pytest.mark.parametrize("provisioner", ["", "kubernetes.io/no-provisioner"])
def test_classes_without_a_provisioner(attempt: Make, provisioner: str) -> None:
    objects = [make_storage_class(provisioner=provisioner), make_claim("c")]
    assert attempt(objects, "c").filter()["a1"] == [NO_MATCH]


def test_existing_volumes_are_preferred_to_new_ones(attempt: Make) -> None:
    objects = [make_storage_class(allowed=[{"zone": ["b"]}]), make_volume("pv", where=IN_A)]
    one = attempt([*objects, make_claim("c")], "c")
    assert one.filter() == {"a1": [], "a2": [], "b1": []}
    one.reserve("a1")
    assert one.plugin._state_data(one.state).assumed.claims == []


@pytest.mark.parametrize(
    ("capacity", "storage_capacity"),
    [
        (make_capacity("x", "10Gi", {"zone": "a"}), ["a1", "a2"]),
        (make_capacity("x", "10Gi", {}), ["a1", "a2", "b1"]),
        (make_capacity("x", "10Gi", None), []),
        (make_capacity("x", "9Gi", {}), []),
        (make_capacity("x", None, {}), []),
        (make_capacity("x", "99Gi", {}, largest="9Gi"), []),
        (make_capacity("x", "1Gi", {}, largest="10Gi"), ["a1", "a2", "b1"]),
        (make_capacity("x", "10Gi", {}, "other"), []),
    ],
)
def test_storage_capacity(
    attempt: Make, capacity: dict[str, Any], storage_capacity: list[str]
) -> None:
    objects = [make_storage_class(), COUNTING, make_claim("c")]
    one = attempt([*objects, capacity], "c")
    expected = {name: [] if name in storage_capacity else [NO_SPACE] for name in ("a1", "a2", "b1")}
    assert one.filter() == expected
    one.handle.remove("CSIStorageCapacity", "drivers/x")
    assert one.filter()["a1"] == [NO_SPACE]
    one.handle.add(make_capacity("y", "10Gi", {}))
    assert one.filter()["a1"] == []


def test_capacity_is_ignored_if_the_driver_does_not_track_it(attempt: Make) -> None:
    silent = {**COUNTING, "spec": {"storageCapacity": False}}
    assert attempt([make_storage_class(), silent, make_claim("c")], "c").filter()["a1"] == []
    assert (
        attempt([make_storage_class(), COUNTING, make_claim("c", None)], "c").filter()["a1"] == []
    )


def test_the_first_claim_that_cannot_be_provisioned_decides(attempt: Make) -> None:
    objects = [
        make_storage_class(),
        make_storage_class("in-b", allowed=[{"zone": ["b"]}]),
        COUNTING,
        make_capacity("x", "10Gi", {"zone": "b"}, "in-b"),
        make_claim("c", "1Gi", "in-b"),
        make_claim("d", "2Gi"),
    ]
    assert attempt(objects, "c", "d").filter() == {
        "a1": [NO_MATCH],
        "a2": [NO_MATCH],
        "b1": [NO_SPACE],
    }


def test_every_reason_is_reported(attempt: Make) -> None:
    objects = [STATIC, wish("c"), make_claim("d", volume="pv")]
    volume = make_volume("pv", claim="default/d", where=IN_A)
    results = attempt([*objects, volume], "c", "d").filter()
    assert results["b1"] == [CONFLICT, NO_MATCH]
    assert attempt(objects, "c", "d").filter()["b1"] == [NO_MATCH, MISSING]


@pytest.mark.parametrize(("selected", "nodes"), [("a2", ["a2"]), ("gone", [])])
def test_a_claim_in_provisioning_stays_with_its_node(
    attempt: Make, selected: str, nodes: list[str]
) -> None:
    # Not even a volume that would do is taken then.
    objects = [make_storage_class(), make_volume("pv"), make_claim("c", selected_node=selected)]
    results = attempt(objects, "c").filter()
    assert [name for name, reasons in results.items() if not reasons] == nodes


def test_claims_in_provisioning_at_different_nodes(attempt: Make) -> None:
    claims = [make_claim("c", selected_node="a1"), make_claim("d", selected_node="a2")]
    results = attempt([make_storage_class(), *claims], "c", "d").filter()
    assert results == {"a1": [NO_MATCH], "a2": [NO_MATCH], "b1": [NO_MATCH]}
