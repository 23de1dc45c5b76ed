"""The one place for writes.

Every write passes the flow control and is bounded in number; a server that asks for patience
(Retry-After on 429 or 5xx) is obeyed as client-go does. The rule that gives this module its shape:
**a write whose answer was lost is checked, not blindly repeated.** It may have happened, so the
object is read: if the write shows, it is done; if somebody else's does, that is a conflict; only if
neither shows is it sent again. A server error (5xx) leaves doubt too: it is checked, but what did
not happen is left to the caller, as by kube-scheduler.

Writes that go through here count in ``busy``; who writes things of less weight (the event recorder)
waits for quiet.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from proreus.client.answers import Answer, AnswerLost, Unreachable, error_of
from proreus.client.backoff import Backoff
from proreus.client.flow_control import FlowControl, no_limit
from proreus.client.session import JSON, STRATEGIC_MERGE_PATCH, ApiClient
from proreus.errors import ApiError, Conflict, NotFound
from proreus.objects.codec import Decoder, decoder_for
from proreus.objects.kinds import PODS
from proreus.objects.meta import JsonObject, Resource

T = TypeVar("T")
Check = Callable[[], Awaitable[bytes | None]]
"""Return the object if the write shows in it, None if it may be repeated; raise if it must not."""

_encode = msgspec.json.Encoder().encode
_RETRIES_ON_REQUEST = 10  # client-go's maxRetries
_DOUBTS = frozenset(range(500, 600))
_BIND_DOUBTS = _DOUBTS | {409}
_STATUS_REASONS = frozenset(("InternalError", "ServiceUnavailable", "Conflict", "Unreachable"))


@dataclass(frozen=True)
class DispatcherOptions:
    """``parallelism`` bounds the writes in flight; ``doubt_…`` the search for a lost answer."""

    parallelism: int = 64
    doubt_tries: int = 5
    doubt_backoff_seconds: tuple[float, float] = (0.1, 2.0)
    status_tries: int = 4
    status_backoff_seconds: float = 0.01
    longest_retry_after_seconds: float = 60.0


class Dispatcher:
    """Writes to one apiserver, from one event loop."""

    def __init__(
        self,
        client: ApiClient,
        *,
        flow_control: FlowControl | None = None,
        options: DispatcherOptions | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._client = client
        self._flow_control = flow_control or no_limit()
        self._options = options or DispatcherOptions()
        self._rng = rng or random.Random()
        self._slots = asyncio.Semaphore(self._options.parallelism)
        self._quiet = asyncio.Event()
        self._quiet.set()
        self.busy = 0

    async def wait_for_quiet(self, at_most_seconds: float) -> None:
        """Return when no write of the foreground is under way, or after ``at_most_seconds``."""
        if not self.busy:
            return
        try:
            async with asyncio.timeout(at_most_seconds):
                await self._quiet.wait()
        except TimeoutError:
            pass

    # -- what a scheduler writes ------------------------------------------------------------

    async def bind(self, namespace: str, name: str, uid: str, node_name: str) -> None:
        """Bind a pod; return when it is certain that it is on ``node_name``.

        Raises ``Conflict`` if it is on another node or is another pod by now, ``NotFound`` if it is
        gone, another ``ApiError`` if it could not be done; after ``AnswerLost`` the pod may yet
        turn out to be bound, which the informer then tells.
        """
        body = _encode(
            {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": name, "namespace": namespace, "uid": uid},
                "target": {"kind": "Node", "name": node_name},
            }
        )
        path = PODS.path(namespace, name)

        async def check() -> bytes | None:
            found = await self._read(path)
            pod = decoder_for(PODS.type).decode(found)
            if uid and pod.metadata.uid != uid:
                raise Conflict(
                    409,
                    "Conflict",
                    f'Operation cannot be fulfilled on pods/binding "{name}": the UID in the '
                    f"precondition ({uid}) does not match the UID in record ({pod.metadata.uid})",
                )
            if not pod.spec.node_name:
                return None
            if pod.spec.node_name == node_name:
                return found
            raise Conflict(
                409,
                "Conflict",
                f'Operation cannot be fulfilled on pods/binding "{name}": pod {name} is already '
                f'assigned to node "{pod.spec.node_name}"',
            )

        # a proxy may repeat what we sent once, so a 409 can be the echo of a success
        await self._write_checked("POST", f"{path}/binding", body, check, doubted=_BIND_DOUBTS)

    async def patch_pod_status(self, namespace: str, name: str, patch: JsonObject) -> bytes:
        """Apply a strategic merge patch to a pod's status; return the pod as JSON.

        Tried up to 4 times, 10 ms x5 apart, on InternalError, ServiceUnavailable, Conflict and
        refused connections (kube-scheduler's PatchPodStatus).
        """
        path = PODS.path(namespace, name, "status")
        body = _encode(patch)
        backoff = Backoff(
            self._options.status_backoff_seconds, 10.0, factor=5.0, jitter=0.1, rng=self._rng
        )

        async def check() -> bytes | None:
            found = await self._read(PODS.path(namespace, name))
            return found if shows(patch, msgspec.json.decode(found)) else None

        for tries_left in range(self._options.status_tries - 1, -1, -1):
            try:
                return await self._write_checked(
                    "PATCH", path, body, check, STRATEGIC_MERGE_PATCH, doubted=frozenset()
                )
            except ApiError as error:
                if not tries_left or error.reason not in _STATUS_REASONS:
                    raise
            await asyncio.sleep(backoff.next())
        raise AssertionError("unreachable")

    async def delete_pod(
        self,
        namespace: str,
        name: str,
        *,
        uid: str = "",
        grace_period_seconds: int | None = None,
    ) -> None:
        """Delete a pod; one that is gone already is no error only after a lost answer."""
        await self.delete(PODS, namespace, name, uid=uid, grace_period_seconds=grace_period_seconds)

    # -- any resource ------------------------------------------------------------------------

    async def get(self, resource: Resource[T], namespace: str | None, name: str) -> T:
        """Read one object."""
        body = await self._read(resource.path(namespace, name))
        decoder: Decoder[T] = decoder_for(resource.type)  # type: ignore[arg-type]
        return decoder.decode(body)

    async def create(
        self,
        resource: Resource[Any],
        namespace: str | None,
        obj: JsonObject,
        *,
        subresource: str | None = None,
    ) -> bytes:
        """Create an object; after a lost answer, one that has all that was asked for is ours."""
        name = obj.get("metadata", {}).get("name", "")

        async def check() -> bytes | None:
            if not name or subresource:
                raise AnswerLost(f"whether the {resource.kind} was created cannot be known")
            try:
                found = await self._read(resource.path(namespace, name))
            except NotFound:
                return None
            if shows(obj, msgspec.json.decode(found)):
                return found
            raise Conflict(409, "AlreadyExists", f'{resource.plural} "{name}" already exists')

        path = resource.path(namespace, name if subresource else None, subresource)
        return await self._write_checked("POST", path, _encode(obj), check)

    async def update(
        self,
        resource: Resource[Any],
        namespace: str | None,
        obj: JsonObject,
        *,
        subresource: str | None = None,
    ) -> bytes:
        """Replace an object; its resourceVersion guards against overwriting others' changes."""
        meta = obj["metadata"]
        version = meta.get("resourceVersion", "")
        wanted = {
            key: value
            for key, value in obj.items()
            if key not in ("metadata", "status" if subresource != "status" else "spec")
        }

        async def check() -> bytes | None:
            found = await self._read(resource.path(namespace, meta["name"]))
            current = msgspec.json.decode(found)
            if current["metadata"].get("resourceVersion") == version:
                return None
            if shows(wanted, current):
                return found
            raise Conflict(
                409,
                "Conflict",
                f'Operation cannot be fulfilled on {resource.plural} "{meta["name"]}": the object '
                "has been modified; please apply your changes to the latest version and try again",
            )

        path = resource.path(namespace, meta["name"], subresource)
        return await self._write_checked("PUT", path, _encode(obj), check)

    async def patch(
        self,
        resource: Resource[Any],
        namespace: str | None,
        name: str,
        patch: JsonObject | list[JsonObject],
        *,
        subresource: str | None = None,
        content_type: str = STRATEGIC_MERGE_PATCH,
    ) -> bytes:
        """Patch an object (merge or strategic merge: a dict; JSON patch: a list)."""

        async def check() -> bytes | None:
            found = await self._read(resource.path(namespace, name))
            if isinstance(patch, list):  # a JSON patch says nothing about the state it leads to
                raise AnswerLost(f"whether {resource.plural} {name!r} was patched cannot be known")
            return found if shows(patch, msgspec.json.decode(found)) else None

        path = resource.path(namespace, name, subresource)
        return await self._write_checked("PATCH", path, _encode(patch), check, content_type)

    async def delete(
        self,
        resource: Resource[Any],
        namespace: str | None,
        name: str,
        *,
        uid: str = "",
        grace_period_seconds: int | None = None,
    ) -> None:
        """Delete an object (of this uid); done once it is gone or on its way."""
        options: JsonObject = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace_period_seconds is not None:
            options["gracePeriodSeconds"] = grace_period_seconds
        path = resource.path(namespace, name)

        async def check() -> bytes | None:
            try:
                found = await self._read(path)
            except NotFound:
                return b""
            meta = msgspec.json.decode(found)["metadata"]
            gone = meta.get("deletionTimestamp") or (uid and meta.get("uid") != uid)
            return found if gone else None

        await self._write_checked("DELETE", path, _encode(options), check)

    # -- how a write is done -----------------------------------------------------------------

    async def _write_checked(
        self,
        method: str,
        path: str,
        body: bytes,
        check: Check,
        content_type: str = JSON,
        *,
        doubted: frozenset[int] = _DOUBTS,
    ) -> bytes:
        """Write; while it is in doubt whether that happened, look before writing again."""
        self.busy += 1
        self._quiet.clear()
        try:
            async with self._slots:
                answer = await self._attempt(method, path, body, content_type)
                if isinstance(answer, Answer):
                    if answer.ok:
                        return answer.body
                    refusal = error_of(answer, f"{method} {path}")
                    if answer.code not in doubted:
                        raise refusal
                    return await self._settle(
                        method, path, body, content_type, check, refusal, refusal
                    )
                if isinstance(answer, Unreachable):
                    raise answer
                return await self._settle(method, path, body, content_type, check, answer, None)
        finally:
            self.busy -= 1
            if not self.busy:
                self._quiet.set()

    async def _settle(
        self,
        method: str,
        path: str,
        body: bytes,
        content_type: str,
        check: Check,
        doubt: ApiError,
        refusal: ApiError | None,
    ) -> bytes:
        """Find out whether a write in doubt happened; repeat it only once it shows that it did not.

        ``refusal`` is what the server said, if it said anything: that may be the echo of our own
        first attempt, so it holds only if the write does not show.
        """
        backoff = Backoff(*self._options.doubt_backoff_seconds, rng=self._rng)
        for _ in range(self._options.doubt_tries):
            if refusal is not doubt:
                await asyncio.sleep(backoff.next())
            try:
                found = await check()
            except ApiError as error:
                if error.status and error.status != 429 and error.status < 500:
                    raise
                doubt = error
                continue
            if found is not None:
                return found
            if refusal is not None:
                raise refusal
            answer = await self._attempt(method, path, body, content_type)
            if not isinstance(answer, Answer):
                doubt = answer
            elif answer.ok:
                return answer.body
            else:
                doubt = refusal = error_of(answer, f"{method} {path}")
        raise refusal or doubt

    async def _attempt(
        self, method: str, path: str, body: bytes, content_type: str
    ) -> Answer | AnswerLost | Unreachable:
        """Send, again where the server names a time for it; return the answer or its loss."""
        hooks, host = self._client.hooks, self._client.host
        for tries_left in range(_RETRIES_ON_REQUEST, -1, -1):
            await self._pass_flow_control(method)
            try:
                answer = await self._client.send(method, path, body, content_type=content_type)
            except (AnswerLost, Unreachable) as error:
                return error
            wait_seconds = answer.retry_after_seconds
            if wait_seconds is None or not tries_left or not _asks_for_patience(answer.code):
                return answer
            hooks.on_retry(str(answer.code), method, host)
            await asyncio.sleep(min(wait_seconds, self._options.longest_retry_after_seconds))
        raise AssertionError("unreachable")

    async def _pass_flow_control(self, method: str) -> None:
        if self._flow_control.unlimited:
            return
        waited_seconds = await self._flow_control.acquire()
        self._client.hooks.on_throttle(method, self._client.host, waited_seconds)

    async def _read(self, path: str) -> bytes:
        await self._pass_flow_control("GET")
        return await self._client.request("GET", path)


def _asks_for_patience(code: int) -> bool:
    return code == 429 or code >= 500


def shows(wanted: Any, found: Any) -> bool:
    """Return whether all that a (strategic) merge patch asks for is there.

    Null asks for absence; lists of objects are matched by ``type`` or ``name``; directives
    (``$setElementOrder`` and the like) ask for nothing.
    """
    if wanted is None:
        return found is None or found == ""
    if isinstance(wanted, dict):
        if not isinstance(found, dict):
            return not wanted
        return all(
            shows(value, found.get(key)) for key, value in wanted.items() if not key.startswith("$")
        )
    if isinstance(wanted, list):
        if not isinstance(found, list):
            return not wanted
        return all(_shows_item(item, found) for item in wanted)
    return bool(wanted == found) or (found is None and wanted in ("", 0, False))


def _shows_item(item: Any, found: list[Any]) -> bool:
    for key in ("type", "name"):
        if isinstance(item, dict) and key in item:
            return any(
                isinstance(o, dict) and o.get(key) == item[key] and shows(item, o) for o in found
            )
    return item in found
