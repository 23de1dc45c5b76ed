"""Pods that are tried again at a certain time, for plugins that wait for no event."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

_SHORTEST_SLEEP_SECONDS = 0.05
_LONGEST_SLEEP_SECONDS = 3600.0


class Retries:
    """The times at which pods are activated. ``now``: the clock of these times, in seconds."""

    def __init__(
        self, now: Callable[[], float], activate: Callable[[Iterable[str]], object]
    ) -> None:
        self._now = now
        self._activate = activate
        self._times: dict[str, float] = {}
        self._changed = asyncio.Event()

    def put(self, key: str, at: float) -> None:
        """Activate a pod, given by its key, at a time."""
        self._times[key] = at
        self._changed.set()

    def forget(self, key: str) -> None:
        """Do not activate a pod any more."""
        self._times.pop(key, None)

    async def run(self) -> None:
        """Activate pods until cancelled."""
        while True:
            self._changed.clear()
            now = self._now()
            due = [key for key, at in self._times.items() if at <= now]
            for key in due:
                del self._times[key]
            if due:
                self._activate(due)
            wait = min([*self._times.values(), now + _LONGEST_SLEEP_SECONDS]) - now
            try:
                await asyncio.wait_for(self._changed.wait(), max(wait, _SHORTEST_SLEEP_SECONDS))
            except TimeoutError:
                continue
