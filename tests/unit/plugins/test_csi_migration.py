"""Legacy volumes in the words of their CSI drivers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from proreus.objects.codec import decoder_for
from proreus.objects.pod import Volume
from proreus.objects.storage import CSINode, PersistentVolume
from proreus.plugins.csi_migration import (
    BY_NAME,
    in_tree_plugin_of,
    inline_handle,
    migrated_plugins,
    translated_affinity,
    volume_handle,
)
from proreus.testing.volumes import make_csi_node, make_volume

ZONE, BETA_ZONE = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"
BETA_REGION = "failure-domain.beta.kubernetes.io/region"
EBS = {"awsElasticBlockStore": {"volumeID": "aws://us-east-1a/vol-0123"}}
GCE = {"gcePersistentDisk": {"pdName": "disk"}}


def volume(source: dict[str, Any], **more: Any) -> PersistentVolume:
    return decoder_for(PersistentVolume).convert(make_volume("pv", source=source, **more))


def inline(source: dict[str, Any]) -> Volume:
    return decoder_for(Volume).convert({"name": "v", **source})


@pytest.mark.parametrize(
    ("source", "labels", "handle"),
    [
        (EBS, {}, "vol-0123"),
        ({"awsElasticBlockStore": {"volumeID": "vol-9"}}, {}, "vol-9"),
        (GCE, {}, "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/disk"),
        (GCE, {ZONE: "us-a1-b"}, "projects/UNSPECIFIED/zones/us-a1-b/disks/disk"),
        (
            GCE,
            {BETA_ZONE: "us-a1-b__us-a1-c", ZONE: "x"},
            "projects/UNSPECIFIED/regions/us-a1/disks/disk",
        ),
        ({"azureDisk": {"diskName": "d", "diskURI": "/uri"}}, {}, "/uri"),
        ({"cinder": {"volumeID": "c"}}, {}, "c"),
        ({"portworxVolume": {"volumeID": "p"}}, {}, "p"),
    ],
)
def test_handles(source: dict[str, Any], labels: dict[str, str], handle: str) -> None:
    assert volume_handle(volume(source, labels=labels)) == handle


def test_inline_volumes_have_no_zone() -> None:
    assert inline_handle(inline(GCE)) == "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/disk"
    assert inline_handle(inline(EBS)) == "vol-0123"


@pytest.mark.parametrize(
    "bad",
    [
        volume({"awsElasticBlockStore": {"volumeID": "aws://us-east-1a/disk-0123"}}),
        volume(GCE, labels={ZONE: "us-a1-b__eu-a1-b"}),
        volume(GCE, labels={ZONE: "here__there"}),
        volume({"azureFile": {"shareName": "s"}}),
    ],
)
def test_volumes_without_a_handle(bad: PersistentVolume) -> None:
    with pytest.raises(ValueError, match=r"."):
        volume_handle(bad)


def affinity(source: dict[str, Any], **more: Any) -> Any:
    legacy = volume(source, **more)
    plugin = in_tree_plugin_of(legacy.spec)
    assert plugin is not None
    found = translated_affinity(legacy, plugin)
    if found is None:
        return None
    return [
        {e.key: list(e.values) for e in term.match_expressions}
        for term in found.node_selector_terms
    ]


def test_zones_in_node_affinity_get_the_drivers_key() -> None:
    key = "topology.ebs.csi.aws.com/zone"
    assert affinity(EBS, where={ZONE: ["a"], "disk": ["ssd"]}, labels={ZONE: "b"}) == [
        {key: ["a"], "disk": ["ssd"]}
    ]
    assert affinity(EBS, where={BETA_ZONE: ["a"], BETA_REGION: ["r"]}) == [
        {key: ["a"], "topology.kubernetes.io/region": ["r"]}
    ]


def test_zones_of_labels_are_added_to_every_term() -> None:
    assert affinity(GCE, labels={ZONE: "us-a1-c__us-a1-b"}) == [
        {"topology.gke.io/zone": ["us-a1-b", "us-a1-c"]}
    ]
    assert affinity(GCE, labels={BETA_ZONE: "us-a1-b"}, where={"disk": ["ssd"]}) == [
        {"disk": ["ssd"], "topology.gke.io/zone": ["us-a1-b"]}
    ]
    assert affinity(GCE) is None
    assert affinity({"portworxVolume": {"volumeID": "p"}}, labels={ZONE: "a"}) is None


def test_nodes_announce_migrated_plugins() -> None:
    node = decoder_for(CSINode).convert(
        make_csi_node("n", migrated=["kubernetes.io/aws-ebs", "kubernetes.io/gce-pd"])
    )
    assert migrated_plugins(node) == {"kubernetes.io/aws-ebs", "kubernetes.io/gce-pd"}
    bare = msgspec.structs.replace(
        node, metadata=msgspec.structs.replace(node.metadata, annotations={})
    )
    assert migrated_plugins(bare) == frozenset()


def test_some_plugins_are_never_migrated() -> None:
    assert {name for name, plugin in BY_NAME.items() if not plugin.on} == {
        "kubernetes.io/azure-file",
        "kubernetes.io/vsphere-volume",
    }
