"""core/v1 Pod, as far as a scheduler reads it.

Fields in which kube-scheduler distinguishes absent from empty can be None (``node_selector``,
``affinity`` and its parts, label selectors). In all others, absent is empty.
"""

from datetime import datetime

import msgspec

from proreus.objects.meta import ApiStruct, ObjectMeta
from proreus.objects.selectors import LabelSelector, NodeSelector, PreferredSchedulingTerm
from proreus.objects.taints import Toleration

ResourceList = dict[str, str | int | float]


class ContainerResourceClaim(ApiStruct, frozen=True):
    """A claim that a container uses, by its name in ``spec.resourceClaims``."""

    name: str = ""
    request: str = ""


class ResourceRequirements(ApiStruct, frozen=True):
    """Requests and limits of a container or a whole pod."""

    requests: ResourceList = {}
    limits: ResourceList = {}
    claims: tuple[ContainerResourceClaim, ...] = ()


class ContainerPort(ApiStruct, frozen=True):
    """A port; schedulers use only those with a ``host_port``."""

    container_port: int = 0
    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = ""
    name: str = ""


class ContainerRestartRule(ApiStruct, frozen=True):
    """The restart action for certain exit codes of a container."""

    action: str = ""


class VolumeMount(ApiStruct, frozen=True):
    """The mount of a volume by a container, as far as it concerns the choice of a node."""

    bind_mount_options: tuple[str, ...] = ()


class SeccompReference(ApiStruct, frozen=True):
    """A seccomp profile, on the node by its path (Localhost), or of the runtime."""

    type: str = ""
    localhost_profile: str | None = None


class SecurityContext(ApiStruct, frozen=True):
    """The security context of a pod or a container."""

    seccomp_profile: SeccompReference | None = None


class EphemeralContainer(ApiStruct, frozen=True):
    """A container that was added to a running pod."""

    volume_mounts: tuple[VolumeMount, ...] = ()
    security_context: SecurityContext | None = None


class Container(ApiStruct, frozen=True):
    """A container, or an init container."""

    name: str = ""
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str | None = None
    restart_policy_rules: tuple[ContainerRestartRule, ...] = ()
    volume_mounts: tuple[VolumeMount, ...] = ()
    security_context: SecurityContext | None = None


