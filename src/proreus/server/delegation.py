"""Asking the apiserver who a caller is and what it may do: the way there, and memory.

The network is behind a Protocol, so this room does not know the client; ``app.clients`` hands one
in.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Generic, Protocol, TypeVar

from proreus.errors import ApiError

T = TypeVar("T")

REQUEST_SECONDS = 10.0
_FIRST_PAUSE_SECONDS, _GROWTH, _JITTER, _STEPS = 0.5, 1.5, 0.2, 5
_CACHED_ANSWERS = 4096


class ApiAccess(Protocol):
    """The apiserver, as far as delegation needs it; both raise ``ApiError``."""

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Create an object and return what the apiserver made of it."""
        ...

    async def get(self, path: str) -> dict[str, Any]:
        """Return an object."""
        ...


async def review(
    api: ApiAccess,
    path: str,
    body: dict[str, Any],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> dict[str, Any]:
    """Return the ``status`` of a review; try again what may pass; raise ``ApiError``.

    kube-scheduler's delegation does the same: 10 s a try, five tries, 0.5 s growing by half.
    """
    pause = _FIRST_PAUSE_SECONDS
    for left in reversed(range(_STEPS)):
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                answer = await api.post(path, body)
            status: dict[str, Any] = answer.get("status") or {}
            return status
        except TimeoutError:
            error = ApiError(0, "Timeout", f"no answer within {REQUEST_SECONDS:.0f} seconds")
        except ApiError as caught:
            error = caught
        if left == 0 or not (error.status in (0, 429) or error.status >= 500):
            raise error
        await sleep(pause * (1 + random.random() * _JITTER))
        pause *= _GROWTH
    raise AssertionError("unreachable: the last try returns or raises")


class TtlCache(Generic[T]):
    """Answers that are good for some seconds; the oldest go first when there are too many."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._entries: dict[Hashable, tuple[float, T]] = {}

    def get(self, key: Hashable) -> T | None:
        """Return what is remembered and still good."""
        entry = self._entries.get(key)
        if entry is None or entry[0] <= self._now():
            self._entries.pop(key, None)
            return None
        return entry[1]

    def put(self, key: Hashable, answer: T, ttl_seconds: float) -> None:
        """Remember an answer; not at all with a time of 0."""
        if ttl_seconds <= 0:
            return
        self._entries.pop(key, None)
        if len(self._entries) >= _CACHED_ANSWERS:
            del self._entries[next(iter(self._entries))]
        self._entries[key] = (self._now() + ttl_seconds, answer)
