"""Watches the health of a process, and finds out in the background that it responds again.

A process may answer its health check while requests about pods hang. Hence a request has to be
answered before the circuit closes: the one that was not, sent again while no pod waits for it
(``trial_requests``). Where that may not be sent again, or where the process hangs again when a pod
asks, pauses grow (``circuit``).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from proreus.base.errors import ProreusError
from proreus.base.logs import logger
from proreus.remote.channel import Channel
from proreus.remote.circuit import LONGEST_PAUSE_SECONDS
from proreus.remote.connection import NoResponse, OutOfSync
from proreus.remote.process_sync import ProcessSync
from proreus.remote.trial_requests import TrialRequest, TrialRequests
from proreus.remote.wire import BadResponse, Response

log = logger(__name__)

HEALTH_SECONDS = 5.0
REFUSED_SECONDS = 300.0
"""Time in which an unanswered request is refused if the same one for another pod was answered."""


class Recovery:
    """Opens the circuit of a channel when its process is unhealthy, and closes it afterwards.

    ``resync`` reads the descriptor again and forgets what the process has been sent.
    """

    def __init__(
        self,
        channel: Channel,
        sync: ProcessSync,
        trial_requests: TrialRequests,
        resync: Callable[[], Awaitable[None]],
    ) -> None:
        self._channel = channel
        self._sync = sync
        self._trial_requests = trial_requests
        self._resync = resync

    async def run(self) -> None:
        """Watch the process until cancelled."""
        channel, pause = self._channel, 0.0
        while True:
            if channel.is_open:
                pause = pause or channel.circuit.pause
                await asyncio.sleep(pause)
                pause = max(pause, min(2 * pause, LONGEST_PAUSE_SECONDS))
                await self.probe()
                continue
            pause = 0.0
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HEALTH_SECONDS):
                    await channel.circuit.opened.wait()
            connection = channel.connection
            if not channel.is_open and (problem := await channel.health_error()):
                channel.open(problem, connection)

    async def probe(self) -> None:
        """Close the circuit if the process answers requests again, after bringing it in sync."""
        channel = self._channel
        connection = channel.connection
        problem, refused = await channel.health_error(), False
        try:
            if problem is None:
                await self._resync()
                if self._sync.table is not None:
                    await self._sync.send(self._sync.table)
                    refused = await self._repeat_request()
        except ProreusError as error:
            problem = str(error)
        if problem is not None:
            channel.open(problem, connection)
            return
        if connection is not channel.connection:
            return
        self._trial_requests.unanswered = None
        channel.circuit.close(reset_pauses=refused)
        channel.notify_changed()
        log.info(
            "Plugin answers again",
            plugin=self._channel.descriptor.name,
            endpoint=self._channel.address,
        )

    async def _repeat_request(self) -> bool:
        """Send a request again, or, if that is not answered, the same one about another pod.

        Raises ``NoResponse`` if there is no response to either. Return whether the first one is
        refused from now on: only the one about the other pod was answered.
        """
        first, other = self._trial_requests.candidates()
        if first is None or not (problem := await self._try(first)):
            return False
        if other is None or await self._try(other):
            raise NoResponse(problem)
        # The process may have come back between the two.
        if not await self._try(first):
            return False
        self._trial_requests.refuse(first, self._channel.epoch, REFUSED_SECONDS)
        log.error(
            "Plugin does not answer one request, but answers others",
            plugin=self._channel.descriptor.name,
            endpoint=self._channel.address,
            path=first.path,
            pod=first.pod.decode(),
        )
        return True

    async def _try(self, request: TrialRequest) -> str:
        """Send a request for which no pod waits; return why there was no response, or ""."""
        descriptor = self._channel.descriptor
        body = request.body(self._sync.snapshot, descriptor.arrays)
        try:
            await self._channel.exchange(request.path, body, Response, descriptor.timeout_seconds)
        except NoResponse as error:
            return str(error)
        except (BadResponse, OutOfSync):
            pass  # a response nevertheless
        return ""
