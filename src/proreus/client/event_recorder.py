"""Events: told to at once, written later, one for many that are alike.

``event`` never blocks, never raises and never makes the binding of pods wait: it notes the event in
a bounded queue, and a few workers write it while no other write is under way (or, under lasting
load, at a trickle). An event equal to one of the last minutes is not written again: the first
repeat makes it a series, later ones are only counted, and the count is written now and then
(client-go's events.EventRecorder, whose times these are).
"""

import asyncio
import logging
import random
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import msgspec

from proreus.client.checked_writes import CheckedWriter, Write
from proreus.client.event_bodies import (
    EventKey,
    ObjectReference,
    event_body,
    reference_to,
    series_patch,
)
from proreus.client.rate_limiter import RateLimiter, no_rate_limit
from proreus.client.request_headers import JSON, STRATEGIC_MERGE_PATCH
from proreus.client.responses import ResponseLost, Unreachable
from proreus.client.session import ApiClient
from proreus.clock import Clock, RealClock
from proreus.errors import ApiError, Conflict, NotFound
from proreus.objects.kinds import EVENTS, EVENTS_V1
from proreus.objects.meta import Resource
from proreus.objects.pod import Pod
from proreus.objects.scheduling import PodGroup

logger = logging.getLogger(__name__)

REFRESH_SECONDS = 30 * 60.0
FINISH_SECONDS = 6 * 60.0
_TRIES = 12
_SLEEP_SECONDS = 10.0
_WORKERS = 8
_PATIENCE_SECONDS = 0.5
_IMPATIENT_SECONDS = 0.05
"""How long an Event waits for bindings to be done; less once a tenth of the room is taken."""
_MAX_CACHED_EVENTS = 16_384

_encode = msgspec.json.Encoder().encode


_Key = tuple[EventKey, bool, str]
"""What makes an event another one: its text, its form, and its note where that counts."""


class _Entry:
    """An event that was told of, and how far its writing has come."""

    __slots__ = (
        "at",
        "core",
        "count",
        "key",
        "last",
        "name",
        "note",
        "text",
        "under_way",
        "written",
    )

    def __init__(self, key: _Key, note: str, name: str, at: float) -> None:
        self.key = key
        self.text, self.core, _ = key
        self.note = note
        self.name = name
        self.at = at
        self.count = 1
        self.last = at
        self.written = 0  # the count that the apiserver knows; 0: it was not created yet
        self.under_way = False  # queued or being written: it is in one place at a time


