"""Keeps one kind in step with the apiserver: list, then watch, for ever.

The first state comes by WatchList streaming (KEP-3157) where the server does it, else by a list in
pages. After that a watch is resumed from the last resourceVersion seen, be it of an event or a
bookmark; only when the server says that this is too old (410) is all listed again. Whatever breaks
is tried again with jittered back-off; a connection that has died silently is found by the read
deadline, since a healthy apiserver sends a bookmark about every minute.

The reflector holds no objects: it tells a ``ReflectorStore`` (the informer), which alone knows what
changed.
"""

import asyncio
import logging
import math
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import urlencode

from proreus.client.backoff import Backoff
from proreus.client.connectivity import Connectivity, is_outage
from proreus.client.object_faults import ObjectFaults
from proreus.client.responses import ResponseLost
from proreus.client.session import ApiClient
from proreus.client.stream import Stream
from proreus.client.watch import (
    DELETED,
    Event,
    EventDecoder,
    LineSplitter,
    ListDecoder,
    Page,
    Unreadable,
)
from proreus.errors import ApiError, Forbidden, Gone, NotFound
from proreus.objects.codec import DecodeError
from proreus.objects.meta import ApiObject, ListMeta, Resource, key_of

T = TypeVar("T", bound=ApiObject)

logger = logging.getLogger(__name__)

_NO_WATCH_LIST = frozenset((400, 405, 406, 415, 422))
"""Codes by which a server refuses ``sendInitialEvents``."""
_BACKOFF_RESET_SECONDS = (
    60.0  # a stream that broke after a good while is the first fault of a new count
)


class ReflectorStore(Protocol[T]):
    """Who wants to know; both methods are sync, and what they raise ends the reflector."""

    def replace(self, objects: list[T], unreadable: Sequence[Unreadable] = ()) -> None:
        """Take the whole state: what is missing is gone. ``unreadable`` is there, unknown how."""
        ...

    def apply(self, events: list[Event[T]]) -> None:
        """Take the changes of one chunk, in order."""
        ...


@dataclass(frozen=True)
class ReflectorOptions:
    """Times in seconds. ``read_timeout_seconds`` must exceed the server's bookmark interval (a
    minute)."""

    page_size: int = 500
    watch_list: bool = True
    initial_events_timeout_seconds: float = 10.0
    read_timeout_seconds: float = 150.0
    watch_timeout_seconds: tuple[float, float] = (300.0, 600.0)
    list_timeout_seconds: float = 60.0
    short_watch_seconds: float = 1.0
    min_relist_interval_seconds: float = 10.0
    backoff_seconds: tuple[float, float] = (0.2, 30.0)
    not_served_retry_seconds: float = 300.0


class HandlerFailed(RuntimeError):
    """A handler raised what might pass for a fault of the network: it is a bug, and no retry
    helps. Not an ``ApiError``, so that nobody takes it for one."""


