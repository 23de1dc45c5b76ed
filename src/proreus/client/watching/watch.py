"""Decode the bytes of lists and watches into typed objects and events.

A watch is one JSON document a line, and a line may be many megabytes in many chunks; so chunks are
joined once per line and never searched twice. Each line is decoded straight into the Struct of its
resource: fields that a scheduler does not read (managedFields above all) are never built.

An object that cannot be decoded, not even as repaired by ``objects/json_repair.py``, does not cost
the others: it becomes an ``Unreadable`` with its identity. A line or page that is not JSON, or that
does not identify its object, raises ``DecodeError``: then a relist is needed.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from functools import cached_property
from typing import Generic, Self, TypeVar, final

import msgspec

from proreus.base.errors import ApiError
from proreus.client.http.responses import ApiStatus, error_from_status
from proreus.client.watching.object_faults import ObjectFaults
from proreus.objects.codec import (
    UNDECODABLE,
    DecodeError,
    decode_error,
    decoder_for,
    typed_decoder,
)
from proreus.objects.json_repair import RepairedJson, repair_json
from proreus.objects.meta import ApiObject, ApiStruct, ListMeta, ObjectMeta
from proreus.objects.with_json import carries_json, keep_json

T = TypeVar("T", bound=ApiObject)

ADDED, MODIFIED, DELETED, BOOKMARK, ERROR = "ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"
_CHANGES = frozenset((ADDED, MODIFIED, DELETED))
INITIAL_EVENTS_END = "k8s.io/initial-events-end"
_BOOKMARK_LINE = b'{"type":"BOOKMARK"'
"""The bytes with which every apiserver begins a bookmark. Another beginning only takes longer to
decode.
"""


class WatchEvent(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """A change: type ADDED, MODIFIED or DELETED, and the object after it."""

    type: str
    object: T


class Unreadable(msgspec.Struct, frozen=True):
    """An object that exists and cannot be decoded; ``metadata`` has its identity only."""

    metadata: ObjectMeta
    error: DecodeError


@final
class UnreadableEvent(msgspec.Struct, frozen=True):
    """A change of an object that cannot be decoded."""

    type: str
    object: Unreadable


Event = WatchEvent[T] | UnreadableEvent


class _Frame(msgspec.Struct):
    """An event whose object is still JSON."""

    type: str = ""
    object: msgspec.Raw = msgspec.Raw(b"{}")


class _Metadata(ApiStruct, frozen=True):
    """The metadata of any object."""

    metadata: ObjectMeta = ObjectMeta()


_MOST_BYTES_AT_ONCE = 32 * 2**10
"""The length of a line that may be decoded the unusual way at once: 20 ms at most."""

_FRAME = msgspec.json.Decoder(_Frame)
_RAW_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class LineSplitter:
    """Splits a stream of chunks into lines, in time and memory linear in the bytes."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that ``chunk`` completes."""
        head, newline, tail = chunk.rpartition(b"\n")
        if not newline:
            self._parts.append(chunk)
            return []
        if self._parts:
            self._parts.append(head)
            head = b"".join(self._parts)
            self._parts = []
        if tail:
            self._parts.append(tail)
        return head.split(b"\n")

    @property
    def pending_bytes(self) -> int:
        """The length of the incomplete last line."""
        return sum(map(len, self._parts))


class Batch(msgspec.Struct, Generic[T]):
    """Changes of one chunk in order, and the stream's resourceVersion after them."""

    events: list[Event[T]]
    initial_events_end: bool = False
    error: ApiError | None = None
    bookmark: str = ""
    bookmarked_after: int = 0
    """The number of events before the last bookmark."""

    @property
    def resource_version(self) -> str:
        """The version of the last event or bookmark, "" if there is none."""
        if self.bookmarked_after == len(self.events):
            return self.bookmark
        return self.events[-1].object.metadata.resource_version


