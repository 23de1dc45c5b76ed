"""Scores by the capacity that the pod's volumes would use (gate StorageCapacityScoring).

Worked example: claims of 2Gi and 1Gi of one class get volumes of 4Gi and 2Gi: 50 % in use. With the
shape 0 to 0, 100 to 10 the score is 50: the fuller the better.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from proreus.objects.quantity import whole_value
from proreus.objects.volume_claims import capacity_of, class_of_claim, requested_storage
from proreus.plugins.volume_binding.pod_volumes import PodVolumes

Usage = tuple[str, int, int]
"""A storage class, the bytes that claims request, and the bytes of the volumes or capacity."""


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
