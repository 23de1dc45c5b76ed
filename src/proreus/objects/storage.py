"""core/v1 and storage.k8s.io/v1: volumes, the claims for them, and what drivers say of nodes.

Absent and empty differ where kube-scheduler sees a difference (a claim's class, modes, limits,
selectors); those fields can be None. Quantities stay text: ``objects.quantity`` reads them.
"""

from __future__ import annotations

from typing import Any

from proreus.objects.meta import ApiStruct, ObjectMeta, Resource
from proreus.objects.pod import (
    AWSElasticBlockStore,
    AzureDiskVolume,
    AzureFileVolume,
    CinderVolume,
    GCEPersistentDisk,
    PortworxVolume,
    ResourceList,
    ResourceRequirements,
    VsphereVolume,
)
from proreus.objects.selectors import LabelSelector, NodeSelector

WAIT_FOR_FIRST_CONSUMER = "WaitForFirstConsumer"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
READ_WRITE_ONCE_POD = "ReadWriteOncePod"

STORAGE_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
SELECTED_NODE_ANNOTATION = "volume.kubernetes.io/selected-node"
BIND_COMPLETED_ANNOTATION = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER_ANNOTATION = "pv.kubernetes.io/bound-by-controller"
MIGRATED_PLUGINS_ANNOTATION = "storage.alpha.kubernetes.io/migrated-plugins"

QuantityText = str | int | float


# ---- PersistentVolume --------------------------------------------------------------------------


class ClaimReference(ApiStruct, frozen=True):
    """The claim that a volume belongs to, or is kept for."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""


class VolumeNodeAffinity(ApiStruct, frozen=True):
    """The nodes that can reach a volume."""

    required: NodeSelector | None = None


class CSIPersistentVolumeSource(ApiStruct, frozen=True):
    """A volume of a CSI driver, and the driver's own name for it."""

    driver: str = ""
    volume_handle: str = ""


class PersistentVolumeSpec(ApiStruct, frozen=True):
    """What a volume is, with the sources that scheduling rules tell apart."""

    capacity: ResourceList = {}
    access_modes: tuple[str, ...] = ()
    claim_ref: ClaimReference | None = None
    storage_class_name: str = ""
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    node_affinity: VolumeNodeAffinity | None = None
    csi: CSIPersistentVolumeSource | None = None
    aws_elastic_block_store: AWSElasticBlockStore | None = None
    gce_persistent_disk: GCEPersistentDisk | None = None
    azure_disk: AzureDiskVolume | None = None
    azure_file: AzureFileVolume | None = None
    cinder: CinderVolume | None = None
    vsphere_volume: VsphereVolume | None = None
    portworx_volume: PortworxVolume | None = None


class PersistentVolumeStatus(ApiStruct, frozen=True):
    """Whether it is free."""

    phase: str = ""


class PersistentVolume(ApiStruct, frozen=True):
    """A piece of storage."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()


# ---- PersistentVolumeClaim ---------------------------------------------------------------------


class PersistentVolumeClaimSpec(ApiStruct, frozen=True):
    """What storage is claimed, and the volume that was given."""

    access_modes: tuple[str, ...] = ()
    selector: LabelSelector | None = None
    resources: ResourceRequirements = ResourceRequirements()
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class PersistentVolumeClaimStatus(ApiStruct, frozen=True):
    """What became of the claim."""

    phase: str = ""


class PersistentVolumeClaim(ApiStruct, frozen=True):
    """A claim for storage."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()


# ---- StorageClass ------------------------------------------------------------------------------


class TopologySelectorLabelRequirement(ApiStruct, frozen=True):
    """A label and the values that it may have."""

    key: str = ""
    values: tuple[str, ...] = ()


class TopologySelectorTerm(ApiStruct, frozen=True):
    """Labels, all of which a node must have."""

    match_label_expressions: tuple[TopologySelectorLabelRequirement, ...] = ()


class StorageClass(ApiStruct, frozen=True):
    """A kind of storage: who makes it, when, and where."""

    metadata: ObjectMeta = ObjectMeta()
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: tuple[TopologySelectorTerm, ...] = ()


# ---- what CSI drivers publish ------------------------------------------------------------------


class VolumeNodeResources(ApiStruct, frozen=True):
    """How many volumes of a driver a node can hold; None: any number."""

    count: int | None = None


class CSINodeDriver(ApiStruct, frozen=True):
    """A driver that is installed on a node."""

    name: str = ""
    allocatable: VolumeNodeResources | None = None


class CSINodeSpec(ApiStruct, frozen=True):
    """The drivers on a node."""

    drivers: tuple[CSINodeDriver, ...] = ()


class CSINode(ApiStruct, frozen=True):
    """What CSI drivers say of the node of the same name."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CSINodeSpec = CSINodeSpec()


class CSIDriverSpec(ApiStruct, frozen=True):
    """How a driver wants to be treated."""

    storage_capacity: bool | None = None
    prevent_pod_scheduling_if_missing: bool | None = None


class CSIDriver(ApiStruct, frozen=True):
    """A CSI driver."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CSIDriverSpec = CSIDriverSpec()


class CSIStorageCapacity(ApiStruct, frozen=True):
    """How much storage of a class can be made in one topology segment (KEP-1472)."""

    metadata: ObjectMeta = ObjectMeta()
    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: QuantityText | None = None
    maximum_volume_size: QuantityText | None = None


class VolumeAttachmentSource(ApiStruct, frozen=True):
    """The volume that is attached."""

    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(ApiStruct, frozen=True):
    """What is attached, where, and by whom."""

    attacher: str = ""
    node_name: str = ""
    source: VolumeAttachmentSource = VolumeAttachmentSource()


class VolumeAttachment(ApiStruct, frozen=True):
    """A volume that is, or is to be, attached to a node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()


_GROUP = "storage.k8s.io"
PERSISTENT_VOLUMES = Resource(
    "", "v1", "persistentvolumes", "PersistentVolume", False, PersistentVolume
)
PERSISTENT_VOLUME_CLAIMS = Resource(
    "", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", True, PersistentVolumeClaim
)
STORAGE_CLASSES = Resource(_GROUP, "v1", "storageclasses", "StorageClass", False, StorageClass)
CSI_NODES = Resource(_GROUP, "v1", "csinodes", "CSINode", False, CSINode)
CSI_DRIVERS = Resource(_GROUP, "v1", "csidrivers", "CSIDriver", False, CSIDriver)
CSI_STORAGE_CAPACITIES = Resource(
    _GROUP, "v1", "csistoragecapacities", "CSIStorageCapacity", True, CSIStorageCapacity
)
VOLUME_ATTACHMENTS = Resource(
    _GROUP, "v1", "volumeattachments", "VolumeAttachment", False, VolumeAttachment
)

STORAGE_KINDS: tuple[Resource[Any], ...] = (
    PERSISTENT_VOLUMES,
    PERSISTENT_VOLUME_CLAIMS,
    STORAGE_CLASSES,
    CSI_NODES,
    CSI_DRIVERS,
    CSI_STORAGE_CAPACITIES,
    VOLUME_ATTACHMENTS,
)
"""What volume plugins read."""
