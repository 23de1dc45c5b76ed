"""An informer's store and notifications under network faults (virtual time, real sockets)."""

import asyncio
import json
import logging
import random
import sys
from contextlib import asynccontextmanager

import msgspec
import pytest

from proreus.base.errors import ApiError, CacheCorrupted, Forbidden, NotFound
from proreus.base.metrics import SchedulerMetrics
from proreus.client.http.connectivity import Connectivity
from proreus.client.watching.informer import Informer, InformerGroup
from proreus.client.watching.reflector import HandlerFailed, ReflectorOptions
from proreus.objects.kinds import LEASES, NAMESPACES, NODES, PODS

pytestmark = pytest.mark.looptime

PATH = "/api/v1/pods"
PAGES = ReflectorOptions(watch_list=False)


class RecordingHandler:
    """A handler that records its calls as words."""

    def __init__(self):
        self.words = []

    def on_add(self, obj):
        self.words.append(f"+{obj.metadata.name}")

    def on_update(self, old, new):
        was, now = old.metadata.resource_version, new.metadata.resource_version
        self.words.append(f"{new.metadata.name}:{was}>{now}")

    def on_delete(self, obj, final_state_unknown):
        self.words.append(f"-{obj.metadata.name}" + ("?" if final_state_unknown else ""))


class Faulty(RecordingHandler):
    """A handler that raises at one word."""

    def __init__(self, word, bug):
        super().__init__()
        self.stumbles_at, self.bug = word, bug

    def on_add(self, obj):
        super().on_add(obj)
        self.stumble()

    def on_update(self, old, new):
        super().on_update(old, new)
        self.stumble()

    def on_delete(self, obj, final_state_unknown):
        super().on_delete(obj, final_state_unknown)
        self.stumble()

    def stumble(self):
        if self.words[-1] == self.stumbles_at:
            raise self.bug


@asynccontextmanager
async def running(client, recorded, options=None, resource=PODS, **more):
    informer = Informer(client, resource, options=options, rng=random.Random(1), **more)
    informer.add_handler(recorded)
    task = asyncio.create_task(informer.run())
    try:
        yield informer
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def until(condition, seconds=400):
    """Wait (in virtual time) until something holds."""
    for _ in range(int(seconds / 0.05)):
        if condition():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it did not come about")


@pytest.fixture
def recorded():
    return RecordingHandler()


async def test_watch_list_delivers_state_and_changes_in_one_stream(server, client, wire, recorded):
    async def script(call):
        assert call.query["sendInitialEvents"] == "true"
        assert call.query["resourceVersionMatch"] == "NotOlderThan"
        assert "resourceVersion" not in call.query
        await call.begin_stream()
        await call.events(
            wire.event("ADDED", wire.pod("a", 1)), wire.event("ADDED", wire.pod("b", 2))
        )
        await asyncio.sleep(1)
        assert recorded.words == []  # an incomplete list is not delivered
        await call.events(wire.bookmark(5, initial_end=True))
        await asyncio.sleep(1)
        await call.events(wire.event("MODIFIED", wire.pod("a", 6, node="n1")))
        await call.events(wire.event("DELETED", wire.pod("b", 7)))
        await asyncio.Event().wait()

    server.script = script
    async with running(client, recorded) as informer:
        await informer.synced.wait()
        await until(lambda: len(recorded.words) == 4)
    assert recorded.words == ["+a", "+b", "a:1>6", "-b"]
    assert informer.store["default/a"].spec.node_name == "n1"
    assert list(informer.store) == ["default/a"]
    assert len(server.calls) == 1