class EventRecorder:
    """Records events; ``run`` writes them. ``dropped`` counts those that found no room.

    ``wait_until_idle(seconds)`` returns when nothing of more weight is being written, or after that
    time. ``capacity`` bounds what waits to be written.
    """

    def __init__(
        self,
        client: ApiClient,
        *,
        clock: Clock | None = None,
        wait_until_idle: Callable[[float], Awaitable[None]] | None = None,
        rate_limiter: RateLimiter | None = None,
        capacity: int = 50_000,
        hostname: str | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._client = client
        self._clock = clock or RealClock()
        self._idle = wait_until_idle
        self._capacity = capacity
        self._hostname = hostname or socket.gethostname()
        self._rng = rng or random.Random()
        self._writer = CheckedWriter(
            client,
            rate_limiter or no_rate_limit(),
            parallelism=_WORKERS,
            verify_attempts=1,
            verify_backoff_seconds=(0.1, 1.0),
            rng=self._rng,
        )
        self._queue: deque[_Entry] = deque()
        self._filled = asyncio.Event()
        self._under_way = 0  # entries queued or being written
        self._all_written = asyncio.Event()
        self._all_written.set()
        self._event_cache: dict[_Key, _Entry] = {}
        self._last_nanoseconds = 0
        self._core_only = False
        self.dropped = 0

    # -- telling -------------------------------------------------------------------------------

    def event(
        self,
        regarding: Pod,
        event_type: str,
        reason: str,
        action: str,
        note: str,
        controller: str,
        related: Pod | PodGroup | None = None,
    ) -> None:
        """Note an event about a pod; ``controller`` is the profile's scheduler name."""
        why = None if related is None else reference_to(related)
        about = reference_to(regarding)
        self.event_about(about, event_type, reason, action, note, controller, why)

    def event_about(
        self,
        regarding: ObjectReference,
        event_type: str,
        reason: str,
        action: str,
        note: str,
        controller: str,
        related: ObjectReference | None = None,
        *,
        core: bool = False,
        distinct_by_note: bool = False,
    ) -> None:
        """Note an event about any object; ``core`` asks for the core/v1 form.

        ``distinct_by_note``: with another note it is another event, not one more of a series that
        goes on to show the first note.
        """
        text = EventKey(event_type, reason, action, controller, regarding, related)
        key = (text, core, note if distinct_by_note else "")
        now = self._clock.now()
        cached = self._event_cache.get(key)
        if cached is not None:
            cached.count += 1
            cached.last = now
            if cached.count == 2:
                self._enqueue(cached)
            return
        entry = _Entry(key, note, f"{regarding.name}.{self._nanoseconds(now):x}", now)
        if self._enqueue(entry):
            self._cache_event(entry)

    def _cache_event(self, entry: _Entry) -> None:
        if (
            len(self._event_cache) >= _MAX_CACHED_EVENTS
        ):  # at thousands a second, minutes are too many
            del self._event_cache[next(iter(self._event_cache))]
        self._event_cache[entry.key] = entry

    def _enqueue(self, entry: _Entry) -> bool:
        if entry.under_way:
            return True  # whoever has it in hand looks at the count afterwards
        if len(self._queue) >= self._capacity:
            if not self.dropped:
                logger.warning("events come faster than they can be written: some are dropped")
            self.dropped += 1
            return False
        entry.under_way = True
        self._under_way += 1
        self._all_written.clear()
        self._queue.append(entry)
        self._filled.set()
        return True

    def _nanoseconds(self, now: float) -> int:
        """Return the time in nanoseconds, never the same twice: it makes the name unique."""
        self._last_nanoseconds = max(int(now * 1e9), self._last_nanoseconds + 1)
        return self._last_nanoseconds

    # -- series --------------------------------------------------------------------------------

    def refresh_series(self) -> None:
        """Write the present count of every series (every 30 minutes)."""
        for entry in self._event_cache.values():
            if entry.count > 1:
                self._enqueue(entry)

    def finish_series(self) -> None:
        """Forget what was silent for 6 minutes; write the last count of series (every 6)."""
        silent_since = self._clock.now() - FINISH_SECONDS
        for key, entry in list(self._event_cache.items()):
            if entry.last < silent_since:
                del self._event_cache[key]
                if entry.count > 1:
                    self._enqueue(entry)

    # -- writing -------------------------------------------------------------------------------

    async def run(self) -> None:
        """Write what is told until cancelled."""
        await self._discover_event_api()
        async with asyncio.TaskGroup() as tasks:
            for number in range(_WORKERS):
                tasks.create_task(self._work(), name=f"event writer {number}")
            tasks.create_task(_every(REFRESH_SECONDS, self.refresh_series))
            tasks.create_task(_every(FINISH_SECONDS, self.finish_series))

    async def flush(self, at_most_seconds: float) -> None:
        """Return once all that was told is written, or after ``at_most_seconds``."""
        try:
            async with asyncio.timeout(at_most_seconds):
                await self._all_written.wait()
        except TimeoutError:
            return

    async def _discover_event_api(self) -> None:
        """Ask once whether the apiserver has events.k8s.io/v1."""
        try:
            await self._client.request("GET", f"/apis/{EVENTS.group}/{EVENTS.version}")
        except NotFound:
            self._core_only = True
        except ApiError as error:
            logger.warning("whether events.k8s.io/v1 is served is not known: %s", error)

    async def _work(self) -> None:
        while True:
            while not self._queue:
                self._filled.clear()
                await self._filled.wait()
            if self._idle is not None:
                pressing = len(self._queue) > self._capacity // 10
                await self._idle(_IMPATIENT_SECONDS if pressing else _PATIENCE_SECONDS)
                if not self._queue:
                    continue
            entry = self._queue.popleft()
            await self._write(entry)
            entry.under_way = False
            self._under_way -= 1
            if entry.written == 1 and entry.count > 1:
                self._enqueue(entry)
            if not self._under_way:
                self._all_written.set()

    async def _write(self, entry: _Entry) -> None:
        """Write an event or its count; transport errors are waited out, refusals are final."""
        for _ in range(_TRIES):
            try:
                await self._write_once(entry)
                return
            except (ResponseLost, Unreachable):
                await asyncio.sleep(_SLEEP_SECONDS * (1.0 + 0.25 * self._rng.random()))
            except ApiError as error:
                logger.debug("event %s was refused: %s", entry.name, error)
                entry.written = entry.count
                return
        logger.warning("event %s could not be written, no answer in %d tries", entry.name, _TRIES)
        entry.written = entry.count

    async def _write_once(self, entry: _Entry) -> None:
        core = entry.core or self._core_only
        resource: Resource[Any] = EVENTS_V1 if core else EVENTS
        namespace = entry.text.regarding.namespace or "default"
        count = entry.count
        if entry.written:
            patch = _encode(series_patch(count, entry.last, core=core))
            path = resource.path(namespace, entry.name)
            try:
                await self._writer.write(
                    Write("PATCH", path, patch, _always_retry, STRATEGIC_MERGE_PATCH)
                )
                entry.written = count
                return
            except NotFound:
                pass  # it has expired, which is no reason not to tell
        instance = f"{entry.text.controller}-{self._hostname}"[:128]
        body = event_body(entry.text, entry.note, entry.name, entry.at, instance, core=core)
        if entry.written:
            body |= series_patch(count, entry.last, core=core)
        with suppress(Conflict):  # names are unique: it was ours, and its answer was lost
            await self._writer.write(
                Write("POST", resource.path(namespace), _encode(body), _always_retry, JSON)
            )
        entry.written = count if entry.written else 1


async def _always_retry() -> bytes | None:
    """Let a write in doubt be repeated: the event's name makes that harmless."""
    return None


async def _every(seconds: float, act: Callable[[], None]) -> None:
    while True:
        await asyncio.sleep(seconds)
        act()
