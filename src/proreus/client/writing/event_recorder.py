"""Events: recorded at once, written later, aggregated into series.

``event`` never blocks, never raises and never delays the binding of pods: it puts the Event into a
bounded queue, from which a few workers write while the dispatcher is idle (or, under lasting load,
at a low rate). An Event equal to one of the last minutes is not written again: the first repetition
makes it a series, later ones are only counted, and the count is written from time to time. The
intervals are those of client-go's ``tools/events``.
"""

import asyncio
import logging
import random
import socket
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from proreus.base.clock import Clock, RealClock
from proreus.base.errors import ApiError, Conflict, NotFound
from proreus.base.kubernetes_version import DEFAULT_VERSION, KubernetesVersion
from proreus.base.utf8 import to_valid_utf8
from proreus.client.http.request_headers import JSON, STRATEGIC_MERGE_PATCH
from proreus.client.http.responses import ResponseLost, Unreachable
from proreus.client.http.session import ApiClient
from proreus.client.writing.checked_writes import CheckedWriter, Write
from proreus.client.writing.event_bodies import (
    EventKey,
    ObjectReference,
    event_body,
    reference_to,
    series_patch,
    truncate_note,
)
from proreus.client.writing.rate_limiter import RateLimiter, no_rate_limit
from proreus.client.writing.request_window import Priority, RequestWindow
from proreus.objects.kinds import EVENTS, EVENTS_V1
from proreus.objects.meta import Resource
from proreus.objects.pod import Pod
from proreus.objects.scheduling import CompositePodGroup, PodGroup

logger = logging.getLogger(__name__)

REFRESH_SECONDS = 30 * 60.0
FINISH_SECONDS = 6 * 60.0
_TRIES = 12
_SLEEP_SECONDS = 10.0
_WORKERS = 8
_PATIENCE_SECONDS = 0.5
_IMPATIENT_SECONDS = 0.05
"""Time that an Event waits for bindings in flight; less once the queue is a tenth full."""
_MAX_CACHED_EVENTS = 16_384

_encode = msgspec.json.Encoder().encode


class _Entry(Struct, eq=False):
    """An Event, how often it was seen, and how much of that has been written.

    ``nanoseconds``: when it was first seen, a part of its name. ``last``: when it was last seen, on
    the wall clock; ``seen_at``: on the monotonic one. ``written``: the count that the apiserver
    has, 0 until it is created. ``under_way``: it is queued or being written, by one worker at a
    time.
    """

    event_key: EventKey
    core: bool
    note: str
    nanoseconds: int
    last: float
    seen_at: float
    count: int = 1
    written: int = 0
    under_way: bool = False

    @property
    def name(self) -> str:
        """Its name in the API: unique, since no two are recorded in the same nanosecond."""
        return f"{self.event_key.regarding.name}.{self.nanoseconds:x}"

    @property
    def namespace(self) -> str:
        """The namespace of the Event itself; Events of cluster-scoped objects are in "default"."""
        return self.event_key.regarding.namespace or "default"

    @property
    def at(self) -> float:
        """When it was recorded, in seconds since the epoch."""
        return self.nanoseconds / 1e9


