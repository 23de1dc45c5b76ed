"""Objects as we know they will be: what is watched, overlaid by what we just wrote.

Between a write and the watch event that confirms it the watched object is stale; whoever wrote
*assumes* the answer of the apiserver. An assumption ends when the watch delivers a version that is
as new, or when the object goes. Whoever is going to write later *expects* the change; that ends as
soon as the watch delivers anything newer than what the change was made from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeVar

from proreus.framework.handle import Handle
from proreus.objects.meta import ApiObject, Resource, key_of

T = TypeVar("T", bound=ApiObject)


class AssumeCache(Generic[T]):
    """The objects of one resource by key, assumptions first.

    ``handler(old, new)`` of ``subscribe`` is called when what ``get`` answers changes. Invariant:
    an assumed object is newer than the watched one, an expected one (of which ``_expected`` has the
    key) was made from a version that is at least as new.
    """

    def __init__(self, handle: Handle, resource: Resource[T]) -> None:
        self._watched: Mapping[str, T] = handle.store(resource)
        self._assumed: dict[str, T] = {}
        self._expected: set[str] = set()
        self._handlers: list[Callable[[T | None, T | None], None]] = []
        handle.on_change(resource, self._watch_event)

    def subscribe(self, handler: Callable[[T | None, T | None], None]) -> None:
        """Call ``handler(None, obj)`` for each object there is, and ``handler(old, new)`` later."""
        self._handlers.append(handler)
        for obj in self:
            handler(None, obj)

    def get(self, key: str) -> T | None:
        """Return the object, as assumed or else as watched."""
        assumed = self._assumed.get(key)
        return self._watched.get(key) if assumed is None else assumed

    def __contains__(self, key: object) -> bool:
        return key in self._watched

    def __iter__(self) -> Iterator[T]:
        for key, obj in self._watched.items():
            yield self._assumed.get(key, obj)

    def assume(self, obj: T) -> bool:
        """Take an object that the apiserver returned for the present one.

        An object that is gone, or is watched in a newer version already, is not assumed: False.
        """
        key = key_of(obj)
        watched = self._watched.get(key)
        if watched is None or watched.metadata.uid != obj.metadata.uid:
            return False
        if resource_version_of(obj) <= resource_version_of(watched):
            return resource_version_of(obj) == resource_version_of(watched)
        old = self.get(key)
        self._assumed[key] = obj
        self._expected.discard(key)
        self._notify(old, obj)
        return True

    def expect(self, obj: T) -> bool:
        """Take a change that is yet to be written for the present object.

        It keeps the version that it was made from. Where that is not the present one any more, or
        the object is gone, nothing changes: False.
        """
        key = key_of(obj)
        old = self.get(key)
        if old is None or _identity(old) != _identity(obj):
            return False
        self._assumed[key] = obj
        self._expected.add(key)
        self._notify(old, obj)
        return True

    def restore(self, key: str) -> None:
        """Go back to the object as it is watched."""
        assumed = self._assumed.pop(key, None)
        self._expected.discard(key)
        if assumed is not None:
            self._notify(assumed, self._watched.get(key))

    def _watch_event(self, old: T | None, new: T | None) -> None:
        known = new if new is not None else old
        assert known is not None
        key = key_of(known)
        assumed = self._assumed.get(key)
        if assumed is not None:
            if new is not None and new.metadata.uid == assumed.metadata.uid:
                first_to_end_it = resource_version_of(assumed) + (key in self._expected)
                if resource_version_of(new) < first_to_end_it:
                    return
            del self._assumed[key]
            self._expected.discard(key)
            old = assumed
        self._notify(old, new)

    def _notify(self, old: T | None, new: T | None) -> None:
        for handler in self._handlers:
            handler(old, new)


def resource_version_of(obj: ApiObject) -> int:
    """Return the resourceVersion as the number that it is (0 where there is none)."""
    return parse_resource_version(obj.metadata.resource_version)


def parse_resource_version(resource_version: str) -> int:
    """Return a resourceVersion as the number that it is (0 where it is none)."""
    return int(resource_version) if resource_version.isdigit() else 0


def _identity(obj: ApiObject) -> tuple[str, str]:
    return obj.metadata.uid, obj.metadata.resource_version
