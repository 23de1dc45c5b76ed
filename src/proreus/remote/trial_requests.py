"""Requests that were made for pods, kept to be sent again while a process does not respond.

A process may answer its health page while requests about pods hang. What proves that it responds is
hence such a request. It is sent again in the background, so that no pod waits for the answer.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from proreus.remote import wire
from proreus.remote.snapshot import Snapshot

WITHOUT_EFFECT = frozenset({"/v1/pre-filter", "/v1/filter", "/v1/score"})
"""Requests that change nothing in the process. Others, sent again, would act for a pod that may be
gone, or have another node by now."""

_MOST_REFUSED = 1_000


class TrialRequest(NamedTuple):
    """A request about a pod. ``rows``: None for all rows, and for requests without rows."""

    path: str
    profile: str
    pod: bytes
    rows: wire.Wire | None

    def body(self, snapshot: Snapshot, arrays: wire.Arrays) -> bytes:
        """Return the body for the rows that there are by now."""
        body: dict[str, Any] = {
            "profile": self.profile,
            "pod": msgspec.Raw(self.pod),
            "snapshot": snapshot.id,
            "version": snapshot.version,
        }
        if self.path != "/v1/pre-filter":
            body["rows"] = None
            if self.rows is not None:
                rows = wire.int_array("rows", self.rows)
                body["rows"] = wire.array(rows[rows < snapshot.size], arrays)
        return wire.encode(body)


class TrialRequests:
    """The requests of one process that may be sent again, and the requests that it never answers.

    ``unanswered``: the last request that got no answer, if that may be sent again.
    """

    def __init__(self) -> None:
        self.unanswered: TrialRequest | None = None
        self._answered: TrialRequest | None = None
        self._pods: tuple[tuple[str, bytes], ...] = ()
        self._refused: OrderedDict[tuple[str, str, int], float] = OrderedDict()

    def forget(self) -> None:
        """Treat the process as another one."""
        self.unanswered = self._answered = None
        self._pods = ()
        self._refused.clear()

    def add_pod(self, profile: str, pod: bytes) -> None:
        """Record a pod that requests are made for, or would be if the process responded."""
        if not self._pods or self._pods[0][1] != pod:
            self._pods = ((profile, pod), *self._pods[:1])

    def add_answered(self, path: str, body: Mapping[str, Any]) -> None:
        """Record a request that was answered."""
        if path in WITHOUT_EFFECT:
            self._answered = _trial_request(path, body)

    def add_unanswered(self, path: str, body: Mapping[str, Any]) -> None:
        """Record a request that got no answer."""
        if path in WITHOUT_EFFECT:
            self.unanswered = _trial_request(path, body)

    def candidates(self) -> tuple[TrialRequest | None, TrialRequest | None]:
        """Return the request to send again, and the same one about another pod; None without one.

        Where no unanswered request may be sent again, it is the last one that was answered.
        """
        first = self.unanswered or self._answered
        if first is None:
            return None, None
        others = (known for known in self._pods if known[1] != first.pod)
        profile, pod = next(others, ("", b""))
        return first, first._replace(profile=profile, pod=pod) if pod else None

    # ---- requests that are never answered ------------------------------------------------------

    def refuse(self, request: TrialRequest, epoch: str, seconds: float) -> None:
        """Refuse requests with the same path and pod for a time, or until another epoch."""
        key = (epoch, request.path, hash(request.pod))
        self._refused[key] = asyncio.get_running_loop().time() + seconds
        self._refused.move_to_end(key)
        if len(self._refused) > _MOST_REFUSED:
            self._refused.popitem(last=False)

    def is_refused(self, path: str, body: Mapping[str, Any], epoch: str) -> bool:
        """Return whether a request has the path and pod of one that is refused."""
        if not self._refused or path not in WITHOUT_EFFECT:
            return False
        now = asyncio.get_running_loop().time()
        return self._refused.get((epoch, path, hash(bytes(body["pod"]))), now) > now


def _trial_request(path: str, body: Mapping[str, Any]) -> TrialRequest:
    return TrialRequest(path, body["profile"], bytes(body["pod"]), body.get("rows"))
