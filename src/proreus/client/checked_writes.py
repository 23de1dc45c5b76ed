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

from proreus.client.backoff import Backoff
from proreus.client.rate_limiter import RateLimiter
from proreus.client.request_headers import JSON
from proreus.client.responses import HttpResponse, ResponseLost, Unreachable, error_from_response
from proreus.client.session import ApiClient, Request
from proreus.errors import ApiError

Verify = Callable[[], Awaitable[bytes | None]]
"""Return the object if the write shows in it, None if it may be repeated; raise if it must not."""

SERVER_ERRORS = frozenset(range(500, 600))
_MAX_RETRIES = 10  # client-go's maxRetries
_MAX_RETRY_AFTER_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Write:
    """One request that changes something, and how to see whether it has.

    ``ambiguous_codes`` are the codes of answers that are not taken at their word.
    """

    method: str
    path: str
    body: bytes
    verify: Verify
    content_type: str = JSON
    ambiguous_codes: frozenset[int] = SERVER_ERRORS


class CheckedWriter:
    """Sends writes through the flow control, ``parallelism`` at a time."""

    def __init__(
        self,
        client: ApiClient,
        rate_limiter: RateLimiter,
        *,
        parallelism: int,
        verify_attempts: int,
        verify_backoff_seconds: tuple[float, float],
        rng: random.Random,
    ) -> None:
        self._client = client
        self._rate_limiter = rate_limiter
        self._slots = asyncio.Semaphore(parallelism)
        self._verify_attempts = verify_attempts
        self._verify_backoff_seconds = verify_backoff_seconds
        self._rng = rng
        self._idle = asyncio.Event()
        self._idle.set()
        self.in_flight = 0

    async def wait_until_idle(self, at_most_seconds: float) -> None:
        """Return when no write is under way, or after ``at_most_seconds``."""
        if not self.in_flight:
            return
        try:
            async with asyncio.timeout(at_most_seconds):
                await self._idle.wait()
        except TimeoutError:
            return

    async def read(self, path: str, content_type: str = JSON) -> bytes:
        """GET an object."""
        await self._wait_for_rate_limiter("GET")
        return await self._client.request("GET", path, content_type=content_type)

    async def write(self, write: Write) -> bytes:
        """Write and return the answer's body; raise ``ApiError`` when it has not happened.

        After ``ResponseLost`` nobody knows: the apiserver could not be asked for a while.
        """
        self.in_flight += 1
        self._idle.clear()
        try:
            async with self._slots:
                answer = await self._attempt(write)
                if isinstance(answer, HttpResponse):
                    if answer.ok:
                        return answer.body
                    refusal = error_from_response(answer, f"{write.method} {write.path}")
                    if answer.code not in write.ambiguous_codes:
                        raise refusal
                    return await self._verify_outcome(write, refusal, refusal)
                if isinstance(answer, Unreachable):
                    raise answer
                return await self._verify_outcome(write, answer, None)
        finally:
            self.in_flight -= 1
            if not self.in_flight:
                self._idle.set()

    async def _verify_outcome(
        self, write: Write, doubt: ApiError, refusal: ApiError | None
    ) -> bytes:
        """Find out whether a write happened; repeat it only once it shows that it did not.

        ``refusal`` is what the server said, if it said anything: that may be the echo of our own
        first attempt, so it holds only if the write does not show.
        """
        backoff = Backoff(*self._verify_backoff_seconds, rng=self._rng)
        for _ in range(self._verify_attempts):
            if doubt is not refusal:
                await asyncio.sleep(backoff.next())
            try:
                found = await write.verify()
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
            if not isinstance(answer, HttpResponse):
                doubt = answer
            elif answer.ok:
                return answer.body
            else:
                doubt = refusal = error_from_response(answer, f"{write.method} {write.path}")
        raise refusal or doubt

    async def _attempt(self, write: Write) -> HttpResponse | ResponseLost | Unreachable:
        """Send, again where the server names a time for it; return the answer or its loss."""
        hooks, host = self._client.hooks, self._client.host
        request = Request(write.method, write.path, write.body, content_type=write.content_type)
        for tries_left in range(_MAX_RETRIES, -1, -1):
            await self._wait_for_rate_limiter(write.method)
            try:
                answer = await self._client.send(request)
            except (ResponseLost, Unreachable) as error:
                return error
            wait_seconds = answer.retry_after_seconds
            patient = answer.code == 429 or answer.code >= 500
            if wait_seconds is None or not patient or not tries_left:
                break
            hooks.on_retry(str(answer.code), write.method, host)
            await asyncio.sleep(min(wait_seconds, _MAX_RETRY_AFTER_SECONDS))
        return answer

    async def _wait_for_rate_limiter(self, method: str) -> None:
        if self._rate_limiter.unlimited:
            return
        waited_seconds = await self._rate_limiter.acquire()
        self._client.hooks.on_throttle(method, self._client.host, waited_seconds)


def has_desired_state(wanted: Any, found: Any) -> bool:
    """Return whether all that an object or a (strategic) merge patch asks for is there.

    Null asks for absence; lists of objects are matched by ``type`` or ``name``; directives
    (``$setElementOrder`` and the like) ask for nothing, nor does the version that guards a write:
    the write itself has moved it.
    """
    if isinstance(wanted, dict) and isinstance(meta := wanted.get("metadata"), dict):
        wanted = {**wanted, "metadata": {k: v for k, v in meta.items() if k != "resourceVersion"}}
    return _has_desired_state(wanted, found)


def _has_desired_state(wanted: Any, found: Any) -> bool:
    if wanted is None:
        return found is None or found == ""
    if isinstance(wanted, dict):
        if not isinstance(found, dict):
            return not wanted
        return all(
            _has_desired_state(value, found.get(key))
            for key, value in wanted.items()
            if key[:1] != "$"
        )
    if isinstance(wanted, list):
        return all(
            _has_desired_item(item, found if isinstance(found, list) else []) for item in wanted
        )
    if found is None:
        return wanted in ("", 0, False)  # the apiserver leaves out what is empty
    return bool(wanted == found)


def _has_desired_item(item: Any, found: list[Any]) -> bool:
    if isinstance(item, dict):
        return any(
            _has_desired_state(item, other)
            for other in found
            if isinstance(other, dict)
            and item.get("type") == other.get("type")
            and item.get("name") == other.get("name")
        )
    return item in found
