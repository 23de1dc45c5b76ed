"""A watch: a position in a collection's history, and a selector that gives events their types.

To a watcher with a selector an object that begins to match is ADDED and one that ceases to is
DELETED, whatever really happened to it. Nothing here waits: who serves a watch asks ``next_events``
for what has come, as often as the collection's listeners wake it.
"""

from collections.abc import Callable
from typing import Any

from proreus.sandbox.api_errors import StatusError
from proreus.sandbox.collection import (
    ADDED,
    DELETED,
    MODIFIED,
    Collection,
    StoredObject,
    WatchCacheEvent,
    decode_json,
    encode_json,
)
from proreus.sandbox.resources import ServedResource
from proreus.sandbox.selectors import SelectionPredicate

Converter = Callable[[bytes], bytes]

INITIAL_EVENTS_END = "k8s.io/initial-events-end"

_OPENINGS = {
    type_: b'{"type":"%s","object":' % type_.encode() for type_ in (ADDED, MODIFIED, DELETED)
}
_CLOSING = b"}\n"


class Watch:
    """What one watcher is still to be told.

    ``initial``: objects to begin with, as ADDED. ``convert`` turns the stored form of an object
    into the one that the watcher asked for (None: it is the stored one).
    """

    def __init__(
        self,
        collection: Collection,
        selector: SelectionPredicate,
        position: int,
        initial: list[StoredObject],
        convert: Converter | None = None,
    ) -> None:
        self._collection = collection
        self._selector = selector
        self._position = position
        self._initial = initial[::-1]
        self._convert = convert

    def next_events(self, most: int = 1000) -> bytes:
        """Return the next events, one a line, at most ``most``; nothing when all is told.

        Raises ``StatusError`` 410 when the history was compacted past this watcher.
        """
        if self._initial:
            batch = self._initial[: -most - 1 : -1]
            del self._initial[-most:]
            return b"".join([self._line(ADDED, version.data) for version in batch])
        if self._position == self._collection.end:
            return b""
        # What no selector passes is skipped within one call: no bytes means no more events.
        lines: list[bytes] = []
        changes = self._collection.changes_from(self._position)
        everything, line_of = self._selector.everything, self._line_of
        for change in changes:
            self._position += 1
            if everything and self._convert is None:
                lines.append(self._line(change.type, change.version.data))
            elif line := line_of(change):
                lines.append(line)
            if len(lines) >= most:
                break
        return b"".join(lines)

    def _line_of(self, change: WatchCacheEvent) -> bytes | None:
        matches = self._selector.matches
        version, previous = change.version, change.previous
        now = change.type != DELETED and matches(version.labels, version.fields)
        before = previous is not None and matches(previous.labels, previous.fields)
        if now:
            return self._line(MODIFIED if before else ADDED, version.data)
        if not before:
            return None
        if change.type == DELETED:
            return self._line(DELETED, version.data)
        # It left the selection: told as it was when it last belonged, at the revision of leaving.
        assert previous is not None
        left = previous.object()
        left["metadata"]["resourceVersion"] = str(version.revision)
        return self._line(DELETED, encode_json(left))

    def _line(self, type_: str, data: bytes) -> bytes:
        if self._convert is not None:
            data = self._convert(data)
        return _OPENINGS[type_] + data + _CLOSING


def bookmark(served: ServedResource, revision: int, initial_events_end: bool = False) -> bytes:
    """Return the line that says: all until this resourceVersion is told."""
    metadata: dict[str, Any] = {"resourceVersion": str(revision), "creationTimestamp": None}
    if initial_events_end:
        metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
    obj = {"kind": served.kind, "apiVersion": served.api_version, "metadata": metadata}
    return encode_json({"type": "BOOKMARK", "object": obj}) + b"\n"


def error_line(status_error: StatusError) -> bytes:
    """Return the line that ends a watch."""
    return encode_json({"type": "ERROR", "object": status_error.status()}) + b"\n"


def converter_for(served: ServedResource) -> Converter | None:
    """Return how the stored form becomes what is served, if it is not the same."""
    convert = served.from_storage
    if convert is None:
        return None
    return lambda data: encode_json(convert(decode_json(data)))
