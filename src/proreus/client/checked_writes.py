"""How one write is done, so that it happens once.

A server that asks for patience (Retry-After on 429 or 5xx) is obeyed as client-go does. The rule
that gives this module its shape: **a write whose answer was lost is checked, not blindly
repeated.** It may have happened, so the object is read: if the write shows, it is done; if somebody
else's does, that is a conflict; only if neither shows is it sent again. A server error (5xx) leaves
doubt too: it is checked, but what did not happen is left to the caller, as by kube-scheduler.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from proreus.client.answers import Answer, AnswerLost, Unreachable, error_of
from proreus.client.backoff import Backoff
from proreus.client.flow_control import FlowControl
from proreus.client.request_headers import JSON
from proreus.client.session import ApiClient, Request
from proreus.errors import ApiError

Check = Callable[[], Awaitable[bytes | None]]
"""Return the object if the write shows in it, None if it may be repeated; raise if it must not."""

SERVER_ERRORS = frozenset(range(500, 600))
_RETRIES_OF_REQUEST = 10  # client-go's maxRetries
_LONGEST_RETRY_AFTER_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Write:
    """One request that changes something, and how to see whether it has.

    ``doubted`` are the codes of answers that are not taken at their word.
    """

    method: str
    path: str
    body: bytes
    check: Check
    content_type: str = JSON
    doubted: frozenset[int] = SERVER_ERRORS


class CheckedWriter:
    """Sends writes through the flow control, ``parallelism`` at a time."""

    def __init__(
        self,
        client: ApiClient,
        flow_control: FlowControl,
        *,
        parallelism: int,
        doubt_tries: int,
        doubt_backoff_seconds: tuple[float, float],
        rng: random.Random,
    ) -> None:
        self._client = client
        self._flow_control = flow_control
        self._slots = asyncio.Semaphore(parallelism)
        self._doubt_tries = doubt_tries
        self._doubt_backoff_seconds = doubt_backoff_seconds
        self._rng = rng
        self._quiet = asyncio.Event()
        self._quiet.set()
        self.busy = 0

    async def wait_for_quiet(self, at_most_seconds: float) -> None:
        """Return when no write is under way, or after ``at_most_seconds``."""
        if not self.busy:
            return
        try:
            async with asyncio.timeout(at_most_seconds):
                await self._quiet.wait()
        except TimeoutError:
            return

    async def read(self, path: str, content_type: str = JSON) -> bytes:
        """GET an object."""
        await self._pass_flow_control("GET")
        return await self._client.request("GET", path, content_type=content_type)

    async def write(self, write: Write) -> bytes:
        """Write and return the answer's body; raise ``ApiError`` when it has not happened.

        After ``AnswerLost`` nobody knows: the apiserver could not be asked for a while.
        """
        self.busy += 1
        self._quiet.clear()
        try:
            async with self._slots:
                answer = await self._attempt(write)
                if isinstance(answer, Answer):
                    if answer.ok:
                        return answer.body
                    refusal = error_of(answer, f"{write.method} {write.path}")
                    if answer.code not in write.doubted:
                        raise refusal
                    return await self._settle(write, refusal, refusal)
                if isinstance(answer, Unreachable):
                    raise answer
                return await self._settle(write, answer, None)
        finally:
            self.busy -= 1
            if not self.busy:
                self._quiet.set()

    async def _settle(self, write: Write, doubt: ApiError, refusal: ApiError | None) -> bytes:
        """Find out whether a write happened; repeat it only once it shows that it did not.

        ``refusal`` is what the server said, if it said anything: that may be the echo of our own
        first attempt, so it holds only if the write does not show.
        """
        backoff = Backoff(*self._doubt_backoff_seconds, rng=self._rng)
        for _ in range(self._doubt_tries):
            if doubt is not refusal:
                await asyncio.sleep(backoff.next())
            try:
                found = await write.check()
            except ApiError as error:
                if error.status and error.status != 429 and error.status < 500:
                    raise
                doubt = error
                continue
            if found is not None:
                return found
            if refusal is not None:
                raise refusal
            answer = await self._attempt(write)
            if not isinstance(answer, Answer):
                doubt = answer
            elif answer.ok:
                return answer.body
            else:
                doubt = refusal = error_of(answer, f"{write.method} {write.path}")
        raise refusal or doubt

    async def _attempt(self, write: Write) -> Answer | AnswerLost | Unreachable:
        """Send, again where the server names a time for it; return the answer or its loss."""
        hooks, host = self._client.hooks, self._client.host
        request = Request(write.method, write.path, write.body, content_type=write.content_type)
        for tries_left in range(_RETRIES_OF_REQUEST, -1, -1):
            await self._pass_flow_control(write.method)
            try:
                answer = await self._client.send(request)
            except (AnswerLost, Unreachable) as error:
                return error
            wait_seconds = answer.retry_after_seconds
            patient = answer.code == 429 or answer.code >= 500
            if wait_seconds is None or not patient or not tries_left:
                break
            hooks.on_retry(str(answer.code), write.method, host)
            await asyncio.sleep(min(wait_seconds, _LONGEST_RETRY_AFTER_SECONDS))
        return answer

    async def _pass_flow_control(self, method: str) -> None:
        if self._flow_control.unlimited:
            return
        waited_seconds = await self._flow_control.acquire()
        self._client.hooks.on_throttle(method, self._client.host, waited_seconds)


def shows(wanted: Any, found: Any) -> bool:
    """Return whether all that an object or a (strategic) merge patch asks for is there.

    Null asks for absence; lists of objects are matched by ``type`` or ``name``; directives
    (``$setElementOrder`` and the like) ask for nothing, nor does the version that guards a write:
    the write itself has moved it.
    """
    if isinstance(wanted, dict) and isinstance(meta := wanted.get("metadata"), dict):
        wanted = {**wanted, "metadata": {k: v for k, v in meta.items() if k != "resourceVersion"}}
    return _shows(wanted, found)


def _shows(wanted: Any, found: Any) -> bool:
    if wanted is None:
        return found is None or found == ""
    if isinstance(wanted, dict):
        if not isinstance(found, dict):
            return not wanted
        return all(_shows(value, found.get(key)) for key, value in wanted.items() if key[:1] != "$")
    if isinstance(wanted, list):
        return all(_shows_item(item, found if isinstance(found, list) else []) for item in wanted)
    if found is None:
        return wanted in ("", 0, False)  # the apiserver leaves out what is empty
    return bool(wanted == found)


def _shows_item(item: Any, found: list[Any]) -> bool:
    if isinstance(item, dict):
        return any(
            _shows(item, other)
            for other in found
            if isinstance(other, dict)
            and item.get("type") == other.get("type")
            and item.get("name") == other.get("name")
        )
    return item in found
