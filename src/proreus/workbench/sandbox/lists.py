"""List requests: bodies joined from the stored bytes, and pages of one consistent snapshot."""

import base64
import binascii
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from proreus.workbench.sandbox.api_errors import StatusError, bad_request, expired
from proreus.workbench.sandbox.collection import StoredObject, encode_json
from proreus.workbench.sandbox.resources import ServedResource
from proreus.workbench.sandbox.selectors import SelectionPredicate
from proreus.workbench.sandbox.store import Store
from proreus.workbench.sandbox.watch import Converter

JsonObject = dict[str, Any]

_SNAPSHOTS = 32
"""The number of unfinished paged lists that are kept; the oldest expires first, with 410."""


def parse_revision(text: str) -> int:
    """Parse a resourceVersion, "" as 0; raises ``StatusError`` 400."""
    if not text:
        return 0
    if not text.isascii() or not text.isdigit():
        raise bad_request(f'resourceVersion: Invalid value: "{text}": must be a whole number')
    return int(text)


def check_not_ahead(store: Store, revision: int) -> None:
    """Raise ``StatusError`` 504 for a resourceVersion greater than the current one."""
    if revision > store.revision:
        cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
        raise StatusError(
            504,
            "Timeout",
            f"Timeout: Too large resource version: {revision}, current: {store.revision}",
            {"causes": [cause]},
            retry_after_seconds=1,
        )


class ListPage(msgspec.Struct):
    """One page of a list, with the token for the next (empty on the last page)."""

    versions: list[StoredObject]
    revision: int
    continue_: str = ""
    remaining: int = 0

    def metadata(self) -> JsonObject:
        """Return the ListMeta."""
        metadata: JsonObject = {"resourceVersion": str(self.revision)}
        if self.continue_:
            metadata |= {"continue": self.continue_, "remainingItemCount": self.remaining}
        return metadata

    def body(self, served: ServedResource, convert: Converter | None) -> bytes:
        """Return the list as JSON."""
        items: Iterable[bytes] = (version.data for version in self.versions)
        if convert is not None:
            items = map(convert, items)
        return b'{"kind":"%bList","apiVersion":"%b","metadata":%b,"items":[%b]}' % (
            served.kind.encode(),
            served.api_version.encode(),
            encode_json(self.metadata()),
            b",".join(items),
        )


class Lists:
    """Serves lists, whole or in pages; a paged list keeps its snapshot until the last page."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._snapshots: OrderedDict[str, tuple[int, list[StoredObject]]] = OrderedDict()
        self._count = 0

    def read(
        self,
        served: ServedResource,
        namespace: str | None,
        selector: SelectionPredicate,
        query: Mapping[str, str],
    ) -> ListPage:
        """Return the page that a list request asks for; raises ``StatusError`` 400, 410 or 504."""
        limit = parse_revision(query.get("limit", ""))
        token = query.get("continue", "")
        if token:
            return self._go_on(token, limit)
        revision = parse_revision(query.get("resourceVersion", ""))
        check_not_ahead(self._store, revision)
        if query.get("resourceVersionMatch") == "Exact" and revision < self._store.revision:
            versions = self._as_of(served, namespace, selector, revision)
        else:
            revision = self._store.revision
            versions = self._store.list(served, namespace, selector)
        if not limit or len(versions) <= limit:
            return ListPage(versions, revision)
        self._count += 1
        name = str(self._count)
        self._snapshots[name] = (revision, versions)
        if len(self._snapshots) > _SNAPSHOTS:
            self._snapshots.popitem(last=False)
        return self._page(name, 0, limit)

    def forget(self) -> None:
        """Expire all unfinished paged lists, as a compaction does."""
        self._snapshots.clear()

    def _go_on(self, token: str, limit: int) -> ListPage:
        try:
            name, _, start = base64.urlsafe_b64decode(token).decode().partition(":")
            place = int(start)
        except (binascii.Error, ValueError):
            raise bad_request("continue key is not valid") from None
        if name not in self._snapshots:
            raise expired(
                "The provided continue parameter is too old to display a consistent list result. "
                "You must start a new list without the continue parameter."
            )
        return self._page(name, place, limit)

    def _page(self, name: str, start: int, limit: int) -> ListPage:
        revision, versions = self._snapshots[name]
        end = start + limit if limit else len(versions)
        remaining = len(versions) - end
        if remaining <= 0:
            del self._snapshots[name]
            return ListPage(versions[start:], revision)
        token = base64.urlsafe_b64encode(f"{name}:{end}".encode()).decode()
        return ListPage(versions[start:end], revision, token, remaining)

    def _as_of(
        self,
        served: ServedResource,
        namespace: str | None,
        selector: SelectionPredicate,
        revision: int,
    ) -> list[StoredObject]:
        """Return the objects as of ``revision``, by undoing later changes.

        Raises ``StatusError`` 410 when those have been compacted.
        """
        collection = self._store.collection(served)
        state = {version.fields[:2]: version for version in collection.select(namespace)}
        for change in reversed(collection.changes_from(collection.position_after(revision))):
            key = change.version.fields[:2]
            if namespace is not None and key[1] != namespace:
                continue
            if change.previous is None:
                state.pop(key, None)
            else:
                state[key] = change.previous
        found = sorted(state.values(), key=lambda v: (v.namespace, v.name))
        return [v for v in found if selector.matches(v.labels, v.fields)]
