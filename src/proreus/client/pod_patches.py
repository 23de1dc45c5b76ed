"""Patches of pods' statuses: those of one pod are sent one after another.

In flight together, the apiserver could apply an older one last, and the pod would keep an outdated
condition or nomination. A pod may fail again and again while the apiserver takes long to answer:
what is requested while a patch waits for its turn is merged into it, so that there are at most two.

A patch that the apiserver refuses (an admission webhook, a right that is missing) is requested
again at every attempt of the pod, several times a second in a busy cluster. So after a refusal the
pod's patches are not sent for a while: 1, 2, 4 … up to 60 seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct, field

from proreus.errors import ApiError, NotFound
from proreus.objects.meta import JsonObject
from proreus.repeated_failures import FailureBackoff

_MERGEABLE = {"conditions", "nominatedNodeName"}
"""Fields of the status that a later patch states anew, alone or by type of condition."""

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 60.0


class StillRefused(ApiError):
    """The status patches of a pod were refused before: this one was too, or was not sent."""


class _Patch(Struct):
    """A patch that has not been answered. ``before``: the one to wait for.

    ``waiters``: how many callers wait for it. ``sending``: held by the one of them that sends it.
    """

    body: JsonObject
    before: _Patch | None
    waiters: int = 0
    begun: bool = False
    done: asyncio.Event = field(default_factory=asyncio.Event)
    sending: asyncio.Lock = field(default_factory=asyncio.Lock)
    error: ApiError | None = None


class PodPatches:
    """Sends patches by ``send(path, patch)``, by path of the pod; it raises ``ApiError``."""

    def __init__(self, send: Callable[[str, JsonObject], Awaitable[Any]]) -> None:
        self._send = send
        # By path: the patch that was requested last.
        self._last: dict[str, _Patch] = {}
        self._refusals: FailureBackoff[str] = FailureBackoff(
            _FIRST_PAUSE_SECONDS,
            _LONGEST_PAUSE_SECONDS,
            lambda: asyncio.get_running_loop().time(),
        )

    def __len__(self) -> int:
        """Return the number of pods whose patches are not done."""
        return len(self._last)

    async def wait(self, path: str) -> None:
        """Return once the patches of a pod that were requested before are done."""
        if (last := self._last.get(path)) is not None:
            await last.done.wait()

    async def patch(self, path: str, body: JsonObject) -> None:
        """Send a patch, alone or merged with others; return when it is done, or raise its error.

        Raises ``StillRefused``, perhaps without sending it, where the one before was refused.
        """
        if self._refusals.is_backing_off(path):
            raise StillRefused(0, "", f"{path}: a patch was refused and is not repeated yet")
        patch = self._requested(path, body)
        patch.waiters += 1
        try:
            async with patch.sending:
                # Another caller may have sent it, or may have been cancelled while it did.
                if not patch.done.is_set():
                    await self._send_in_turn(path, patch)
                elif patch.error is not None:
                    raise patch.error
        finally:
            patch.waiters -= 1
            if not patch.waiters:
                patch.done.set()
                patch.error = None  # its traceback refers to this frame, and so to the patch
                # Patches of one pod that are cancelled together end in any order.
                if self._last.get(path) is patch:
                    del self._last[path]

    def _requested(self, path: str, body: JsonObject) -> _Patch:
        """Return the patch that is to be sent for a request: a waiting one, or a new one."""
        last = self._last.get(path)
        if last is not None and not last.begun:
            merged = merge_status_patches(last.body, body)
            if merged is not None:
                last.body = merged
                return last
        self._last[path] = patch = _Patch(body, last)
        return patch

    async def _send_in_turn(self, path: str, patch: _Patch) -> None:
        if patch.before is not None:
            await patch.before.done.wait()
            patch.before = None  # else each would keep all earlier ones alive
        patch.begun = True
        try:
            await self._send(path, patch.body)
        except ApiError as error:
            patch.error = self._refused(path, error)
            patch.done.set()
            raise patch.error from None
        self._refusals.succeeded(path)
        patch.done.set()

    def _refused(self, path: str, error: ApiError) -> ApiError:
        """Record that a patch failed, and return the error to raise."""
        # No answer is no refusal, and a pod that is gone is not patched again.
        if not error.status or isinstance(error, NotFound):
            self._refusals.succeeded(path)
            return error
        count, _ = self._refusals.failed(path)
        return error if count == 1 else StillRefused(error.status, error.reason, error.message)


def merge_status_patches(earlier: JsonObject, later: JsonObject) -> JsonObject | None:
    """Return a patch with the effect of both, one after the other; None where that is not known.

    They are strategic merge patches, in which conditions are merged by type.
    """
    if earlier.keys() != {"status"} or later.keys() != {"status"}:
        return None
    merged: JsonObject = {}
    conditions: dict[str, JsonObject] = {}
    for status in (earlier["status"], later["status"]):
        if not status.keys() <= _MERGEABLE:
            return None
        for condition in status.get("conditions", ()):
            if "$patch" in condition:
                return None
            kind = condition["type"]
            conditions[kind] = conditions.get(kind, {}) | condition
        merged |= status
    if conditions:
        merged["conditions"] = list(conditions.values())
    return {"status": merged}
