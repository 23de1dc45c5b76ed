"""Delegated authentication and authorization: review requests to the apiserver, and a TTL cache.

The apiserver is behind a Protocol, so that this package does not import ``proreus.client``;
``process.clients`` passes an implementation.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Generic, Protocol, TypeVar

from proreus.base.errors import ApiError

T = TypeVar("T")

REQUEST_SECONDS = 10.0
_FIRST_PAUSE_SECONDS, _GROWTH, _JITTER, _STEPS = 0.5, 1.5, 0.2, 5
_MAX_ENTRIES = 4096


class ApiAccess(Protocol):
    """The requests to the apiserver that delegation needs; both raise ``ApiError``."""

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Create an object and return it with its status."""
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
    """Return the ``status`` of a review; raises ``ApiError`` once the retries are used up.

    As in kube-scheduler: up to five attempts of 10 s, after delays from 0.5 s that grow by half.
    """
    pause = _FIRST_PAUSE_SECONDS
    for left in reversed(range(_STEPS)):
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                reviewed = await api.post(path, body)
            status: dict[str, Any] = reviewed.get("status") or {}
            return status
        except TimeoutError:
            error = ApiError(0, "Timeout", f"no response within {REQUEST_SECONDS:.0f} seconds")
        except ApiError as caught:
            error = caught
        # A 4xx would be returned again; only overload, server and network errors may pass.
        if left == 0 or not (error.status in (0, 429) or error.status >= 500):
            raise error
        await sleep(pause * (1 + random.random() * _JITTER))
        pause *= _GROWTH
    raise AssertionError("unreachable: the last attempt returns or raises")


class TtlCache(Generic[T]):
    """A cache of results that expire after some seconds; the oldest are evicted when it is full."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._entries: dict[Hashable, tuple[float, T]] = {}

    def get(self, key: Hashable) -> T | None:
        """Return the result for a key unless it is missing or has expired."""
        entry = self._entries.get(key)
        if entry is None or entry[0] <= self._now():
            self._entries.pop(key, None)
            return None
        return entry[1]

    def put(self, key: Hashable, result: T, ttl_seconds: float) -> None:
        """Store a result; a TTL of 0 disables caching."""
        if ttl_seconds <= 0:
            return
        self._entries.pop(key, None)
        if len(self._entries) >= _MAX_ENTRIES:
            del self._entries[next(iter(self._entries))]
        self._entries[key] = (self._now() + ttl_seconds, result)
