"""How a process winds down."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from proreus.app.process import Process


@pytest.mark.looptime
@pytest.mark.parametrize("left", [0, 2])
async def test_pods_that_are_left_in_flight_are_told(left, caplog) -> None:
    """Here they wait in Permit, for longer than anybody waits for them."""
    held = {asyncio.create_task(asyncio.Event().wait()) for _ in range(left)}
    flushed = []

    async def flush(seconds: float) -> None:
        flushed.append(seconds)

    process = SimpleNamespace(
        _scheduler=SimpleNamespace(
            stop=lambda: None, queue=SimpleNamespace(in_flight_count=len(held))
        ),
        _background=held,
        _events=SimpleNamespace(flush=flush),
    )
    started = asyncio.get_running_loop().time()
    await Process._shut_down(process)  # type: ignore[arg-type]
    assert asyncio.get_running_loop().time() - started == (20 if left else 0)
    assert flushed == [3]
    assert [record.pairs for record in caplog.records] == ([{"pods": left}] if left else [])
    for task in held:
        task.cancel()
