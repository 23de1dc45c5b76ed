"""NodeDeclaredFeatures: place pods that require a kubelet feature on nodes that declare it.

The required features are inferred from the pod's spec (KEP-5328). Of the features that kubelets
declare, pods can require two in 1.36, three in 1.37 and five in 1.38.
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
from proreus.objects.pod import Container, EphemeralContainer, Pod, Volume

REASON = "node(s) didn't match Pod's required features"
RESTART_ALL_CONTAINERS = "RestartAllContainersOnContainerExits"
VOLUME_BIND_MOUNT_OPTIONS = "VolumeBindMountOptions"
USER_NAMESPACES_HOST_NETWORK = "UserNamespacesHostNetworkSupport"
SECURITY_PROFILE_OCI = "SecurityProfileOCI"
POD_CERTIFICATE_ML_DSA = "PodCertificateMLDSA"

_REJECTED = Status.unresolvable(REASON).with_plugin("NodeDeclaredFeatures")
_ML_DSA = frozenset({"MLDSA44", "MLDSA65", "MLDSA87"})
_RESTART_ALL_ACTION = "RestartAllContainers"
_NOTHING: frozenset[str] = frozenset()


class NodeDeclaredFeatures(PreFilterPlugin, FilterPlugin):
    """Rejects nodes that do not declare the features that the pod requires."""

    needs_points = {"filter": "preFilter"}

    row_local = True
    looks_at_pods = False

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        gates = handle.feature_gates
        self._enabled = gates.enabled("NodeDeclaredFeatures")
        self._mounts = gates.includes(Change.BIND_MOUNT_OPTIONS_REQUIRE_FEATURE)
        self._security = gates.includes(Change.SECURITY_REQUIRES_FEATURES)

    def sign(self, pod: PodInfo) -> frozenset[str]:
        """Sign the required features."""
        return self._required(pod.pod)

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        """Skip pods that require no feature."""
        required = self._required(pod.pod) if self._enabled else _NOTHING
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
        return self._required(old) != self._required(new)

    def _required(self, pod: Pod) -> frozenset[str]:
        return required_features(pod, self._mounts, self._security)


def required_features(
    pod: Pod, bind_mount_options: bool = False, security: bool = False
) -> frozenset[str]:
    """Return the features that a node must declare to run a pod.

    ``bind_mount_options``: also for these (``Change.BIND_MOUNT_OPTIONS_REQUIRE_FEATURE``).
    ``security``: also for seccomp profiles of type OCI and ML-DSA certificates
    (``Change.SECURITY_REQUIRES_FEATURES``).
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
    if security:
        if _has_oci_profile(pod):
            required.append(SECURITY_PROFILE_OCI)
        if any(map(_has_ml_dsa_certificate, spec.volumes)):
            required.append(POD_CERTIFICATE_ML_DSA)
    return frozenset(required) if required else _NOTHING


def _has_oci_profile(pod: Pod) -> bool:
    spec = pod.spec
    containers = (*spec.init_containers, *spec.containers)
    return any(
        context is not None
        and context.seccomp_profile is not None
        and context.seccomp_profile.type == "OCI"
        for context in (
            spec.security_context,
            *(container.security_context for container in containers),
            *(container.security_context for container in spec.ephemeral_containers),
        )
    )


def _has_ml_dsa_certificate(volume: Volume) -> bool:
    return volume.projected is not None and any(
        source.pod_certificate is not None and source.pod_certificate.key_type in _ML_DSA
        for source in volume.projected.sources
    )


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