class PodAffinityTerm(ApiStruct, frozen=True):
    """Selects the pods to share, or not to share, a topology domain with."""

    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    topology_key: str = ""
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(ApiStruct, frozen=True):
    """A preferred term; weight 1 to 100."""

    weight: int = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(ApiStruct, frozen=True):
    """Required and preferred terms, of podAffinity or podAntiAffinity."""

    required: tuple[PodAffinityTerm, ...] = msgspec.field(
        default=(), name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[WeightedPodAffinityTerm, ...] = msgspec.field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class NodeAffinity(ApiStruct, frozen=True):
    """Required and preferred terms; PreScore distinguishes absent and empty ``preferred``."""

    required: NodeSelector | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[PreferredSchedulingTerm, ...] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(ApiStruct, frozen=True):
    """Node affinity, pod affinity and pod anti-affinity."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(ApiStruct, frozen=True):
    """The rule for an even spread of pods over the domains of a key (KEP-895, 3022, 3094, 3243)."""

    max_skew: int = 0
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] = ()


class SchedulingGate(ApiStruct, frozen=True):
    """A gate that keeps a pod from being scheduled (KEP-3521)."""

    name: str = ""


class PersistentVolumeClaimVolumeSource(ApiStruct, frozen=True):
    """A volume that refers to a claim."""

    claim_name: str = ""
    read_only: bool = False


class ImageVolumeSource(ApiStruct, frozen=True):
    """A volume from an OCI image (KEP-4639)."""

    reference: str = ""


class GCEPersistentDisk(ApiStruct, frozen=True):
    """A legacy GCE disk."""

    pd_name: str = ""
    read_only: bool = False


class AWSElasticBlockStore(ApiStruct, frozen=True):
    """A legacy EBS volume."""

    volume_id: str = msgspec.field(default="", name="volumeID")
    read_only: bool = False


class RBDVolume(ApiStruct, frozen=True):
    """A legacy Ceph RBD image."""

    monitors: tuple[str, ...] = ()
    pool: str = ""
    image: str = ""
    read_only: bool = False


class ISCSIVolume(ApiStruct, frozen=True):
    """A legacy iSCSI target."""

    target_portal: str = ""
    iqn: str = ""
    lun: int = 0
    read_only: bool = False


class AzureDiskVolume(ApiStruct, frozen=True):
    """A legacy Azure disk."""

    disk_name: str = ""
    disk_uri: str = msgspec.field(default="", name="diskURI")


class AzureFileVolume(ApiStruct, frozen=True):
    """A legacy Azure file share."""

    share_name: str = ""


class CinderVolume(ApiStruct, frozen=True):
    """A legacy Cinder volume."""

    volume_id: str = msgspec.field(default="", name="volumeID")


class VsphereVolume(ApiStruct, frozen=True):
    """A legacy vSphere disk."""

    volume_path: str = ""


class PortworxVolume(ApiStruct, frozen=True):
    """A legacy Portworx volume."""

    volume_id: str = msgspec.field(default="", name="volumeID")


class CSIInlineVolume(ApiStruct, frozen=True):
    """An inline CSI volume."""

    driver: str = ""


class EphemeralVolumeSource(ApiStruct, frozen=True):
    """A volume whose claim is created for this pod, with the name ``<pod>-<volume>``."""

    volume_claim_template: dict[str, object] | None = None


class PodCertificateProjection(ApiStruct, frozen=True):
    """A certificate that the kubelet requests for the pod (KEP-4317)."""

    key_type: str = ""


class VolumeProjection(ApiStruct, frozen=True):
    """A source of a projected volume, if it requires a feature of the node."""

    pod_certificate: PodCertificateProjection | None = None


class ProjectedVolume(ApiStruct, frozen=True):
    """Several sources in one directory."""

    sources: tuple[VolumeProjection, ...] = ()


class Volume(ApiStruct, frozen=True):
    """A volume of a pod, with the sources that matter to scheduling."""

    name: str = ""
    persistent_volume_claim: PersistentVolumeClaimVolumeSource | None = None
    ephemeral: EphemeralVolumeSource | None = None
    image: ImageVolumeSource | None = None
    gce_persistent_disk: GCEPersistentDisk | None = None
    aws_elastic_block_store: AWSElasticBlockStore | None = None
    rbd: RBDVolume | None = None
    iscsi: ISCSIVolume | None = None
    azure_disk: AzureDiskVolume | None = None
    azure_file: AzureFileVolume | None = None
    cinder: CinderVolume | None = None
    vsphere_volume: VsphereVolume | None = None
    portworx_volume: PortworxVolume | None = None
    csi: CSIInlineVolume | None = None
    projected: ProjectedVolume | None = None
    config_map: dict[str, object] | None = None
    secret: dict[str, object] | None = None


class PodResourceClaim(ApiStruct, frozen=True):
    """A claim for devices that a pod refers to (KEP-4381)."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodSchedulingGroup(ApiStruct, frozen=True):
    """The PodGroup that a pod belongs to (KEP-4671)."""

    pod_group_name: str = ""


class PodSpec(ApiStruct, frozen=True):
    """The desired state of a pod."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    ephemeral_containers: tuple[EphemeralContainer, ...] = ()
    volumes: tuple[Volume, ...] = ()
    node_name: str = ""
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    scheduler_name: str = ""
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    overhead: ResourceList = {}
    resources: ResourceRequirements | None = None
    resource_claims: tuple[PodResourceClaim, ...] = ()
    host_network: bool = False
    host_users: bool | None = None
    security_context: SecurityContext | None = None
    termination_grace_period_seconds: int | None = None
    scheduling_group: PodSchedulingGroup | None = None


class PodCondition(ApiStruct, frozen=True):
    """A condition; times stay text, since they are only copied and compared."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    observed_generation: int = 0
    last_probe_time: str | None = None
    last_transition_time: str | None = None


class ContainerStatus(ApiStruct, frozen=True):
    """The actual resources of a container during an in-place resize (KEP-1287)."""

    name: str = ""
    resources: ResourceRequirements | None = None
    allocated_resources: ResourceList = {}


class PodResourceClaimStatus(ApiStruct, frozen=True):
    """The name of the claim that was created from a template."""

    name: str = ""
    resource_claim_name: str | None = None


class PodExtendedResourceRequest(ApiStruct, frozen=True):
    """The claim's request for an extended resource of a container."""

    container_name: str = ""
    resource_name: str = ""
    request_name: str = ""


class PodExtendedResourceClaimStatus(ApiStruct, frozen=True):
    """The claim for a pod's extended resources."""

    request_mappings: tuple[PodExtendedResourceRequest, ...] = ()
    resource_claim_name: str = ""


class NodeAllocatableMappedResources(ApiStruct, frozen=True):
    """The amount of a node's resource that a claim's devices are."""

    name: str = ""
    quantity: str | int | float | None = None


class NodeAllocatableOverheadResources(ApiStruct, frozen=True):
    """The amounts of a node's resource that a claim's devices take."""

    name: str = ""
    per_pod: str | int | float | None = None
    per_container: str | int | float | None = None


class NodeAllocatableResourceClaimStatus(ApiStruct, frozen=True):
    """Node resources such as cpu and memory that a claim's devices use (KEP-5517).

    ``resources``: up to 1.36; ``mapping`` and ``overhead``: since 1.37.
    """

    resource_claim_name: str = ""
    containers: tuple[str, ...] = ()
    resources: ResourceList = {}
    mapping: tuple[NodeAllocatableMappedResources, ...] = ()
    overhead: tuple[NodeAllocatableOverheadResources, ...] = ()


class PodStatus(ApiStruct, frozen=True):
    """The observed state of a pod."""

    phase: str = ""
    conditions: tuple[PodCondition, ...] = ()
    nominated_node_name: str = ""
    start_time: datetime | None = None
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()
    extended_resource_claim_status: PodExtendedResourceClaimStatus | None = None
    resources: ResourceRequirements | None = None
    allocated_resources: ResourceList = {}
    node_allocatable_resource_claim_statuses: tuple[NodeAllocatableResourceClaimStatus, ...] = ()


class Pod(ApiStruct, frozen=True):
    """A pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


def priority_of(pod: Pod) -> int:
    """Return ``spec.priority``, 0 if absent."""
    return pod.spec.priority or 0


def is_terminal(pod: Pod) -> bool:
    """Return whether all containers of a pod have ended, for good: it holds no resources."""
    return pod.status.phase in ("Succeeded", "Failed")


def is_unstarted(pod: Pod) -> bool:
    """Return whether no kubelet has acknowledged the pod, and it has not finished either."""
    return pod.status.start_time is None and pod.status.phase in ("", "Pending")


POD_SCHEDULED = "PodScheduled"
"""The type of the condition that says whether a pod has a node, and why it has none."""


def condition_of(pod: Pod, type_: str) -> PodCondition | None:
    """Return the pod's condition of a type, or None."""
    for condition in pod.status.conditions:
        if condition.type == type_:
            return condition
    return None


def true_condition_of(pod: Pod, type_: str) -> PodCondition | None:
    """Return the pod's condition of a type if its status is True, otherwise None."""
    condition = condition_of(pod, type_)
    return condition if condition is not None and condition.status == "True" else None
