"""How well volumes fit what there is (gate StorageCapacityScoring)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from proreus.objects.quantity import whole_value
from proreus.objects.volume_claims import capacity_of, class_of_claim, requested_storage
from proreus.plugins.volume_binding.pod_volumes import PodVolumes

Usage = tuple[str, int, int]
"""A storage class, the bytes that claims ask of it, and the bytes that it has for them."""


def volume_score(volumes: PodVolumes, rate: Callable[[int], int]) -> int:
    """Return the score of a node; ``rate`` turns per cent of capacity in use into a score."""
    return usage_score(usages_of(volumes), rate)


def usage_score(usages: Iterable[Usage], rate: Callable[[int], int]) -> int:
    """Return the mean over classes, rounded half up."""
    rates = [
        rate(100 if capacity == 0 or asked > capacity else asked * 100 // capacity)
        for _, asked, capacity in usages
    ]
    count = len(rates)
    return (2 * sum(rates) + count) // (2 * count) if count else 0


def usages_of(volumes: PodVolumes) -> Iterator[Usage]:
    """Yield what each storage class would give; volumes to be made count if none exists."""
    asked: dict[str, int] = {}
    have: dict[str, int] = {}
    for claim, volume in volumes.static_bindings:
        name = volume.spec.storage_class_name
        asked[name] = asked.get(name, 0) + whole_value(requested_storage(claim) or 0)
        have[name] = have.get(name, 0) + whole_value(capacity_of(volume))
    if not volumes.static_bindings:
        for claim, storage_capacity in volumes.dynamic_provisions:
            if storage_capacity is not None:
                name = class_of_claim(claim)
                asked[name] = asked.get(name, 0) + whole_value(requested_storage(claim) or 0)
                have[name] = storage_capacity.capacity
    for name, amount in asked.items():
        yield name, amount, have[name]
