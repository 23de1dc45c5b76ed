"""scheduling.k8s.io PodGroup and CompositePodGroup: pods that are scheduled together (KEP-4671).

Behind gates GenericWorkload and CompositePodGroup. Both are read in v1beta1; a PodGroup of
Kubernetes 1.36 in v1alpha2, which differs in ``disruptionMode``, and a CompositePodGroup of 1.37 in
v1alpha3.
"""

from __future__ import annotations

from msgspec import Struct

from proreus.base.kubernetes_version import V1_36, V1_37
from proreus.objects.meta import ApiStruct, ObjectMeta, Resource
from proreus.objects.pod import Pod, PodResourceClaimStatus

POD_GROUP_SCHEDULED = "PodGroupScheduled"
"""The condition type for a scheduled group up to 1.36; it never becomes False again."""

POD_GROUP_INITIALLY_SCHEDULED = "PodGroupInitiallyScheduled"
"""The condition type for a group that was scheduled once; it never becomes False again."""

COMPOSITE_POD_GROUP_INITIALLY_SCHEDULED = "CompositePodGroupInitiallyScheduled"
"""The same for a CompositePodGroup, since 1.38."""

POD_GROUP_TYPE = "podgroup"
COMPOSITE_POD_GROUP_TYPE = "compositepodgroup"

_DISRUPTED_AS_GROUP = "PodGroup"
"""The disruption mode in v1alpha2 of a group whose pods may only be evicted together."""


class EntityKey(Struct, frozen=True):
    """A PodGroup or CompositePodGroup by its ``type``, ``namespace`` and ``name``."""

    type: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}/{self.namespace}/{self.name}"

    @property
    def namespaced_name(self) -> str:
        """``namespace/name``"""
        return f"{self.namespace}/{self.name}"

    @property
    def is_composite(self) -> bool:
        """Whether it is a CompositePodGroup."""
        return self.type == COMPOSITE_POD_GROUP_TYPE

    @property
    def is_provided(self) -> bool:
        """Return whether a plugin provides the group. No name of the API has a slash."""
        return "/" in self.name


class BasicSchedulingPolicy(ApiStruct, frozen=True):
    """Each pod of the group may start alone."""


class GangSchedulingPolicy(ApiStruct, frozen=True):
    """A gang: no pod starts before ``min_count`` pods can."""

    min_count: int = 0


class PodGroupSchedulingPolicy(ApiStruct, frozen=True):
    """Exactly one of the policies is set."""

    basic: BasicSchedulingPolicy | None = None
    gang: GangSchedulingPolicy | None = None


class TopologyConstraint(ApiStruct, frozen=True):
    """All pods of the group go to nodes with the same value of a label."""

    key: str = ""


class PodGroupSchedulingConstraints(ApiStruct, frozen=True):
    """Constraints on the placement of the whole group."""

    topology: tuple[TopologyConstraint, ...] = ()


class PodGroupResourceClaim(ApiStruct, frozen=True):
    """A claim that the group's pods share; pods refer to it with the same three fields."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class SingleDisruptionMode(ApiStruct, frozen=True):
    """Pods of the group may be evicted one by one."""


class AllDisruptionMode(ApiStruct, frozen=True):
    """Pods of the group may only be evicted together."""


class DisruptionMode(ApiStruct, frozen=True):
    """Exactly one of the modes is set."""

    single: SingleDisruptionMode | None = None
    all: AllDisruptionMode | None = None


class WorkloadReference(ApiStruct, frozen=True):
    """The Workload that a group was created for."""

    workload_name: str = ""


class PodGroupSpec(ApiStruct, frozen=True):
    """The desired state of a group.

    ``disruption_mode``: in v1alpha2 a text, Pod (the default) or PodGroup.
    """

    workload_ref: WorkloadReference | None = None
    scheduling_policy: PodGroupSchedulingPolicy = PodGroupSchedulingPolicy()
    scheduling_constraints: PodGroupSchedulingConstraints | None = None
    disruption_mode: str | DisruptionMode | None = None
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    resource_claims: tuple[PodGroupResourceClaim, ...] = ()
    parent_composite_pod_group_name: str | None = None


class Condition(ApiStruct, frozen=True):
    """metav1.Condition; times stay text."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    observed_generation: int = 0
    last_transition_time: str | None = None


class PodGroupStatus(ApiStruct, frozen=True):
    """The observed state of a group."""

    conditions: tuple[Condition, ...] = ()
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()


class CompositeGangSchedulingPolicy(ApiStruct, frozen=True):
    """A gang: no pod starts before ``min_group_count`` child groups can."""

    min_group_count: int = 0


class CompositePodGroupSchedulingPolicy(ApiStruct, frozen=True):
    """Exactly one of the policies is set."""

    basic: BasicSchedulingPolicy | None = None
    gang: CompositeGangSchedulingPolicy | None = None


