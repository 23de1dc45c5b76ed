"""What the devices placed so far in a search consume of the counters that their pools share.

Partitions of one physical device consume the same counters (KEP-4815), so that no more of them are
allocated than fit.

Example: counter set ``memory`` has 40; d-full consumes 40 of it, d-half1 and d-half2 20 each. An
earlier claim has d-half1, so 20 are available: ``consume`` refuses d-full and accepts d-half2.
"""

from __future__ import annotations

from collections.abc import Mapping

from proreus.plugins.dynamic_resources.devices.availability_index import DeviceAvailability
from proreus.plugins.dynamic_resources.devices.kinds import DeviceKind
from proreus.plugins.dynamic_resources.devices.pools import PoolKey

_Key = PoolKey | str


class ConsumedCounters:
    """Counters consumed in one search; pools by their position in the ``DeviceAvailability``."""

    def __init__(self, availability: DeviceAvailability, *, by_pool_name: bool = False) -> None:
        """``by_pool_name``: pools of one name share counters, even of different drivers, as in
        kube-scheduler up to 1.36 (``Change.ALLOCATOR_OF_1_37``)."""
        self._availability = availability
        self._by_pool_name = by_pool_name
        self._available: dict[_Key, Mapping[str, Mapping[str, int]]] = {}
        self._consumed: dict[_Key, dict[str, dict[str, int]]] = {}

    def consume(self, pool: int, kind: DeviceKind) -> bool:
        """Consume what a device needs; return whether enough is left. Otherwise nothing changes."""
        key = self._key(pool)
        # Allocated devices do not change during a search, so this is computed once a search. The
        # first pool of a name decides, as in checkAvailableCounters.
        available = self._available.get(key)
        if available is None:
            available = self._available[key] = {
                counters: dict(amounts)
                for counters, amounts in self._availability.states[pool].available
            }
        self._count(pool, kind, 1)
        consumed = self._consumed[key]
        # Every counter of the pool is compared, not only those of this device: where a driver has
        # lowered a counter below what is in use, no device of the pool that needs counters fits.
        for counters, left in available.items():
            for counter, amount in left.items():
                if consumed.get(counters, {}).get(counter, 0) > amount:
                    self._count(pool, kind, -1)
                    return False
        return True

    def release(self, pool: int, kind: DeviceKind) -> None:
        """Undo ``consume``."""
        self._count(pool, kind, -1)

    def _key(self, pool: int) -> _Key:
        key = self._availability.views[pool].key
        return key[1] if self._by_pool_name else key

    def _count(self, pool: int, kind: DeviceKind, step: int) -> None:
        consumed = self._consumed.setdefault(self._key(pool), {})
        for name, amounts in kind.consumes.items():
            counters = consumed.setdefault(name, {})
            for counter, amount in amounts.items():
                counters[counter] = counters.get(counter, 0) + step * amount
