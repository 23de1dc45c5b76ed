"""Lists that are requested before the scheduler is imported, and handed to the reflector."""

import asyncio
import random
import socket
import subprocess
import sys
import time

import pytest

from proreus.client import early_lists
from proreus.client.credentials import Credentials
from proreus.client.early_lists import request_early_lists
from proreus.client.informer import Informer
from proreus.client.informer_factory import InformerFactory
from proreus.client.session import ApiClient
from proreus.objects.kinds import NODES, PODS


async def fetched(server, **more):
    async def authorization(_):
        return "Bearer secret"

    credentials = Credentials(server.url, fetch=authorization, **more)
    await credentials.fetch_authorization()
    return credentials


async def until(condition):
    """Wait until something holds."""
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        await asyncio.sleep(0.01)


async def test_the_informer_takes_the_early_list_and_watches_from_its_version(server, wire):
    async def script(call):
        if "watch" in call.query:
            await call.begin_stream()
            await call.events(wire.event("ADDED", wire.pod("late", 8)))
            await asyncio.Event().wait()
        elif call.path == PODS.path():
            await call.answer(200, wire.pod_list(wire.pod("a"), version=7))
        else:
            await call.answer(404, wire.status(404, "NotFound"))

    server.script = script
    credentials = await fetched(server)
    early = request_early_lists(credentials)
    assert list(early) == ["Node", "Pod"]
    await until(lambda: len(server.calls) == 2)

    async with ApiClient(credentials) as client:
        factory = InformerFactory(client, lambda *_: None, early_lists=early)
        store = factory.store(PODS)
        running = asyncio.create_task(factory.group.run())
        await until(lambda: len(store) == 2)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert list(store) == ["default/a", "default/late"]
    [listed, watched] = server.seen("GET", PODS.path())
    assert listed.query == {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
    assert listed.headers["authorization"] == "bearer secret"
    assert watched.query["resourceVersion"] == "7"
    assert watched.query["fieldSelector"] == listed.query["fieldSelector"]


@pytest.mark.parametrize("answer", ["refused", "cut", "large", "page", "no list"])
async def test_without_a_usable_early_list_the_informer_lists(server, wire, monkeypatch, answer):
    lists = 0

    async def script(call):
        nonlocal lists
        if "watch" in call.query:
            if "sendInitialEvents" in call.query:
                return await call.refuse(400, "BadRequest")
            await call.begin_stream()
            return await asyncio.Event().wait()
        lists += 1
        if lists == 1 and answer == "refused":
            return await call.refuse(401, "Unauthorized")
        if lists == 1 and answer == "cut":
            return call.cut()
        if lists == 1 and answer == "no list":
            return await call.answer(200, b"<html></html>")
        token = "more" if lists == 1 and answer == "page" else ""
        return await call.answer(200, wire.pod_list(wire.pod("a"), version=7, token=token))

    server.script = script
    if answer == "large":
        monkeypatch.setattr(early_lists, "_MOST_BYTES", 20)
    credentials = await fetched(server)
    monkeypatch.setattr(early_lists, "_PATHS", {"Pod": early_lists._PATHS["Pod"]})
    early = request_early_lists(credentials)["Pod"]

    async with ApiClient(credentials) as client:
        informer = Informer(client, PODS, early_list=early, rng=random.Random(1))
        running = asyncio.create_task(informer.run())
        await asyncio.wait_for(informer.synced.wait(), 10)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert list(informer.store) == ["default/a"]
    assert lists == 2


async def test_a_body_is_taken_once_and_not_waited_for_for_ever(server, monkeypatch):
    async def script(call):
        await (asyncio.Event().wait() if call.path == NODES.path() else call.answer(200, b"{}"))

    server.script = script
    monkeypatch.setattr(early_lists, "_TIMEOUT_SECONDS", 0.2)
    credentials = await fetched(server)
    early = request_early_lists(credentials)
    assert await early["Node"].take() is None
    assert await early["Pod"].take() == b"{}"
    assert await early["Pod"].take() is None


async def test_early_lists_go_through_a_proxy_too(server, wire):
    server.script = lambda call: call.answer(200, wire.pod_list(version=7))
    credentials = await fetched(server, proxy=server.url)
    credentials.server = "http://apiserver.invalid:6443"
    early = request_early_lists(credentials)
    assert b"PodList" in await early["Pod"].take()
    assert {call.headers["host"] for call in server.calls} == {"apiserver.invalid:6443"}


async def test_what_cannot_be_asked_at_all_is_not_waited_for(capsys):
    early = request_early_lists(Credentials("http://127.0.0.1:1", proxy="socks5://127.0.0.1:1"))
    assert await early["Pod"].take() is None
    assert await early["Node"].take() is None
    assert capsys.readouterr().err == ""


PROGRAM = """
import socket, threading, time
asked = threading.Event()
def slow(*_, **__):
    asked.set()
    time.sleep(60)
socket.getaddrinfo = slow
from proreus.client.credentials import Credentials
from proreus.client.early_lists import request_early_lists
request_early_lists(Credentials("http://apiserver.invalid"))
assert asked.wait(10)
"""


def test_a_process_that_ends_does_not_wait_for_the_name_server():
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=30)


def test_the_paths_are_those_of_the_informers():
    assert early_lists._PATHS["Node"][0] == NODES.path()
    assert early_lists._PATHS["Pod"][0] == PODS.path()


def test_what_arrives_meanwhile_is_read_at_once(monkeypatch):
    ours, theirs = socket.socketpair()
    parts, received = iter([b"a", b"b", b"c", b"d"]), []

    def pause(_):
        for part in parts:
            theirs.send(part)

    class Reader(asyncio.Protocol):
        def data_received(self, data):
            received.append(data)
            done.set()

    async def read():
        transport, _ = await asyncio.get_running_loop().create_connection(Reader, sock=ours)
        await asyncio.wait_for(done.wait(), 5)
        transport.close()

    monkeypatch.setattr(early_lists.time, "sleep", pause)
    done = asyncio.Event()
    with ours, theirs, asyncio.Runner(loop_factory=early_lists._EventLoop) as runner:
        runner.run(read())
    assert received == [b"abcd"]