class EventDecoder(Generic[T]):
    """Decodes the lines of a watch of objects of one type."""

    def __init__(self, type_: type[T], faults: ObjectFaults | None = None) -> None:
        self._type = type_
        self._faults = faults or ObjectFaults(type_.__name__)

    @cached_property
    def _decode(self) -> Callable[[bytes], WatchEvent[T] | None]:
        # Types that keep their JSON need its bytes: every event takes the way of the unusual ones,
        # whose frame has them.
        if carries_json(self._type):
            return lambda _: None
        # Parametrized at run time, which a type checker cannot follow.
        return typed_decoder(WatchEvent[self._type]).decode  # type: ignore[name-defined]

    async def batches(self, lines: list[bytes]) -> AsyncIterator[Batch[T]]:
        """Decode lines up to an ERROR event; unknown event types are ignored.

        A megabyte that Go accepts and msgspec does not takes half a second. It is decoded in a
        thread: in slices of milliseconds, that is, between which other watches and the scheduler
        go on. Raises ``DecodeError`` for a line that is not JSON or does not identify its object:
        the stream and its resourceVersion cannot be used after that.
        """
        batch: Batch[T] = Batch([])
        for line in filter(None, lines):
            try:
                event = None if line.startswith(_BOOKMARK_LINE) else self._decode(line)
            except UNDECODABLE:
                event = None
            if event is not None and event.type in _CHANGES:
                batch.events.append(event)
                continue
            # The fast path above fails for bookmarks and errors, whose object is not of our type,
            # and for objects that Go accepts and msgspec does not.
            if len(line) <= _MOST_BYTES_AT_ONCE:
                unreadable = self._decode_unusual(line, batch)
            else:
                yield batch
                batch = Batch([])
                unreadable = await asyncio.to_thread(self._decode_unusual, line, batch)
            if unreadable is not None:
                _record(unreadable, self._type, self._faults)
                if not unreadable.metadata.name:
                    raise DecodeError("a changed object can be neither decoded nor named")
            if batch.error is not None:
                break
        yield batch

    def _decode_unusual(self, line: bytes, batch: Batch[T]) -> Unreadable | None:
        """Add an error, a bookmark or a change to a batch; return what cannot be decoded."""
        repaired = None
        try:
            frame = _FRAME.decode(line)
        except UNDECODABLE:
            repaired = repair_json(line)
            frame = _decoded(_FRAME, repaired)
        if frame.type == ERROR:
            batch.error = error_from_status(decoder_for(ApiStatus).decode(frame.object))
        elif frame.type == BOOKMARK:
            meta = decoder_for(_Metadata).decode(frame.object).metadata
            batch.bookmark, batch.bookmarked_after = meta.resource_version, len(batch.events)
            if meta.annotations.get(INITIAL_EVENTS_END) == "true":
                batch.initial_events_end = True
        elif frame.type in _CHANGES:
            obj = decode_object(self._type, frame.object, repaired)
            if isinstance(obj, Unreadable):
                batch.events.append(UnreadableEvent(frame.type, obj))
                return obj
            batch.events.append(WatchEvent(frame.type, obj))
        return None


def _record(unreadable: Unreadable, type_: type, faults: ObjectFaults) -> None:
    faults.unreadable(type_.__name__, unreadable.metadata, unreadable.error)


def decode_object(
    type_: type[T], raw: msgspec.Raw, repaired: RepairedJson | None = None
) -> T | Unreadable:
    """Decode one object.

    ``repaired``: the text that ``raw`` is a part of, if that had to be repaired.
    """
    decoder, data = decoder_for(type_), bytes(raw)
    obj: T
    try:
        obj = decoder.decode(data) if repaired is None else decoder.decode_repaired(repaired, data)
        if carries_json(type_):
            _keep_json(obj, data, repaired)
        return obj
    except UNDECODABLE as error:
        return Unreadable(_identity_of(data), decode_error(error))


