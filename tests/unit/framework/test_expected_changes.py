"""Changes that are expected before they are written: seen at once, ended by anything newer."""

from __future__ import annotations

from typing import Any

import msgspec

from proreus.framework.assume_cache import AssumeCache
from proreus.objects.storage import PERSISTENT_VOLUME_CLAIMS as CLAIMS
from proreus.objects.storage import PersistentVolumeClaim
from proreus.testing import FakeHandle
from proreus.testing.volumes import make_claim

KEY = "default/c"


def marked(claim: PersistentVolumeClaim, mark: str) -> PersistentVolumeClaim:
    meta = msgspec.structs.replace(claim.metadata, annotations={"mark": mark})
    return msgspec.structs.replace(claim, metadata=meta)


def mark_of(cache: AssumeCache[PersistentVolumeClaim]) -> str | None:
    claim = cache.get(KEY)
    return None if claim is None else claim.metadata.annotations.get("mark", "")


def watched() -> tuple[FakeHandle, AssumeCache[PersistentVolumeClaim], list[Any]]:
    handle = FakeHandle(objects=[make_claim("c")])
    events: list[Any] = []
    cache = AssumeCache(handle, CLAIMS, lambda old, new: events.append((old, new)))
    events.clear()
    return handle, cache, events


def test_an_expected_change_is_seen_until_the_watch_tells_anything_newer() -> None:
    handle, cache, events = watched()
    claim = cache.get(KEY)
    assert claim is not None
    assert cache.expect(marked(claim, "mine"))
    assert mark_of(cache) == "mine"
    assert [one.metadata.annotations for one in cache] == [{"mark": "mine"}]
    assert events == [(claim, marked(claim, "mine"))]
    handle.add(make_claim("c", annotations={"mark": "theirs"}))
    assert mark_of(cache) == "theirs"


def test_hearing_the_same_version_again_does_not_end_it() -> None:
    _, cache, _ = watched()
    claim = cache.get(KEY)
    assert claim is not None
    cache.expect(marked(claim, "mine"))
    cache._watch_event(claim, claim)
    assert mark_of(cache) == "mine"


def test_a_change_of_something_old_or_gone_is_not_expected() -> None:
    handle, cache, events = watched()
    claim = cache.get(KEY)
    assert claim is not None
    handle.add(make_claim("c", annotations={"mark": "theirs"}))
    events.clear()
    assert not cache.expect(marked(claim, "mine"))
    handle.remove("PersistentVolumeClaim", KEY)
    assert not cache.expect(marked(claim, "mine"))
    assert mark_of(cache) is None
    assert len(events) == 1


def test_what_was_expected_can_be_given_up_or_be_written() -> None:
    handle, cache, _ = watched()
    claim = cache.get(KEY)
    assert claim is not None
    cache.expect(marked(claim, "mine"))
    cache.restore(KEY)
    assert mark_of(cache) == ""
    cache.expect(marked(claim, "mine"))
    newer = str(int(claim.metadata.resource_version) + 7)
    written = marked(claim, "written")
    meta = msgspec.structs.replace(written.metadata, resource_version=newer)
    assert cache.assume(msgspec.structs.replace(written, metadata=meta))
    assert mark_of(cache) == "written"
    handle.add(make_claim("c", annotations={"mark": "late"}))
    assert mark_of(cache) == "written"
