"""Translation of legacy in-tree volumes to the CSI volumes that they have been migrated to.

CSI drivers serve the volumes of Kubernetes' former in-tree plugins. For scheduling that means: they
count towards the driver's volume limit, under the driver's handle; their zones are matched with the
driver's node label; and both only if the migration is on.

Worked example: an EBS volume ``aws://us-east-1a/vol-0a1`` counts as ``vol-0a1`` of
``ebs.csi.aws.com``. A required affinity to ``topology.kubernetes.io/zone In [us-east-1a]`` becomes
``topology.ebs.csi.aws.com/zone In [us-east-1a]``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from proreus.objects.node import LABEL_REGION, LABEL_REGION_BETA, LABEL_ZONE, LABEL_ZONE_BETA
from proreus.objects.pod import Volume
from proreus.objects.selectors import LabelSelectorRequirement, NodeSelector, NodeSelectorTerm
from proreus.objects.storage import (
    MIGRATED_PLUGINS_ANNOTATION,
    CSINode,
    PersistentVolume,
    PersistentVolumeSpec,
    VolumeNodeAffinity,
)

_ZONE_DELIMITER = "__"
_UNSPECIFIED = "UNSPECIFIED"
_EBS_SCHEME = "aws://"
_EBS_VOLUME = re.compile(r"vol-[^/]*")


class InTreePlugin(Struct, frozen=True):
    """A former in-tree plugin: its volume source's field, its name, driver and topology label.

    ``on``: whether kube-scheduler treats its volumes as migrated.
    """

    source: str
    name: str
    driver: str
    topology_key: str = ""
    on: bool = True


MIGRATED_IN_TREE_PLUGINS = (
    InTreePlugin(
        "aws_elastic_block_store",
        "kubernetes.io/aws-ebs",
        "ebs.csi.aws.com",
        "topology.ebs.csi.aws.com/zone",
    ),
    InTreePlugin(
        "gce_persistent_disk",
        "kubernetes.io/gce-pd",
        "pd.csi.storage.gke.io",
        "topology.gke.io/zone",
    ),
    InTreePlugin(
        "azure_disk",
        "kubernetes.io/azure-disk",
        "disk.csi.azure.com",
        "topology.disk.csi.azure.com/zone",
    ),
    # kube-scheduler never counts volumes of this one and of vSphere.
    InTreePlugin("azure_file", "kubernetes.io/azure-file", "file.csi.azure.com", on=False),
    InTreePlugin(
        "cinder",
        "kubernetes.io/cinder",
        "cinder.csi.openstack.org",
        "topology.cinder.csi.openstack.org/zone",
    ),
    InTreePlugin(
        "vsphere_volume", "kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com", on=False
    ),
    InTreePlugin("portworx_volume", "kubernetes.io/portworx-volume", "pxd.portworx.com"),
)
BY_NAME: Mapping[str, InTreePlugin] = {plugin.name: plugin for plugin in MIGRATED_IN_TREE_PLUGINS}


def in_tree_plugin_of(source: Volume | PersistentVolumeSpec) -> InTreePlugin | None:
    """Return the in-tree plugin of a pod's inline volume, or of a PersistentVolume."""
    # A volume has exactly one source; the order does not matter.
    for plugin in MIGRATED_IN_TREE_PLUGINS:
        if getattr(source, plugin.source) is not None:
            return plugin
    return None


def migrated_plugins(node: CSINode) -> frozenset[str]:
    """Return the names of the plugins whose migration a node has announced."""
    text = node.metadata.annotations.get(MIGRATED_PLUGINS_ANNOTATION, "")
    return frozenset(text.split(",")) if text else frozenset()


# ---- names of volumes --------------------------------------------------------------------------


def inline_handle(volume: Volume) -> str:
    """Return the CSI handle of an inline volume. Raises ``ValueError`` if it has none."""
    # An inline volume has no labels, and so no zone.
    if volume.gce_persistent_disk is not None:
        return _gce_zonal(_UNSPECIFIED, volume.gce_persistent_disk.pd_name)
    return _plain_handle(volume)


def volume_handle(volume: PersistentVolume) -> str:
    """Return the CSI handle of a volume. Raises ``ValueError`` if it has none."""
    disk = volume.spec.gce_persistent_disk
    if disk is None:
        return _plain_handle(volume.spec)
    labels = volume.metadata.labels
    zones = (labels.get(LABEL_ZONE_BETA) or labels.get(LABEL_ZONE, "")).split(_ZONE_DELIMITER)
    # Several zones: a regional disk, whose handle names the region.
    if len(zones) == 1:
        return _gce_zonal(zones[0] or _UNSPECIFIED, disk.pd_name)
    return f"projects/{_UNSPECIFIED}/regions/{_gce_region(zones)}/disks/{disk.pd_name}"