@pytest.mark.parametrize(("code", "reason"), [(422, "Invalid"), (400, "BadRequest")])
async def test_paginated_list_if_the_server_rejects_watch_list(
    server, client, wire, recorded, code, reason
):
    async def script(call):
        if "sendInitialEvents" in call.query:
            await call.refuse(code, reason, "sendInitialEvents is forbidden for watch")
        elif "watch" not in call.query:
            assert call.query["limit"] == "500"
            if "continue" in call.query:
                assert call.query["continue"] == "T/1="
                await call.answer(200, wire.pod_list(wire.pod("b"), version=9))
            else:
                await call.answer(200, wire.pod_list(wire.pod("a"), version=9, token="T/1="))
        else:
            assert call.query["resourceVersion"] == "9"
            await call.begin_stream()
            await asyncio.Event().wait()

    server.script = script
    async with running(client, recorded):
        await until(lambda: len(server.calls) == 4)
    assert recorded.words == ["+a", "+b"]


@pytest.mark.parametrize("ending", ["silence", "end", "empty"])
async def test_paginated_list_if_the_server_ignores_watch_list(
    server, client, wire, recorded, ending
):
    async def script(call):
        if "sendInitialEvents" in call.query:
            await call.begin_stream()
            if ending != "empty":
                await call.events(wire.event("ADDED", wire.pod("ghost")))
            if ending != "silence":
                await call.end_stream()
        elif "watch" not in call.query:
            await call.answer(200, wire.pod_list(wire.pod("a"), version=9))
        else:
            await call.begin_stream()

    server.script = script
    async with running(client, recorded) as informer:
        await informer.synced.wait()
    assert recorded.words == ["+a"]


async def test_expired_continue_token_causes_a_full_list(server, client, wire, recorded):
    async def script(call):
        if "watch" in call.query:
            await call.begin_stream()
        elif "continue" in call.query:
            await call.refuse(410, "Expired", "The provided continue parameter is too old")
        elif "limit" in call.query:
            await call.answer(200, wire.pod_list(wire.pod("a"), version=9, token="t"))
        else:
            await call.answer(200, wire.pod_list(wire.pod("a"), wire.pod("b"), version=12))

    server.script = script
    async with running(client, recorded, PAGES):
        await until(lambda: server.calls and "watch" in server.calls[-1].query)
    assert recorded.words == ["+a", "+b"]
    assert server.calls[-1].query["resourceVersion"] == "12"


@pytest.mark.parametrize("how", ["streamed", "pages"])
async def test_an_object_that_is_gone_is_not_kept_while_the_watch_lives(
    server, client, wire, recorded, how
):
    deleted = asyncio.Event()

    async def script(call):
        if "watch" not in call.query:
            await call.answer(200, wire.pod_list(wire.pod("a"), version=5))
            return
        await call.begin_stream()
        if "sendInitialEvents" in call.query:
            await call.events(
                wire.event("ADDED", wire.pod("a")), wire.bookmark(5, initial_end=True)
            )
        await deleted.wait()
        await call.events(wire.event("DELETED", wire.pod("a", 6)))

    server.script = script
    options = ReflectorOptions(watch_list=how == "streamed")
    async with running(client, recorded, options) as informer:
        await until(lambda: "default/a" in informer.store)
        pod = informer.store["default/a"]
        deleted.set()
        await until(lambda: recorded.words == ["+a", "-a"])
        await asyncio.sleep(1)
        assert sys.getrefcount(pod) == 2  # the variable, and the argument of this call


def listing_then(wire, watch):
    """Script: a list of pod a in version 5, then watches that ``watch(call, number)`` handles."""
    count = 0

    async def script(call):
        nonlocal count
        if call.query.get("limit") == "1":
            # After a watch that broke, the present version is looked up.
            await call.answer(200, wire.pod_list(version=8))
        elif "watch" not in call.query:
            await call.answer(200, wire.pod_list(wire.pod("a"), version=5))
        else:
            count += 1
            await watch(call, count)

    return script


