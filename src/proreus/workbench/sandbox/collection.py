"""The objects of one resource and their recent changes, as bytes.

An object is stored as JSON, encoded once and shared by every list and watch that returns it, next
to the few values that selectors read. It is a dict only while it is being changed. So 50,000 pods
cost no more than their bytes, the garbage collector has nothing to traverse, and a caller cannot
alter a stored object by accident.

The history is a list of changes with a moving start; a watch is a position in it.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from proreus.workbench.sandbox.api_errors import expired
from proreus.workbench.sandbox.selectors import ALL, ALWAYS_SELECTABLE, SelectionPredicate

ADDED: Final = "ADDED"
MODIFIED: Final = "MODIFIED"
DELETED: Final = "DELETED"

JsonObject = dict[str, Any]

decode_json = msgspec.json.Decoder().decode
encode_json = msgspec.json.Encoder().encode

COMPACTED_POSITION: Final = -1
"""A position before all history: reading from it raises ``StatusError`` 410."""

_DEFAULTS = {"spec.unschedulable": "false", "spec.hostNetwork": "false"}


class StoredObject(msgspec.Struct, eq=False):
    """An object at one resourceVersion.

    ``fields`` are the values of the selectable fields, in the order of ``field_labels``: the name
    and the namespace come first.
    """

    revision: int
    data: bytes
    labels: dict[str, str]
    fields: tuple[str, ...]

    @property
    def name(self) -> str:
        """``metadata.name``."""
        return self.fields[0]

    @property
    def namespace(self) -> str:
        """``metadata.namespace``; empty for cluster-scoped objects."""
        return self.fields[1]

    def object(self) -> JsonObject:
        """Return the object, freshly decoded, so that the caller may alter it."""
        found: JsonObject = decode_json(self.data)
        return found


class WatchCacheEvent(msgspec.Struct, eq=False):
    """One change: the object after it, and before it (None for ADDED)."""

    type: str
    version: StoredObject
    previous: StoredObject | None


def _revision_of(change: WatchCacheEvent) -> int:
    return change.version.revision


class Collection:
    """The objects of one resource by namespace and name, and their recent changes.

    ``history_bytes`` bounds the history: beyond it the oldest quarter of the changes is dropped,
    and a watch that asks for them gets 410.
    """

    def __init__(self, field_paths: tuple[str, ...], history_bytes: int, revision: int) -> None:
        parts = [path.rpartition(".") for path in field_paths]
        self._paths = [
            (parent, key, _DEFAULTS.get(path, ""))
            for path, (parent, _, key) in zip(field_paths, parts, strict=True)
        ]
        self._history_bytes = history_bytes
        self._objects: dict[str, dict[str, StoredObject]] = {}
        self._changes: list[WatchCacheEvent] = []
        self._changes_bytes = 0
        self._start = 0  # position of self._changes[0]
        self.compacted = revision
        """Changes up to this resourceVersion have been dropped."""
        self.listeners: list[Callable[[WatchCacheEvent], None]] = []
        """Called with each change, so they must be cheap."""

    def __len__(self) -> int:
        return sum(map(len, self._objects.values()))

    def get(self, name: str, namespace: str = "") -> StoredObject | None:
        """Return an object, or None."""
        objects = self._objects.get(namespace)
        return None if objects is None else objects.get(name)

    def select(
        self, namespace: str | None = None, selector: SelectionPredicate = ALL
    ) -> list[StoredObject]:
        """Return the selected objects of a namespace (None: of all), sorted by key."""
        if namespace is None:
            namespace = selector.equal_to(1)
        namespaces = sorted(self._objects) if namespace is None else [namespace]
        found: list[StoredObject] = []
        for each in namespaces:
            objects = self._objects.get(each, {})
            found += [objects[name] for name in sorted(objects)]
        if selector.everything:
            return found
        return [version for version in found if selector.matches(version.labels, version.fields)]

    def by_namespace(self) -> Iterator[Iterable[StoredObject]]:
        """Return the objects of each namespace, in the order of their creation."""
        return (objects.values() for objects in self._objects.values())

    def write(self, obj: JsonObject, revision: int) -> StoredObject:
        """Store an object under its own namespace and name, as of ``revision``."""
        version = self._version(obj, revision)
        objects = self._objects.get(version.fields[1])
        if objects is None:
            objects = self._objects[version.fields[1]] = {}
        previous = objects.get(version.fields[0])
        objects[version.fields[0]] = version
        self._record(WatchCacheEvent(ADDED if previous is None else MODIFIED, version, previous))
        return version

    def remove(self, obj: JsonObject, revision: int) -> StoredObject:
        """Remove an object; return its last state, as of ``revision``."""
        version = self._version(obj, revision)
        objects = self._objects[version.fields[1]]
        previous = objects.pop(version.fields[0])
        if not objects:
            del self._objects[version.fields[1]]
        self._record(WatchCacheEvent(DELETED, version, previous))
        return version

    def draft(self, obj: JsonObject, revision: int) -> StoredObject:
        """Return the object that ``write`` would store, without storing it (a dry run)."""
        return self._version(obj, revision)

    def _version(self, obj: JsonObject, revision: int) -> StoredObject:
        metadata = obj["metadata"]
        metadata["resourceVersion"] = str(revision)
        fields = [metadata["name"], metadata.get("namespace") or ""]
        for parent, key, default in self._paths:  # no path is longer than these two
            part: Any = obj.get(parent) if parent else obj
            value = part.get(key) if part else None
            if value is None:
                value = default
            elif not isinstance(value, str):
                value = str(value).lower() if isinstance(value, bool) else str(value)
            fields.append(value)
        return StoredObject(revision, encode_json(obj), metadata.get("labels") or {}, tuple(fields))

    def _record(self, change: WatchCacheEvent) -> None:
        self._changes.append(change)
        self._changes_bytes += len(change.version.data)
        if self._changes_bytes > self._history_bytes:
            self._forget(len(self._changes) // 4 + 1)
        for listener in self.listeners:
            listener(change)

    def _forget(self, count: int) -> None:
        if count == 0:
            return
        gone = self._changes[:count]
        del self._changes[:count]
        self._start += count
        self._changes_bytes -= sum(len(change.version.data) for change in gone)
        self.compacted = gone[-1].version.revision

    def compact(self, revision: int) -> None:
        """Drop the history; ``revision`` is the current one of the whole store."""
        self._forget(len(self._changes))
        self.compacted = revision

    @property
    def end(self) -> int:
        """The position after the last change."""
        return self._start + len(self._changes)

    def position_after(self, revision: int) -> int:
        """Return the position of the changes after ``revision``; raises ``StatusError`` 410."""
        if revision < self.compacted:
            raise expired(f"too old resource version: {revision} ({self.compacted})")
        return self._start + bisect_right(self._changes, revision, key=_revision_of)

    def changes_from(self, position: int) -> list[WatchCacheEvent]:
        """Return the changes from a position on; raises ``StatusError`` 410."""
        if position < self._start:
            raise expired(f"too old resource version: history begins after {self.compacted}")
        return self._changes[position - self._start :]


def field_labels(fields: tuple[str, ...]) -> tuple[str, ...]:
    """Return the selectable fields of a resource, in the order of ``StoredObject.fields``."""
    return ALWAYS_SELECTABLE + fields
