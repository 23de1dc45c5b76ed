"""Which differences between a store and a fresh list count, and that they are healed."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs

import pytest

from proreus.base.errors import ApiError, NotFound
from proreus.client.http.request_headers import METADATA_LIST
from proreus.client.watching import store_comparer
from proreus.client.watching.informer import Informer
from proreus.client.watching.store_comparer import StoreComparer
from proreus.client.watching.watch import WatchEvent
from proreus.objects.codec import to_plain
from proreus.objects.kinds import PODS
from proreus.objects.meta import ObjectMeta
from proreus.objects.pod import Pod


def pod(name: str, version: int, uid: str = "") -> Pod:
    meta = ObjectMeta(name=name, namespace="d", uid=uid or name, resource_version=str(version))
    return Pod(metadata=meta)


class Apiserver:
    """Lists ``pods``; ``on_page`` is called before a page is returned."""

    def __init__(self) -> None:
        self.pods: dict[str, Any] = {}
        self.version = 100
        self.requests: list[tuple[str, dict[str, str], str]] = []
        self.on_page = lambda number: None

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: str = "",
        content_type: str = "",
        timeout_seconds: float | None = None,
    ) -> bytes:
        asked = {key: values[0] for key, values in parse_qs(query).items()}
        self.requests.append((path, asked, content_type))
        if path != "/api/v1/pods":
            name = asked["fieldSelector"].partition(",")[0].removeprefix("metadata.name=")
            items = [one for key, one in self.pods.items() if key == name]
            return self._body(items, "")
        start, limit = int(asked.get("continue", 0)), int(asked["limit"])
        items = list(self.pods.values())
        more = str(start + limit) if start + limit < len(items) else ""
        body = self._body(items[start : start + limit], more)
        self.on_page(start // limit)
        return body

    def _body(self, items: list[Any], more: str) -> bytes:
        meta = {"resourceVersion": str(self.version), "continue": more}
        plain = [one if isinstance(one, dict) else to_plain(one) for one in items]
        return json.dumps({"metadata": meta, "items": plain}).encode()

    def put(self, *pods: Pod) -> None:
        self.pods.update({one.metadata.name: one for one in pods})


class Bench:
    """An informer, its apiserver, and what a handler was told."""

    def __init__(self) -> None:
        self.apiserver = Apiserver()
        self.informer = Informer(self.apiserver, PODS, field_selector="status.phase!=Failed")
        self.comparer = StoreComparer(self.informer)
        self.told: list[str] = []
        self.informer.add_handler(
            SimpleNamespace(
                on_add=lambda obj: self.told.append(f"+{obj.metadata.name}"),
                on_update=lambda old, new: self.told.append(f"~{new.metadata.name}"),
                on_delete=lambda obj, unknown: self.told.append(f"-{obj.metadata.name}"),
            )
        )

    def start(self, *pods: Pod) -> None:
        """Store and apiserver have these pods."""
        self.apiserver.put(*pods)
        self.informer.replace(list(pods))
        self.told.clear()

    def event(self, type_: str, obj: Pod) -> None:
        self.informer.apply([WatchEvent(type_, obj)])

    async def checkpoint(self) -> None:
        """Nothing else has to run."""

    async def suspects(self) -> dict[str, Pod | None]:
        return await self.comparer.suspects(self.checkpoint)

    async def compare(self) -> list[str]:
        """Compare twice and heal; return what was healed."""
        healed = []
        for key, seen in (await self.suspects()).items():
            correction = await self.comparer.confirm(key, seen)
            if correction is not None and self.comparer.heal(correction):
                healed.append(f"{key} {correction.fault}")
        return healed


@pytest.fixture
async def bench() -> Bench:
    return Bench()


async def test_equal_stores_are_no_difference(bench) -> None:
    bench.start(pod("a", 1), pod("b", 2))
    assert await bench.suspects() == {}
    (path, asked, content_type), *rest = bench.apiserver.requests
    assert (path, content_type, rest) == ("/api/v1/pods", METADATA_LIST, [])
    assert asked == {"fieldSelector": "status.phase!=Failed", "limit": "50"}


async def test_a_lost_event_is_made_up_for(bench) -> None:
    bench.start(pod("changed", 1), pod("deleted", 2), pod("replaced", 3), pod("same", 4))
    bench.apiserver.put(pod("changed", 11), pod("created", 12), pod("replaced", 13, uid="other"))
    del bench.apiserver.pods["deleted"]
    assert sorted(await bench.compare()) == [
        "d/changed is outdated",
        "d/created is missing",
        "d/deleted does not exist any more",
        "d/replaced is outdated",
    ]
    assert sorted(bench.told) == ["+created", "+replaced", "-deleted", "-replaced", "~changed"]
    assert {one.metadata.name: one for one in bench.informer.store.values()} == (
        bench.apiserver.pods
    )
    assert await bench.compare() == []


async def test_an_event_in_flight_is_no_difference(bench) -> None:
    bench.start(pod("a", 1), pod("b", 2))
    bench.apiserver.put(pod("a", 11), pod("c", 12))
    del bench.apiserver.pods["b"]
    suspects = await bench.suspects()
    assert set(suspects) == {"d/a", "d/b", "d/c"}
    bench.event("MODIFIED", pod("a", 11))
    bench.event("DELETED", pod("b", 13))
    bench.event("ADDED", pod("c", 12))
    for key, seen in suspects.items():
        assert await bench.comparer.confirm(key, seen) is None


async def test_objects_that_change_during_the_list_are_not_suspected(bench, monkeypatch) -> None:
    monkeypatch.setattr(store_comparer, "PAGE_SIZE", 2)
    bench.start(*(pod(name, number + 1) for number, name in enumerate("abcd")))

    def change(page: int) -> None:
        if page == 0:
            bench.event("DELETED", pod("a", 101))
            bench.event("MODIFIED", pod("d", 102))
            bench.event("ADDED", pod("e", 103))

    bench.apiserver.on_page = change
    assert await bench.suspects() == {}
    assert len(bench.apiserver.requests) == 2


async def test_a_store_that_changes_before_it_is_healed_is_left_alone(bench) -> None:
    bench.start(pod("a", 1))
    bench.apiserver.put(pod("a", 11))
    ((key, seen),) = (await bench.suspects()).items()
    correction = await bench.comparer.confirm(key, seen)
    bench.event("MODIFIED", pod("a", 12))
    assert not bench.comparer.heal(correction)
    assert bench.informer.store["d/a"].metadata.resource_version == "12"


async def test_healing_waits_until_a_paused_informer_is_resumed(bench) -> None:
    bench.start(pod("a", 1))
    bench.apiserver.put(pod("a", 11))
    bench.informer.pause()
    assert await bench.compare() == ["d/a is outdated"]
    assert bench.told == []
    bench.informer.resume()
    assert bench.told == ["~a"]


async def test_an_object_that_cannot_be_read_keeps_its_last_version(bench) -> None:
    bench.start(pod("a", 1))
    metadata = {"name": "a", "namespace": "d", "uid": "a", "resourceVersion": "11"}
    bench.apiserver.pods["a"] = {"metadata": metadata, "spec": {"containers": "none"}}
    assert set(await bench.suspects()) == {"d/a"}
    assert await bench.compare() == []


async def test_store_and_apiserver_agree_on_the_version_of_an_object(bench) -> None:
    bench.start(pod("a", 1), pod("b", 2), pod("c", 3))
    bench.apiserver.put(pod("b", 12))
    del bench.apiserver.pods["c"]
    agree = [await bench.comparer.agrees(f"d/{name}") for name in "abcd"]
    assert agree == [True, False, False, False]


async def test_nothing_is_compared_before_the_first_list(bench) -> None:
    bench.apiserver.put(pod("a", 1))
    assert await bench.suspects() == {}
    assert bench.apiserver.requests == []


async def test_a_resource_that_is_not_served_is_no_difference(bench) -> None:
    bench.start(pod("a", 1))

    async def refuse(*_: object, **__: object) -> bytes:
        raise NotFound(404, "NotFound", "the server could not find the requested resource")

    bench.apiserver.request = refuse
    assert await bench.suspects() == {}


async def test_a_list_that_is_no_list_is_an_error_of_the_api(bench) -> None:
    bench.start(pod("a", 1))
    bench.apiserver._body = lambda items, more: b"<html>"
    with pytest.raises(ApiError):
        await bench.suspects()


async def test_pages_of_large_objects_are_small(bench) -> None:
    """A page is decoded in one piece: a tenant's annotations decide how large it is."""
    small = {f"a{number:03}": pod(f"a{number:03}", number + 1) for number in range(750)}
    large = {}
    for number in range(700):
        metadata = {"name": f"b{number:03}", "namespace": "d", "uid": "u", "resourceVersion": "1"}
        large[metadata["name"]] = {"metadata": {**metadata, "annotations": {"a": "x" * 20_000}}}
    bench.start(*small.values())
    bench.apiserver.pods.update(large)

    async def limits() -> list[int]:
        bench.apiserver.requests.clear()
        await bench.suspects()
        return [int(asked["limit"]) for _, asked, _ in bench.apiserver.requests]

    first = await limits()
    assert first[:4] == [50, 100, 200, 400]
    assert first[-1] <= 105
    assert max(await limits()) <= 105  # also while only small ones have been listed
    bench.apiserver.pods = dict(small)
    await limits()
    assert (await limits())[:4] == [50, 100, 200, 400]