async def test_a_watch_cut_in_the_middle_of_a_line_is_resumed_from_the_last_event(
    server, client, wire, recorded
):
    async def watch(call, number):
        await call.begin_stream()
        if number == 1:
            await call.events(wire.event("ADDED", wire.pod("b", 6)))
            await asyncio.sleep(0.1)
            await call.chunk(b'{"type":"ADDED","object":{"metadata":{"na')
            await asyncio.sleep(0.1)
            call.cut()
        elif number == 2:
            assert call.query["resourceVersion"] == "6"
            await call.events(wire.event("ADDED", wire.pod("c", 7)))

    server.script = listing_then(wire, watch)
    async with running(client, recorded, PAGES):
        await until(lambda: len(recorded.words) == 3)
    assert recorded.words == ["+a", "+b", "+c"]
    # One list: a broken stream is resumed, after a look at the present version.
    assert [call.query.get("limit") for call in server.calls] == ["500", None, "1", None]


async def test_an_orderly_end_in_the_middle_of_a_line_loses_nothing(server, client, wire, recorded):
    async def watch(call, number):
        await call.begin_stream()
        if number == 1:
            await call.chunk(b'{"type":"ADDED","object":{"metadata":{"na')
            await call.end_stream()
        else:
            assert call.query["resourceVersion"] == "5"
            await call.events(wire.event("ADDED", wire.pod("b", 6)))

    server.script = listing_then(wire, watch)
    async with running(client, recorded, PAGES):
        await until(lambda: len(recorded.words) == 2)


async def test_a_line_of_megabytes_in_small_chunks(server, client, wire, recorded):
    big = wire.event("ADDED", {**wire.pod("big", 6), "padding": "x" * 3_000_000})
    line = json.dumps(big).encode() + b"\n"

    async def watch(call, number):
        await call.begin_stream()
        for start in range(0, len(line), 20_000):
            await call.chunk(line[start : start + 20_000])

    server.script = listing_then(wire, watch)
    async with running(client, recorded, PAGES):
        await until(lambda: len(recorded.words) == 2)
    assert recorded.words == ["+a", "+big"]


async def test_very_short_watches_are_no_hot_loop(server, client, wire, recorded):
    async def watch(call, number):
        await call.begin_stream()
        await call.end_stream()

    server.script = listing_then(wire, watch)
    async with running(client, recorded, PAGES):
        await asyncio.sleep(60)
    assert 4 <= len(server.calls) <= 14
    assert recorded.words == ["+a"]


@pytest.mark.parametrize("where", ["at the start", "in the stream"])
async def test_410_causes_a_relist_that_is_reported_as_differences(
    server, client, wire, recorded, where
):
    lists = [
        wire.pod_list(wire.pod("a", 1), wire.pod("b", 2), wire.pod("c", 3), version=5),
        wire.pod_list(wire.pod("b", 2), wire.pod("c", 8), wire.pod("d", 9), version=11),
    ]
    watches = []

    async def script(call):
        if "watch" not in call.query:
            await call.answer(200, lists.pop(0))
            return
        watches.append(call.query["resourceVersion"])
        if len(watches) == 1 and where == "at the start":
            await call.refuse(410, "Expired", "too old resource version: 5 (10)")
            return
        await call.begin_stream()
        if len(watches) == 1:
            gone = wire.status(410, "Expired", "too old resource version: 5 (10)")
            await call.events(wire.event("ERROR", gone))

    server.script = script
    async with running(client, recorded, PAGES) as informer:
        await until(lambda: len(watches) == 2)
    assert recorded.words == ["+a", "+b", "+c", "-a?", "c:3>8", "+d"]
    assert sorted(informer.store) == ["default/b", "default/c", "default/d"]
    assert watches == ["5", "11"]


async def test_relist_reports_a_pod_of_another_uid_as_delete_and_add(
    server, client, wire, recorded
):
    lists = [
        wire.pod_list(wire.pod("a", 1, uid="one"), version=5),
        wire.pod_list(wire.pod("a", 8, uid="two"), version=11),
    ]

    async def script(call):
        if "watch" not in call.query:
            await call.answer(200, lists.pop(0))
        elif call.query["resourceVersion"] == "5":
            await call.refuse(410, "Expired")
        else:
            await call.begin_stream()

    server.script = script
    async with running(client, recorded, PAGES):
        await until(lambda: len(recorded.words) == 3)
    assert recorded.words == ["+a", "-a?", "+a"]


