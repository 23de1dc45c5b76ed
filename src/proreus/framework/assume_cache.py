"""Watched objects overlaid by our own writes (kube-scheduler's ``assumecache``).

Between a write and the watch event that confirms it, the watched object is stale. A plugin that has
written an object *assumes* the version that the apiserver returned. The assumption ends when the
watch delivers a version at least as new, or when the object is deleted. A plugin that is going to
write later *expects* the change; that ends with any version newer than the one it was made from.

Example: a PV is watched at version 7; the plugin binds it and assumes the apiserver's response,
version 8. A watch event of version 7 is ignored, one of version 8 ends the assumption.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeVar

from proreus.framework.handle import Handle
from proreus.objects.meta import ApiObject, Resource, key_of, version_of

T = TypeVar("T", bound=ApiObject)


class AssumeCache(Generic[T]):
    """The objects of one resource by key, assumptions first.

    Invariant: an assumed object is newer than the watched one; an expected one (its key is in
    ``_expected``) was made from a version at least as new.
    """

    def __init__(
        self,
        handle: Handle,
        resource: Resource[T],
        changed: Callable[[T | None, T | None], None] | None = None,
    ) -> None:
        """``changed(old, new)`` is called when the result of ``get`` changes."""
        self._watched: Mapping[str, T] = handle.store(resource)
        self._assumed: dict[str, T] = {}
        self._expected: set[str] = set()
        self._changed = changed
        handle.on_change(resource, self._watch_event)

    def get(self, key: str) -> T | None:
        """Return the object, as assumed or else as watched."""
        assumed = self._assumed.get(key)
        return self._watched.get(key) if assumed is None else assumed

    def __contains__(self, key: object) -> bool:
        return key in self._watched

    def __iter__(self) -> Iterator[T]:
        # By the watched keys: an assumption does not bring back an object that was deleted.
        for key, obj in self._watched.items():
            yield self._assumed.get(key, obj)

    def assume(self, obj: T) -> bool:
        """Use an object that the apiserver returned until the watch delivers it.

        Return False if the object is deleted or is watched in a newer version already.
        """
        key = key_of(obj)
        watched = self._watched.get(key)
        if watched is None or watched.metadata.uid != obj.metadata.uid:
            return False
        # The watch was faster than the response to the write. The same version is what was to be
        # assumed; a newer one is somebody else's write, which the caller did not decide by.
        if resource_version_of(obj) <= resource_version_of(watched):
            return resource_version_of(obj) == resource_version_of(watched)
        old = self.get(key)
        self._assumed[key] = obj
        self._expected.discard(key)
        self._notify(old, obj)
        return True

    def expect(self, obj: T) -> bool:
        """Use a change that is yet to be written.

        ``obj`` has the version that it was made from. Return False, and change nothing, if that is
        no longer the current version or the object is deleted.
        """
        key = key_of(obj)
        old = self.get(key)
        if old is None or version_of(old) != version_of(obj):
            return False
        self._assumed[key] = obj
        self._expected.add(key)
        self._notify(old, obj)
        return True

    def restore(self, key: str) -> None:
        """Drop an assumed or expected object, so that ``get`` returns the watched one again."""
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
            # An expected object has the version that it was made from, so only a higher version
            # contradicts it; an assumed one is confirmed by its own version. Another UID is another
            # object of the same name: nothing that was assumed is true of it.
            if new is not None and new.metadata.uid == assumed.metadata.uid:
                first_to_end_it = resource_version_of(assumed) + (key in self._expected)
                if resource_version_of(new) < first_to_end_it:
                    return
            del self._assumed[key]
            self._expected.discard(key)
            old = assumed
        self._notify(old, new)

    def _notify(self, old: T | None, new: T | None) -> None:
        if self._changed is not None:
            self._changed(old, new)


def resource_version_of(obj: ApiObject) -> int:
    """Return the resourceVersion as a number, 0 if there is none."""
    return parse_resource_version(obj.metadata.resource_version)


def parse_resource_version(resource_version: str) -> int:
    """Return a resourceVersion as a number, 0 if it is not one."""
    return int(resource_version) if resource_version.isdigit() else 0
