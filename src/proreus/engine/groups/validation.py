"""What all pods of a root group must have in common: scheduler, priority, preemption policy."""

from __future__ import annotations

from collections.abc import Iterable

from proreus.base.errors import ProreusError
from proreus.objects.pod import Pod
from proreus.objects.scheduling import CompositePodGroup, PodGroup

_DEFAULT_POLICY = "PreemptLowerPriority"


class InvalidPodGroup(ProreusError):
    """A group that cannot be scheduled as it is."""


def validate_pod_group(
    root: PodGroup | CompositePodGroup, pods: Iterable[Pod], *, policy_of_group: bool
) -> None:
    """Check the pods of a group, those in the queue first; raises ``InvalidPodGroup``.

    ``policy_of_group``: gate PodGroupPreemptionPolicy, the policy is that of the group object.
    """
    scheduler_name = ""
    policy = (root.spec.preemption_policy or _DEFAULT_POLICY) if policy_of_group else ""
    whole = "all pods in a single pod group should have the same"
    for pod in pods:
        spec = pod.spec
        scheduler_name = scheduler_name or spec.scheduler_name
        if spec.scheduler_name != scheduler_name:
            raise InvalidPodGroup(
                f'{whole} .spec.schedulerName set, got: "{spec.scheduler_name}" and '
                f'"{scheduler_name}"'
            )
        # A group that a plugin provides takes its pods as they are.
        if root.key.is_provided:
            continue
        priority = spec.priority or 0
        if priority != root.priority:
            raise InvalidPodGroup(
                f"{whole} priority as the pod group's priority, got {priority} and {root.priority}"
            )
        of_pod = spec.preemption_policy or _DEFAULT_POLICY
        policy = policy or of_pod
        if of_pod != policy:
            of_group = " as the pod group's preemption policy" if policy_of_group else ""
            raise InvalidPodGroup(f"{whole} preemption policy{of_group}, got {of_pod} and {policy}")