@pytest.mark.parametrize("refused", ["watch", "list"])
async def test_410_after_each_list_is_not_a_hot_loop(server, client, wire, recorded, refused):
    async def watch(call, number):
        await call.refuse(410, "Expired")

    server.script = listing_then(wire, watch)
    if refused == "list":
        server.script = lambda call: watch(call, 0)
    async with running(client, recorded, PAGES):
        await asyncio.sleep(60)
    assert len(server.calls) <= 30


async def test_error_event_other_than_410_resumes_the_watch(server, client, wire, recorded):
    async def watch(call, number):
        await call.begin_stream()
        if number == 1:
            fault = wire.status(500, "InternalError", "etcdserver: no leader")
            await call.events(wire.event("ADDED", wire.pod("b", 6)), wire.event("ERROR", fault))
        else:
            assert call.query["resourceVersion"] == "6"
            await call.events(wire.event("ADDED", wire.pod("c", 7)))

    server.script = listing_then(wire, watch)
    async with running(client, recorded, PAGES):
        await until(lambda: recorded.words == ["+a", "+b", "+c"])


async def test_bookmarks_advance_the_version_and_unknown_events_are_ignored(
    server, client, wire, recorded
):
    async def watch(call, number):
        if number == 1:
            assert call.query["allowWatchBookmarks"] == "true"
            assert 300 <= int(call.query["timeoutSeconds"]) <= 600
            await call.begin_stream()
            await call.events(wire.bookmark(77), {"type": "SURPRISE", "object": {"a": 1}})
            await asyncio.sleep(2)
            await call.end_stream()
        else:
            assert call.query["resourceVersion"] == "77"
            await call.begin_stream()

    server.script = listing_then(wire, watch)
    async with running(client, recorded, PAGES):
        await until(lambda: len(server.calls) == 3)
    assert recorded.words == ["+a"]


async def test_a_silent_connection_is_closed_and_the_watch_resumed(server, client, wire, recorded):
    loop = asyncio.get_running_loop()
    started = []

    async def watch(call, number):
        started.append(loop.time())
        await call.begin_stream()
        if number == 1:
            await call.events(wire.bookmark(8))
        else:
            assert call.query["resourceVersion"] == "8"
            await call.events(wire.event("ADDED", wire.pod("b", 9)))

    server.script = listing_then(wire, watch)
    async with running(
        client, recorded, ReflectorOptions(watch_list=False, read_timeout_seconds=150)
    ):
        await until(lambda: len(recorded.words) == 2)
    assert 150 <= started[1] - started[0] < 160


async def test_a_resource_that_is_not_served_is_empty_and_rarely_retried(
    server, client, wire, recorded
):
    async def script(call):
        await call.answer(404, b"404 page not found")

    server.script = script
    async with running(client, recorded) as informer:
        await asyncio.wait_for(informer.synced.wait(), 5)
        await asyncio.sleep(3600)
        assert informer.store == {}
    assert 8 <= len(server.calls) <= 14


async def test_a_404_of_a_proxy_does_not_empty_the_store(server, client, wire, recorded):
    async def watch(call, number):
        if number < 4:
            await call.answer(404, b"<html><body>default backend - 404</body></html>")
        else:
            await call.begin_stream()
            await call.events(wire.event("ADDED", wire.pod("b", 9)))

    server.script = listing_then(wire, watch)
    async with running(client, recorded, PAGES):
        await until(lambda: len(recorded.words) == 2)
    assert recorded.words == ["+a", "+b"]


