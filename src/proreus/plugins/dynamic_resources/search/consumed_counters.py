"""The counters that the devices placed so far in a search consume of their pools.

Partitions of one physical device consume the same counters (KEP-4815), so that no more of them are
allocated than fit. A device also names compatibility groups for each counter set that it consumes
(gate DRADeviceCompatibilityGroups, 1.37). A device without groups goes with devices without groups
only; others need a group that all devices on the set have in common.

Example: counter set ``memory`` has 40; d-full consumes 40 of it, d-half1 and d-half2 20 each. An
earlier claim has d-half1, so 20 are available: ``consume`` refuses d-full and accepts d-half2.

Example: d1 names {a, b} and is allocated. d2 with {b, c} may join, and then only {b} is left, so
that d3 with {a} is refused; d4 without groups was refused from the start.
"""

from __future__ import annotations

from collections.abc import Mapping

from proreus.plugins.dynamic_resources.devices.availability_index import DeviceAvailability
from proreus.plugins.dynamic_resources.devices.kinds import DeviceKind
from proreus.plugins.dynamic_resources.devices.pools import PoolKey
from proreus.plugins.dynamic_resources.features import Features

_Key = PoolKey | str

Groups = frozenset[str]
"""The groups that all devices on a counter set have in common; empty if they have no groups."""


def join(common: Groups | None, groups: Groups) -> Groups | None:
    """Return the common groups of a counter set with one more device; None if it may not join.

    ``common`` is None where there is no device yet.
    """
    if common is None:
        return groups
    if not common or not groups:
        return None if common or groups else common
    return common & groups or None


class ConsumedCounters:
    """Counters and groups of one search; pools by their position in the ``DeviceAvailability``."""

    def __init__(self, availability: DeviceAvailability, features: Features) -> None:
        self._availability = availability
        # Up to 1.36 pools of one name share counters, even of different drivers.
        self._by_pool_name = not features.allocator_of_1_37
        self._with_groups = features.compatibility_groups
        self._available: dict[_Key, Mapping[str, Mapping[str, int]]] = {}
        self._consumed: dict[_Key, dict[str, dict[str, int]]] = {}
        self._common = [dict(state.groups) for state in availability.states]
        """By pool the common groups of each counter set."""
        self._before: list[dict[str, Groups]] = []
        """The groups of its pool before each device that was placed."""

    def consume(self, pool: int, kind: DeviceKind) -> bool:
        """Place a device if its counters are left and its groups fit; return whether they do."""
        common = self._joined(pool, kind)
        if common is None:
            return False
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
        self._before.append(self._common[pool])
        self._common[pool] = common
        return True

    def release(self, pool: int, kind: DeviceKind) -> None:
        """Undo the last ``consume`` that succeeded."""
        self._count(pool, kind, -1)
        self._common[pool] = self._before.pop()

    def _joined(self, pool: int, kind: DeviceKind) -> dict[str, Groups] | None:
        """Return the common groups of a pool with a device; None if it may not join."""
        common = self._common[pool]
        if not self._with_groups:
            return common
        found = {name: join(common.get(name), groups) for name, groups in kind.groups.items()}
        joined = {name: groups for name, groups in found.items() if groups is not None}
        return {**common, **joined} if len(joined) == len(found) else None

    def _key(self, pool: int) -> _Key:
        key = self._availability.views[pool].key
        return key[1] if self._by_pool_name else key

    def _count(self, pool: int, kind: DeviceKind, step: int) -> None:
        consumed = self._consumed.setdefault(self._key(pool), {})
        for name, amounts in kind.consumes.items():
            counters = consumed.setdefault(name, {})
            for counter, amount in amounts.items():
                counters[counter] = counters.get(counter, 0) + step * amount
