"""The volumes of a pod that count towards the limits of CSI drivers, and their ids.

Legacy in-tree volumes count for the driver that they were migrated to, a claim without a volume for
the provisioner of its class.

Worked example: a claim bound to a CSI volume ``vol-1`` has the id ``("ebs.csi.aws.com", "vol-1",
"")``; the unbound claim ``default/data`` has ``("ebs.csi.aws.com", "", "default/data")``.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from proreus.framework.handle import Handle
from proreus.objects.meta import key_of
from proreus.objects.pod import Pod, Volume
from proreus.objects.storage import (
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from proreus.objects.volume_claims import (
    claim_name_of,
    claim_names_of,
    class_of_claim,
    is_ephemeral,
    ownership_error,
)
from proreus.plugins.csi_migration import BY_NAME, in_tree_plugin_of, inline_handle, volume_handle

VolumeId = tuple[str, str, str]
"""A driver and its volume handle, and ""; without a volume: the driver, "" and the claim's key."""

Source = tuple[str, str]
"""Kind and key of an object that a result depends on."""


class LimitedVolumes(Struct):
    """The volumes of one or more pods that count.

    ``ids``: each with whether it counts only on nodes where its plugin is migrated. ``sources``:
    the objects that were looked up, existing or not. ``missing``: the first claim that does not
    exist. ``problem``: why the volumes cannot be determined, "" if they can.
    """

    ids: dict[VolumeId, bool] = field(default_factory=dict)
    sources: set[Source] = field(default_factory=set)
    missing: str = ""
    problem: str = ""

    @property
    def drivers(self) -> set[str]:
        """The drivers of the volumes."""
        return {driver for driver, _, _ in self.ids}


def may_count(volume: Volume) -> bool:
    """Return whether a volume may count: it refers to a claim, or its plugin can be migrated."""
    return (
        volume.persistent_volume_claim is not None
        or volume.ephemeral is not None
        or in_tree_plugin_of(volume) is not None
    )


class VolumeLookup:
    """Looks up the volumes of claims."""

    def __init__(self, handle: Handle) -> None:
        self._claims: Mapping[str, PersistentVolumeClaim] = handle.store(PERSISTENT_VOLUME_CLAIMS)
        self._volumes: Mapping[str, PersistentVolume] = handle.store(PERSISTENT_VOLUMES)
        self._classes: Mapping[str, StorageClass] = handle.store(STORAGE_CLASSES)

    def counts_otherwise(self, pod: Pod, volume: PersistentVolume) -> bool:
        """Return whether a claim of a pod counts for another driver now that its volume exists."""
        for name in claim_names_of(pod):
            claim = self._claims.get(f"{pod.metadata.namespace}/{name}")
            if claim is not None and claim.spec.volume_name == volume.metadata.name:
                unbound = LimitedVolumes()
                self._add_unbound(unbound, claim, key_of(claim))
                if unbound.drivers != self.drivers_of(claim):
                    return True
        return False

    def drivers_of(self, claim: PersistentVolumeClaim) -> set[str]:
        """Return the driver that a version of a claim counts for, if there is one."""
        found = LimitedVolumes()
        self._add_volume_of(found, claim)
        return found.drivers

    def add_pod(self, found: LimitedVolumes, pod: Pod) -> None:
        """Add the volumes of a pod; stops at the first problem."""
        for volume in pod.spec.volumes:
            if found.problem:
                return
            name = claim_name_of(pod, volume)
            if name is not None:
                self._add_claim(found, pod, volume, name)
                continue
            plugin = in_tree_plugin_of(volume)
            if plugin is not None and plugin.on:
                try:
                    found.ids[plugin.driver, inline_handle(volume), ""] = True
                except ValueError as error:
                    found.problem = str(error)

    def _add_claim(self, found: LimitedVolumes, pod: Pod, volume: Volume, name: str) -> None:
        if not name:
            found.problem = "PersistentVolumeClaim had no name"
            return
        key = f"{pod.metadata.namespace}/{name}"
        found.sources.add((PERSISTENT_VOLUME_CLAIMS.kind, key))
        claim = self._claims.get(key)
        if claim is None:
            # Not a problem: a pod on a node may outlive its claim, and is then skipped.
            found.missing = found.missing or key
            return
        if is_ephemeral(volume):
            found.problem = ownership_error(pod, claim) or ""
            if found.problem:
                return
        self._add_volume_of(found, claim)

    def _add_volume_of(self, found: LimitedVolumes, claim: PersistentVolumeClaim) -> None:
        volume_name = claim.spec.volume_name
        if volume_name:
            found.sources.add((PERSISTENT_VOLUMES.kind, volume_name))
            bound = self._volumes.get(volume_name)
            # A volume that does not exist (yet) counts like an unbound claim.
            if bound is not None:
                self._add_volume(found, bound)
                return
        self._add_unbound(found, claim, key_of(claim))

    def _add_volume(self, found: LimitedVolumes, volume: PersistentVolume) -> None:
        csi = volume.spec.csi
        if csi is not None:
            found.ids[csi.driver, csi.volume_handle, ""] = False
            return
        plugin = in_tree_plugin_of(volume.spec)
        if plugin is not None and plugin.on:
            try:
                found.ids[plugin.driver, volume_handle(volume), ""] = True
            except ValueError:
                # As in kube-scheduler it does not count; an inline volume would be an error.
                return

    def _add_unbound(self, found: LimitedVolumes, claim: PersistentVolumeClaim, key: str) -> None:
        name = class_of_claim(claim)
        if not name:
            return
        found.sources.add((STORAGE_CLASSES.kind, name))
        storage_class = self._classes.get(name)
        if storage_class is None:
            return
        plugin = BY_NAME.get(storage_class.provisioner)
        if plugin is None:
            found.ids[storage_class.provisioner, "", key] = False
        elif plugin.on:
            found.ids[plugin.driver, "", key] = True
