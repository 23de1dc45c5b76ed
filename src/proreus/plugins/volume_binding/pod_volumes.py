"""The nodes where a pod's volumes are accessible or can be provisioned, and the volumes there.

What does not depend on the node is computed once a cycle. ``find_pod_volumes`` filters one node and
``filter_all`` a table, with the same results.

Worked example: claims of 1Gi and 5Gi are unbound. On node ``a``, with access to free volumes of 2Gi
and 6Gi, they get one each. On node ``b``, with access to that of 6Gi only, the claim of 1Gi gets
it, and the volume of the other claim has to be provisioned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from proreus.framework.node_affinity import parsed_node_selector
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.status import Status
from proreus.framework.verdicts import BoolArray, IntArray, Verdicts
from proreus.objects.storage import (
    SELECTED_NODE_ANNOTATION,
    PersistentVolume,
    PersistentVolumeClaim,
)
from proreus.objects.volume_claims import requested_storage
from proreus.plugins.csi_migration import InTreePlugin, in_tree_plugin_of, translated_affinity
from proreus.plugins.volume_binding.accessible_nodes import (
    AccessibleNodes,
    accessible_mask,
    first_accessible,
    is_accessible,
    nodes_of_volume,
)
from proreus.plugins.volume_binding.claims import PodVolumeClaims, StorageError
from proreus.plugins.volume_binding.matching import MatchingVolumes, find_matching_volumes
from proreus.plugins.volume_binding.provisioning import fit_together, provisioning_for
from proreus.plugins.volume_binding.storage import Storage
from proreus.plugins.volume_binding.storage_capacity import StorageCapacity

REASON_CONFLICT = "node(s) didn't match PersistentVolume's node affinity"
REASON_NO_MATCH = "node(s) didn't find available persistent volumes to bind"
REASON_NO_SPACE = "node(s) did not have enough free storage"
REASON_MISSING = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"

_CONFLICT, _NO_MATCH, _NO_SPACE, _MISSING = 1, 2, 4, 8
_REASONS = (REASON_CONFLICT, REASON_NO_MATCH, REASON_NO_SPACE, REASON_MISSING)


def _status(bits: int) -> Status:
    return Status.unresolvable(*(r for bit, r in enumerate(_REASONS) if bits >> bit & 1))


_STATUSES = tuple(_status(bits) for bits in range(1 << len(_REASONS)))


class PodVolumes(Struct, frozen=True):
    """The volumes of a pod on a node: existing ones, and those to provision."""

    static_bindings: tuple[tuple[PersistentVolumeClaim, PersistentVolume], ...] = ()
    dynamic_provisions: tuple[tuple[PersistentVolumeClaim, StorageCapacity | None], ...] = ()


NO_VOLUMES = PodVolumes()


class VolumesOfNodes(Struct, frozen=True):
    """The nodes that a pod fits, and its volumes there: columns, shape (nodes,).

    ``bits``: why not, 0 if it fits. ``one_by_one``: the nodes whose result columns cannot express,
    such as an error or one volume for two claims; as a rule there are none. ``places``: for each
    open claim the index of the volume that it would get; the number of its volumes means none.
    """

    bits: IntArray
    one_by_one: BoolArray
    places: Sequence[IntArray] = ()


class BoundVolume(Struct, frozen=True):
    """The volume of a bound claim; None if it does not exist.

    ``plugin``: its in-tree plugin. On nodes where that is migrated ``migrated`` has the nodes that
    can access it, elsewhere ``accessible_nodes``. ``problem``: why it cannot be translated.
    """

    volume: PersistentVolume | None
    accessible_nodes: AccessibleNodes = None
    plugin: InTreePlugin | None = None
    migrated: AccessibleNodes = None
    problem: str = ""


def bound_volume(volume: PersistentVolume | None) -> BoundVolume:
    """Determine the nodes that can access a volume."""
    if volume is None:
        return BoundVolume(None)
    accessible_nodes = nodes_of_volume(volume)
    plugin = None if volume.spec.csi is not None else in_tree_plugin_of(volume.spec)
    if plugin is None or not plugin.on:
        return BoundVolume(volume, accessible_nodes)
    try:
        required = translated_affinity(volume, plugin)
    except ValueError as error:
        return BoundVolume(volume, accessible_nodes, plugin, problem=str(error))
    return BoundVolume(
        volume,
        accessible_nodes,
        plugin,
        None if required is None else parsed_node_selector(required),
    )


class PodVolumeFinder:
    """Finds the volumes of one pod on nodes, for one cycle.

    Raises nothing: a failure is the Error status of a node.
    """

    def __init__(self, claims: PodVolumeClaims, storage: Storage) -> None:
        self.claims = claims
        self._storage = storage
        self._bound = [bound_volume(storage.volumes.get(c.spec.volume_name)) for c in claims.bound]
        selected: list[PersistentVolumeClaim] = []
        open_claims: list[PersistentVolumeClaim] = []
        for claim in claims.delayed:
            decided = SELECTED_NODE_ANNOTATION in claim.metadata.annotations
            (selected if decided else open_claims).append(claim)
        self._selected_nodes = {
            claim.metadata.annotations[SELECTED_NODE_ANNOTATION] for claim in selected
        }
        self._selected = [provisioning_for(claim, storage) for claim in selected]
        # The smallest first, so that each leaves the larger volumes to the other claims.
        open_claims.sort(key=lambda claim: requested_storage(claim) or 0)
        self.open = [find_matching_volumes(claim, storage) for claim in open_claims]
        self.open_provisionings = [provisioning_for(claim, storage) for claim in open_claims]

    @property
    def gets_known_capacities(self) -> bool:
        """Whether there may be a node where the capacity of what the pod would get is known."""
        provisionings = (*self._selected, *self.open_provisionings)
        return any(candidates.volumes for candidates in self.open) or any(
            provisioning.storage_capacities is not None for provisioning in provisionings
        )

    # ---- one node ------------------------------------------------------------------------------

    def find_pod_volumes(self, node: NodeInfo) -> Status | PodVolumes:
        """Return the volumes that the pod would get on a node, or the status that rejects it."""
        labels = node.labels
        try:
            bits = self._check_bound_claims(node.name, labels)
            more, volumes = self._find_volumes(node.name, labels)
        except StorageError as error:
            return Status.error(str(error))
        return _STATUSES[bits | more] if bits | more else volumes

    def _check_bound_claims(self, node_name: str, labels: Mapping[str, str]) -> int:
        for bound in self._bound:
            if bound.volume is None:
                return _MISSING
            if not is_accessible(labels, self._accessible_nodes(node_name, bound)):
                return _CONFLICT
        return 0

    def _accessible_nodes(self, node_name: str, bound: BoundVolume) -> AccessibleNodes:
        if bound.plugin is None or not self._storage.is_migrated(node_name, bound.plugin.name):
            return bound.accessible_nodes
        if bound.problem:
            raise StorageError(bound.problem)
        return bound.migrated

    def _find_volumes(self, node_name: str, labels: Mapping[str, str]) -> tuple[int, PodVolumes]:
        # An earlier attempt has selected another node, and a provisioner may be at work for it.
        if any(selected != node_name for selected in self._selected_nodes):
            return _NO_MATCH, NO_VOLUMES
        to_provision = list(self._selected)
        static_bindings = []
        chosen: set[str] = set()
        for candidates, provisioning in zip(self.open, self.open_provisionings, strict=True):
            volume = _first_at(candidates, labels, chosen)
            if volume is None:
                to_provision.append(provisioning)
            else:
                chosen.add(volume.metadata.name)
                static_bindings.append((candidates.claim, volume))
        dynamic_provisions = []
        for provisioning in to_provision:
            if provisioning.problem:
                raise StorageError(provisioning.problem)
            if not is_accessible(labels, provisioning.allowed):
                return _NO_MATCH, NO_VOLUMES
            storage_capacity = provisioning.capacity_at(labels)
            if storage_capacity is None and provisioning.storage_capacities is not None:
                return _NO_SPACE, NO_VOLUMES
            dynamic_provisions.append((provisioning.claim, storage_capacity))
        if self._storage.claims_share_capacity and not fit_together(to_provision, labels):
            return _NO_SPACE, NO_VOLUMES
        return 0, PodVolumes(tuple(static_bindings), tuple(dynamic_provisions))

    # ---- all nodes -----------------------------------------------------------------------------

    def filter_all(self, nodes: NodeTable, verdicts: Verdicts) -> None:
        """Filter every node of a table."""
        found = self.find_all(nodes)
        bits, one_by_one = found.bits, found.one_by_one
        if bits.any():
            for present in np.flatnonzero(np.bincount(bits)).tolist():
                if present:
                    verdicts.reject_with(bits == present, _STATUSES[present])
        for row in np.flatnonzero(one_by_one).tolist():
            status = self.find_pod_volumes(nodes[row])
            if isinstance(status, Status):
                verdicts.reject_row(row, status)

    def find_all(self, nodes: NodeTable) -> VolumesOfNodes:
        """Return the nodes of a table that the pod fits, and its volumes there."""
        bits: IntArray = np.zeros(len(nodes), dtype=np.int64)
        one_by_one: BoolArray = np.zeros(len(nodes), dtype=np.bool_)
        places: Sequence[IntArray] = ()
        self._check_bound_claims_all(nodes, bits, one_by_one)
        if self._selected_nodes:
            self._find_selected(nodes, bits, one_by_one)
        elif self.open:
            places = self._find_volumes_all(nodes, bits, one_by_one)
        bits[one_by_one] = 0
        return VolumesOfNodes(bits, one_by_one, places)

    def _check_bound_claims_all(
        self, nodes: NodeTable, bits: IntArray, one_by_one: BoolArray
    ) -> None:
        # The first claim whose volume a node cannot access determines its status.
        undecided: BoolArray = np.ones(len(nodes), dtype=np.bool_)
        for bound in self._bound:
            if bound.volume is None:
                bits[undecided] |= _MISSING
                return
            inaccessible = self._inaccessible_mask(nodes, bound, one_by_one)
            if inaccessible is not None:
                bits[undecided & inaccessible] |= _CONFLICT
                undecided &= ~inaccessible

    def _inaccessible_mask(
        self, nodes: NodeTable, bound: BoundVolume, one_by_one: BoolArray
    ) -> BoolArray | None:
        """Return the mask of nodes that cannot access a volume; None if all can."""
        plugin, mask = bound.plugin, None
        if bound.accessible_nodes is not None:
            mask = ~accessible_mask(nodes, bound.accessible_nodes)
        migrated = None if plugin is None else self._storage.migrated_mask(nodes, plugin.name)
        if migrated is None:
            return mask
        if bound.problem:
            one_by_one |= migrated
            return mask
        if mask is None:
            mask = np.zeros(len(nodes), dtype=np.bool_)
        there = False if bound.migrated is None else ~accessible_mask(nodes, bound.migrated)
        return np.where(migrated, there, mask)

    def _find_selected(self, nodes: NodeTable, bits: IntArray, one_by_one: BoolArray) -> None:
        """Reject all nodes but the one that the claims' annotations select."""
        bits |= _NO_MATCH
        # Claims with different selected nodes fit no node at all.
        if len(self._selected_nodes) == 1:
            one_by_one[nodes.rows_of(self._selected_nodes)] = True

    def _find_volumes_all(
        self, nodes: NodeTable, bits: IntArray, one_by_one: BoolArray
    ) -> Sequence[IntArray]:
        if any(candidates.problem for candidates in self.open):
            one_by_one |= True
        found = [first_accessible(nodes, candidates.accessible_nodes) for candidates in self.open]
        self._find_conflicts(found, one_by_one)
        # For how many claims each node would need a part of a tracked capacity.
        tracked: IntArray = np.zeros(len(nodes), dtype=np.int64)
        undecided: BoolArray = np.ones(len(nodes), dtype=np.bool_)
        for candidates, provisioning, places in zip(
            self.open, self.open_provisionings, found, strict=True
        ):
            unmatched = undecided & (places == len(candidates.volumes))
            if not unmatched.any():
                continue
            if provisioning.problem:
                one_by_one |= unmatched
                continue
            allowed, storage_capacities = provisioning.allowed, provisioning.storage_capacities
            if allowed is not None:
                failing = unmatched & ~accessible_mask(nodes, allowed)
                bits[failing] |= _NO_MATCH
                undecided &= ~failing
            if storage_capacities is not None:
                tracked += unmatched
                storage_capacity = first_accessible(
                    nodes,
                    [storage_capacity.accessible_nodes for storage_capacity in storage_capacities],
                )
                failing = unmatched & undecided & (storage_capacity == len(storage_capacities))
                bits[failing] |= _NO_SPACE
                undecided &= ~failing
        if self._storage.claims_share_capacity:
            one_by_one |= undecided & (tracked > 1)
        return found

    def _find_conflicts(self, found: Sequence[IntArray], one_by_one: BoolArray) -> None:
        """Mark nodes where two claims would get one volume, to be filtered one by one."""
        numbers: dict[str, int] = {}
        taken: list[IntArray] = []
        for candidates, places in zip(self.open, found, strict=True):
            names = [volume.metadata.name for volume in candidates.volumes]
            codes = [numbers.setdefault(name, len(numbers)) for name in names]
            volume = np.array([*codes, -1], dtype=np.int64)[places]
            for other in taken:
                one_by_one |= (volume == other) & (volume >= 0)
            taken.append(volume)


def _first_at(
    candidates: MatchingVolumes, labels: Mapping[str, str], chosen: set[str]
) -> PersistentVolume | None:
    if candidates.problem:
        raise StorageError(candidates.problem)
    for volume, accessible_nodes in zip(
        candidates.volumes, candidates.accessible_nodes, strict=True
    ):
        if volume.metadata.name not in chosen and is_accessible(labels, accessible_nodes):
            return volume
    return None
