"""The number of attached volumes by CSI driver and node, updated row by row.

Counted are the volumes of the pods on a node, and those of VolumeAttachments that no pod uses any
more but that are not detached yet. Nothing is computed before the first pod with volumes.

Worked example: pods on a node use the volumes ``v1`` and ``v2`` of a driver, and VolumeAttachments
name ``v2`` and ``v3``: three volumes count.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from proreus.base import bounded_cache
from proreus.framework.columns import ResourceColumns
from proreus.framework.handle import Handle
from proreus.framework.node_info import NodeInfo
from proreus.framework.verdicts import BoolArray
from proreus.objects.meta import ApiObject, Resource, key_of
from proreus.objects.storage import (
    CSI_NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
    VOLUME_ATTACHMENTS,
    CSINode,
    PersistentVolume,
    VolumeAttachment,
)
from proreus.plugins.node_volume_limits.volumes import (
    LimitedVolumes,
    VolumeId,
    VolumeLookup,
)


class NodeVolumes(Struct):
    """The volumes of one node.

    ``volumes``: those of its pods. ``counts``: by driver, attachments included. ``limits``: by
    driver, without drivers that have none.
    """

    volumes: LimitedVolumes = field(default_factory=LimitedVolumes)
    counts: dict[str, int] = field(default_factory=dict)
    limits: dict[str, int] = field(default_factory=dict)


_NO_VOLUMES = NodeVolumes()
"""Of every node that needs none of its own; never changed."""


class AttachedVolumes:
    """The volumes of every node of the handle's table; ``refresh`` before reading."""

    # Invariant: _volumes_by_row[row] equals `volumes_of_node` of that row's node; the columns and
    # the index of rows agree with it.

    def __init__(self, handle: Handle, lookup: VolumeLookup) -> None:
        self._table = handle.nodes
        self._lookup = lookup
        self._volumes: Mapping[str, PersistentVolume] = handle.store(PERSISTENT_VOLUMES)
        self._csi_nodes: Mapping[str, CSINode] = handle.store(CSI_NODES)
        self._attachments: dict[str, dict[str, VolumeAttachment]] = {}
        self._position = -1
        self._volumes_by_row: list[NodeVolumes] = []
        # Drivers take the place of resources: a node may have thousands that no other has.
        self._counts = ResourceColumns(self._table)
        self._exceeded_from = ResourceColumns(self._table)
        """The least count that exceeds a driver's limit: the limit and one; 0 means no limit."""
        self._capacity = self._table.capacity
        self._rows_by_key: dict[tuple[str, ...], set[int]] = {}
        self._rows_with_errors: set[int] = set()
        self._stale_rows: set[int] = set()
        self._stale_nodes: set[str] = set()
        for resource in (PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES):
            self._watch(handle, resource)
        handle.on_change(CSI_NODES, self._csi_node_changed)
        handle.on_change(VOLUME_ATTACHMENTS, self._attachment_changed)
        bounded_cache.register(self)

    # ---- reading -------------------------------------------------------------------------------

    def exceeds_limit(self, driver: str, number: int) -> BoolArray | None:
        """Return, by row, whether ``number`` more volumes would exceed the driver's limit.

        None if it has no limit on any row.
        """
        if driver not in self._exceeded_from:
            return None
        exceeded_from = self._exceeded_from[driver]
        exceeded: BoolArray = self._counts[driver] + number >= exceeded_from
        exceeded &= exceeded_from != 0
        return exceeded

    def rows_with(self, volume: VolumeId) -> set[int]:
        """Return the rows whose pods use a volume."""
        return self._rows_by_key.get(volume, set())

    def is_counted(self, volume: PersistentVolume) -> bool:
        """Return whether pods or attachments of a node refer to a volume."""
        return (PERSISTENT_VOLUMES.kind, volume.metadata.name) in self._rows_by_key

    def rows_with_errors(self) -> set[int]:
        """Return the rows with a pod whose volumes cannot be determined."""
        return self._rows_with_errors

    def volumes_of_node(self, node: NodeInfo) -> NodeVolumes:
        """Count the volumes of a node, also of one in a fork."""
        # Limits are in the CSINode: without it nothing is limited, and nothing needs to be counted.
        csi_node = self._csi_nodes.get(node.name)
        if csi_node is None:
            return _NO_VOLUMES
        node_volumes = NodeVolumes()
        for driver in csi_node.spec.drivers:
            if driver.allocatable is not None and driver.allocatable.count is not None:
                node_volumes.limits[driver.name] = max(driver.allocatable.count, 0)
        found, counts = node_volumes.volumes, node_volumes.counts
        for pod in node.pods.values():
            if pod.pod.spec.volumes:
                self._lookup.add_pod(found, pod.pod)
        for driver_name, _, _ in found.ids:
            counts[driver_name] = counts.get(driver_name, 0) + 1
        for driver_name in self._attached_elsewhere(node.name, found):
            counts[driver_name] = counts.get(driver_name, 0) + 1
        return node_volumes

    def _attached_elsewhere(self, node_name: str, found: LimitedVolumes) -> list[str]:
        """Return the driver of each volume that is attached to a node and used by none of its
        pods."""
        ids: dict[VolumeId, None] = {}
        for attachment in self._attachments.get(node_name, {}).values():
            name = attachment.spec.source.persistent_volume_name
            if not attachment.spec.attacher or name is None:
                continue
            # Also if the volume does not exist: it may be added later.
            found.sources.add((PERSISTENT_VOLUMES.kind, name))
            volume = self._volumes.get(name)
            if volume is not None and volume.spec.csi is not None:
                ids[attachment.spec.attacher, volume.spec.csi.volume_handle, ""] = None
        return [volume_id[0] for volume_id in ids if volume_id not in found.ids]

    # ---- updating ------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Recompute the rows whose node, pods, volumes or attachments have changed."""
        table = self._table
        if table.capacity != self._capacity:
            # Doubled, or cleared: so rarely that all rows are counted anew.
            self._counts, self._exceeded_from = ResourceColumns(table), ResourceColumns(table)
            self._capacity, self._position = table.capacity, -1
        changed = table.changes_since(self._position) if self._position >= 0 else None
        if changed is None:
            changed = list(range(table.size))
        rows = {row for row in self._stale_rows if row < table.size}
        rows.update(changed)
        # By name: a CSINode or an attachment may be reported before its node.
        for name in self._stale_nodes:
            row = table.rows.get(name)
            if row is not None:
                rows.add(row)
        while len(self._volumes_by_row) > table.size:
            last = len(self._volumes_by_row) - 1
            self._remove_row(last)
            self._volumes_by_row.pop()
            self._counts.clear(last)
            self._exceeded_from.clear(last)
        while len(self._volumes_by_row) < table.size:
            self._volumes_by_row.append(_NO_VOLUMES)
        for row in rows:
            self._remove_row(row)
            self._add_row(row, self.volumes_of_node(table[row]))
        self._position = table.position
        self._stale_rows.clear()
        self._stale_nodes.clear()

    def _remove_row(self, row: int) -> None:
        node_volumes = self._volumes_by_row[row]
        for key in (*node_volumes.volumes.ids, *node_volumes.volumes.sources):
            rows = self._rows_by_key[key]
            rows.discard(row)
            if not rows:
                del self._rows_by_key[key]
        self._rows_with_errors.discard(row)
        self._volumes_by_row[row] = _NO_VOLUMES

    def _add_row(self, row: int, node_volumes: NodeVolumes) -> None:
        self._volumes_by_row[row] = node_volumes
        for key in (*node_volumes.volumes.ids, *node_volumes.volumes.sources):
            self._rows_by_key.setdefault(key, set()).add(row)
        self._counts.put(row, node_volumes.counts)
        self._exceeded_from.put(
            row, {driver: 1 + limit for driver, limit in node_volumes.limits.items()}
        )
        if node_volumes.volumes.problem:
            self._rows_with_errors.add(row)

    def age(self) -> None:
        """Forget the drivers that no node has any more, and the names of nodes that are gone."""
        self._counts.shrink()
        self._exceeded_from.shrink()
        # The next refresh may never come: in a standby, say, while nodes come and go.
        self._stale_nodes.intersection_update(self._table.rows)

    # ---- changes -------------------------------------------------------------------------------

    def _watch(self, handle: Handle, resource: Resource[Any]) -> None:
        def changed(old: ApiObject | None, new: ApiObject | None) -> None:
            one = new or old
            assert one is not None
            self._stale_rows |= self._rows_by_key.get((resource.kind, key_of(one)), set())

        handle.on_change(resource, changed)

    def _csi_node_changed(self, old: CSINode | None, new: CSINode | None) -> None:
        one = new or old
        assert one is not None
        self._stale_nodes.add(one.metadata.name)

    def _attachment_changed(
        self, old: VolumeAttachment | None, new: VolumeAttachment | None
    ) -> None:
        for one in (old, new):
            if one is not None:
                here = self._attachments.setdefault(one.spec.node_name, {})
                here.pop(one.metadata.name, None)
                if one is new:
                    here[one.metadata.name] = one
                elif not here:
                    del self._attachments[one.spec.node_name]
                self._stale_nodes.add(one.spec.node_name)

    def validate(self) -> None:
        """Recompute every row. Raises ``AssertionError`` if one differs."""
        assert len(self._volumes_by_row) == self._table.size
        for row, node in enumerate(self._table):
            node_volumes = self.volumes_of_node(node)
            assert self._volumes_by_row[row] == node_volumes, node
            assert self._counts.row(row) == node_volumes.counts, node
            limits = {driver: first - 1 for driver, first in self._exceeded_from.row(row).items()}
            assert limits == node_volumes.limits, node
            assert (row in self._rows_with_errors) == bool(node_volumes.volumes.problem), node
        for key, rows in self._rows_by_key.items():
            assert rows == {
                row
                for row, one in enumerate(self._volumes_by_row)
                if key in (*one.volumes.ids, *one.volumes.sources)
            }