async def test_forbidden_is_logged_and_retried(server, client, wire, recorded, caplog):
    errors = []
    text = 'pods is forbidden: User "x" cannot list resource "pods" in API group ""'

    async def script(call):
        if len(server.calls) < 4:
            await call.refuse(403, "Forbidden", text)
        elif "watch" not in call.query:
            await call.answer(200, wire.pod_list(wire.pod("a"), version=5))
        else:
            await call.begin_stream()

    server.script = script
    options = {"on_error": lambda resource, error: errors.append((resource.kind, error))}
    with caplog.at_level(logging.WARNING):
        async with running(client, recorded, PAGES, **options) as informer:
            await asyncio.sleep(0.001)
            assert not informer.synced.is_set()
            await informer.synced.wait()
    assert [kind for kind, _ in errors] == ["Pod"] * 3
    assert isinstance(errors[0][1], Forbidden)
    logged = [record for record in caplog.records if text in record.message]
    assert [record.levelname for record in logged] == ["ERROR"]  # once, not at each attempt


@pytest.mark.parametrize(
    "fault",
    [b"<html><h1>502 Bad Gateway</h1></html>", b"", b'{"kind": "PodList", "items'],
    ids=["html", "empty", "half"],
)
async def test_an_invalid_list_is_retried(server, client, wire, recorded, fault):
    async def script(call):
        if "watch" in call.query:
            await call.begin_stream()
        elif len(server.calls) < 3:
            await call.answer(200, fault)
        else:
            await call.answer(200, wire.pod_list(wire.pod("a"), version=5))

    server.script = script
    async with running(client, recorded, PAGES) as informer:
        await informer.synced.wait()
    assert recorded.words == ["+a"]


async def test_reflector_resumes_after_an_outage(server, client, wire, recorded):
    down = True

    async def script(call):
        if down:
            call.cut()
        elif "watch" in call.query:
            await call.begin_stream()
        else:
            await call.answer(200, wire.pod_list(wire.pod("a"), version=5))

    server.script = script
    async with running(client, recorded, PAGES) as informer:
        await asyncio.sleep(600)
        assert len(server.calls) < 60  # backed off
        down = False
        await asyncio.wait_for(informer.synced.wait(), 61)


async def test_a_watch_that_breaks_again_and_again_is_resumed_at_once(
    server, client, wire, recorded
):
    loop, ended, pauses = asyncio.get_running_loop(), [], []

    async def script(call):
        if "watch" not in call.query:
            await call.answer(200, wire.pod_list(version=5))
            return
        pauses.extend(loop.time() - at for at in ended[-1:])
        await call.begin_stream()
        await asyncio.sleep(10)
        ended.append(loop.time())
        call.cut()

    server.script = script
    async with running(client, recorded, PAGES):
        await asyncio.sleep(300)
    assert len(pauses) > 20
    assert max(pauses) < 1


@pytest.mark.parametrize("code", [403, 500])
async def test_a_watch_that_was_refused_for_long_is_resumed_soon_after(
    server, client, wire, recorded, code
):
    loop, refusals = asyncio.get_running_loop(), []

    async def watch(call, number):
        if number == 1:
            await call.begin_stream()
            await asyncio.sleep(10)
            call.cut()
        elif loop.time() < 300:
            refusals.append(loop.time())
            await call.refuse(code, "Refused")
        else:
            assert call.query["resourceVersion"] == "5"
            await call.begin_stream()
            await call.events(wire.event("ADDED", wire.pod("b", 9)))

    server.script = listing_then(wire, watch)
    async with running(client, recorded, PAGES):
        await until(lambda: recorded.words == ["+a", "+b"])
        assert loop.time() < 305
    assert 60 < len(refusals) < 150


async def test_all_watches_are_resumed_as_soon_as_one_finds_the_apiserver(server, client, wire):
    down, loop = True, asyncio.get_running_loop()

    async def script(call):
        if down:
            call.cut()
        elif "watch" in call.query:
            await call.begin_stream()
            await asyncio.Event().wait()
        else:
            await call.answer(200, wire.pod_list(version=5))

    server.script = script
    group, connectivity = InformerGroup(), Connectivity()
    resources = [PODS, NODES, NAMESPACES, LEASES]
    for number, resource in enumerate(resources):
        rng = random.Random(number)
        options = {"options": PAGES, "connectivity": connectivity, "rng": rng}
        group.add(Informer(client, resource, **options))
    running = asyncio.create_task(group.run())
    await asyncio.sleep(600)
    assert group.disconnected == [resource.kind for resource in resources]
    down = False
    await until(lambda: len(group.disconnected) < len(resources))
    first = loop.time()
    await group.wait_for_sync()
    await group.wait_until_connected()
    assert loop.time() - first < 1
    assert group.disconnected == []
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


