"""Checks that the groups of a tree, and all their pods, can be scheduled together."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from msgspec import Struct

from proreus.base.errors import ProreusError
from proreus.base.feature_gates import FeatureGates
from proreus.base.kubernetes_version import Change
from proreus.framework.pod_group import PodGroupInfo, PodGroupStates
from proreus.framework.workload_forest import Group
from proreus.objects.pod import Pod

MOST_LEVELS = 4
"""A PodGroup and three CompositePodGroups above it."""

_DEFAULT_POLICY = "PreemptLowerPriority"


class InvalidPodGroup(ProreusError):
    """A group that cannot be scheduled as it is."""


Validate = Callable[[PodGroupInfo, PodGroupStates], None]
"""Checks a root group, its pods in the queue and those on nodes; raises ``InvalidPodGroup``."""


def validate_tree(root: PodGroupInfo, states: PodGroupStates) -> None:
    """Check a tree of groups from the root down, of each PodGroup the pods in the queue first."""
    assert root.group is not None
    first = root.unscheduled_pods[0].pod
    policy = root.group.spec.preemption_policy or _policy_of(first)
    _Tree(root.group, first, policy, states).validate(root, None, 1)


class _Tree(Struct, frozen=True):
    """What all groups and pods must agree with: the root, its first pod, the preemption policy."""

    root: Group
    first: Pod
    policy: str
    states: PodGroupStates

    def validate(self, info: PodGroupInfo, parent: Group | None, level: int) -> None:
        group = info.group
        assert group is not None
        if info.is_composite and level == MOST_LEVELS:
            raise InvalidPodGroup(
                f'hierarchy depth exceeds maximum allowed depth {MOST_LEVELS} at "{group.key}"'
            )
        if parent is not None:
            self._validate_child(group, parent)
        for child in info.children:
            self.validate(child, group, level + 1)
        for pod in [queued.pod for queued in info.pods] + _placed(info, self.states):
            self._validate_pod(pod)

    def _validate_child(self, group: Group, parent: Group) -> None:
        key, root = group.key, self.root
        if group.workload_name != root.workload_name:
            raise InvalidPodGroup(
                f'pod group workload does not match root workload, got: "{group.workload_name}" '
                f'("{key}") and "{root.workload_name}" ("{root.key}")'
            )
        same = "all pod groups in a hierarchy should have the same"
        if group.priority != root.priority:
            raise InvalidPodGroup(
                f"{same} priority as the root pod group's priority, got {group.priority} "
                f'("{key}") and {root.priority} ("{root.key}")'
            )
        policy = group.spec.preemption_policy
        if policy and policy != self.policy:
            raise InvalidPodGroup(
                f'{same} preemption policy, got {policy} ("{key}") and {self.policy}'
            )
        if parent.is_gang and group.is_basic:
            raise InvalidPodGroup(f'gang parent "{parent.key}" cannot have basic child "{key}"')
        if parent.disrupted_as_whole and group.disrupted_pod_by_pod:
            raise InvalidPodGroup(
                f'parent "{parent.key}" with All disruption mode cannot have child "{key}" with '
                "Single disruption mode"
            )

    def _validate_pod(self, pod: Pod) -> None:
        spec, name, root = pod.spec, pod.metadata.name, self.root
        same = "all pods in a pod group hierarchy should have the same"
        if spec.scheduler_name != self.first.spec.scheduler_name:
            raise InvalidPodGroup(
                f'{same} .spec.schedulerName set, got: "{spec.scheduler_name}" ("{name}") and '
                f'"{self.first.spec.scheduler_name}" ("{self.first.metadata.name}")'
            )
        priority, policy = spec.priority or 0, _policy_of(pod)
        if priority != root.priority:
            raise InvalidPodGroup(
                f"{same} priority as the root pod group's priority, got {priority} "
                f'("{name}") and {root.priority} ("{root.key}")'
            )
        if policy != self.policy:
            raise InvalidPodGroup(
                f'{same} preemption policy, got {policy} ("{name}") and {self.policy}'
            )


def _policy_of(pod: Pod) -> str:
    return pod.spec.preemption_policy or _DEFAULT_POLICY


def _placed(group: PodGroupInfo, states: PodGroupStates) -> list[Pod]:
    """Return the pods of a group that have a node; a CompositePodGroup has none of its own."""
    # A PodGroup may have the same name.
    state = None if group.is_composite else states.get(group.key)
    return [] if state is None else [placed.pod.pod for placed in state.scheduled()]


# ---- Kubernetes 1.37, and groups of plugins ------------------------------------------------------


def validate_pods(root: PodGroupInfo, states: PodGroupStates, *, policy_of_group: bool) -> None:
    """Check the pods of a root group, as up to Kubernetes 1.37, the pods in the queue first.

    ``policy_of_group``: gate PodGroupPreemptionPolicy, the policy is that of the group object. A
    group that a plugin provides takes its pods as they are, but for the scheduler name.
    """
    group = root.group
    assert group is not None
    scheduler_name = ""
    policy = (group.spec.preemption_policy or _DEFAULT_POLICY) if policy_of_group else ""
    same = "all pods in a single pod group should have the same"
    queued = [info.pod for info in root.unscheduled_pods]
    placed = [pod for leaf in root.leaves for pod in _placed(leaf, states)]
    for pod in queued + placed:
        name, priority, of_pod = pod.spec.scheduler_name, pod.spec.priority or 0, _policy_of(pod)
        scheduler_name = scheduler_name or name
        if name != scheduler_name:
            raise InvalidPodGroup(
                f'{same} .spec.schedulerName set, got: "{name}" and "{scheduler_name}"'
            )
        if group.key.is_provided:
            continue
        if priority != group.priority:
            raise InvalidPodGroup(
                f"{same} priority as the pod group's priority, got {priority} and {group.priority}"
            )
        policy = policy or of_pod
        if of_pod != policy:
            of_group = " as the pod group's preemption policy" if policy_of_group else ""
            raise InvalidPodGroup(f"{same} preemption policy{of_group}, got {of_pod} and {policy}")


def validation_of(root: PodGroupInfo, gates: FeatureGates) -> Validate:
    """Return the check of a root group."""
    provided = root.group is not None and root.entity_key.is_provided
    if provided or not gates.includes(Change.GROUP_TREES_VALIDATED):
        return partial(validate_pods, policy_of_group=gates.enabled("PodGroupPreemptionPolicy"))
    return validate_tree
