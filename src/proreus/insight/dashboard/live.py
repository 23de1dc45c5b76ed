"""The samples as server-sent events: first the existing ones, then each new one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

import msgspec
from aiohttp import web

from proreus.base import logs
from proreus.insight.dashboard.samples import INTERVAL_SECONDS, Sample, Samples
from proreus.server.responses import status_body

log = logs.logger(__name__)

MAX_STREAMS = 32
STREAM_SECONDS = 300.0
"""A browser connects again after this time, and is authorized again."""
_WRITE_SECONDS = 15.0


class LiveSamples:
    """Takes a sample a second and sends it to everybody who listens."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples
        self._taken = asyncio.Event()
        self._ended = False
        self.streams = 0
        """The number of browsers that listen."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to take samples."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Take no more samples, and let each stream end."""
        self._ended = True
        self._taken.set()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL_SECONDS)
            self.take()

    def take(self) -> None:
        """Take a sample now, and wake the streams."""
        self._samples.take()
        taken, self._taken = self._taken, asyncio.Event()
        taken.set()

    async def stream(self, request: web.BaseRequest, headers: dict[str, str]) -> web.StreamResponse:
        """Send samples until the browser disconnects or the stream's time is over."""
        if self.streams >= MAX_STREAMS:
            return status_body(429, "TooManyRequests", "too many pages are open")
        response = web.StreamResponse(headers={**headers, "Content-Type": "text/event-stream"})
        await response.prepare(request)
        self.streams += 1
        try:
            async with asyncio.timeout(STREAM_SECONDS):
                await self._send_all(response)
        except (TimeoutError, ConnectionError):
            pass  # a browser that goes to another page is not an error
        finally:
            self.streams -= 1
        return response

    async def _send_all(self, response: web.StreamResponse) -> None:
        last, event = 0.0, "history"
        while not self._ended:
            taken = self._taken
            samples = self._samples.since(last)
            if samples or event == "history":
                # A browser that does not read must not keep its samples in memory.
                async with asyncio.timeout(_WRITE_SECONDS):
                    await response.write(encode(event, samples))
                event = "samples"
                last = samples[-1].at if samples else last
            await taken.wait()


def encode(event: str, samples: Sequence[Sample]) -> bytes:
    """Return one event with some samples."""
    return b"event: %s\ndata: %s\n\n" % (event.encode(), msgspec.json.encode(samples))