def _keep_json(obj: object, data: bytes, repaired: RepairedJson | None) -> None:
    if repaired is None:
        try:
            keep_json(obj, data)
            return
        except UNDECODABLE:
            repaired = repair_json(data)
            data = repaired.text
    keep_json(obj, repaired.without_pieces(data))


def _identity_of(data: bytes) -> ObjectMeta:
    """Return an object's identity and version, as far as they can be decoded."""
    try:
        metadata = _RAW_FIELDS.decode(_RAW_FIELDS.decode(repair_json(data).text)["metadata"])
    except (KeyError, *UNDECODABLE):
        return ObjectMeta()
    name, namespace, uid, version = (
        _text(metadata, key) for key in ("name", "namespace", "uid", "resourceVersion")
    )
    # Half a key would name another object, whose state would then be kept or removed.
    if name is None or namespace is None:
        return ObjectMeta()
    return ObjectMeta(name=name, namespace=namespace, uid=uid or "", resource_version=version or "")


def _text(fields: dict[str, msgspec.Raw], key: str) -> str | None:
    """Return the text of a field, "" if there is none; None if it is no text."""
    try:
        return msgspec.json.decode(fields.get(key, b"null"), type=str | None) or ""
    except UNDECODABLE:
        return None


class ObjectList(msgspec.Struct, Generic[T], gc=False):
    """A list, as the apiserver returns it."""

    metadata: ListMeta = ListMeta()
    items: list[T] = []


class _RawList(msgspec.Struct):
    metadata: ListMeta = ListMeta()
    items: list[msgspec.Raw] | None = None


_RAW_LIST = msgspec.json.Decoder(_RawList)


class Page(msgspec.Struct, Generic[T]):
    """A list or a page of it, with its objects and the ones that could not be decoded."""

    metadata: ListMeta
    items: list[T]
    unreadable: list[Unreadable] = []

    @classmethod
    def of(cls, metadata: ListMeta, objects: Iterable[T | Unreadable]) -> Self:
        """Return a list of these objects."""
        page = cls(metadata, [])
        for obj in objects:
            if isinstance(obj, Unreadable):
                page.unreadable.append(obj)
            else:
                page.items.append(obj)
        return page


class ListDecoder(Generic[T]):
    """Decodes pages of a list of objects of one type."""

    def __init__(self, type_: type[T], faults: ObjectFaults | None = None) -> None:
        self._type = type_
        self._faults = faults or ObjectFaults(type_.__name__)

    @cached_property
    def _decode(self) -> Callable[[bytes], ObjectList[T]]:
        # Made at its first use: most kinds are listed by a stream.
        return typed_decoder(ObjectList[self._type]).decode  # type: ignore[name-defined]

    async def page(self, body: bytes) -> Page[T]:
        """Decode a list or a page of one; raises ``DecodeError`` if it is not JSON.

        One with an object that msgspec does not accept is decoded in a thread, as events are.
        """
        if not carries_json(self._type):
            with suppress(*UNDECODABLE):
                typed: ObjectList[T] = self._decode(body)
                return Page(typed.metadata, typed.items)
        page = await asyncio.to_thread(self._decode_one_by_one, body)
        for unreadable in page.unreadable:
            _record(unreadable, self._type, self._faults)
        page.unreadable = [one for one in page.unreadable if one.metadata.name]
        return page

    def _decode_one_by_one(self, body: bytes) -> Page[T]:
        repaired = None
        try:
            raw = _RAW_LIST.decode(body)
        except UNDECODABLE:
            repaired = repair_json(body)
            raw = _decoded(_RAW_LIST, repaired)
        objects = (decode_object(self._type, item, repaired) for item in raw.items or ())
        return Page.of(raw.metadata, objects)


S = TypeVar("S")


def _decoded(decoder: msgspec.json.Decoder[S], repaired: RepairedJson) -> S:
    """Decode repaired text; raises ``DecodeError``."""
    try:
        return decoder.decode(repaired.text)
    except UNDECODABLE as error:
        raise decode_error(error) from error
