"""A reflector whose apiserver's history goes backwards (virtual time, real sockets)."""

import asyncio
import logging

import pytest

from proreus.client.http.connectivity import Connectivity
from proreus.client.watching.history_check import is_older
from proreus.client.watching.reflector import ReflectorOptions
from proreus.objects.meta import Resource
from proreus.objects.pod import Pod

from .test_reflector import RecordingHandler, running, until

pytestmark = pytest.mark.looptime

PAGES = ReflectorOptions(watch_list=False)


@pytest.mark.parametrize(
    ("version", "held", "older"),
    [
        ("9", "10", True),
        ("10", "9", False),
        ("10", "10", False),
        ("9", "", False),
        ("", "9", False),
        ("abc", "abcd", False),
        ("09", "100", False),
    ],
)
def test_which_versions_are_older(version, held, older):
    assert is_older(version, held) is older


class Restored:
    """A server that is restored to version 40 while pods up to version 120 are held."""

    def __init__(self, wire, server):
        self.wire, self.server = wire, server
        self.restored = False
        self.lists = []
        self.watched_from = []

    async def answer_list(self, call):
        self.lists.append(call.query)
        wire = self.wire
        if self.restored:
            pods = (
                wire.pod("kept", 10),
                wire.pod("bound", 30),
                wire.pod("same", 35, schedulerName="x"),
            )
            await call.answer(200, wire.pod_list(*pods, version=40))
        else:
            bound, lost = wire.pod("bound", 110, node="n1"), wire.pod("lost", 120)
            pods = (wire.pod("kept", 10), bound, lost, wire.pod("same", 35))
            await call.answer(200, wire.pod_list(*pods, version=120))

    async def watch(self, call):
        self.watched_from.append(call.query["resourceVersion"])
        await call.begin_stream()
        if self.restored and call.query["resourceVersion"] == "40":
            await call.events(self.wire.event("ADDED", self.wire.pod("new", 41)))
        # A version that lies in the future: the apiserver sends nothing, and no error either.
        await asyncio.Event().wait()

    async def __call__(self, call):
        await (self.watch if "watch" in call.query else self.answer_list)(call)


BEFORE = ["+kept", "+bound", "+lost", "+same"]
HEALED = ["-lost?", "-bound?", "-same?", "+bound", "+same", "+new"]


@pytest.fixture
def recorded():
    return RecordingHandler()


async def test_a_silent_watch_of_a_future_version_is_found_out(
    server, client, wire, recorded, caplog
):
    history = server.script = Restored(wire, server)
    connectivity = Connectivity()
    caplog.set_level(logging.ERROR)
    async with running(client, recorded, PAGES, connectivity=connectivity) as informer:
        await until(lambda: history.watched_from)
        history.restored = True
        await until(lambda: len(recorded.words) >= len(BEFORE + HEALED), 200)
        assert sorted(informer.store) == [f"default/{n}" for n in ("bound", "kept", "new", "same")]
        assert not informer.store["default/bound"].spec.node_name
    assert recorded.words == BEFORE + HEALED
    assert history.watched_from == ["120", "40"]
    said = [each for each in caplog.records if "have gone back" in each.getMessage()]
    assert [(each.pairs["held"], each.pairs["listed"]) for each in said] == [("120", "40")]


async def test_an_apiserver_that_was_away_is_asked_for_its_version_first(
    server, client, wire, recorded
):
    history = Restored(wire, server)
    refused = 0

    async def script(call):
        nonlocal refused
        if "watch" in call.query and len(history.lists) == 1 and refused < 2:
            refused += 1
            history.restored = True
            await call.refuse(503, "ServiceUnavailable", "etcd is being restored")
        else:
            await history(call)

    server.script = script
    loop = asyncio.get_running_loop()
    async with running(client, recorded, PAGES):
        started = loop.time()
        await until(lambda: len(recorded.words) >= len(BEFORE + HEALED), 200)
        assert loop.time() - started < 5
    assert [query.get("limit") for query in history.lists] == ["500", "1", "500"]
    assert recorded.words == BEFORE + HEALED


async def test_a_watch_that_breaks_just_once_may_be_answered_by_a_restored_apiserver(
    server, client, wire, recorded
):
    history = Restored(wire, server)

    async def script(call):
        if "watch" in call.query and not history.restored:
            await call.begin_stream()
            await call.events(wire.bookmark(120))
            await asyncio.sleep(5)
            history.restored = True
            call.cut()
        else:
            await history(call)

    server.script = script
    async with running(client, recorded, PAGES):
        await until(lambda: len(recorded.words) >= len(BEFORE + HEALED), 60)
    assert [query.get("limit") for query in history.lists] == ["500", "1", "500"]
    assert recorded.words == BEFORE + HEALED


async def test_a_restored_apiserver_may_have_come_as_far_again_before_it_is_listed(
    server, client, wire, recorded
):
    history = Restored(wire, server)

    async def script(call):
        if "watch" in call.query and not history.restored:
            history.restored = True
            await call.refuse(503, "ServiceUnavailable", "etcd is being restored")
        elif history.restored and call.query.get("limit") == "500":
            unbound = wire.pod("bound", 30)
            await call.answer(200, wire.pod_list(wire.pod("kept", 10), unbound, version=130))
        else:
            await history(call)

    server.script = script
    async with running(client, recorded, PAGES):
        await until(lambda: "+bound" in recorded.words[len(BEFORE) :], 60)
    # No update leads from a bound pod to one without a node.
    assert recorded.words == [*BEFORE, "-lost?", "-same?", "-bound?", "+bound"]


@pytest.mark.parametrize("kind", ["bookmark", "event"])
async def test_an_older_version_in_a_watch_causes_a_list(server, client, wire, recorded, kind):
    history = Restored(wire, server)

    async def script(call):
        if "watch" in call.query and not history.restored:
            await call.begin_stream()
            history.restored = True
            await asyncio.sleep(20)
            stale = wire.event("MODIFIED", wire.pod("bound", 39, node="n2"))
            await call.events(wire.bookmark(39) if kind == "bookmark" else stale)
        else:
            await history(call)

    server.script = script
    async with running(client, recorded, PAGES):
        await until(lambda: len(recorded.words) >= len(BEFORE + HEALED), 60)
    assert recorded.words == BEFORE + HEALED  # the stale event is not applied


async def test_versions_that_cannot_be_compared_do_not_become_lists(server, client, wire, recorded):
    lists = 0

    async def script(call):
        nonlocal lists
        if "watch" not in call.query:
            lists += 1
            await call.answer(200, wire.pod_list(wire.pod("a"), version=1000))
            return
        await call.begin_stream()
        for number in range(300):
            await asyncio.sleep(1)
            await call.events(wire.event("MODIFIED", wire.pod("a", 900 - number)))
        await asyncio.Event().wait()

    server.script = script
    aggregated = Resource("things.example.com", "v1", "things", "Thing", True, Pod)
    async with running(client, recorded, PAGES, aggregated):
        await asyncio.sleep(250)
    assert lists == 2
    assert len(recorded.words) > 200  # and events are applied as before
