"""What the devices placed so far in a search draw from the counters that their pools share.

Partitions of one physical device have such counters in common (KEP-4815).
"""

from __future__ import annotations

from collections.abc import Mapping

from proreus.plugins.dynamic_resources.availability_index import DeviceAvailability
from proreus.plugins.dynamic_resources.devices import DeviceKind


class ConsumedCounters:
    """The book of one search; pools by their position in the situation."""

    def __init__(self, availability: DeviceAvailability) -> None:
        self._availability = availability
        self._available: dict[str, Mapping[str, Mapping[str, int]]] = {}
        self._consumed: dict[str, dict[str, dict[str, int]]] = {}

    def consume(self, pool: int, kind: DeviceKind) -> bool:
        """Draw what a device consumes, if there is enough."""
        name = self._name(pool)
        available = self._available.get(name)
        if available is None:
            available = self._available[name] = {
                counters: dict(amounts)
                for counters, amounts in self._availability.states[pool].available
            }
        self._count(pool, kind, 1)
        consumed = self._consumed[name]
        for counters, left in available.items():
            for counter, amount in left.items():
                if consumed.get(counters, {}).get(counter, 0) > amount:
                    self._count(pool, kind, -1)
                    return False
        return True

    def release(self, pool: int, kind: DeviceKind) -> None:
        """Undo ``consume``."""
        self._count(pool, kind, -1)

    def _name(self, pool: int) -> str:
        # Pools of one name share counters, whatever their drivers: kube-scheduler's behaviour.
        return self._availability.views[pool].key[1]

    def _count(self, pool: int, kind: DeviceKind, step: int) -> None:
        consumed = self._consumed.setdefault(self._name(pool), {})
        for name, amounts in kind.consumes.items():
            counters = consumed.setdefault(name, {})
            for counter, amount in amounts.items():
                counters[counter] = counters.get(counter, 0) + step * amount