def serving_until(down, wire, outage):
    """Script: an empty list, and watches that are cut once ``down``; then ``outage(call)``."""

    async def script(call):
        if down.is_set():
            await outage(call)
        elif "watch" not in call.query:
            await call.answer(200, wire.pod_list(version=5))
        else:
            await call.begin_stream()
            await down.wait()
            call.cut()

    return script


async def test_one_resource_with_errors_is_named_and_hides_no_outage(server, client, wire, caplog):
    """Its conversion webhook is down; everything else is answered, until the apiserver is gone."""
    down = asyncio.Event()

    async def gone(call):
        call.cut()

    others = serving_until(down, wire, gone)

    async def script(call):
        if not down.is_set() and call.path.endswith("/nodes"):
            await call.refuse(500, "InternalError", "conversion webhook failed")
        else:
            await others(call)

    server.script = script
    group, connectivity = InformerGroup(), Connectivity()
    for resource in (PODS, NODES):
        group.add(Informer(client, resource, options=PAGES, connectivity=connectivity))
    with caplog.at_level(logging.INFO):
        task = asyncio.create_task(group.run())
        await asyncio.sleep(140)  # shorter than the read timeout
        before = [record.getMessage() for record in caplog.records]
        caplog.clear()
        down.set()
        await asyncio.sleep(60)
        after = [record.getMessage() for record in caplog.records]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    named = [one for one in before if "/api/v1/nodes: conversion webhook failed" in one]
    assert len(named) == 1
    assert "The apiserver does not answer" in before[0]
    assert "The apiserver answers; its errors concern one resource" in before[1]
    assert len(before) == 3
    assert [one for one in after if "The apiserver does not answer" in one]


async def test_an_outage_is_logged_once_for_all_watches(server, client, wire, caplog):
    down = asyncio.Event()

    async def shutting_down(call):
        await call.refuse(503, "ServiceUnavailable", "the server is shutting down")

    server.script = serving_until(down, wire, shutting_down)
    connectivity = Connectivity()
    async with running(client, RecordingHandler(), PAGES, connectivity=connectivity) as one:  # noqa: SIM117
        async with running(client, RecordingHandler(), PAGES, connectivity=connectivity) as other:
            await one.synced.wait()
            await other.synced.wait()
            with caplog.at_level(logging.INFO):
                for _ in range(2):
                    down.set()
                    await asyncio.sleep(100)
                    down.clear()
                    await asyncio.sleep(100)
    logged = [record.getMessage() for record in caplog.records]
    mark_unreachable, mark_reachable = (
        "The apiserver does not answer; watches",
        "The apiserver answers again",
    )
    assert [text[: len(mark_unreachable)] for text in logged] == [
        mark_unreachable,
        mark_reachable,
    ] * 2