def _plain_handle(source: Volume | PersistentVolumeSpec) -> str:
    if source.aws_elastic_block_store is not None:
        return _ebs_handle(source.aws_elastic_block_store.volume_id)
    if source.azure_disk is not None:
        return source.azure_disk.disk_uri
    if source.cinder is not None:
        return source.cinder.volume_id
    if source.portworx_volume is not None:
        return source.portworx_volume.volume_id
    raise ValueError("volume source is not migrated to CSI")


def _ebs_handle(volume_id: str) -> str:
    """Return ``vol-…`` of ``aws://zone/vol-…``; any other form is taken as it is."""
    if not volume_id.startswith(_EBS_SCHEME):
        return volume_id
    handle = volume_id[len(_EBS_SCHEME) :].partition("/")[2].strip("/")
    if not _EBS_VOLUME.fullmatch(handle):
        raise ValueError(f"failed to translate Kubernetes ID to EBS Volume ID: {volume_id!r}")
    return handle


def _gce_zonal(zone: str, name: str) -> str:
    return f"projects/{_UNSPECIFIED}/zones/{zone}/disks/{name}"


def _gce_region(zones: list[str]) -> str:
    regions = set()
    for zone in zones:
        parts = zone.split("-")
        if len(parts) != 3:
            raise ValueError(f"zone {zone!r} is not of the form {{locale}}-{{region}}-{{zone}}")
        regions.add("-".join(parts[:2]))
    if len(regions) != 1:
        raise ValueError(f"zones {zones} are not of one region")
    return regions.pop()


# ---- where volumes can be reached --------------------------------------------------------------


def translated_affinity(volume: PersistentVolume, plugin: InTreePlugin) -> NodeSelector | None:
    """Return a volume's required node affinity with the labels of the driver.

    Raises ``ValueError`` for a volume without a CSI handle.
    """
    # Only for the exception: kube-scheduler translates the whole volume, and fails for such a one.
    volume_handle(volume)
    affinity = volume.spec.node_affinity or VolumeNodeAffinity()
    required = affinity.required
    if not plugin.topology_key:
        return required
    zone_key, region_key = _topology_labels(volume, required)
    # An affinity is renamed; without one the zone label of the volume becomes a requirement.
    if any(expression.values for expression in _expressions(required, zone_key)):
        required = _renamed(required, zone_key, plugin.topology_key)
    elif zone_key in volume.metadata.labels:
        required = _with_zones(required, plugin, volume.metadata.labels[zone_key])
    if region_key == LABEL_REGION_BETA:
        required = _renamed(required, LABEL_REGION_BETA, LABEL_REGION)
    return required


def _topology_labels(volume: PersistentVolume, required: NodeSelector | None) -> tuple[str, str]:
    """Return the zone and region keys in a volume's affinity or labels: GA ones or beta ones."""
    labels = volume.metadata.labels
    if _expressions(required, LABEL_ZONE):
        return LABEL_ZONE, LABEL_REGION
    if _expressions(required, LABEL_ZONE_BETA):
        return LABEL_ZONE_BETA, LABEL_REGION_BETA
    if LABEL_ZONE not in labels and LABEL_ZONE_BETA in labels:
        return LABEL_ZONE_BETA, LABEL_REGION_BETA
    return LABEL_ZONE, LABEL_REGION


def _expressions(required: NodeSelector | None, key: str) -> list[LabelSelectorRequirement]:
    if required is None:
        return []
    return [
        expression
        for term in required.node_selector_terms
        for expression in term.match_expressions
        if expression.key == key
    ]


def _renamed(required: NodeSelector | None, old: str, new: str) -> NodeSelector | None:
    if required is None:
        return None
    terms = tuple(
        msgspec.structs.replace(
            term,
            match_expressions=tuple(
                msgspec.structs.replace(e, key=new) if e.key == old else e
                for e in term.match_expressions
            ),
        )
        for term in required.node_selector_terms
    )
    return NodeSelector(node_selector_terms=terms)


def _with_zones(
    required: NodeSelector | None, plugin: InTreePlugin, label: str
) -> NodeSelector | None:
    """Add a requirement for the zones of a label to every term."""
    # One requirement with all zones: a regional volume is accessible from each of them.
    zones = sorted({zone.strip() for zone in label.split(_ZONE_DELIMITER)} - {""})
    if not zones:
        return required
    zone = LabelSelectorRequirement(key=plugin.topology_key, operator="In", values=tuple(zones))
    terms = (required.node_selector_terms if required is not None else ()) or (NodeSelectorTerm(),)
    return NodeSelector(
        node_selector_terms=tuple(
            msgspec.structs.replace(term, match_expressions=(*term.match_expressions, zone))
            for term in terms
        )
    )
