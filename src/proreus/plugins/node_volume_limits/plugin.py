"""The extension points of NodeVolumeLimits.

Worked example: a node's CSINode allows 2 volumes of a driver and ``v1`` is attached. A pod with
``v1`` and ``v2`` fits (``v1`` counts once), one with ``v2`` and ``v3`` does not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import inf

import numpy as np
from msgspec import Struct

from proreus.framework.cycle_state import CycleState
from proreus.framework.events import (
    ADD,
    CSI_DRIVER,
    CSI_NODE,
    DELETE,
    NODE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    UPDATE,
    VOLUME_ATTACHMENT,
    ClusterEvent,
)
from proreus.framework.handle import Handle
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import FilterPlugin, PreFilterPlugin
from proreus.framework.pod_events import pod_registrations
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.framework.verdicts import BoolArray, Verdicts
from proreus.objects.pod import Pod
from proreus.objects.storage import (
    CSI_DRIVERS,
    CSI_NODES,
    CSIDriver,
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    VolumeAttachment,
)
from proreus.objects.volume_claims import uses_claim
from proreus.plugins.csi_migration import in_tree_plugin_of, migrated_plugins
from proreus.plugins.node_volume_limits.attached import AttachedVolumes
from proreus.plugins.node_volume_limits.volumes import (
    LimitedVolumes,
    VolumeId,
    VolumeLookup,
    may_count,
)

REASON = "node(s) exceed max volume count"

_NAME = "NodeVolumeLimits"
_FULL = Status.unschedulable(REASON).with_plugin(_NAME)


class _PreFilterState(Struct, frozen=True):
    """The pod's volumes that count, or a status that holds for every node."""

    volumes: LimitedVolumes
    status: Status | None = None

    def ids_at(self, csi_node: CSINode | None) -> list[VolumeId]:
        """Return the volumes that count on a node."""
        # To kube-scheduler in-tree plugins are migrated on every node that has a CSINode, whatever
        # its annotation says.
        return [one for one, migrated in self.volumes.ids.items() if csi_node or not migrated]


