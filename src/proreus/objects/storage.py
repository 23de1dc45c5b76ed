"""core/v1 and storage.k8s.io/v1: volumes, claims, and the objects that CSI drivers publish.

Fields in which kube-scheduler distinguishes absent from empty can be None (a claim's class, modes,
limits, selectors). Quantities stay text, for ``objects.quantity``.
"""

from __future__ import annotations

from typing import Any

from proreus.objects.meta import ApiStruct, ObjectMeta, Resource, UnownedObjectMeta
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
    """The claim that a volume is bound to or reserved for."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""


class VolumeNodeAffinity(ApiStruct, frozen=True):
    """The nodes from which a volume is accessible."""

    required: NodeSelector | None = None


class CSIPersistentVolumeSource(ApiStruct, frozen=True):
    """A CSI volume: its driver and the driver's handle for it."""

    driver: str = ""
    volume_handle: str = ""


class PersistentVolumeSpec(ApiStruct, frozen=True):
    """The desired state of a volume, with the sources that matter to scheduling."""

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
    """The phase of a volume."""

    phase: str = ""


class PersistentVolume(ApiStruct, frozen=True):
    """A PersistentVolume."""

    metadata: UnownedObjectMeta = UnownedObjectMeta()
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()


# ---- PersistentVolumeClaim ---------------------------------------------------------------------


class PersistentVolumeClaimSpec(ApiStruct, frozen=True):
    """The requested storage, and the bound volume."""

    access_modes: tuple[str, ...] = ()
    selector: LabelSelector | None = None
    resources: ResourceRequirements = ResourceRequirements()
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class PersistentVolumeClaimStatus(ApiStruct, frozen=True):
    """The observed state of a claim."""

    phase: str = ""


class PersistentVolumeClaim(ApiStruct, frozen=True):
    """A PersistentVolumeClaim."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()


# ---- StorageClass ------------------------------------------------------------------------------


class TopologySelectorLabelRequirement(ApiStruct, frozen=True):
    """A label and its allowed values."""

    key: str = ""
    values: tuple[str, ...] = ()


class TopologySelectorTerm(ApiStruct, frozen=True):
    """Label requirements, all of which a node must match."""

    match_label_expressions: tuple[TopologySelectorLabelRequirement, ...] = ()


class StorageClass(ApiStruct, frozen=True):
    """A storage class: its provisioner, binding mode and topologies."""

    metadata: UnownedObjectMeta = UnownedObjectMeta()
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: tuple[TopologySelectorTerm, ...] = ()


# ---- objects that CSI drivers publish ----------------------------------------------------------


class VolumeNodeResources(ApiStruct, frozen=True):
    """The number of volumes of a driver that a node can hold; None if unlimited."""

    count: int | None = None


class CSINodeDriver(ApiStruct, frozen=True):
    """A driver that is installed on a node."""

    name: str = ""
    allocatable: VolumeNodeResources | None = None


class CSINodeSpec(ApiStruct, frozen=True):
    """The drivers on a node."""

    drivers: tuple[CSINodeDriver, ...] = ()


class CSINode(ApiStruct, frozen=True):
    """The CSI drivers of the node with the same name."""

    metadata: UnownedObjectMeta = UnownedObjectMeta()
    spec: CSINodeSpec = CSINodeSpec()


class CSIDriverSpec(ApiStruct, frozen=True):
    """The capabilities of a driver."""

    storage_capacity: bool | None = None
    prevent_pod_scheduling_if_missing: bool | None = None


class CSIDriver(ApiStruct, frozen=True):
    """A CSI driver."""

    metadata: UnownedObjectMeta = UnownedObjectMeta()
    spec: CSIDriverSpec = CSIDriverSpec()


class CSIStorageCapacity(ApiStruct, frozen=True):
    """The available storage of a class in one topology segment (KEP-1472)."""

    metadata: UnownedObjectMeta = UnownedObjectMeta()
    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: QuantityText | None = None
    maximum_volume_size: QuantityText | None = None


class VolumeAttachmentSource(ApiStruct, frozen=True):
    """The volume that is attached."""

    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(ApiStruct, frozen=True):
    """The volume, the node and the driver that attaches."""

    attacher: str = ""
    node_name: str = ""
    source: VolumeAttachmentSource = VolumeAttachmentSource()


class VolumeAttachment(ApiStruct, frozen=True):
    """A volume that is attached, or being attached, to a node."""

    metadata: UnownedObjectMeta = UnownedObjectMeta()
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
"""The resources that volume plugins read."""
