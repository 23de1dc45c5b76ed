"""VolumeRestrictions: do not use volumes twice that cannot be.

Two rules. A claim with the access mode ReadWriteOncePod (KEP-2485) is for one pod of the cluster:
while another pod uses it, every node is rejected; preemption of that pod may help. The legacy disks
(GCE PD, EBS, RBD, iSCSI) cannot be attached to a node twice, unless both uses are read-only.

Worked example: pod ``a`` runs with the ReadWriteOncePod claim ``c``. Pod ``b`` of higher priority
uses ``c`` as well: ``conflicts`` is 1, every node is Unschedulable. In the dry run of preemption
RemovePod of ``a`` lowers it to 0, and ``b`` fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from proreus.framework.cycle_state import CycleState
from proreus.framework.events import ADD, DELETE, NODE, PERSISTENT_VOLUME_CLAIM, ClusterEvent
from proreus.framework.handle import Handle
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import FilterPlugin, PreFilterPlugin
from proreus.framework.pod_events import pod_registrations
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.objects.node import Node
from proreus.objects.pod import Pod, RBDVolume, Volume
from proreus.objects.storage import (
    PERSISTENT_VOLUME_CLAIMS,
    READ_WRITE_ONCE_POD,
    PersistentVolumeClaim,
)

REASON_DISK = "node(s) had no available disk"
REASON_READ_WRITE_ONCE_POD = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already "
    "in-use by another pod"
)

_NAME = "VolumeRestrictions"
_DISK = Status.unschedulable(REASON_DISK).with_plugin(_NAME)
_IN_USE = Status.unschedulable(REASON_READ_WRITE_ONCE_POD).with_plugin(_NAME)


class _PreFilterState(Struct):
    """``conflicts``: how often other pods use the pod's ReadWriteOncePod claims."""

    disks: tuple[Volume, ...]
    claims: frozenset[str]
    conflicts: int

    def clone(self) -> _PreFilterState:
        return replace(self)

    def count(self, other: Pod, step: int) -> None:
        """Add (``step`` 1) or remove (-1) the uses of a pod."""
        # Names only, as in kube-scheduler: a pod of another namespace counts as well.
        for name in _claim_names(other):
            if name in self.claims:
                self.conflicts += step