class NodeVolumeLimits(PreFilterPlugin, FilterPlugin):
    """Rejects nodes that the pod's volumes cannot be attached to.

    Filter depends on one node only, but also on volumes and attachments. Hence results are shared
    only by pods without volumes, which it skips.
    """

    row_local = True

    def __init__(self, args: None, handle: Handle) -> None:
        super().__init__(args, handle)
        self._lookup = VolumeLookup(handle)
        self._attached = AttachedVolumes(handle, self._lookup)
        self._csi_nodes: Mapping[str, CSINode] = handle.store(CSI_NODES)
        self._scaling = handle.feature_gates.enabled("VolumeLimitScaling")
        self._csi_drivers: Mapping[str, CSIDriver] = (
            handle.store(CSI_DRIVERS) if self._scaling else {}
        )

    def sign(self, pod: PodInfo) -> tuple[()] | None:
        """Sign pods without volumes only; those of others may change between attempts."""
        return None if pod.pod.spec.volumes else ()

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        """Look the pod's volumes up; skip if none of them can count."""
        if not any(may_count(volume) for volume in pod.pod.spec.volumes):
            return Status.skip()
        state.write(self.name, self._wanted(pod))
        return None

    def _wanted(self, pod: PodInfo) -> _PreFilterState:
        found = LimitedVolumes()
        self._lookup.add_pod(found, pod.pod)
        if found.missing:
            name = found.missing.partition("/")[2]
            text = f'looking up PVC {found.missing}: persistentvolumeclaim "{name}" not found'
            return _PreFilterState(found, Status.unresolvable(text))
        if found.problem:
            return _PreFilterState(found, Status.error(found.problem))
        return _PreFilterState(found)

    def _pre_filter_state(self, state: CycleState, pod: PodInfo) -> _PreFilterState:
        """Return the result of PreFilter; compute it if PreFilter is disabled."""
        wanted: _PreFilterState | None = state.get(self.name)
        return self._wanted(pod) if wanted is None else wanted

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Filter one node."""
        wanted = self._pre_filter_state(state, pod)
        if wanted.status is not None:
            return wanted.status
        csi_node = self._csi_nodes.get(node.name)
        ids = wanted.ids_at(csi_node)
        if not ids:
            return None
        missing = self._missing_driver(ids, csi_node) if self._scaling else ""
        if missing:
            return Status.unschedulable(f"{missing} CSI driver is not installed on the node")
        node_volumes = self._attached.volumes_of_node(node)
        if not node_volumes.limits:
            return None
        if node_volumes.volumes.problem:
            return Status.error(node_volumes.volumes.problem)
        # A volume that is attached already takes no further place.
        more = Counter(one[0] for one in ids if one not in node_volumes.volumes.ids)
        for driver, number in more.items():
            limit = node_volumes.limits.get(driver)
            if limit is not None and node_volumes.counts.get(driver, 0) + number > limit:
                return _FULL
        return None

    def filter_all(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable, verdicts: Verdicts
    ) -> None:
        """Filter all nodes."""
        wanted = self._pre_filter_state(state, pod)
        if wanted.status is not None:
            verdicts.reject_with(np.ones(len(nodes), dtype=np.bool_), wanted.status)
        # The columns are those of the cluster's table; a fork has other pods.
        elif nodes is not self.handle.nodes or self._waits_for_drivers(wanted.volumes.ids):
            super().filter_all(state, pod, nodes, verdicts)
        elif wanted.volumes.ids:
            self._filter_whole(state, pod, wanted.volumes, verdicts)

    def _filter_whole(
        self, state: CycleState, pod: PodInfo, wanted: LimitedVolumes, verdicts: Verdicts
    ) -> None:
        attached, nodes = self._attached, self.handle.nodes
        attached.refresh()
        full: BoolArray = np.zeros(len(nodes), dtype=np.bool_)
        # A limit comes from a CSINode, so where there is one migrated volumes count as well.
        for driver, number in Counter(one[0] for one in wanted.ids).items():
            exceeded = attached.exceeds_limit(driver, number)
            if exceeded is not None:
                full |= exceeded
        # Rows where columns are not enough: with an error, or with a volume of the pod attached.
        special = set(attached.rows_with_errors())
        for one in wanted.ids:
            special |= attached.rows_with(one)
        for row in special:
            full[row] = False
            status = self.filter(state, pod, nodes[row])
            if status is not None:
                verdicts.reject_row(row, status)
        verdicts.reject_with(full, _FULL)

    # ---- drivers that a pod must wait for ------------------------------------------------------

    def _waits_for_drivers(self, ids: Iterable[VolumeId]) -> bool:
        return self._scaling and any(self._is_waited_for(one[0]) for one in ids)

    def _is_waited_for(self, driver: str) -> bool:
        return _keeps_pods_out(self._csi_drivers.get(driver))

    def _missing_driver(self, ids: Iterable[VolumeId], csi_node: CSINode | None) -> str:
        """Return a driver that the pod must wait for and that the node lacks; "" without."""
        installed = {d.name for d in csi_node.spec.drivers} if csi_node is not None else set()
        for driver, _, _ in ids:
            if driver not in installed and self._is_waited_for(driver):
                return driver
        return ""

    # ---- events --------------------------------------------------------------------------------

    def events_to_register(self) -> Iterable[ClusterEvent]:
        """Register limits that rise or go, deleted pods and attachments; nodes, claims, volumes."""
        drivers = ClusterEvent(CSI_DRIVER, UPDATE | DELETE, _is_schedulable_after_driver_change)
        return (
            ClusterEvent(CSI_NODE, ADD | UPDATE | DELETE, _is_schedulable_after_csi_node_change),
            *pod_registrations(
                self.handle.feature_gates, assigned=DELETE, hint=_is_schedulable_after_pod_deleted
            ),
            ClusterEvent(
                PERSISTENT_VOLUME_CLAIM, ADD | UPDATE, self._is_schedulable_after_claim_change
            ),
            ClusterEvent(
                VOLUME_ATTACHMENT, DELETE, _is_schedulable_after_volume_attachment_deleted
            ),
            # It has no CSINode yet, and a node without one has no limits.
            ClusterEvent(NODE, ADD),
            *((drivers,) if self._scaling else ()),
            ClusterEvent(PERSISTENT_VOLUME, ADD | DELETE, self._is_schedulable_after_volume_change),
        )

    def _is_schedulable_after_claim_change(
        self, pod: PodInfo, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim
    ) -> bool:
        if not uses_claim(pod.pod, new):
            return False
        # Its volume may count for another driver than its class did, or for none.
        return old is None or self._lookup.drivers_of(old) != self._lookup.drivers_of(new)

    def _is_schedulable_after_volume_change(
        self, pod: PodInfo, old: PersistentVolume | None, new: PersistentVolume | None
    ) -> bool:
        if new is not None:
            return self._lookup.counts_otherwise(pod.pod, new)
        assert old is not None
        # Attachments of a volume that does not exist do not count.
        self._attached.refresh()
        return self._attached.is_counted(old)


def _limits(csi_node: CSINode) -> dict[str, float]:
    """Return the number of volumes of each installed driver that the node takes."""
    return {
        driver.name: inf
        if driver.allocatable is None or driver.allocatable.count is None
        else driver.allocatable.count
        for driver in csi_node.spec.drivers
    }


def _is_schedulable_after_csi_node_change(
    pod: PodInfo, old: CSINode | None, new: CSINode | None
) -> bool:
    if old is None or new is None:
        return True
    before, after = _limits(old), _limits(new)
    if any(limit > before.get(driver, 0) for driver, limit in after.items()):
        return True
    # Volumes of a driver that is not installed are not counted.
    return not before.keys() <= after.keys() or migrated_plugins(old) != migrated_plugins(new)


def _is_schedulable_after_driver_change(
    pod: PodInfo, old: CSIDriver, new: CSIDriver | None
) -> bool:
    return _keeps_pods_out(old) and not _keeps_pods_out(new)


def _keeps_pods_out(driver: CSIDriver | None) -> bool:
    """Return whether pods must not go to nodes that lack the driver."""
    return driver is not None and bool(driver.spec.prevent_pod_scheduling_if_missing)


def _is_schedulable_after_pod_deleted(pod: PodInfo, old: Pod, new: Pod | None) -> bool:
    if not old.spec.node_name and not old.status.nominated_node_name:
        return False
    return any(may_count(volume) for volume in old.spec.volumes)


def _is_schedulable_after_volume_attachment_deleted(
    pod: PodInfo, old: VolumeAttachment, new: VolumeAttachment | None
) -> bool:
    for volume in pod.pod.spec.volumes:
        if volume.persistent_volume_claim is not None or volume.ephemeral is not None:
            return True
        plugin = in_tree_plugin_of(volume)
        if plugin is not None and plugin.driver == old.spec.attacher:
            return True
    return False
