"""Sends patches of pods' statuses; the patches of one pod are sent one after another.

In flight together, the apiserver could apply an older one last, and the pod would keep an outdated
condition or nomination. A pod may fail again and again while the apiserver takes long to answer:
what is requested while a patch waits for its turn is merged into it, so that there are at most two.

What an attempt reports (the condition PodScheduled, the nomination) is requested again at every
attempt of the pod, several times a second in a busy cluster. So after the apiserver has refused a
report, later ones are held during a pause; at its end they are sent as one. All other patches, such
as the condition of a victim or the statuses of claims, are sent at once: their callers go on only
after them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from msgspec import Struct, field

from proreus.base.errors import ApiError
from proreus.base.logs import logger
from proreus.base.repeated_failures import RefusalPause
from proreus.objects.meta import JsonObject
from proreus.objects.pod import POD_SCHEDULED

log = logger(__name__)

_MERGEABLE = {"conditions", "nominatedNodeName"}
"""Fields of the status that a later patch states anew, alone or by type of condition."""


class StillRefused(ApiError):
    """The reports of a pod were refused before: this one was refused too, or is held."""


class Target(NamedTuple):
    """The pod to patch. Another pod of its name has another UID, and starts anew."""

    path: str
    uid: str


class _Patch(Struct):
    """A patch that has not been answered, which waits for the patch ``before`` it.

    ``report``: of an attempt, see ``_is_report``.
    ``waiters``: how many callers wait for it. ``sending``: held by the one of them that sends it.
    """

    body: JsonObject
    before: _Patch | None
    report: bool
    waiters: int = 0
    begun: bool = False
    done: asyncio.Event = field(default_factory=asyncio.Event)
    sending: asyncio.Lock = field(default_factory=asyncio.Lock)
    error: ApiError | None = None


class _Held(Struct):
    """The reports requested during a pause, merged; ``sending`` sends them at its end."""

    body: JsonObject
    sending: asyncio.Task[None]


class PodPatches:
    """Sends patches by ``send(path, patch)``, which raises ``ApiError``."""

    def __init__(self, send: Callable[[str, JsonObject], Awaitable[Any]]) -> None:
        self._send = send
        # The patch that was requested last.
        self._last: dict[Target, _Patch] = {}
        self._held: dict[Target, _Held] = {}
        self._refusals: RefusalPause[Target] = RefusalPause(
            lambda: asyncio.get_running_loop().time()
        )

    def __len__(self) -> int:
        """Return the number of pods with unfinished patches."""
        return len(self._last)

    async def wait(self, target: Target) -> None:
        """Return once the patches of a pod that were requested before are done.

        Those that are held are dropped: the binding that follows makes them untrue.
        """
        if (held := self._held.pop(target, None)) is not None:
            held.sending.cancel()
        if (last := self._last.get(target)) is not None:
            await last.done.wait()

    async def patch(self, target: Target, body: JsonObject) -> None:
        """Send a patch, alone or merged with others; return when it is done, or raise its error.

        Raises ``StillRefused`` for a report where the one before was refused: this one was refused
        too, or it is sent at the end of the pause.
        """
        report = _is_report(body)
        if report and (seconds := self._refusals.seconds_left(target)):
            self._hold(target, body, seconds)
            raise StillRefused(0, "", f"{target.path}: a patch was refused; this one is held")
        await self._patch(target, body, report)

    def _hold(self, target: Target, body: JsonObject, seconds: float) -> None:
        held = self._held.get(target)
        if held is None:
            sending = asyncio.get_running_loop().create_task(self._send_held(target, seconds))
            self._held[target] = _Held(body, sending)
        else:
            held.body = merge_status_patches(held.body, body) or body

    async def _send_held(self, target: Target, seconds: float) -> None:
        await asyncio.sleep(seconds)
        body = self._held.pop(target).body
        try:
            # With the UID: by now another pod may have the name.
            await self._patch(target, {"metadata": {"uid": target.uid}, **body}, True)
        except ApiError as error:
            # As with any report, the pod's next attempt requests it again.
            log.v(2).info("Held status patch failed", path=target.path, err=error)

    async def _patch(self, target: Target, body: JsonObject, report: bool) -> None:
        patch = self._requested(target, body, report)
        patch.waiters += 1
        try:
            async with patch.sending:
                # Another caller may have sent it, or may have been cancelled while it did.
                if not patch.done.is_set():
                    await self._send_in_turn(target, patch)
                elif patch.error is not None:
                    raise patch.error
        finally:
            patch.waiters -= 1
            if not patch.waiters:
                patch.done.set()
                patch.error = None  # its traceback refers to this frame, and so to the patch
                # Patches of one pod that are cancelled together end in any order.
                if self._last.get(target) is patch:
                    del self._last[target]

    def _requested(self, target: Target, body: JsonObject, report: bool) -> _Patch:
        """Return the patch that is to be sent for a request: a waiting one, or a new one."""
        last = self._last.get(target)
        # A report that is refused must not take another patch with it.
        if last is not None and not last.begun and last.report == report:
            merged = merge_status_patches(last.body, body)
            if merged is not None:
                last.body = merged
                return last
        self._last[target] = patch = _Patch(body, last, report)
        return patch

    async def _send_in_turn(self, target: Target, patch: _Patch) -> None:
        if patch.before is not None:
            await patch.before.done.wait()
            patch.before = None  # else each would keep all earlier ones alive
        patch.begun = True
        try:
            await self._send(target.path, patch.body)
        except ApiError as error:
            patch.error = error
            if patch.report and self._refusals.write_failed(target, error.status):
                patch.error = StillRefused(error.status, error.reason, error.message)
            patch.done.set()
            raise patch.error from None
        if patch.report:
            self._refusals.succeeded(target)
        patch.done.set()


def _is_report(body: JsonObject) -> bool:
    """Return whether a patch states nothing but the result of an attempt, as the next one does."""
    if body.keys() != {"status"} or not body["status"].keys() <= _MERGEABLE:
        return False
    conditions = body["status"].get("conditions", ())
    return all("$patch" not in one and one["type"] == POD_SCHEDULED for one in conditions)


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