async def test_objects_with_nulls_are_decoded_and_unreadable_ones_left_out(
    server, client, wire, recorded, caplog
):
    nulls = wire.pod("nulls")
    nulls["spec"] = {"containers": None, "nodeName": None}
    nulls["metadata"]["creationTimestamp"] = None
    bad = wire.pod("bad")
    bad["spec"] = {"containers": "many"}

    async def watch(call, number):
        await call.begin_stream()
        await call.events(wire.event("ADDED", bad), wire.event("ADDED", wire.pod("z", 9)))

    server.script = listing_then(wire, watch)
    base = server.script

    async def script(call):
        if "watch" in call.query:
            await base(call)
        else:
            await call.answer(200, wire.pod_list(nulls, bad, version=5))

    server.script = script
    async with running(client, recorded, PAGES):
        await until(lambda: "+z" in recorded.words)
    assert recorded.words == ["+nulls", "+z"]
    assert "default/bad cannot be read" in caplog.text


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":7}}}',
        b'{"type":"ERROR","object":{"code":"x"}}',
        b'{"type":"ADDED","object":{"metadata":{"na',
        b'{"type":"MODIFIED","object":{"metadata":{"name":5}}}',
    ],
    ids=["bookmark", "error", "half", "nameless"],
)
async def test_a_line_without_an_identity_causes_a_relist(server, client, wire, recorded, line):
    async def watch(call, number):
        await call.begin_stream()
        if number == 1:
            await call.chunk(line + b"\n")
        else:
            await call.events(wire.event("ADDED", wire.pod("b", 9)))
        await asyncio.Event().wait()

    server.script = listing_then(wire, watch)
    async with running(client, recorded, PAGES):
        await until(lambda: recorded.words == ["+a", "+b"])
    lists = [call for call in server.calls if "watch" not in call.query]
    assert len(lists) == 2


@pytest.mark.parametrize("word", ["+a", "a:1>6", "-a"])
@pytest.mark.parametrize(
    "bug",
    [
        ZeroDivisionError("a bug"),
        msgspec.DecodeError("a bug"),
        ApiError(503, "ServiceUnavailable", "a bug"),
        NotFound(404, "NotFound", "a bug"),
    ],
)
async def test_an_exception_of_a_handler_affects_its_object_only(
    server, client, wire, recorded, caplog, word, bug
):
    async def watch(call, number):
        await call.begin_stream()
        await call.events(
            wire.event("MODIFIED", wire.pod("a", 6)),
            wire.event("DELETED", wire.pod("a", 7)),
            wire.event("ADDED", wire.pod("b", 8)),
        )
        await asyncio.Event().wait()

    server.script = listing_then(wire, watch)
    metrics = SchedulerMetrics()
    informer = Informer(client, PODS, options=PAGES, metrics=metrics)
    faulty = Faulty(word, bug)
    informer.add_handler(faulty)
    informer.add_handler(recorded)
    task = asyncio.create_task(informer.run())
    await until(lambda: len(recorded.words) == 4)
    task.cancel()
    assert faulty.words == recorded.words == ["+a", "a:1>6", "-a", "+b"]
    assert len(server.calls) == 2
    assert caplog.text.count("Traceback") == 1
    assert "Faulty of pods failed for default/a" in caplog.text
    assert metrics.informer_handler_failures_total.labels("pods").value == 1


async def test_a_corrupted_cache_ends_the_informer(server, client, wire):
    server.script = listing_then(wire, None)
    informer = Informer(client, PODS, options=PAGES)
    informer.add_handler(Faulty("+a", CacheCorrupted("moved")))
    with pytest.raises(CacheCorrupted):
        await asyncio.wait_for(informer.run(), 60)


async def test_an_exception_of_a_hook_is_not_retried_as_a_network_error(server, client, wire):
    def hook():
        raise ApiError(503, "ServiceUnavailable", "a bug")

    server.script = listing_then(wire, None)
    informer = Informer(client, PODS, options=PAGES)
    informer.add_batch_hook(hook)
    with pytest.raises(HandlerFailed, match=r"a handler of /api/v1/pods raised .*: a bug"):
        await asyncio.wait_for(informer.run(), 60)


async def test_field_selector_is_sent_with_list_and_watch(server, client, wire, recorded):
    selector = "status.phase!=Succeeded,status.phase!=Failed"

    async def watch(call, number):
        await call.begin_stream()

    server.script = listing_then(wire, watch)
    async with running(client, recorded, PAGES, field_selector=selector):
        await until(lambda: len(server.calls) == 2)
    assert [call.query["fieldSelector"] for call in server.calls] == [selector, selector]
