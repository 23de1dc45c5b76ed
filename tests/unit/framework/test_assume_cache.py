"""Assumed objects: kept until the watch delivers a version as new, or a deletion."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from proreus.framework.assume_cache import AssumeCache
from proreus.objects.meta import ObjectMeta
from proreus.objects.resource_claims import RESOURCE_CLAIMS, ResourceClaim
from proreus.testing import FakeHandle

KEY = "default/c"


def claim(version: int, uid: str = "u", label: str = "") -> ResourceClaim:
    meta = ObjectMeta(
        name="c",
        namespace="default",
        uid=uid,
        resource_version=str(version),
        labels={"is": label},
    )
    return ResourceClaim(metadata=meta)


class Watch:
    """A handle of one resource whose events a test makes itself."""

    def __init__(self) -> None:
        self.objects: dict[str, ResourceClaim] = {}
        self.handler: Any = None

    def store(self, resource: Any) -> dict[str, ResourceClaim]:
        return self.objects

    def on_change(self, resource: Any, handler: Any) -> None:
        self.handler = handler

    def deliver(self, new: ResourceClaim | None) -> None:
        old = self.objects.pop(KEY, None)
        if new is not None:
            self.objects[KEY] = new
        self.handler(old, new)


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def cache(watch: Watch) -> AssumeCache[ResourceClaim]:
    cache: AssumeCache[ResourceClaim] = AssumeCache(watch, RESOURCE_CLAIMS)  # type: ignore[arg-type]
    watch.deliver(claim(5))
    return cache


def test_an_assumption_outlives_older_news(watch: Watch, cache: AssumeCache[Any]) -> None:
    assert cache.assume(claim(8, label="mine"))
    watch.deliver(claim(7))
    assert cache.get(KEY).metadata.labels == {"is": "mine"}
    watch.deliver(claim(8, label="theirs"))
    assert cache.get(KEY).metadata.labels == {"is": "theirs"}


def test_what_is_older_or_gone_or_another_is_not_assumed(
    watch: Watch, cache: AssumeCache[Any]
) -> None:
    assert not cache.assume(claim(4))
    assert not cache.assume(claim(9, uid="other"))
    watch.deliver(None)
    assert not cache.assume(claim(9))
    assert cache.get(KEY) is None


def test_restore_goes_back_to_what_is_watched(watch: Watch, cache: AssumeCache[Any]) -> None:
    cache.assume(claim(8, label="mine"))
    cache.restore(KEY)
    cache.restore(KEY)
    assert cache.get(KEY).metadata.resource_version == "5"


def test_an_object_that_goes_takes_its_assumption_along(
    watch: Watch, cache: AssumeCache[Any]
) -> None:
    cache.assume(claim(8))
    watch.deliver(None)
    watch.deliver(claim(6, uid="new"))
    assert cache.get(KEY).metadata.uid == "new"


def test_changes_are_those_of_what_get_answers(watch: Watch) -> None:
    seen: list[tuple[str | None, ...]] = []

    def note(*change: ResourceClaim | None) -> None:
        seen.append(tuple(o.metadata.resource_version if o else None for o in change))

    cache = AssumeCache(watch, RESOURCE_CLAIMS, note)  # type: ignore[arg-type]
    watch.deliver(claim(5))
    cache.assume(claim(8))
    watch.deliver(claim(7))
    watch.deliver(claim(9))
    cache.restore(KEY)
    watch.deliver(None)
    assert seen == [(None, "5"), ("5", "8"), ("8", "9"), ("9", None)]


def test_objects_of_a_handle_are_there_from_the_start() -> None:
    handle = FakeHandle(objects=[{"kind": "ResourceClaim", **msgspec.to_builtins(claim(1))}])
    cache: AssumeCache[ResourceClaim] = AssumeCache(handle, RESOURCE_CLAIMS)  # type: ignore[arg-type]
    assert [one.metadata.name for one in cache] == ["c"]
    assert KEY in cache
