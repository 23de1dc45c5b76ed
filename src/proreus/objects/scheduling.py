"""scheduling.k8s.io/v1alpha2 PodGroup: pods that are scheduled together (KEP-4671).

Alpha, behind gate GenericWorkload; field names are those of 1.36 and may change.
"""

from __future__ import annotations

from proreus.objects.meta import ApiStruct, ObjectMeta, Resource
from proreus.objects.pod import Pod, PodResourceClaimStatus

POD_GROUP_SCHEDULED = "PodGroupScheduled"
"""The condition type for a scheduled group; it never becomes False again."""

DISRUPTED_AS_GROUP = "PodGroup"
"""The disruption mode of a group whose pods may only be evicted together."""


class BasicSchedulingPolicy(ApiStruct, frozen=True):
    """Each pod of the group may start alone."""


class GangSchedulingPolicy(ApiStruct, frozen=True):
    """All or nothing: no pod starts before ``min_count`` pods can."""

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


class PodGroupSpec(ApiStruct, frozen=True):
    """The desired state of a group. ``disruption_mode``: Pod (the default) or PodGroup."""

    scheduling_policy: PodGroupSchedulingPolicy = PodGroupSchedulingPolicy()
    scheduling_constraints: PodGroupSchedulingConstraints | None = None
    disruption_mode: str = ""
    priority: int | None = None
    priority_class_name: str = ""
    resource_claims: tuple[PodGroupResourceClaim, ...] = ()


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


class PodGroup(ApiStruct, frozen=True):
    """A PodGroup; pods name it in ``spec.schedulingGroup.podGroupName``."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()

    @property
    def topology_keys(self) -> tuple[str, ...]:
        """The labels in which the group's nodes must agree."""
        constraints = self.spec.scheduling_constraints
        return () if constraints is None else tuple(one.key for one in constraints.topology)

    @property
    def priority(self) -> int:
        """Priority of the group as a whole."""
        return self.spec.priority or 0

    def condition(self, type_: str) -> Condition | None:
        """Return the condition of a type, or None."""
        return next((one for one in self.status.conditions if one.type == type_), None)


POD_GROUPS = Resource("scheduling.k8s.io", "v1alpha2", "podgroups", "PodGroup", True, PodGroup)


def pod_group_key(pod: Pod) -> str:
    """Return ``namespace/name`` of a pod's group, "" if it has none."""
    group = pod.spec.scheduling_group
    if group is None or not group.pod_group_name:
        return ""
    return f"{pod.metadata.namespace}/{group.pod_group_name}"