class EventRecorder:
    """Records Events; ``run`` writes them. ``dropped`` counts Events that found the queue full.

    ``wait_until_idle(seconds)`` returns when no write of higher priority is in flight, or after
    that time. ``capacity`` is the length of the queue. ``kubernetes_version``: its API
    versions are those of the objects that Events refer to.
    """

    def __init__(
        self,
        client: ApiClient,
        *,
        clock: Clock | None = None,
        wait_until_idle: Callable[[float], Awaitable[None]] | None = None,
        rate_limiter: RateLimiter | None = None,
        window: RequestWindow | None = None,
        capacity: int = 50_000,
        hostname: str | None = None,
        rng: random.Random | None = None,
        kubernetes_version: KubernetesVersion = DEFAULT_VERSION,
    ) -> None:
        self._client = client
        self._kubernetes_version = kubernetes_version
        self._clock = clock or RealClock()
        self._idle = wait_until_idle
        self._capacity = capacity
        self._hostname = hostname or socket.gethostname()
        self._rng = rng or random.Random()
        self._writer = CheckedWriter(
            client,
            rate_limiter or no_rate_limit(),
            window or RequestWindow(),
            priority=Priority.LOW,
            verify_attempts=1,
            verify_backoff_seconds=(0.1, 1.0),
            rng=self._rng,
        )
        self._queue: EventQueue[_Entry] = EventQueue(capacity, _WORKERS)
        self._filled = asyncio.Event()
        self._under_way = 0  # entries queued or being written
        self._all_written = asyncio.Event()
        self._all_written.set()
        self._event_cache: dict[tuple[EventKey, bool, str], _Entry] = {}
        self._last_nanoseconds = 0
        self._core_only = False
        self.dropped = 0

    # -- recording -----------------------------------------------------------------------------

    def event(
        self,
        regarding: Pod,
        event_type: str,
        reason: str,
        action: str,
        note: str,
        controller: str,
        related: Pod | PodGroup | CompositePodGroup | None = None,
    ) -> None:
        """Record an Event about a pod; ``controller`` is the profile's scheduler name."""
        version = self._kubernetes_version
        secondary = None if related is None else reference_to(related, version)
        about = reference_to(regarding, version)
        self.event_about(about, event_type, reason, action, note, controller, secondary)

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
        """Record an Event about any object; ``core``: as core/v1.

        ``distinct_by_note``: an Event with another note is another Event, instead of one more of a
        series that keeps showing the first note.
        """
        # Plugins write Events too.
        event_type, reason, action, note = map(to_valid_utf8, (event_type, reason, action, note))
        event_key = EventKey(event_type, reason, action, controller, regarding, related)
        key = (event_key, core, note if distinct_by_note else "")
        now, seen_at = self._clock.now(), self._clock.monotonic()
        cached = self._event_cache.get(key)
        if cached is None:
            nanoseconds = self._nanoseconds(now)
            entry = _Entry(event_key, core, truncate_note(note), nanoseconds, now, seen_at)
            if self._enqueue(entry):
                self._make_room()
                self._event_cache[key] = entry
            return
        cached.count += 1
        cached.last, cached.seen_at = now, seen_at
        # The second one turns the Event into a series, which is written at once. The others are
        # counted and written by ``refresh_series``: a pod that fails each second would otherwise
        # cost a PATCH each second.
        if cached.count == 2:
            self._enqueue(cached)

    def _make_room(self) -> None:
        # Entries expire after minutes, which at thousands a second would be too many: the oldest
        # goes early, and its next repetition is a new Event.
        if len(self._event_cache) >= _MAX_CACHED_EVENTS:
            del self._event_cache[next(iter(self._event_cache))]

    def _enqueue(self, entry: _Entry) -> bool:
        if entry.under_way:
            return True  # the worker that writes it compares the count afterwards
        if not self._queue.put(entry.namespace, entry):
            if not self.dropped:
                logger.warning("events come faster than they can be written: some are dropped")
            self.dropped += 1
            return False
        entry.under_way = True
        self._under_way += 1
        self._all_written.clear()
        self._filled.set()
        return True

    def _nanoseconds(self, now: float) -> int:
        """Return the time in nanoseconds, never the same twice: a part of the Event's name."""
        self._last_nanoseconds = max(int(now * 1e9), self._last_nanoseconds + 1)
        return self._last_nanoseconds

    # -- series --------------------------------------------------------------------------------

    def refresh_series(self) -> None:
        """Queue the current count of every series (every 30 minutes)."""
        for entry in self._event_cache.values():
            if entry.count > 1:
                self._enqueue(entry)

    def finish_series(self) -> None:
        """Forget Events not repeated for 6 minutes; queue the last count of series (every 6)."""
        silent_since = self._clock.monotonic() - FINISH_SECONDS
        for key, entry in list(self._event_cache.items()):
            if entry.seen_at < silent_since:
                del self._event_cache[key]
                if entry.count > 1:
                    self._enqueue(entry)

    # -- writing -------------------------------------------------------------------------------

    async def run(self) -> None:
        """Write recorded Events until cancelled."""
        await self._discover_event_api()
        async with asyncio.TaskGroup() as tasks:
            for number in range(self._queue.workers):
                tasks.create_task(self._work(), name=f"event writer {number}")
            tasks.create_task(_every(REFRESH_SECONDS, self.refresh_series))
            tasks.create_task(_every(FINISH_SECONDS, self.finish_series))

    async def flush(self, at_most_seconds: float) -> None:
        """Return once all recorded Events are written, or after ``at_most_seconds``."""
        try:
            async with asyncio.timeout(at_most_seconds):
                await self._all_written.wait()
        except TimeoutError:
            return

    async def _discover_event_api(self) -> None:
        """Find out once whether the apiserver serves events.k8s.io/v1."""
        try:
            await self._client.request("GET", f"/apis/{EVENTS.group}/{EVENTS.version}")
        except NotFound:
            self._core_only = True
        except ApiError as error:
            logger.warning("cannot discover events.k8s.io/v1: %s", error)

    async def _work(self) -> None:
        while True:
            while (entry := self._queue.take()) is None:
                self._filled.clear()
                await self._filled.wait()
            # Bindings go first: each Event would take a slot of the apiserver's write path from a
            # pod. But not for ever, or a lasting load would fill the queue and drop Events.
            if self._idle is not None:
                pressing = len(self._queue) > self._capacity // 10
                await self._idle(_IMPATIENT_SECONDS if pressing else _PATIENCE_SECONDS)
            await self._write(entry)
            self._queue.done(entry.namespace)
            self._filled.set()  # there is room for the next one
            entry.under_way = False
            self._under_way -= 1
            # It was repeated while it was being created: then ``_enqueue`` did not queue it.
            if entry.written == 1 and entry.count > 1:
                self._enqueue(entry)
            if not self._under_way:
                self._all_written.set()

    async def _write(self, entry: _Entry) -> None:
        """Write an Event or its count; transport errors are retried, rejections are final."""
        for _ in range(_TRIES):
            try:
                await self._write_once(entry)
                return
            except (ResponseLost, Unreachable):
                await asyncio.sleep(_SLEEP_SECONDS * (1.0 + 0.25 * self._rng.random()))
            except ApiError as error:
                # As in client-go: an Event that the apiserver rejects (its namespace is being
                # deleted, a quota) would be rejected again.
                logger.debug("event %s was refused: %s", entry.name, error)
                entry.written = entry.count
                return
        logger.warning(
            "event %s could not be written, no response in %d attempts", entry.name, _TRIES
        )
        entry.written = entry.count

    async def _write_once(self, entry: _Entry) -> None:
        core = entry.core or self._core_only
        resource: Resource[Any] = EVENTS_V1 if core else EVENTS
        namespace = entry.namespace
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
                # The apiserver deletes Events after an hour (--event-ttl): create it again, as a
                # series with the count that it has by now.
                pass
        instance = f"{entry.event_key.controller}-{self._hostname}"[:128]
        body = event_body(entry.event_key, entry.note, entry.name, entry.at, instance, core=core)
        if entry.written:
            body |= series_patch(count, entry.last, core=core)
        # Names are unique, so a conflict is with our own first request, whose response was lost.
        with suppress(Conflict):
            await self._writer.write(
                Write("POST", resource.path(namespace), _encode(body), _always_retry, JSON)
            )
        entry.written = count if entry.written else 1


