"""What was used in the past, where each half-life counts half as much as the next."""

from __future__ import annotations

from math import log

from proreus.addons.capacity_scheduling.quotas import Amounts

_HALF_LIVES_TO_KEEP = 30
"""After these a billionth is left."""


class DecayedUsage:
    """The integral over time of amounts, each instant weighted by ``0.5 ** (age / half_life)``.

    Instants are in seconds and must not go back.
    """

    def __init__(self, half_life_seconds: float, now: float) -> None:
        self._half_life = half_life_seconds
        self._since = now
        self._amounts: Amounts = {}
        self._used: dict[str, float] = {}

    def change(self, amounts: Amounts, now: float) -> None:
        """Use these amounts from now on."""
        self._used = self.at(now)
        self._since = now
        self._amounts = dict(amounts)

    def is_over(self, now: float) -> bool:
        """Return whether nothing is used, and hardly anything is left of what was."""
        return not self._amounts and now - self._since > _HALF_LIVES_TO_KEEP * self._half_life

    def at(self, now: float) -> dict[str, float]:
        """Return the integral at an instant, in amounts times seconds."""
        decay = 0.5 ** ((now - self._since) / self._half_life)
        grown = (1 - decay) * self._half_life / log(2)
        names = self._used.keys() | self._amounts.keys()
        return {
            name: self._used.get(name, 0.0) * decay + self._amounts.get(name, 0) * grown
            for name in names
        }
