"""core/v1 Node, as far as a scheduler reads it."""

from proreus.objects.meta import ApiStruct, UnownedObjectMeta
from proreus.objects.pod import ResourceList
from proreus.objects.taints import Taint

LABEL_ZONE = "topology.kubernetes.io/zone"
LABEL_REGION = "topology.kubernetes.io/region"
LABEL_ZONE_BETA = "failure-domain.beta.kubernetes.io/zone"
LABEL_REGION_BETA = "failure-domain.beta.kubernetes.io/region"
LABEL_HOSTNAME = "kubernetes.io/hostname"


class PodPreemptionPolicy(ApiStruct, frozen=True):
    """The preemption that a node allows; none for resizes while this names anybody."""

    disable_resize_preemption: tuple[str, ...] = ()


class NodeSpec(ApiStruct, frozen=True):
    """The desired state of a node."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    pod_preemption_policy: PodPreemptionPolicy | None = None


class ContainerImage(ApiStruct, frozen=True):
    """An image on a node, with all its names."""

    names: tuple[str, ...] = ()
    size_bytes: int = 0


class NodeCondition(ApiStruct, frozen=True):
    """A condition without its heartbeat time, so that a heartbeat is not a change."""

    type: str = ""
    status: str = ""


class NodeStatus(ApiStruct, frozen=True):
    """The observed state of a node."""

    capacity: ResourceList = {}
    allocatable: ResourceList = {}
    conditions: tuple[NodeCondition, ...] = ()
    images: tuple[ContainerImage, ...] = ()
    declared_features: tuple[str, ...] = ()


class Node(ApiStruct, frozen=True):
    """A node."""

    metadata: UnownedObjectMeta = UnownedObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()
