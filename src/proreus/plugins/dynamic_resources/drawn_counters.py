"""What the devices placed so far in a search draw from the counters that their pools share.

Partitions of one physical device have such counters in common (KEP-4815).
"""

from __future__ import annotations

from collections.abc import Mapping

from proreus.plugins.dynamic_resources.devices import DeviceKind
from proreus.plugins.dynamic_resources.situations import Situation


class DrawnCounters:
    """The book of one search; pools by their position in the situation."""

    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        self._available: dict[str, Mapping[str, Mapping[str, int]]] = {}
        self._drawn: dict[str, dict[str, dict[str, int]]] = {}

    def draw(self, pool: int, kind: DeviceKind) -> bool:
        """Draw what a device consumes, if there is enough."""
        name = self._name(pool)
        available = self._available.get(name)
        if available is None:
            available = self._available[name] = {
                counters: dict(amounts)
                for counters, amounts in self._situation.states[pool].available
            }
        self._count(pool, kind, 1)
        drawn = self._drawn[name]
        for counters, left in available.items():
            for counter, amount in left.items():
                if drawn.get(counters, {}).get(counter, 0) > amount:
                    self._count(pool, kind, -1)
                    return False
        return True

    def give_back(self, pool: int, kind: DeviceKind) -> None:
        """Undo ``draw``."""
        self._count(pool, kind, -1)

    def _name(self, pool: int) -> str:
        # Pools of one name share counters, whatever their drivers: kube-scheduler's behaviour.
        return self._situation.views[pool].key[1]

    def _count(self, pool: int, kind: DeviceKind, step: int) -> None:
        drawn = self._drawn.setdefault(self._name(pool), {})
        for name, amounts in kind.consumes.items():
            counters = drawn.setdefault(name, {})
            for counter, amount in amounts.items():
                counters[counter] = counters.get(counter, 0) + step * amount
