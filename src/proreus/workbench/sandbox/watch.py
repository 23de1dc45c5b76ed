"""A watch: a position in a collection's history, and a selector that gives events their types.

For a watch with a selector, an object that begins to match is ADDED and one that ceases to match is
DELETED, whatever really happened to it. Nothing here waits: the server calls ``next_events`` each
time the collection's listeners wake it.
"""

from collections.abc import Callable
from typing import Any

from proreus.workbench.sandbox.api_errors import StatusError
from proreus.workbench.sandbox.collection import (
    ADDED,
    COMPACTED_POSITION,
    DELETED,
    MODIFIED,
    Collection,
    StoredObject,
    WatchCacheEvent,
    decode_json,
    encode_json,
)
from proreus.workbench.sandbox.resources import ServedResource
from proreus.workbench.sandbox.selectors import SelectionPredicate

Converter = Callable[[bytes], bytes]

INITIAL_EVENTS_END = "k8s.io/initial-events-end"

_OPENINGS = {
    type_: b'{"type":"%s","object":' % type_.encode() for type_ in (ADDED, MODIFIED, DELETED)
}
_CLOSING = b"}\n"


class Watch:
    """The events that one watcher has not been sent yet.

    ``initial``: objects to send first, as ADDED. ``convert`` turns stored bytes into the requested
    form (None: they are the same).
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
        """Return the next events, one a line, at most ``most``; ``b""`` when all have been sent.

        Raises ``StatusError`` 410 when the history was compacted past this watcher.
        """
        if self._initial:
            batch = self._initial[: -most - 1 : -1]
            del self._initial[-most:]
            return b"".join([self._line(ADDED, version.data) for version in batch])
        if self._position == self._collection.end:
            return b""
        # Changes that the selector rejects are skipped within one call, so b"" means "no more".
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
        # The object ceased to match: as in kube-apiserver, the event has its last matching state
        # with the resourceVersion of the change.
        assert previous is not None
        left = previous.object()
        left["metadata"]["resourceVersion"] = str(version.revision)
        return self._line(DELETED, encode_json(left))

    def _line(self, type_: str, data: bytes) -> bytes:
        if self._convert is not None:
            data = self._convert(data)
        return _OPENINGS[type_] + data + _CLOSING


def start_position(collection: Collection, revision: int) -> int:
    """Return where a watch after ``revision`` starts, 0 being now.

    If that has been compacted, ``Watch.next_events`` raises ``StatusError`` 410: as in
    kube-apiserver, the watch begins, and its stream reports the error.
    """
    try:
        return collection.position_after(revision) if revision else collection.end
    except StatusError:
        return COMPACTED_POSITION


def bookmark(served: ServedResource, revision: int, initial_events_end: bool = False) -> bytes:
    """Return a BOOKMARK event, which says that all changes up to ``revision`` have been sent."""
    metadata: dict[str, Any] = {"resourceVersion": str(revision), "creationTimestamp": None}
    if initial_events_end:
        metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
    obj = {"kind": served.kind, "apiVersion": served.api_version, "metadata": metadata}
    return encode_json({"type": "BOOKMARK", "object": obj}) + b"\n"


def error_line(status_error: StatusError) -> bytes:
    """Return the ERROR event that ends a watch."""
    return encode_json({"type": "ERROR", "object": status_error.status()}) + b"\n"


def converter_for(served: ServedResource) -> Converter | None:
    """Return a converter of stored bytes to the served version, or None if they are the same."""
    convert = served.from_storage
    if convert is None:
        return None
    return lambda data: encode_json(convert(decode_json(data)))
