"""Bytes of a watch to typed events.

A watch is one JSON document a line, and a line may be many megabytes in many chunks; so chunks are
joined once per line and never searched twice. Each line is decoded straight into the Struct of its
resource: what a scheduler does not read (managedFields above all) is never built.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from proreus.client.responses import ApiStatus, error_from_status
from proreus.errors import ApiError
from proreus.objects.codec import decoder_for
from proreus.objects.meta import ApiObject, ApiStruct, ListMeta, ObjectMeta
from proreus.objects.with_json import carries_json, keep_json

T = TypeVar("T", bound=ApiObject)

ADDED, MODIFIED, DELETED, BOOKMARK, ERROR = "ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"
_CHANGES = frozenset((ADDED, MODIFIED, DELETED))
INITIAL_EVENTS_END = "k8s.io/initial-events-end"

logger = logging.getLogger(__name__)


class WatchEvent(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """One change: type ADDED, MODIFIED or DELETED, and the object as it then was."""

    type: str
    object: T


class _Frame(msgspec.Struct):
    """An event whose object is still JSON."""

    type: str = ""
    object: msgspec.Raw = msgspec.Raw(b"{}")


class _Metadata(ApiStruct, frozen=True):
    """The part of any object that says which it is, and how old."""

    metadata: ObjectMeta = ObjectMeta()


_FRAME = msgspec.json.Decoder(_Frame)
_STATUS = msgspec.json.Decoder(ApiStatus)


class LineSplitter:
    """Cuts a stream of chunks into lines; time and memory are linear in the bytes."""

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
        """Return the length of the line that is still incomplete."""
        return sum(map(len, self._parts))


@dataclass(slots=True)
class Batch(Generic[T]):
    """What one chunk held: changes in order, and where in history the stream now stands."""

    events: list[WatchEvent[T]]
    resource_version: str = ""
    initial_events_end: bool = False
    error: ApiError | None = None


class EventDecoder(Generic[T]):
    """Decodes the lines of a watch of one type."""

    def __init__(self, type_: type[T]) -> None:
        self._type = type_
        # built at run time from a type argument, which a type checker cannot follow
        self._decode: Callable[[bytes], WatchEvent[T] | None] = msgspec.json.Decoder(
            WatchEvent[type_]  # type: ignore[valid-type]
        ).decode
        if carries_json(type_):
            self._decode = lambda _: None  # by way of its frame, which has the object's JSON

    def decode(self, lines: list[bytes]) -> Batch[T]:
        """Decode lines up to an ERROR event; unknown types of event are ignored.

        Raises ``msgspec.DecodeError`` for a line that is no JSON: the stream is then worthless.
        """
        events: list[WatchEvent[T]] = []
        batch = Batch(events)
        decode, changes = self._decode, _CHANGES
        last: WatchEvent[T] | None = None
        for line in lines:
            if not line:
                continue
            try:
                event = decode(line)
            except msgspec.ValidationError:
                event = None
            if event is None or event.type not in changes:
                if last is not None:
                    batch.resource_version = last.object.metadata.resource_version
                    last = None
                event = self._decode_unusual(line, batch)
                if batch.error is not None:
                    return batch
                if event is None:
                    continue
            events.append(event)
            last = event
        if last is not None:
            batch.resource_version = last.object.metadata.resource_version
        return batch

    def _decode_unusual(self, line: bytes, batch: Batch[T]) -> WatchEvent[T] | None:
        """Decode errors, bookmarks, and objects with explicit nulls; skip what is none of them."""
        frame = _FRAME.decode(line)
        if frame.type == ERROR:
            batch.error = error_from_status(_STATUS.decode(frame.object))
        elif frame.type == BOOKMARK:
            meta = decoder_for(_Metadata).decode(bytes(frame.object)).metadata
            batch.resource_version = meta.resource_version
            if meta.annotations.get(INITIAL_EVENTS_END) == "true":
                batch.initial_events_end = True
        elif frame.type in _CHANGES:
            obj = decode_object(self._type, frame.object)
            return None if obj is None else WatchEvent(frame.type, obj)
        return None


def decode_object(type_: type[T], raw: msgspec.Raw) -> T | None:
    """Decode one object; one that does not fit its type is logged and left out, not fatal."""
    data = bytes(raw)
    try:
        obj: T = decoder_for(type_).decode(data)
        keep_json(obj, data)
        return obj
    except msgspec.ValidationError as error:
        try:
            meta = decoder_for(_Metadata).decode(data).metadata
            name = f"{meta.namespace}/{meta.name}"
        except msgspec.MsgspecError:
            name = "(no name)"
        logger.error("%s %s cannot be read and is left out: %s", type_.__name__, name, error)
        return None


class ObjectList(msgspec.Struct, Generic[T], gc=False):
    """A list as the apiserver returns it."""

    metadata: ListMeta = ListMeta()
    items: list[T] = []


class _RawList(msgspec.Struct):
    metadata: ListMeta = ListMeta()
    items: list[msgspec.Raw] | None = None


class ListDecoder(Generic[T]):
    """Decodes pages of a list of one type."""

    def __init__(self, type_: type[T]) -> None:
        self._type = type_
        self._decode = msgspec.json.Decoder(ObjectList[type_]).decode  # type: ignore[valid-type]
        self._decode_raw = msgspec.json.Decoder(_RawList).decode

    def decode(self, body: bytes) -> ObjectList[T]:
        """Decode a page; objects that do not fit their type are logged and left out."""
        if not carries_json(self._type):
            try:
                page: ObjectList[T] = self._decode(body)
                return page
            except msgspec.ValidationError:
                pass
        raw = self._decode_raw(body)
        found = (decode_object(self._type, item) for item in raw.items or ())
        return ObjectList(raw.metadata, [obj for obj in found if obj is not None])
