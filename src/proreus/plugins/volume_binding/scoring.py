"""Scores by the capacity that the pod's volumes would use (gate StorageCapacityScoring).

Worked example: claims of 2Gi and 1Gi of one class get volumes of 4Gi and 2Gi: 50 % in use. With the
shape 0 to 0, 100 to 10 the score is 50: the fuller the better.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

import numpy as np

from proreus.framework.node_table import NodeTable
from proreus.framework.status import Status
from proreus.framework.verdicts import IntArray
from proreus.objects.quantity import whole_value
from proreus.objects.storage import PersistentVolume
from proreus.objects.volume_claims import capacity_of, class_of_claim, requested_storage
from proreus.plugins.volume_binding.accessible_nodes import first_accessible
from proreus.plugins.volume_binding.matching import MatchingVolumes
from proreus.plugins.volume_binding.pod_volumes import PodVolumeFinder, PodVolumes
from proreus.plugins.volume_binding.provisioning import Provisioning
from proreus.plugins.volume_binding.storage_capacity import StorageCapacity

Usage = tuple[str, int, int]
"""A storage class, the bytes that claims request, and the bytes of the volumes or capacity."""


def score_nodes(
    finder: PodVolumeFinder, nodes: NodeTable, rate: Callable[[int], int]
) -> IntArray | int:
    """Return ``volume_score`` for every node of a table; 0 where the pod does not fit."""
    if not finder.gets_known_capacities:
        return 0
    found = finder.find_all(nodes)
    # None if claims have their node selected already: that one is looked at by itself.
    claims = [
        _OpenClaim(nodes, *one)
        for one in zip(finder.open, found.places, finder.open_provisionings, strict=False)
    ]
    # Each node may have disks of its own, but most of them are of one size: a node of each kind is
    # scored.
    kinds = np.where(found.one_by_one, np.arange(1, len(nodes) + 1), 0)
    for claim in claims:
        kinds = claim.split(kinds)
    _, rows, kinds = np.unique(kinds, return_index=True, return_inverse=True)
    scores = []
    for row in rows.tolist():
        volumes: PodVolumes | Status = _volumes_at(row, claims)
        if found.one_by_one[row]:
            volumes = finder.find_pod_volumes(nodes[row])
        scores.append(0 if isinstance(volumes, Status) else volume_score(volumes, rate))
    return np.where(found.bits == 0, np.array(scores, dtype=np.int64)[kinds], 0)


class _OpenClaim:
    """The offers of nodes for a claim: an existing volume, capacity for a new one, or neither."""

    def __init__(
        self,
        nodes: NodeTable,
        candidates: MatchingVolumes,
        place: IntArray,
        provisioning: Provisioning,
    ) -> None:
        """``place``: by node, the index in the candidates' volumes; their number: none."""
        volumes, capacities = candidates.volumes, provisioning.storage_capacities or ()
        capacity = first_accessible(nodes, [one.accessible_nodes for one in capacities])
        self.claim = candidates.claim
        self._offers = (*volumes, *capacities, None)
        self._offer_at = np.where(place < len(volumes), place, len(volumes) + capacity)

    def at(self, row: int) -> PersistentVolume | StorageCapacity | None:
        """Return the offer of a node."""
        return self._offers[int(self._offer_at[row])]

    def split(self, kinds: IntArray) -> IntArray:
        """Divide kinds of nodes, numbered from 0, by the size of what the nodes offer."""
        numbers: dict[Hashable, int] = {}
        sizes = np.array([numbers.setdefault(_size(one), len(numbers)) for one in self._offers])
        divided: IntArray = kinds * len(numbers) + sizes[self._offer_at]
        # Numbered anew, so that no number of claims exceeds int64.
        return np.unique(divided, return_inverse=True)[1]


def _size(offer: PersistentVolume | StorageCapacity | None) -> Hashable:
    """Return the part of an offer that counts in ``usages_of``."""
    if isinstance(offer, PersistentVolume):
        return offer.spec.storage_class_name, capacity_of(offer)
    return None if offer is None else offer.capacity


def _volumes_at(row: int, claims: Sequence[_OpenClaim]) -> PodVolumes:
    static_bindings, dynamic_provisions = [], []
    for claim in claims:
        offer = claim.at(row)
        if isinstance(offer, PersistentVolume):
            static_bindings.append((claim.claim, offer))
        else:
            dynamic_provisions.append((claim.claim, offer))
    return PodVolumes(tuple(static_bindings), tuple(dynamic_provisions))


def volume_score(volumes: PodVolumes, rate: Callable[[int], int]) -> int:
    """Return the score of a node; ``rate`` maps the percentage of capacity in use to a score."""
    return usage_score(usages_of(volumes), rate)


def usage_score(usages: Iterable[Usage], rate: Callable[[int], int]) -> int:
    """Return the mean over classes, rounded half up."""
    rates = [
        rate(100 if capacity == 0 or requested > capacity else requested * 100 // capacity)
        for _, requested, capacity in usages
    ]
    count = len(rates)
    return (2 * sum(rates) + count) // (2 * count) if count else 0


def usages_of(volumes: PodVolumes) -> Iterator[Usage]:
    """Yield the usage of each storage class."""
    requested: dict[str, int] = {}
    have: dict[str, int] = {}
    for claim, volume in volumes.static_bindings:
        name = volume.spec.storage_class_name
        requested[name] = requested.get(name, 0) + whole_value(requested_storage(claim) or 0)
        have[name] = have.get(name, 0) + whole_value(capacity_of(volume))
    # As in kube-scheduler, volumes to provision count only if no existing one is used.
    if not volumes.static_bindings:
        for claim, storage_capacity in volumes.dynamic_provisions:
            if storage_capacity is not None:
                name = class_of_claim(claim)
                requested[name] = requested.get(name, 0) + whole_value(
                    requested_storage(claim) or 0
                )
                have[name] = storage_capacity.capacity
    for name, amount in requested.items():
        yield name, amount, have[name]
