"""Messages arrive in order, also after the process was down."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from proreus.remote.connection import NoResponse
from proreus.remote.endpoint import Outbox
from proreus.remote.wire import BadResponse


class Post:
    def __init__(self) -> None:
        self.away = False
        self.arrived: list[str] = []

    async def __call__(self, path: str, body: bytes) -> None:
        await asyncio.sleep(0)
        if self.away:
            raise NoResponse("away")
        self.arrived.append(f"{path} {body.decode()}")
        if body == b"bad":
            raise BadResponse("what?")


@contextlib.asynccontextmanager
async def running(outbox: Outbox, post: Post):
    task = asyncio.create_task(outbox.run(post))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


@pytest.mark.looptime
async def test_in_order_and_after_an_absence() -> None:
    outbox, post = Outbox("P"), Post()
    async with running(outbox, post):
        outbox.put("/a", b"1")
        await outbox.flush(1.0)
        post.away = True
        outbox.put("/b", b"2")
        outbox.put("/a", b"bad")
        outbox.put("/a", b"3")
        with pytest.raises(NoResponse, match="3 earlier messages have not arrived"):
            await outbox.flush(1.0)
        post.away = False
        await outbox.flush(1.0)
    assert post.arrived == ["/a 1", "/b 2", "/a bad", "/a 3"]


async def test_nothing_to_wait_for() -> None:
    outbox = Outbox("P")
    await outbox.flush(0.0)
    outbox.put("/a", b"1")
    outbox.clear()
    await outbox.flush(0.0)