class CompositePodGroupSpec(ApiStruct, frozen=True):
    """The desired state of a group of groups."""

    workload_ref: WorkloadReference | None = None
    scheduling_policy: CompositePodGroupSchedulingPolicy = CompositePodGroupSchedulingPolicy()
    scheduling_constraints: PodGroupSchedulingConstraints | None = None
    disruption_mode: DisruptionMode | None = None
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    parent_composite_pod_group_name: str | None = None


class CompositePodGroupStatus(ApiStruct, frozen=True):
    """The observed state of a group of groups."""

    conditions: tuple[Condition, ...] = ()


class _GenericPodGroup(ApiStruct, frozen=True):
    """What PodGroups and CompositePodGroups have in common."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodGroupSpec | CompositePodGroupSpec = PodGroupSpec()
    status: PodGroupStatus | CompositePodGroupStatus = PodGroupStatus()

    @property
    def topology_keys(self) -> tuple[str, ...]:
        """The labels in which the group's nodes must agree."""
        constraints = self.spec.scheduling_constraints
        return () if constraints is None else tuple(one.key for one in constraints.topology)

    @property
    def priority(self) -> int:
        """Priority of the group as a whole."""
        return self.spec.priority or 0

    @property
    def is_gang(self) -> bool:
        """Whether its policy is gang."""
        return self.spec.scheduling_policy.gang is not None

    @property
    def is_basic(self) -> bool:
        """Whether its policy is basic."""
        return self.spec.scheduling_policy.basic is not None

    @property
    def disrupted_as_whole(self) -> bool:
        """Whether its pods, those of all groups below included, may only be evicted together."""
        mode = self.spec.disruption_mode
        if isinstance(mode, DisruptionMode):
            return mode.all is not None
        return mode == _DISRUPTED_AS_GROUP

    @property
    def disrupted_pod_by_pod(self) -> bool:
        """Whether its disruption mode says that its pods may be evicted one by one."""
        mode = self.spec.disruption_mode
        return isinstance(mode, DisruptionMode) and mode.single is not None

    @property
    def workload_name(self) -> str:
        """The name of its Workload, "" without one."""
        return "" if self.spec.workload_ref is None else self.spec.workload_ref.workload_name

    def condition(self, type_: str) -> Condition | None:
        """Return the condition of a type, or None."""
        return next((one for one in self.status.conditions if one.type == type_), None)


class PodGroup(_GenericPodGroup, frozen=True):
    """A PodGroup; pods name it in ``spec.schedulingGroup.podGroupName``."""

    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()

    @property
    def key(self) -> EntityKey:
        """The key of the group."""
        return EntityKey(POD_GROUP_TYPE, self.metadata.namespace, self.metadata.name)

    @property
    def min_count(self) -> int:
        """The number of its pods that have to be scheduled together; 1 for a basic group."""
        gang = self.spec.scheduling_policy.gang
        return 1 if gang is None else gang.min_count


class CompositePodGroup(_GenericPodGroup, frozen=True):
    """A group of PodGroups and CompositePodGroups; these name it as their parent."""

    spec: CompositePodGroupSpec = CompositePodGroupSpec()
    status: CompositePodGroupStatus = CompositePodGroupStatus()

    @property
    def key(self) -> EntityKey:
        """The key of the group."""
        return EntityKey(COMPOSITE_POD_GROUP_TYPE, self.metadata.namespace, self.metadata.name)

    @property
    def min_count(self) -> int:
        """The number of its child groups that have to be scheduled together; 1 for a basic
        group.
        """
        gang = self.spec.scheduling_policy.gang
        return 1 if gang is None else gang.min_group_count


POD_GROUPS = Resource(
    "scheduling.k8s.io",
    "v1beta1",
    "podgroups",
    "PodGroup",
    True,
    PodGroup,
    until=(V1_36, "v1alpha2"),
)
COMPOSITE_POD_GROUPS = Resource(
    "scheduling.k8s.io",
    "v1beta1",
    "compositepodgroups",
    "CompositePodGroup",
    True,
    CompositePodGroup,
    until=(V1_37, "v1alpha3"),
)


def pod_group_key(pod: Pod) -> str:
    """Return ``namespace/name`` of a pod's group, "" if it has none."""
    group = pod.spec.scheduling_group
    if group is None or not group.pod_group_name:
        return ""
    return f"{pod.metadata.namespace}/{group.pod_group_name}"


def pod_group_entity_key(pod: Pod) -> EntityKey | None:
    """Return the key of a pod's group, None if it has none."""
    group = pod.spec.scheduling_group
    if group is None or not group.pod_group_name:
        return None
    return EntityKey(POD_GROUP_TYPE, pod.metadata.namespace, group.pod_group_name)
