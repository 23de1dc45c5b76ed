"""What may happen to one request, drawn at random by its step."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from dataclasses import dataclass

from fault_run import steps

CUT, DELAY, HALF_ANSWER, LOST_ANSWER, LATE = "cut", "delay", "half answer", "lost answer", "late"
REFUSAL, PAGE, PAGE_200 = "refusal", "HTML page", "HTML page with 200"

REQUEST_FAULTS = {
    CUT: 3,
    DELAY: 3,
    HALF_ANSWER: 2,
    LOST_ANSWER: 4,
    LATE: 2,
    REFUSAL: 5,
    PAGE: 2,
    PAGE_200: 1,
}
"""Weights of the kinds. ``LATE``: the connection breaks, and then the request is processed."""

REFUSALS = (401, 409, 429, 429, 500, 502, 503, 504)

STALL, LONG_STALL, REPEAT, END, CUT_LINE = "stall", "long stall", "repeat", "end", "cut mid-line"
JUMP_BACK, EXPIRED, GARBAGE = "jump back", "410 in the stream", "no JSON in the stream"

WATCH_FAULTS = {
    STALL: 3,
    LONG_STALL: 1,
    REPEAT: 3,
    END: 2,
    CUT_LINE: 2,
    JUMP_BACK: 2,
    EXPIRED: 1,
    GARBAGE: 1,
}

LONGEST_DELAY_SECONDS = 0.9
"""Less than the second by which the fence closes before the Lease ends. What arrives later than
that may meet the successor, and nothing but the apiserver can prevent it."""

LONGEST_STALL_SECONDS = 2.5
"""Less than a successor waits for the Lease: its own view has caught up by then."""

_LOOK_SECONDS = 0.1

PAGE_BODY = b"<!DOCTYPE html><html><title>Sign in</title><body>Please sign in.</body></html>"


@dataclass(frozen=True)
class RequestFault:
    """A fault of one request or watch; ``seconds`` is its delay or duration."""

    kind: str
    seconds: float = 0.0
    status: int = 0


class FaultSource:
    """Draws faults while ``active``, and counts them by kind.

    ``shares``: the probability of a fault, by step; 0 for others. ``watch_seconds``: mean time
    until a watch gets one.
    """

    def __init__(
        self, rng: random.Random, shares: dict[str, float], watch_seconds: float = 12.0
    ) -> None:
        self.active = False
        self.drawn: Counter[str] = Counter()
        self._rng = rng
        self._shares = shares
        self._watch_seconds = watch_seconds

    def for_request(self, step: str) -> RequestFault | None:
        """Return what happens to a request, None for nothing."""
        if not self.active or self._rng.random() >= self._shares.get(step, 0.0):
            return None
        kinds = {k: w for k, w in REQUEST_FAULTS.items() if _suits(k, step)}
        [kind] = self._rng.choices(list(kinds), list(kinds.values()))
        return RequestFault(
            kind, self._rng.uniform(0.05, LONGEST_DELAY_SECONDS), self._rng.choice(REFUSALS)
        )

    def for_watch(self, leads: bool) -> RequestFault | None:
        """Return the next fault of a watch, None while faults are off.

        Only the view of the leader is ever outdated for longer than a Lease: see
        ``LONGEST_STALL_SECONDS``.
        """
        if not self.active:
            return None
        kinds = {k: w for k, w in WATCH_FAULTS.items() if leads or k != LONG_STALL}
        [kind] = self._rng.choices(list(kinds), list(kinds.values()))
        seconds = self._rng.uniform(0.2, LONGEST_STALL_SECONDS)
        return RequestFault(kind, 8.0 if kind == LONG_STALL else seconds)

    def next_watch_fault_seconds(self) -> float:
        """Return after how long a watch gets its next fault."""
        return self._rng.expovariate(1 / self._watch_seconds)

    async def pause(self, seconds: float) -> None:
        """Wait, but not for longer than faults are active."""
        for _ in range(int(seconds / _LOOK_SECONDS)):
            if not self.active:
                return
            await asyncio.sleep(_LOOK_SECONDS)

    def count(self, fault: RequestFault) -> None:
        """Count a fault that took place."""
        self.drawn[f"{fault.kind} {fault.status}" if fault.kind == REFUSAL else fault.kind] += 1


def _suits(kind: str, step: str) -> bool:
    """Return whether a kind of fault makes sense for a step."""
    if step == steps.WATCH:  # what happens to its answer is ``for_watch``
        return kind not in (LATE, LOST_ANSWER, HALF_ANSWER)
    return kind != LATE or step not in (steps.READ, steps.LEASE, steps.REVIEW)


def refusal_body(status: int) -> bytes:
    """Return a Status as the apiserver would send it."""
    return json.dumps(
        {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "message": f"injected fault {status}",
            "reason": {401: "Unauthorized", 409: "Conflict", 429: "TooManyRequests"}.get(
                status, "InternalError"
            ),
            "code": status,
        }
    ).encode()
