"""VolumeZone: volumes with zone or region labels are only used from nodes there.

It reads the labels of volumes; their node affinity is VolumeBinding's. A label may name several
zones, separated by ``__``.

Worked example: a volume labelled ``topology.kubernetes.io/zone: a__b`` is usable from nodes in zone
``a`` or ``b``, and from nodes without any zone or region label.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from proreus.framework.cycle_state import CycleState
from proreus.framework.events import (
    ADD,
    NODE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    STORAGE_CLASS,
    UPDATE,
    UPDATE_NODE_LABEL,
    ClusterEvent,
)
from proreus.framework.handle import Handle
from proreus.framework.interning import ABSENT
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import FilterPlugin, PreFilterPlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.framework.verdicts import BoolArray, Verdicts
from proreus.objects.node import LABEL_REGION, LABEL_REGION_BETA, LABEL_ZONE, LABEL_ZONE_BETA
from proreus.objects.selectors import Requirement, Selector
from proreus.objects.storage import (
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
    WAIT_FOR_FIRST_CONSUMER,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from proreus.objects.volume_claims import class_of_claim

REASON = "node(s) had no available volume zone"

_NAME = "VolumeZone"
_REJECTED = Status.unresolvable(REASON).with_plugin(_NAME)
_LABELS = (LABEL_ZONE_BETA, LABEL_REGION_BETA, LABEL_ZONE, LABEL_REGION)
_GA_LABEL = {LABEL_ZONE_BETA: LABEL_ZONE, LABEL_REGION_BETA: LABEL_REGION}
"""The label that a node may have instead of a volume's beta label; not the other way round."""


class Topology(NamedTuple):
    """A label of a volume: a node must have one of the values."""

    key: str
    values: frozenset[str]