class Reflector(Generic[T]):
    """List and watch one resource, restricted by selectors, into a sink."""

    def __init__(
        self,
        client: ApiClient,
        resource: Resource[T],
        store: ReflectorStore[T],
        *,
        field_selector: str = "",
        label_selector: str = "",
        options: ReflectorOptions | None = None,
        on_error: Callable[[Resource[T], ApiError], None] | None = None,
        connectivity: Connectivity | None = None,
        faults: ObjectFaults | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._client = client
        self._resource = resource
        self._store = store
        self._selectors = {
            key: value
            for key, value in (("fieldSelector", field_selector), ("labelSelector", label_selector))
            if value
        }
        self._options = options or ReflectorOptions()
        self._on_error = on_error
        self._connectivity = connectivity or Connectivity()
        self._marked_unreachable = False
        self._rng = rng or random.Random()
        self._backoff = Backoff(*self._options.backoff_seconds, rng=self._rng)
        self._watch_list = self._options.watch_list
        self._path = resource.path()
        faults = faults or ObjectFaults(resource.plural)
        self._events = EventDecoder(resource.type, faults)
        self._lists = ListDecoder(resource.type, faults)
        self._resource_version = ""  # empty: the whole state is needed first
        self._synced = False  # whether the sink has ever got a state
        self._listed_at = -math.inf
        self._last_error = ""

    async def run(self) -> None:
        """Run until cancelled; network errors are survived, errors of the sink are not."""
        loop = asyncio.get_running_loop()
        while True:
            started = loop.time()
            broken = True
            try:
                if self._resource_version:
                    await self._watch()
                else:
                    await self._list_and_watch()
                broken = False
            except Gone as error:
                # What the sink has is too old to resume from: all is compared anew, at once unless
                # that has just been done.
                logger.info("%s: relisting: %s", self._path, error.message)
                if self._resource_version:
                    self._resource_version = ""
                    broken = started - self._listed_at < self._options.min_relist_interval_seconds
            except NotFound as error:
                if not self._synced:
                    self._deliver(self._store.replace, [], ())
                    self._report_error(error, "not served: taken as empty, and looked for rarely")
                    await asyncio.sleep(
                        self._options.not_served_retry_seconds * self._rng.uniform(1, 1.2)
                    )
                    continue
                # A kind that is withdrawn goes by DELETED events; this is somebody in between.
                self._report_error(error, "will be tried again")
            except ApiError as error:
                if "Too large resource version" in error.message:
                    self._resource_version = ""  # etcd was restored from a backup
                if is_outage(error):
                    self._mark_unreachable(error)
                else:
                    self._report_error(error, "will be tried again")
            except DecodeError as error:
                # A change may be lost with the line that told of it: only a list has them all.
                self._resource_version = ""
                self._report_error(
                    ResponseLost(
                        f"the apiserver answered something that is no list or watch: {error}"
                    ),
                    "will be tried again",
                )
            lived_seconds = loop.time() - started
            # an orderly end after a moment is no end at all; so is a reason to list again
            healthy = (
                lived_seconds >= self._options.short_watch_seconds or not self._resource_version
            )
            if not broken and healthy:
                self._backoff.reset()
                continue
            if lived_seconds >= _BACKOFF_RESET_SECONDS:
                self._backoff.reset()
            await asyncio.sleep(self._backoff.next())

    def _report_error(self, error: ApiError, consequence: str) -> None:
        """Tell of an error: the callback each time, the log when it is news."""
        if error.message != self._last_error:
            self._last_error = error.message
            level = logging.ERROR if isinstance(error, Forbidden) else logging.WARNING
            logger.log(level, "%s: %s (%s)", self._path, error.message, consequence)
        if self._on_error is not None:
            self._on_error(self._resource, error)

    def _mark_unreachable(self, error: ApiError) -> None:
        """Tell of an error that is not about this kind."""
        self._marked_unreachable = True
        self._connectivity.mark_unreachable(error)
        if self._on_error is not None:
            self._on_error(self._resource, error)

    def _mark_reachable(self) -> None:
        if self._marked_unreachable:
            self._marked_unreachable = False
            self._connectivity.mark_reachable()

    async def _list_and_watch(self) -> None:
        """Give the sink the whole state, then watch from there until the stream ends."""
        if self._watch_list:
            refusal = await self._stream_list_and_watch()
            if not refusal:
                return
            logger.info("%s: listing in pages instead of streaming: %s", self._path, refusal)
            self._watch_list = False
        self._sync_with(await self._list(self._options.page_size))
        await self._watch()

    def _deliver(self, tell: Callable[..., None], *what: Any) -> None:
        """Hand on to the sink, whose errors end the run whatever they are."""
        try:
            tell(*what)
        except (ApiError, DecodeError) as error:
            raise HandlerFailed(
                f"a handler of {self._path} raised {type(error).__name__}: {error}"
            ) from error

    def _sync_with(self, state: Page[T]) -> None:
        self._mark_reachable()
        self._deliver(self._store.replace, state.items, state.unreadable)
        self._resource_version = state.metadata.resource_version
        self._synced = True
        self._listed_at = asyncio.get_running_loop().time()
        self._last_error = ""

    async def _stream_list_and_watch(self) -> str:
        """Do the same in one stream; return why the server cannot, or "" at the stream's end."""
        query = self._query(
            watch="true",
            sendInitialEvents="true",
            resourceVersionMatch="NotOlderThan",
            allowWatchBookmarks="true",
            timeoutSeconds=self._timeout_seconds(),
        )
        complete = False
        splitter = LineSplitter()
        try:
            async with self._stream(query) as stream:
                found = await self._initial_events(stream, splitter)
                if isinstance(found, str):
                    return found
                complete = True
                self._sync_with(found)
                await self._handle_watch(stream, splitter)
        except ApiError as error:
            if complete or error.status not in _NO_WATCH_LIST:
                raise
            return error.message
        return ""

    async def _initial_events(self, stream: Stream, splitter: LineSplitter) -> Page[T] | str:
        """Return the objects and where in history they stand, or why they do not come."""
        found: dict[str, T | Unreadable] = {}
        while True:
            try:
                async with asyncio.timeout(self._options.initial_events_timeout_seconds):
                    chunk = await stream.chunk()
            except TimeoutError:
                return "it sends no end of the initial events"
            if not chunk:
                return "the stream ended before the end of the initial events"
            batch = self._events.decode(splitter.feed(chunk))
            for event in batch.events:
                if event.type == DELETED:
                    found.pop(key_of(event.object), None)
                else:
                    found[key_of(event.object)] = event.object
            if batch.error is not None:
                raise batch.error
            if batch.initial_events_end:
                metadata = ListMeta(resource_version=batch.resource_version)
                state: Page[T] = Page(metadata, [])
                for obj in found.values():
                    if isinstance(obj, Unreadable):
                        state.unreadable.append(obj)
                    else:
                        state.items.append(obj)
                return state

    async def _list(self, page_size: int) -> Page[T]:
        """List all pages, and return them as one."""
        state: Page[T] = Page(ListMeta(), [])
        paging = {"limit": str(page_size)} if page_size else {}
        while True:
            try:
                body = await self._client.request(
                    "GET",
                    self._path,
                    query=self._query(**paging),
                    timeout_seconds=self._options.list_timeout_seconds,
                )
            except Gone:
                if "continue" not in paging:
                    raise
                return await self._list(0)  # the list outlived its snapshot: take it in one piece
            page = self._lists.decode(body)
            state.items += page.items
            state.unreadable += page.unreadable
            state.metadata = page.metadata
            paging["continue"] = page.metadata.continue_
            if not page.metadata.continue_:
                return state

    async def _watch(self) -> None:
        """Resume the watch; return at its orderly end."""
        query = self._query(
            watch="true",
            allowWatchBookmarks="true",
            resourceVersion=self._resource_version,
            timeoutSeconds=self._timeout_seconds(),
        )
        async with self._stream(query) as stream:
            await self._handle_watch(stream, LineSplitter())

    async def _handle_watch(self, stream: Stream, splitter: LineSplitter) -> None:
        """Hand on what comes until the stream ends; raise if that is not in an orderly way."""
        self._mark_reachable()
        decode = self._events.decode
        while chunk := await stream.chunk():
            batch = decode(splitter.feed(chunk))
            if batch.resource_version:
                self._resource_version = batch.resource_version
                self._last_error = ""
            if batch.events:
                self._deliver(self._store.apply, batch.events)
            if batch.error is not None:
                raise batch.error
        if splitter.pending_bytes:
            raise ResponseLost(f"the watch of {self._path} was cut in the middle of a line")

    def _stream(self, query: str) -> AbstractAsyncContextManager[Stream]:
        return self._client.stream(
            self._path, query=query, read_timeout_seconds=self._options.read_timeout_seconds
        )

    def _query(self, **parameters: str) -> str:
        return urlencode({**self._selectors, **parameters})

    def _timeout_seconds(self) -> str:
        """Spread the ends of watches, so that they do not come back all at once."""
        return str(int(self._rng.uniform(*self._options.watch_timeout_seconds)))