class VolumeRestrictions(PreFilterPlugin, FilterPlugin):
    """Rejects nodes for pods with a volume that is in use and must not be used twice."""

    needs_points = {"filter": "preFilter"}

    def __init__(self, args: None, handle: Handle) -> None:
        super().__init__(args, handle)
        self._claims: Mapping[str, PersistentVolumeClaim] = handle.store(PERSISTENT_VOLUME_CLAIMS)

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        """Look the pod's claims up and count the uses of exclusive ones; skip without any."""
        volumes = pod.pod.spec.volumes
        if not volumes:
            return Status.skip()
        exclusive = []
        for name in _claim_names(pod.pod):
            claim = self._claims.get(f"{pod.namespace}/{name}")
            # VolumeBinding would reject the pod too; kube-scheduler attributes it to this plugin.
            if claim is None:
                return Status.unresolvable(f'persistentvolumeclaim "{name}" not found')
            if _is_exclusive(claim):
                exclusive.append(name)
        disks = tuple(volume for volume in volumes if _is_disk(volume))
        names = frozenset(exclusive)
        keys = [f"{pod.namespace}/{name}" for name in names]
        conflicts = sum(any(key in node.pvc_ref_counts for node in nodes) for key in keys)
        if not disks and not conflicts:
            return Status.skip()
        state.write(self.name, _PreFilterState(disks, names, conflicts))
        return None

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> None:
        """Add a pod's uses of the claims."""
        state.read(self.name).count(added.pod, 1)

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> None:
        """Remove a pod's uses of the claims."""
        state.read(self.name).count(removed.pod, -1)

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Filter one node: disks first, then claims."""
        # No form over columns: few clusters still have legacy disks, and a column for them would
        # cost all.
        pre_filter_state: _PreFilterState = state.read(self.name)
        if pre_filter_state.disks and _any_conflict(pre_filter_state.disks, node):
            return _DISK
        return _IN_USE if pre_filter_state.conflicts > 0 else None

    # ---- events --------------------------------------------------------------------------------

    def events_to_register(self) -> Iterable[ClusterEvent]:
        """Register deleted pods with the same volume, new and deleted nodes, and new claims."""
        return (
            *pod_registrations(
                self.handle.feature_gates, assigned=DELETE, hint=_is_schedulable_after_pod_deleted
            ),
            ClusterEvent(NODE, ADD),
            ClusterEvent(PERSISTENT_VOLUME_CLAIM, ADD, _is_schedulable_after_pvc_added),
            ClusterEvent(NODE, DELETE, self._is_schedulable_after_node_deleted),
        )

    def _is_schedulable_after_node_deleted(self, pod: PodInfo, old: Node, new: None) -> bool:
        # The claims of the node's pods count no more, though these are deleted later, or never.
        nodes, name = self.handle.nodes, old.metadata.name
        named = [f"{pod.namespace}/{claim}" for claim in _claim_names(pod.pod)]
        claims = {key for key in named if _is_exclusive(self._claims.get(key))}
        row = nodes.rows.get(name)
        freed = claims if row is None else claims & nodes[row].pvc_ref_counts.keys()
        return bool(freed) and not any(
            claims & node.pvc_ref_counts.keys() for node in nodes if node.name != name
        )


def _is_schedulable_after_pod_deleted(pod: PodInfo, old: Pod, new: Pod | None) -> bool:
    mine, theirs = pod.pod.spec.volumes, old.spec.volumes
    if any(_conflict(one, other) for one in mine if _is_disk(one) for other in theirs):
        return True
    if old.metadata.namespace != pod.namespace:
        return False
    return not set(_claim_names(pod.pod)).isdisjoint(_claim_names(old))


def _is_schedulable_after_pvc_added(pod: PodInfo, old: object, new: PersistentVolumeClaim) -> bool:
    meta = new.metadata
    return meta.namespace == pod.namespace and meta.name in _claim_names(pod.pod)


def _is_exclusive(claim: PersistentVolumeClaim | None) -> bool:
    return claim is not None and READ_WRITE_ONCE_POD in claim.spec.access_modes


def _claim_names(pod: Pod) -> list[str]:
    """Return the names of the claims in a pod's spec."""
    # Without those of ephemeral volumes, which no other pod uses.
    return [
        volume.persistent_volume_claim.claim_name
        for volume in pod.spec.volumes
        if volume.persistent_volume_claim is not None
    ]


def _is_disk(volume: Volume) -> bool:
    return (
        volume.gce_persistent_disk is not None
        or volume.aws_elastic_block_store is not None
        or volume.rbd is not None
        or volume.iscsi is not None
    )


def _any_conflict(disks: tuple[Volume, ...], node: NodeInfo) -> bool:
    return any(
        _conflict(disk, other)
        for pod in node.pods.values()
        for other in pod.pod.spec.volumes
        for disk in disks
    )


def _conflict(one: Volume, other: Volume) -> bool:
    """Return whether two volumes are the same disk and not both read-only."""
    gce, other_gce = one.gce_persistent_disk, other.gce_persistent_disk
    if gce is not None and other_gce is not None and gce.pd_name == other_gce.pd_name:
        return not (gce.read_only and other_gce.read_only)
    ebs, other_ebs = one.aws_elastic_block_store, other.aws_elastic_block_store
    if ebs is not None and other_ebs is not None and ebs.volume_id == other_ebs.volume_id:
        return True
    iscsi, other_iscsi = one.iscsi, other.iscsi
    if iscsi is not None and other_iscsi is not None and iscsi.iqn == other_iscsi.iqn:
        return not (iscsi.read_only and other_iscsi.read_only)
    if one.rbd is not None and other.rbd is not None and _same_image(one.rbd, other.rbd):
        return not (one.rbd.read_only and other.rbd.read_only)
    return False


def _same_image(one: RBDVolume, other: RBDVolume) -> bool:
    return (
        one.pool == other.pool
        and one.image == other.image
        and not set(one.monitors).isdisjoint(other.monitors)
    )
