"""Keeps a store of one resource in step with the apiserver: list, then watch, until cancelled.

The initial state comes from a streaming list (WatchList, KEP-3157) where the server supports it,
otherwise from a paginated list. After that the watch is resumed from the resourceVersion of the
last event or bookmark; a relist happens only when the server no longer has that version (410), when
an event was lost, or when the server's history went back (``history_check``). Failed requests are
retried with jittered back-off. A connection that has died silently is detected by the read timeout,
since a healthy apiserver sends a bookmark about every minute.

The reflector holds no objects: it passes them to a ``ReflectorStore`` (the informer), which works
out what changed. Its model is client-go's ``tools/cache.Reflector``.
"""

import asyncio
import logging
import math
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct

from proreus.base.errors import ApiError, Forbidden, Gone, NotFound, TooManyRequests
from proreus.client.http.backoff import Backoff
from proreus.client.http.connectivity import Connectivity, is_outage
from proreus.client.http.responses import ResponseLost
from proreus.client.http.stream import Stream
from proreus.client.watching.history_check import HistoryCheck
from proreus.client.watching.list_watch import ListWatch
from proreus.client.watching.object_faults import ObjectFaults
from proreus.client.watching.pager import list_all_pages
from proreus.client.watching.watch import (
    DELETED,
    Event,
    EventDecoder,
    LineSplitter,
    ListDecoder,
    Page,
    Unreadable,
)
from proreus.objects.codec import DecodeError
from proreus.objects.meta import ApiObject, ListMeta, Resource, key_of

T = TypeVar("T", bound=ApiObject)

logger = logging.getLogger(__name__)

_NO_WATCH_LIST = frozenset((400, 405, 406, 415, 422))
"""HTTP status codes with which a server rejects ``sendInitialEvents``."""
_BACKOFF_RESET_SECONDS = 5.0
"""A watch that lasted so long before it failed starts the back-off anew.

With client-go's two minutes a watch that breaks three times a minute would soon be down most of the
time, and a standby would not see what is bound.
"""

_ERRORS_OF_AN_OUTAGE = 3
"""After so many errors in a row, while other watches are open, it is this resource's fault."""


class ReflectorStore(Protocol[T]):
    """Receives the objects. Both methods are sync; an exception from either ends the reflector."""

    def replace(
        self, objects: list[T], unreadable: Sequence[Unreadable] = (), restored: bool = False
    ) -> None:
        """Replace the contents of the store with the result of a list.

        Objects that are in neither argument have been deleted. ``unreadable`` ones exist, but could
        not be decoded. ``restored``: the list is of an earlier history than the store.
        """
        ...

    def apply(self, events: list[Event[T]]) -> None:
        """Apply the changes of one network chunk, in order."""
        ...


class ReflectorOptions(Struct, frozen=True):
    """Limits and intervals, in seconds.

    ``read_timeout_seconds`` must exceed the server's bookmark interval, which is a minute.
    """

    page_size: int = 500
    watch_list: bool = True
    initial_events_timeout_seconds: float = 10.0
    read_timeout_seconds: float = 150.0
    watch_timeout_seconds: tuple[float, float] = (300.0, 600.0)
    list_timeout_seconds: float = 60.0
    short_watch_seconds: float = 1.0
    min_relist_interval_seconds: float = 10.0
    backoff_seconds: tuple[float, float] = (0.2, 30.0)
    max_refused_watch_pause_seconds: float = 4.0
    not_served_retry_seconds: float = 300.0


class HandlerFailed(RuntimeError):
    """An event handler raised an exception that looks like a network error.

    It is a bug, which no retry helps; hence not an ``ApiError``, which would be retried.
    """


