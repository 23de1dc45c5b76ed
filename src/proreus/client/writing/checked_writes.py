"""Send a write so that it takes effect at most once.

Responses with Retry-After (429 or 5xx) are retried as client-go does. Beyond that the rule is: **a
write whose response was lost is verified, not blindly repeated.** It may have been done, so the
object is read. If the write shows in the object, it is done; if another client's write does, that
is a conflict; only if neither shows is it sent again. After a server error (5xx) the outcome is
unknown too: it is verified, but a write that was not done is left to the caller, as kube-scheduler
does.

Example: the response to a Binding is lost. The pod is read: with ``spec.nodeName`` empty, the
Binding is sent again; with our node in it, the bind has succeeded; with another node, it is a
``Conflict``.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from proreus.base.errors import ApiError
from proreus.client.http.backoff import Backoff
from proreus.client.http.request_headers import JSON
from proreus.client.http.responses import (
    HttpResponse,
    ResponseLost,
    Unreachable,
    error_from_response,
)
from proreus.client.http.session import ApiClient, Request
from proreus.client.writing.rate_limiter import RateLimiter
from proreus.client.writing.request_window import Priority, RequestWindow, WritePlace

Verify = Callable[[], Awaitable[bytes | None]]
"""Read the object: return it if the write shows in it, None if the write may be repeated; raise
``ApiError`` if it must not be."""

SERVER_ERRORS = frozenset(range(500, 600))
_MAX_RETRIES = 10  # client-go's maxRetries
_MAX_RETRY_AFTER_SECONDS = 60.0


class Write(Struct, frozen=True):
    """A request that changes an object, and how to verify whether it did.

    ``ambiguous_codes``: HTTP status codes after which the write may have been done all the same.
    """

    method: str
    path: str
    body: bytes
    verify: Verify
    content_type: str = JSON
    ambiguous_codes: frozenset[int] = SERVER_ERRORS


class CheckedWriter:
    """Sends writes through the rate limiter, and as many at a time as the window allows."""

    def __init__(
        self,
        client: ApiClient,
        rate_limiter: RateLimiter,
        window: RequestWindow,
        *,
        priority: Priority = Priority.NORMAL,
        verify_attempts: int,
        verify_backoff_seconds: tuple[float, float],
        rng: random.Random,
    ) -> None:
        self._client = client
        self._rate_limiter = rate_limiter
        self._window = window
        self._priority = priority
        self._verify_attempts = verify_attempts
        self._verify_backoff_seconds = verify_backoff_seconds
        self._rng = rng

    async def read(self, path: str, content_type: str = JSON) -> bytes:
        """Return the body of a GET; raises ``ApiError``."""
        await self._wait_for_rate_limiter("GET")
        return await self._client.request("GET", path, content_type=content_type)

    async def write(self, write: Write) -> bytes:
        """Write, and return the body of the response; raises ``ApiError`` if it was not done.

        ``ResponseLost`` means that the outcome is unknown: the apiserver could not be reached to
        verify it.
        """
        # First the token: with a low rate, Events that wait for theirs would fill the window.
        await self._wait_for_rate_limiter(write.method)
        place = WritePlace(namespace_of(write.path), self._priority)
        await self._window.acquire(place)
        try:
            response = await self._attempt(write, place)
            if isinstance(response, HttpResponse):
                if response.ok:
                    return response.body
                # A 4xx proves that nothing was written. A 5xx does not: the apiserver may have
                # failed after etcd had stored the object (a 504 by a proxy, for one).
                if response.code not in write.ambiguous_codes:
                    # No local variable: it would be in the frame that the error's traceback
                    # holds, a cycle that is not collected for long (``gc_tuning``).
                    raise error_from_response(response, f"{write.method} {write.path}")
                refusal = error_from_response(response, f"{write.method} {write.path}")
                self._window.report_refusal(place, refusal.message)
                return await self._verify_outcome(write, place, refusal, refusal)
            # Nothing was sent, so there is nothing to verify; when to retry is the caller's
            # decision (the pod goes back to the queue).
            if isinstance(response, Unreachable):
                try:
                    raise response
                finally:
                    del response
            return await self._verify_outcome(write, place, response, None)
        finally:
            self._window.release(place)

    async def _verify_outcome(
        self, write: Write, place: WritePlace, doubt: ApiError, refusal: ApiError | None
    ) -> bytes:
        """Verify whether a write was done, and repeat it only if it was not.

        ``refusal`` is the server's error response, if there was one. It may be the effect of our
        own first attempt (a 409 on the object that it created), so it is raised only if the write
        does not show.
        """
        backoff = Backoff(*self._verify_backoff_seconds, rng=self._rng)
        for _ in range(self._verify_attempts):
            # A server that responded can be read from at once. After a lost response or a failed
            # read wait: the server is restarting, or the write is still being processed.
            if doubt is not refusal:
                await asyncio.sleep(backoff.next())
            try:
                found = await write.verify()
            except ApiError as error:
                # A definite result: the object is gone (404), or another write shows (409).
                if error.status and error.status != 429 and error.status < 500:
                    raise
                doubt = error
                continue
            if found is not None:
                return found
            # The server's error was true. kube-scheduler does not retry after it either.
            if refusal is not None:
                raise refusal
            await self._wait_for_rate_limiter(write.method)
            response = await self._attempt(write, place)
            if not isinstance(response, HttpResponse):
                doubt = response
            elif response.ok:
                return response.body
            else:
                # Any code, ambiguous or not: the first request may have been slow instead of lost,
                # and have been done since; this error is then its echo. The next read decides.
                doubt = refusal = error_from_response(response, f"{write.method} {write.path}")
        raise refusal or doubt

    async def _attempt(
        self, write: Write, place: WritePlace
    ) -> HttpResponse | ResponseLost | Unreachable:
        """Send a write, again after each Retry-After; return the response or its loss."""
        hooks, host = self._client.hooks, self._client.host
        request = Request(write.method, write.path, write.body, content_type=write.content_type)
        for tries_left in range(_MAX_RETRIES, -1, -1):
            sent_at = self._window.now()
            try:
                response = await self._client.send(request)
            except ResponseLost as error:
                self._window.overloaded("unanswered", sent_at, place.namespace)
                return error
            except Unreachable as error:
                return error
            if response.ok and response.content_type == "text/html":
                # A proxy's page (to sign in, for one): the apiserver may never have seen the write.
                return ResponseLost(
                    f"{write.method} {write.path} was answered with HTTP {response.code} and an "
                    "HTML page"
                )
            self._tell_window(write, response, sent_at, place.namespace)
            wait_seconds = response.retry_after_seconds
            retriable = response.code == 429 or response.code >= 500
            # As in client-go only the server decides that a request is worth repeating, by naming a
            # delay (Priority and Fairness does). A retry after other errors is up to the caller.
            if wait_seconds is None or not retriable or not tries_left:
                break
            hooks.on_retry(str(response.code), write.method, host)
            # Its place in the window is free meanwhile: others may be served, for instance by
            # another priority level of the apiserver.
            async with self._window.place_for_others(place):
                await asyncio.sleep(min(wait_seconds, _MAX_RETRY_AFTER_SECONDS))
                await self._wait_for_rate_limiter(write.method)
        return response

    def _tell_window(
        self, write: Write, response: HttpResponse, sent_at: float, namespace: str
    ) -> None:
        # Events may have a limit of their own in the apiserver (EventRateLimit). There are few in
        # flight at a time, and their rejections must not slow down bindings.
        if self._priority is Priority.LOW:
            return
        # An eviction that a disruption budget does not allow is a 429, too; and one without
        # Retry-After is an admission webhook's.
        rejected = response.code == 429 and response.retry_after_seconds is not None
        if rejected and not write.path.endswith("/eviction"):
            self._window.overloaded("rejected", sent_at, namespace)
        elif response.code in (503, 504):
            self._window.overloaded("unanswered", sent_at, namespace)
        else:
            self._window.answered(self._window.now() - sent_at, namespace)

    async def _wait_for_rate_limiter(self, method: str) -> None:
        if self._rate_limiter.unlimited:
            return
        waited_seconds = await self._rate_limiter.acquire()
        self._client.hooks.on_throttle(method, self._client.host, waited_seconds)


def namespace_of(path: str) -> str:
    """Return the namespace in the path of an object, "" for a cluster-scoped one."""
    return path.partition("/namespaces/")[2].partition("/")[0]


def has_desired_state(wanted: Any, found: Any) -> bool:
    """Return whether ``found`` has everything that an object or (strategic) merge patch sets.

    Null requires absence; items of lists are matched by ``type`` and ``name``; directives
    (``$setElementOrder`` and the like) require nothing. metadata.resourceVersion, the precondition
    of a write, is ignored: the write itself has changed it.
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
        return wanted in ("", 0, False)  # the apiserver omits empty values
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