async def _always_retry() -> bytes | None:
    """Allow a write to be repeated without a read: the Event's unique name makes that safe."""
    return None


async def _every(seconds: float, act: Callable[[], None]) -> None:
    while True:
        await asyncio.sleep(seconds)
        act()


T = TypeVar("T")


class EventQueue(Generic[T]):
    """Events that wait to be written, in a queue for each namespace.

    Whoever may create pods decides how many Events there are, and an admission webhook of one
    namespace may hang. So namespaces take turns. One alone may use ``capacity`` and ``workers``, of
    which there are twice as many in all; none may use more than are left of them.
    """

    def __init__(self, capacity: int, workers: int) -> None:
        self._capacity = 2 * capacity
        self.workers = 2 * workers
        """The number of Events that may be written at a time."""
        self._waiting: dict[str, deque[T]] = {}
        self._length = 0
        self._writing: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._length

    def put(self, namespace: str, event: T) -> bool:
        """Add an Event; return False if there is no room for it."""
        queue = self._waiting.get(namespace)
        if (len(queue) if queue else 0) >= self._capacity - self._length:
            return False
        if queue is None:
            queue = self._waiting[namespace] = deque()
        queue.append(event)
        self._length += 1
        return True

    def take(self) -> T | None:
        """Return the Event to write next, if one may be; ``done`` must follow."""
        free = self.workers - self._writing.total()
        namespace = next((name for name in self._waiting if self._writing[name] < free), None)
        if namespace is None:
            return None
        queue = self._waiting.pop(namespace)
        event = queue.popleft()
        if queue:
            self._waiting[namespace] = queue  # at the end
        self._length -= 1
        self._writing[namespace] += 1
        return event

    def done(self, namespace: str) -> None:
        """Record that an Event of a namespace is written, or given up."""
        self._writing[namespace] -= 1
        if not self._writing[namespace]:
            del self._writing[namespace]
