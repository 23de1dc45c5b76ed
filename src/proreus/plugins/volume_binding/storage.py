"""Volumes, claims and classes, with the changes that were assumed, and waiting for changes.

One ``Storage`` serves all profiles of a scheduler: a volume that one of them assumed must not be
assumed by another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from weakref import WeakKeyDictionary

import numpy as np

from proreus.base.known_faults import KnownFault
from proreus.framework.assume_cache import AssumeCache
from proreus.framework.handle import Handle
from proreus.framework.node_table import NodeTable
from proreus.framework.verdicts import BoolArray
from proreus.objects.meta import ApiObject, key_of
from proreus.objects.storage import (
    CSI_DRIVERS,
    CSI_NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
    CSIDriver,
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from proreus.objects.volume_claims import class_of_volume
from proreus.plugins.csi_migration import migrated_plugins
from proreus.plugins.volume_binding.storage_capacity import StorageCapacities

_NONE: frozenset[str] = frozenset()
_VolumeIndex = dict[str, dict[str, PersistentVolume]]
"""Volumes by name, by class or by claim."""


class Storage:
    """Volumes, claims and what belongs to them.

    ``claims`` and ``volumes`` include assumed changes; ``watched_claims`` and ``watched_volumes``
    are as the apiserver has them. ``claims_share_capacity``: see
    ``KnownFault.TWO_CLAIMS_ONE_CAPACITY``.
    """

    # Invariant: every volume of `volumes` is either in _free, by class, or in _prebound, by the
    # claim that its claimRef names.

    def __init__(self, handle: Handle) -> None:
        self.watched_claims: Mapping[str, PersistentVolumeClaim] = handle.store(
            PERSISTENT_VOLUME_CLAIMS
        )
        self.watched_volumes: Mapping[str, PersistentVolume] = handle.store(PERSISTENT_VOLUMES)
        self.classes: Mapping[str, StorageClass] = handle.store(STORAGE_CLASSES)
        self.csi_drivers: Mapping[str, CSIDriver] = handle.store(CSI_DRIVERS)
        self.storage_capacities = StorageCapacities(handle)
        self.claims_share_capacity = handle.feature_gates.corrects(
            KnownFault.TWO_CLAIMS_ONE_CAPACITY
        )
        self.claims = AssumeCache(handle, PERSISTENT_VOLUME_CLAIMS)
        self._free: _VolumeIndex = {}
        self._prebound: _VolumeIndex = {}
        self.volumes = AssumeCache(handle, PERSISTENT_VOLUMES, self._volume_changed)
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        if not handle.polls_only:
            handle.on_change(PERSISTENT_VOLUME_CLAIMS, self._notify_waiters)
            handle.on_change(PERSISTENT_VOLUMES, self._notify_waiters)
        self._migrated: dict[str, frozenset[str]] = {}
        handle.on_change(CSI_NODES, self._csi_node_changed)

    @staticmethod
    def of(handle: Handle) -> Storage:
        """Return the storage that belongs to a handle's nodes."""
        storage = _storages.get(handle.nodes)
        if storage is None:
            storage = _storages[handle.nodes] = Storage(handle.shared)
        return storage

    # ---- volumes -------------------------------------------------------------------------------

    def free_volumes(self, class_name: str) -> Iterable[PersistentVolume]:
        """Return the volumes of a class without a ``claimRef``."""
        return self._free.get(class_name, {}).values()

    def prebound_volumes(self, claim: PersistentVolumeClaim) -> Iterable[PersistentVolume]:
        """Return the volumes whose ``claimRef`` has the name of a claim."""
        return self._prebound.get(key_of(claim), {}).values()

    def _volume_changed(self, old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        if old is not None:
            index, key = self._place_of(old)
            volumes = index.get(key, {})
            volumes.pop(old.metadata.name, None)
            if not volumes:
                # Each claim has a name of its own, and nobody may ever ask for this one again.
                index.pop(key, None)
        if new is not None:
            index, key = self._place_of(new)
            index.setdefault(key, {})[new.metadata.name] = new

    def _place_of(self, volume: PersistentVolume) -> tuple[_VolumeIndex, str]:
        ref = volume.spec.claim_ref
        if ref is None:
            return self._free, class_of_volume(volume)
        return self._prebound, f"{ref.namespace}/{ref.name}"

    # ---- migration of in-tree plugins ----------------------------------------------------------

    def is_migrated(self, node_name: str, plugin: str) -> bool:
        """Return whether a node has announced that an in-tree plugin is migrated there."""
        return plugin in self._migrated.get(node_name, _NONE)

    def migrated_mask(self, nodes: NodeTable, plugin: str) -> BoolArray | None:
        """Return the mask of nodes where an in-tree plugin is migrated; None if it is nowhere."""
        if not self._migrated:
            return None
        return np.array([self.is_migrated(node.name, plugin) for node in nodes], dtype=np.bool_)

    def _csi_node_changed(self, old: CSINode | None, new: CSINode | None) -> None:
        one = new or old
        assert one is not None
        name = one.metadata.name
        plugins = _NONE if new is None else migrated_plugins(new)
        if plugins:
            self._migrated[name] = plugins
        else:
            self._migrated.pop(name, None)

    # ---- waiting -------------------------------------------------------------------------------

    async def wait_for_change(self, keys: Iterable[str], seconds: float) -> None:
        """Return when the watch has reported a change of one of the objects, or after a time-out.

        ``keys``: of claims and volumes. They cannot collide, since only claims have a namespace.
        """
        changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        keys = tuple(keys)
        for key in keys:
            self._waiting.setdefault(key, set()).add(changed)
        try:
            async with asyncio.timeout(seconds):
                await changed
        except TimeoutError:
            return
        finally:
            for key in keys:
                waiting = self._waiting[key]
                waiting.discard(changed)
                if not waiting:
                    del self._waiting[key]

    def _notify_waiters(self, old: ApiObject | None, new: ApiObject | None) -> None:
        one = new or old
        assert one is not None
        for changed in self._waiting.get(key_of(one), ()):
            if not changed.done():
                changed.set_result(None)


_storages: WeakKeyDictionary[NodeTable, Storage] = WeakKeyDictionary()