class VolumeZone(PreFilterPlugin, FilterPlugin):
    """Rejects nodes outside the zones and regions of the pod's volumes."""

    row_local = True
    looks_at_pods = False

    def __init__(self, args: None, handle: Handle) -> None:
        super().__init__(args, handle)
        self._claims: Mapping[str, PersistentVolumeClaim] = handle.store(PERSISTENT_VOLUME_CLAIMS)
        self._volumes: Mapping[str, PersistentVolume] = handle.store(PERSISTENT_VOLUMES)
        self._classes: Mapping[str, StorageClass] = handle.store(STORAGE_CLASSES)

    def sign(self, pod: PodInfo) -> tuple[()] | None:
        """Sign pods without volumes only; those of others may change between attempts."""
        return None if pod.pod.spec.volumes else ()

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        """Read the zones and regions of the pod's volumes; skip if no volume has any."""
        found = self._topologies(pod)
        if isinstance(found, Status):
            return found
        if not found:
            return Status.skip()
        state.write(self.name, found)
        return None

    def _topologies(self, pod: PodInfo) -> Status | tuple[Topology, ...]:
        found: list[Topology] = []
        for volume in pod.pod.spec.volumes:
            # As in kube-scheduler ephemeral volumes are ignored.
            source = volume.persistent_volume_claim
            if source is None:
                continue
            topologies = self._topologies_of_claim(pod.namespace, source.claim_name)
            if isinstance(topologies, Status):
                return topologies
            found += topologies
        return tuple(found)

    def _pre_filter_state(self, state: CycleState, pod: PodInfo) -> Status | tuple[Topology, ...]:
        """Return the result of PreFilter; compute it if PreFilter is disabled."""
        found: tuple[Topology, ...] | None = state.get(self.name)
        return self._topologies(pod) if found is None else found

    def _topologies_of_claim(self, namespace: str, name: str) -> Status | tuple[Topology, ...]:
        if not name:
            return Status.unresolvable("PersistentVolumeClaim had no name")
        claim = self._claims.get(f"{namespace}/{name}")
        if claim is None:
            return Status.unresolvable(f'persistentvolumeclaim "{name}" not found')
        volume_name = claim.spec.volume_name
        if not volume_name:
            return self._why_unbound(claim) or ()
        volume = self._volumes.get(volume_name)
        if volume is None:
            return Status.unresolvable(f'persistentvolume "{volume_name}" not found')
        return topologies_of(volume)

    def _why_unbound(self, claim: PersistentVolumeClaim) -> Status | None:
        """Return the rejection for a claim without a volume; None if it waits for a consumer."""
        name = class_of_claim(claim)
        if not name:
            text = "PersistentVolumeClaim had no pv name and storageClass name"
            return Status.unresolvable(text)
        storage_class = self._classes.get(name)
        if storage_class is None:
            return Status.unresolvable(f'storageclass.storage.k8s.io "{name}" not found')
        mode = storage_class.volume_binding_mode
        if mode is None:
            return Status.unresolvable(f'VolumeBindingMode not set for StorageClass "{name}"')
        # VolumeBinding selects or provisions a volume that the node can access.
        if mode == WAIT_FOR_FIRST_CONSUMER:
            return None
        return Status.unresolvable("PersistentVolume had no name")

    def filter_all(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable, verdicts: Verdicts
    ) -> None:
        """Filter all nodes."""
        topologies = self._pre_filter_state(state, pod)
        if isinstance(topologies, Status):
            verdicts.reject_with(np.ones(len(nodes), dtype=np.bool_), topologies)
            return
        # A node without any of the labels is in a cluster of one zone: it accepts every volume.
        labelled = np.zeros(len(nodes), dtype=np.bool_)
        for label in _LABELS:
            labelled |= nodes.label(label) != ABSENT
        inside = np.ones(len(nodes), dtype=np.bool_)
        for topology in dict.fromkeys(topologies):
            inside &= _are_in(nodes, topology)
        verdicts.reject_with(labelled & ~inside, _REJECTED)

    # ---- events --------------------------------------------------------------------------------

    def events_to_register(self) -> Iterable[ClusterEvent]:
        """Register classes that wait for a consumer, nodes, the pod's claims, and volumes."""
        return (
            ClusterEvent(STORAGE_CLASS, ADD, _is_schedulable_after_storage_class_added),
            ClusterEvent(NODE, ADD | UPDATE_NODE_LABEL),
            ClusterEvent(PERSISTENT_VOLUME_CLAIM, ADD | UPDATE, _is_schedulable_after_pvc_change),
            ClusterEvent(PERSISTENT_VOLUME, ADD | UPDATE, _is_schedulable_after_pv_change),
        )


def topologies_of(volume: PersistentVolume) -> tuple[Topology, ...]:
    """Return the zones and regions of a volume; a label with an empty part is ignored."""
    found = []
    for key in _LABELS:
        value = volume.metadata.labels.get(key)
        if value is not None:
            parts = frozenset(part.strip() for part in value.split("__"))
            if "" not in parts:
                found.append(Topology(key, parts))
    return tuple(found)


def _are_in(nodes: NodeTable, topology: Topology) -> BoolArray:
    key, values = topology
    inside = nodes.matches(_one_of(key, values))
    # The volume may be older than the GA labels, and the node may have no beta ones any more.
    if key in _GA_LABEL:
        instead = nodes.matches(_one_of(_GA_LABEL[key], values))
        inside |= (nodes.label(key) == ABSENT) & instead
    return inside


def _one_of(key: str, values: frozenset[str]) -> Selector:
    return Selector((Requirement(key, "In", values),))


def _is_schedulable_after_storage_class_added(pod: PodInfo, old: object, new: StorageClass) -> bool:
    return new.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER


def _is_schedulable_after_pvc_change(pod: PodInfo, old: object, new: PersistentVolumeClaim) -> bool:
    if new.metadata.namespace != pod.namespace:
        return False
    return any(
        volume.persistent_volume_claim is not None
        and volume.persistent_volume_claim.claim_name == new.metadata.name
        for volume in pod.pod.spec.volumes
    )


def _is_schedulable_after_pv_change(
    pod: PodInfo, old: PersistentVolume | None, new: PersistentVolume
) -> bool:
    return old is None or topologies_of(old) != topologies_of(new)
