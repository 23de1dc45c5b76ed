"""Compares an informer's store with a fresh list, to find objects whose events were lost.

The list is fetched in pages, of metadata only. While it is fetched, objects change, so a difference
is only a suspicion: it counts once ``confirm``, called some seconds later, finds that the store
still has what it had and that the apiserver still has something else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

from proreus.base.errors import NotFound
from proreus.client.http.request_headers import METADATA_LIST
from proreus.client.http.responses import ResponseLost
from proreus.client.watching.history_check import is_older
from proreus.client.watching.informer import Informer
from proreus.client.watching.watch import ListDecoder, Page
from proreus.objects.codec import UNDECODABLE
from proreus.objects.meta import ApiObject, ListMeta, key_of, version_of

T = TypeVar("T", bound=ApiObject)

MISSING = "is missing"
OUTDATED = "is outdated"
GONE = "does not exist any more"

PAGE_SIZE = 500
_FIRST_PAGE_SIZE = 50
_PAGE_BYTES = 2 << 20
"""A page is decoded in one piece, during which the event loop does nothing else: some 10 ms.
Metadata has a few kilobytes, but pods may have annotations of 256 KiB each."""
MAX_SUSPECTS = 1000
"""The most suspicions that one comparison follows up: each costs a request."""
_TIMEOUT_SECONDS = 60.0


class _Version(msgspec.Struct, frozen=True, gc=False):
    """The version of an object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = msgspec.field(default="", name="resourceVersion")


class _ListedObject(msgspec.Struct, frozen=True, gc=False):
    metadata: _Version = _Version()


class _ListedPage(msgspec.Struct):
    metadata: ListMeta = ListMeta()
    items: list[_ListedObject] | None = None


_PAGE = msgspec.json.Decoder(_ListedPage)


class Correction(Struct, Generic[T], frozen=True):
    """A confirmed difference between the object in the store and that of the apiserver (None: it
    has no such object).
    """

    key: str
    stored: T | None
    fresh: T | None

    @property
    def fault(self) -> str:
        """The difference of the stored object."""
        if self.stored is None:
            return MISSING
        return OUTDATED if self.fresh is not None else GONE


class StoreComparer(Generic[T]):
    """Compares one informer's store with the apiserver, again and again."""

    def __init__(self, informer: Informer[T]) -> None:
        self._informer = informer
        self._most_a_page = PAGE_SIZE
        self._lists = ListDecoder(informer.resource.type, informer.faults)

    @property
    def kind(self) -> str:
        """The kind of the objects."""
        return self._informer.resource.kind

    async def suspects(self, checkpoint: Callable[[], Awaitable[None]]) -> dict[str, T | None]:
        """Return the keys of possibly wrong objects, with the stored object (None: missing).

        ``checkpoint`` is awaited between slices of work. Raises ``ApiError``.
        """
        store = self._informer.store
        if not self._informer.synced.is_set():
            return {}
        before = list(store)
        suspects: dict[str, T | None] = {}
        listed: set[str] = set()
        missing: set[str] = set()
        version = paging = ""
        # Names decide what is in a page: small objects may be followed by large ones. So the next
        # comparison begins with what the largest of this one need.
        most, smallest = min(self._most_a_page, PAGE_SIZE), PAGE_SIZE
        limit = min(most, _FIRST_PAGE_SIZE)
        while True:
            try:
                page, fitting = await self._page(paging, limit)
            except NotFound:
                # Not served: its informer takes that for empty. Nor may a proxy's 404 empty it.
                return {}
            await checkpoint()
            version = version or page.metadata.resource_version
            for item in page.items or ():
                key = key_of(item)  # type: ignore[arg-type]
                listed.add(key)
                stored = store.get(key)
                if stored is None:
                    missing.add(key)
                elif _is_outdated(stored, item.metadata):
                    suspects[key] = stored
            smallest = min(smallest, fitting)
            limit = min(most, fitting, 2 * limit)
            paging = page.metadata.continue_
            if not paging:
                break
        self._most_a_page = smallest
        for number, key in enumerate(before):
            if number % PAGE_SIZE == 0:
                await checkpoint()
            # An object that was there before, and is listed but not there now, was deleted
            # meanwhile.
            missing.discard(key)
            stored = None if key in listed else store.get(key)
            if stored is not None and not is_older(version, stored.metadata.resource_version):
                suspects[key] = stored
        suspects.update(dict.fromkeys(missing.difference(store)))
        return suspects

    async def confirm(self, key: str, seen: T | None) -> Correction[T] | None:
        """Return how a suspect differs from the apiserver, None if it does not (any more).

        Raises ``ApiError``.
        """
        store = self._informer.store
        if store.get(key) is not seen:
            return None
        page = await self._find(key)
        # An object that cannot be decoded keeps its last readable version (``Informer``).
        if store.get(key) is not seen or page.unreadable:
            return None
        fresh = page.items[0] if page.items else None
        if fresh is seen or (fresh and seen and version_of(fresh) == version_of(seen)):
            return None
        return Correction(key, seen, fresh)

    async def agrees(self, key: str) -> bool:
        """Return whether the apiserver has the version of an object that the store has.

        Raises ``ApiError``.
        """
        page, stored = await self._find(key), self.stored(key)
        return stored is not None and any(version_of(o) == version_of(stored) for o in page.items)

    def stored(self, key: str) -> T | None:
        """Return the stored object of a key, or its absence."""
        return self._informer.store.get(key)

    def heal(self, correction: Correction[T]) -> bool:
        """Put the apiserver's object into the store, and notify the handlers of the change.

        Returns False if an event has changed the stored object meanwhile; it counts then.
        """
        if self.stored(correction.key) is not correction.stored:
            return False
        self._informer.correct(correction.key, correction.stored, correction.fresh)
        return True

    async def _find(self, key: str) -> Page[T]:
        """Return a list of the object alone."""
        namespace, _, name = key.rpartition("/")
        body = await self._informer.list_watch.find(namespace, name, _TIMEOUT_SECONDS)
        try:
            return await self._lists.page(body)
        except UNDECODABLE as error:
            raise ResponseLost(f"a list of {self.kind} cannot be read: {error}") from error

    async def _page(self, continue_: str, limit: int) -> tuple[_ListedPage, int]:
        """Return a page, and how many objects of its kind should be in one."""
        paging = {"limit": str(limit), **({"continue": continue_} if continue_ else {})}
        body = await self._informer.list_watch.list(paging, _TIMEOUT_SECONDS, METADATA_LIST)
        try:
            page = _PAGE.decode(body)
        except UNDECODABLE as error:
            raise ResponseLost(f"a list of {self.kind} cannot be read: {error}") from error
        fitting = _PAGE_BYTES * len(page.items or ()) // len(body)
        return page, min(max(fitting, 1), PAGE_SIZE) if page.items else PAGE_SIZE


def _is_outdated(stored: ApiObject, listed: _Version) -> bool:
    """Return whether the stored version is not the listed one, nor a newer one."""
    held = stored.metadata
    if held.uid == listed.uid and held.resource_version == listed.resource_version:
        return False
    return not is_older(listed.resource_version, held.resource_version)
