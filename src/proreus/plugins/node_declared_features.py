"""NodeDeclaredFeatures: place pods that require a kubelet feature on nodes that declare it.

The required features are inferred from the pod's spec (KEP-5328). Of the features that kubelets
declare, pods can require two in 1.36 and three in 1.37.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from proreus.base.kubernetes_version import Change
from proreus.framework.cycle_state import CycleState
from proreus.framework.events import (
    ADD,
    NODE,
    UPDATE,
    UPDATE_NODE_DECLARED_FEATURE,
    ClusterEvent,
)
from proreus.framework.handle import Handle
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import FilterPlugin, PreFilterPlugin
from proreus.framework.pod_events import pod_registrations
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.objects.node import Node
from proreus.objects.pod import Container, EphemeralContainer, Pod

REASON = "node(s) didn't match Pod's required features"
RESTART_ALL_CONTAINERS = "RestartAllContainersOnContainerExits"
VOLUME_BIND_MOUNT_OPTIONS = "VolumeBindMountOptions"
USER_NAMESPACES_HOST_NETWORK = "UserNamespacesHostNetworkSupport"

_REJECTED = Status.unresolvable(REASON).with_plugin("NodeDeclaredFeatures")
_RESTART_ALL_ACTION = "RestartAllContainers"
_NOTHING: frozenset[str] = frozenset()


class NodeDeclaredFeatures(PreFilterPlugin, FilterPlugin):
    """Rejects nodes that do not declare the features that the pod requires."""

    row_local = True
    looks_at_pods = False

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        gates = handle.feature_gates
        self._enabled = gates.enabled("NodeDeclaredFeatures")
        self._mounts = gates.includes(Change.BIND_MOUNT_OPTIONS_REQUIRE_FEATURE)

    def sign(self, pod: PodInfo) -> frozenset[str]:
        """Sign the required features."""
        return required_features(pod.pod, self._mounts)

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        """Skip pods that require no feature."""
        required = required_features(pod.pod, self._mounts) if self._enabled else _NOTHING
        if not required:
            return Status.skip()
        state.write(self.name, required)
        return None

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Filter one node."""
        assert node.node is not None
        required: frozenset[str] = state.read(self.name)
        return None if required.issubset(node.node.status.declared_features) else _REJECTED

    def events_to_register(self) -> Iterable[ClusterEvent]:
        """Register nodes with other features, and updates of the pod itself."""
        return (
            ClusterEvent(
                NODE, ADD | UPDATE_NODE_DECLARED_FEATURE, _is_schedulable_after_node_change
            ),
            *pod_registrations(
                self.handle.feature_gates,
                target=UPDATE,
                hint=self._is_schedulable_after_pod_update,
            ),
        )

    def _is_schedulable_after_pod_update(
        self, pod: PodInfo, old: Pod | None, new: Pod | None
    ) -> bool:
        if old is None or new is None or new.metadata.uid != pod.uid:
            return False
        return required_features(old, self._mounts) != required_features(new, self._mounts)


def required_features(pod: Pod, bind_mount_options: bool = False) -> frozenset[str]:
    """Return the features that a node must declare to run a pod.

    ``bind_mount_options``: also for these (``Change.BIND_MOUNT_OPTIONS_REQUIRE_FEATURE``).
    """
    spec = pod.spec
    required = []
    # Each part is looked at only if there is one: this runs for every pod.
    if _restarts_all(spec.containers) or (
        spec.init_containers and _restarts_all(spec.init_containers)
    ):
        required.append(RESTART_ALL_CONTAINERS)
    # Not `not`: None leaves the user namespace to the kubelet's default, the host's.
    if spec.host_network and spec.host_users is False:
        required.append(USER_NAMESPACES_HOST_NETWORK)
    if bind_mount_options and (
        _mounts_with_options(spec.containers)
        or (spec.init_containers and _mounts_with_options(spec.init_containers))
        or (spec.ephemeral_containers and _mounts_with_options(spec.ephemeral_containers))
    ):
        required.append(VOLUME_BIND_MOUNT_OPTIONS)
    return frozenset(required) if required else _NOTHING


def _mounts_with_options(containers: Iterable[Container | EphemeralContainer]) -> bool:
    for container in containers:
        for mount in container.volume_mounts:
            if mount.bind_mount_options:
                return True
    return False


def _restarts_all(containers: Iterable[Container]) -> bool:
    # A loop and no generator: PreFilter runs this for every pod, and as a rule there are no rules.
    for container in containers:
        for rule in container.restart_policy_rules:
            if rule.action == _RESTART_ALL_ACTION:
                return True
    return False


def _is_schedulable_after_node_change(pod: PodInfo, old: Node | None, new: Node) -> bool:
    return old is None or old.status.declared_features != new.status.declared_features