class Reflector(Generic[T]):
    """Lists and watches the objects of a ``ListWatch``, and passes them to a store.

    ``on_error(resource, error)`` is called for every failed list or watch, and returns whether it
    logs the error; ``connectivity`` is shared by the reflectors of one apiserver, and ``faults``
    records single objects that cannot be decoded.
    """

    def __init__(
        self,
        list_watch: ListWatch[T],
        store: ReflectorStore[T],
        *,
        options: ReflectorOptions | None = None,
        on_error: Callable[[Resource[T], ApiError], bool] | None = None,
        connectivity: Connectivity | None = None,
        faults: ObjectFaults | None = None,
        rng: random.Random | None = None,
    ) -> None:
        resource = list_watch.resource
        self._list_watch = list_watch
        self._resource = resource
        self._store = store
        self._options = options = options or ReflectorOptions()
        self._on_error = on_error
        self._connectivity = connectivity or Connectivity()
        timeout_seconds = options.list_timeout_seconds
        self._history = HistoryCheck(list_watch, self._connectivity, timeout_seconds)
        self._marked_unreachable = False
        self._errors_in_a_row = 0
        self._rng = rng or random.Random()
        self._backoff = Backoff(*self._options.backoff_seconds, rng=self._rng)
        self._streams_lists = self._options.watch_list
        self._path = list_watch.path
        faults = faults or ObjectFaults(resource.plural)
        self._events = EventDecoder(resource.type, faults)
        self._lists = ListDecoder(resource.type, faults)
        self.resource_version = ""  # empty: a list is needed first
        self._synced = False  # whether the store has ever received a list
        self._listed_at = -math.inf
        self._last_error = ""
        self.connected = asyncio.Event()
        """Set while a watch is open, and so the store in step with the apiserver."""

    async def run(self) -> None:
        """Run until cancelled. Network errors are retried, exceptions of the store propagate."""
        loop = asyncio.get_running_loop()
        while True:
            started = loop.time()
            broken, refused = True, False
            try:
                if self.resource_version:
                    await self._history.verify()
                    await self._watch()
                else:
                    await self._list_and_watch()
                broken = False
            except Gone as error:
                # The server has compacted its history past our version: relist, and at once, since
                # the store is stale. But a server that answers 410 right after each list would be
                # asked for whole lists in a hot loop: then the back-off applies.
                logger.info("%s: relisting: %s", self._path, error.message)
                if self.resource_version:
                    self.resource_version = ""
                    broken = started - self._listed_at < self._options.min_relist_interval_seconds
            except NotFound as error:
                # Before the first list, a 404 means that this apiserver does not serve the resource
                # (an API group that is off). The scheduler must be able to start without it.
                if not self._synced:
                    self._deliver(self._store.replace, [], ())
                    self.connected.set()
                    self._report_error(error, "not served: treated as empty, retried rarely")
                    await asyncio.sleep(
                        self._options.not_served_retry_seconds * self._rng.uniform(1, 1.2)
                    )
                    continue
                # Once synced, the objects of a resource that is removed go by DELETED events. So
                # this 404 comes from a proxy or load balancer, and must not empty the store.
                self._report_error(error, "will be tried again")
            except ApiError as error:
                # etcd was restored from a backup, and our version lies in its future: each watch
                # from it would fail (client-go: isTooLargeResourceVersionError). List again.
                if "Too large resource version" in error.message:
                    self.resource_version = ""
                self._history.failed(error)
                answered = error.status != 0 and not isinstance(error, TooManyRequests)
                refused = answered and bool(self.resource_version)
                # An outage breaks every watch at once and is logged once for all of them; an error
                # about this resource (403, say) is logged here.
                if is_outage(error) and not self._fails_alone(error):
                    self._mark_unreachable(error)
                else:
                    self._report_error(error, "will be tried again")
            except DecodeError as error:
                # A line that is not JSON may have been an event for any object: resuming after it
                # would lose that event for good, so everything is listed again.
                self.resource_version = ""
                self._report_error(
                    ResponseLost(
                        f"the apiserver's response is neither a list nor a watch: {error}"
                    ),
                    "will be tried again",
                )
            lived_seconds = loop.time() - started
            # Watches end regularly by their timeoutSeconds, and are resumed at once. One that ends
            # within a moment, without an error, is a server or proxy that closes every stream:
            # without a pause this would become a hot loop (client-go: "very short watch").
            healthy = (
                lived_seconds >= self._options.short_watch_seconds or not self.resource_version
            )
            if not broken and healthy:
                self._backoff.reset()
                continue
            # A failure after a long healthy watch is the first of a new series: it must not inherit
            # the delay that an outage of hours ago had grown to.
            if lived_seconds >= _BACKOFF_RESET_SECONDS:
                self._backoff.reset()
            pause = self._backoff.next()
            # A list may be large, and an apiserver with errors is best left alone. But to refuse a
            # watch costs it little, and until one is resumed we decide by what we knew before.
            if refused:
                pause = min(pause, self._options.max_refused_watch_pause_seconds)
            if self._marked_unreachable:
                # All watches wait for the same apiserver: the first to find it back tells the rest.
                await self._connectivity.pause(pause)
            else:
                await asyncio.sleep(pause)

    def _report_error(self, error: ApiError, consequence: str) -> None:
        """Call ``on_error`` each time, but log an error only if it differs from the last one."""
        logged = self._on_error is not None and self._on_error(self._resource, error)
        if error.message != self._last_error:
            self._last_error = error.message
            if logged:
                return
            level = logging.ERROR if isinstance(error, Forbidden) else logging.WARNING
            logger.log(level, "%s: %s (%s)", self._path, error.message, consequence)

    def _fails_alone(self, error: ApiError) -> bool:
        """Return whether the apiserver answers, with errors about this resource alone.

        A conversion webhook that is down, or the server of an aggregated API.
        """
        if not error.status:
            self._errors_in_a_row = 0
            return False
        self._errors_in_a_row += 1
        # In an outage the first answers may come while other watches are not broken yet.
        if self._errors_in_a_row < _ERRORS_OF_AN_OUTAGE or not self._connectivity.open_watches:
            return False
        if self._marked_unreachable:
            self._marked_unreachable = False
            self._connectivity.withdraw(self._path)
        return True

    def _mark_unreachable(self, error: ApiError) -> None:
        """Report an error that concerns the apiserver and not this resource alone."""
        self._marked_unreachable = True
        self._connectivity.mark_unreachable(self._path, error)
        if self._on_error is not None:
            self._on_error(self._resource, error)

    def _mark_reachable(self) -> None:
        self._errors_in_a_row = 0
        if self._marked_unreachable:
            self._marked_unreachable = False
            self._connectivity.mark_reachable()

    async def _list_and_watch(self) -> None:
        """List into the store, then watch from that version until the stream ends."""
        # No variable here may hold a list: its objects would live as long as the watch does.
        if self._streams_lists:
            refusal = await self._stream_list_and_watch()
            if not refusal:
                return
            logger.info("%s: listing in pages instead of streaming: %s", self._path, refusal)
            self._streams_lists = False
        options = self._options
        self._sync_with(
            await list_all_pages(
                self._list_watch, self._lists, options.page_size, options.list_timeout_seconds
            )
        )
        await self._watch()

    def _deliver(self, method: Callable[..., None], *arguments: Any) -> None:
        """Call a method of the store; any exception of it ends ``run``."""
        try:
            method(*arguments)
        except (ApiError, DecodeError) as error:
            # ``run`` retries these types: from a handler they would be retried as network errors,
            # with the event that caused them already lost.
            raise HandlerFailed(
                f"a handler of {self._path} raised {type(error).__name__}: {error}"
            ) from error

    def _sync_with(self, state: Page[T]) -> None:
        self._mark_reachable()
        restored = self._history.listed(state.metadata.resource_version)
        self._deliver(self._store.replace, state.items, state.unreadable, restored)
        self.resource_version = state.metadata.resource_version
        self._synced = True
        self._listed_at = asyncio.get_running_loop().time()
        self._last_error = ""

    async def _stream_list_and_watch(self) -> str:
        """List and watch in one stream (KEP-3157).

        Returns "" at the end of the stream, or the reason why the server does not support this.
        """
        parameters = {
            "sendInitialEvents": "true",
            "resourceVersionMatch": "NotOlderThan",
            "timeoutSeconds": self._timeout_seconds(),
        }
        complete = False
        splitter = LineSplitter()
        try:
            async with self._open_watch(parameters) as stream:
                if refusal := await self._sync_with_initial_events(stream, splitter):
                    return refusal
                complete = True
                await self._handle_watch(stream, splitter)
        except ApiError as error:
            # After the initial events these codes are about the watch, not about the feature.
            if complete or error.status not in _NO_WATCH_LIST:
                raise
            return error.message
        return ""

    async def _sync_with_initial_events(self, stream: Stream, splitter: LineSplitter) -> str:
        """Pass the initial objects to the store; return why they do not arrive, or ""."""
        found = await self._initial_events(stream, splitter)
        if isinstance(found, str):
            return found
        self._sync_with(found)
        return ""

    async def _initial_events(self, stream: Stream, splitter: LineSplitter) -> Page[T] | str:
        """Return the initial objects and their resourceVersion, or why they do not arrive."""
        found: dict[str, T | Unreadable] = {}
        while True:
            # Servers that ignore sendInitialEvents serve a plain watch from now, which never sends
            # the bookmark that ends the initial events.
            try:
                async with asyncio.timeout(self._options.initial_events_timeout_seconds):
                    chunk = await stream.chunk()
            except TimeoutError:
                return "it sends no end of the initial events"
            if not chunk:
                return "the stream ended before the end of the initial events"
            async for batch in self._events.batches(splitter.feed(chunk)):
                for event in batch.events:
                    if event.type == DELETED:
                        found.pop(key_of(event.object), None)
                    else:
                        found[key_of(event.object)] = event.object
                if batch.error is not None:
                    raise batch.error
                if batch.initial_events_end:
                    version = batch.resource_version
                    return Page.of(ListMeta(resource_version=version), found.values())

    async def _watch(self) -> None:
        """Resume the watch from the last version; return when the server ends it."""
        parameters = {
            "resourceVersion": self.resource_version,
            "timeoutSeconds": self._timeout_seconds(),
        }
        async with self._open_watch(parameters) as stream:
            await self._handle_watch(stream, LineSplitter())

    async def _handle_watch(self, stream: Stream, splitter: LineSplitter) -> None:
        """Pass events to the store until the server ends the stream; raise if it breaks."""
        self._mark_reachable()
        self.connected.set()
        self._connectivity.open_watches += 1
        try:
            await self._handle_events(stream, splitter)
        finally:
            self._connectivity.open_watches -= 1
            self.connected.clear()

    async def _handle_events(self, stream: Stream, splitter: LineSplitter) -> None:
        # One call a chunk: a variable would keep the last objects, maybe megabytes, until the next
        # ones arrive, which may take days.
        while await self._handle_chunk(stream, splitter):
            pass
        if splitter.pending_bytes:
            raise ResponseLost(f"the watch of {self._path} was cut in the middle of a line")

    async def _handle_chunk(self, stream: Stream, splitter: LineSplitter) -> bool:
        """Pass the events of one chunk to the store; return whether to read on."""
        chunk = await stream.chunk()
        async for batch in self._events.batches(splitter.feed(chunk)):
            self._history.received(batch.resource_version)
            # Bookmarks count too: a watch that is resumed from an old event would get a 410
            # once other resources have pushed that version out of the server's history.
            if batch.resource_version:
                self.resource_version = batch.resource_version
                self._last_error = ""
            if batch.events:
                self._deliver(self._store.apply, batch.events)
            # An ERROR event ends the batch: the events before it are valid and applied by now.
            if batch.error is not None:
                raise batch.error
        return bool(chunk)

    def _open_watch(self, parameters: dict[str, str]) -> AbstractAsyncContextManager[Stream]:
        return self._list_watch.watch(parameters, self._options.read_timeout_seconds)

    def _timeout_seconds(self) -> str:
        """Return a random timeoutSeconds, so that not all watches end at the same time."""
        return str(int(self._rng.uniform(*self._options.watch_timeout_seconds)))
