"""Pods that are retried after a back-off: kube-scheduler's ``backoffQueue``.

Two heaps. Pods that a plugin rejected may be popped early when nothing else is to do. The others
may not: pods whose attempt ended in an error, since retries would load a failing apiserver, and
pods whose attempts take so long that they delay all others.

Expirations are cut to whole seconds of the monotonic clock, and ordered within a second like the
active queue: pods that become ready in the same second leave by priority (KEP-5142).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

from proreus.base.clock import Clock
from proreus.engine.queue.binary_heap import BinaryHeap, resorted
from proreus.engine.queue.keyed_heap import KeyedHeap
from proreus.framework.queued_pod_group import QueuedEntityInfo

NO_BACKOFF = -math.inf
_NANOSECONDS = 1_000_000_000
# A float clock that reaches a whole second by small steps may fall short of it by its last bits.
_CLOCK_TOLERANCE_SECONDS = 1e-6

_SECONDS_A_SECOND_OF_COST = 10.0
"""The back-off of a costly pod, as a multiple of the computing time of its last attempt."""
_MAX_OVERRUN_SECONDS = 300.0
"""The longest back-off after attempts that exceeded their time budget; each one doubles it."""


def whole_second(instant: float) -> int:
    """Return the second that an instant lies in."""
    return math.floor(instant + _CLOCK_TOLERANCE_SECONDS)


class BackoffQueue:
    """Pods by the end of their back-off: 1, 2, 4, 8, 10, 10 … seconds by default.

    ``whole_seconds`` False compares exact instants (feature gate SchedulerPopFromBackoffQ off).
    """

    def __init__(
        self,
        clock: Clock,
        sort_key: Callable[[Any], Any],
        initial_seconds: float,
        max_seconds: float,
        whole_seconds: bool = True,
    ) -> None:
        self._clock = clock
        self.set_limits(initial_seconds, max_seconds)
        self._whole_seconds = whole_seconds
        self._rejected: KeyedHeap[QueuedEntityInfo] | BinaryHeap[QueuedEntityInfo]
        self._rejected = KeyedHeap(self._by_expiration_and(sort_key))
        self._errors: KeyedHeap[QueuedEntityInfo] = KeyedHeap(self.expiration)

    def __len__(self) -> int:
        return len(self._rejected) + len(self._errors)

    def __contains__(self, key: object) -> bool:
        return key in self._rejected or key in self._errors

    @property
    def poppable(self) -> int:
        """How many pods may be taken out early."""
        return len(self._rejected)

    def expiration(self, queued: QueuedEntityInfo) -> float:
        """Return the last instant of a pod's back-off, in seconds, or ``NO_BACKOFF``."""
        # Cached until the next failed attempt: heaps compare it often, and a reload that changes
        # the limits must not move pods within a heap.
        if queued.backoff_expiration is None:
            seconds = self._duration_seconds(queued)
            if seconds is None:
                return NO_BACKOFF
            end = queued.timestamp + seconds
            queued.backoff_expiration = whole_second(end) if self._whole_seconds else end
        return queued.backoff_expiration

    def _duration_seconds(self, queued: QueuedEntityInfo) -> float | None:
        count = queued.consecutive_errors_count or queued.unschedulable_count
        if not (self._max and count):
            return None
        # Errors count for themselves: a pod that was rejected ten times and then meets one error
        # starts again at the initial back-off.
        # Integer nanoseconds, as in Go: doubling floats would miss kube-scheduler's limit.
        shift = count - 1
        longest = self._max
        # A group is dearer to try than a pod; the root keeps it from waiting for hours.
        if queued.size > 1:
            longest = int(longest * math.sqrt(queued.size))
        seconds = longest / _NANOSECONDS
        if self._initial <= longest >> shift:
            seconds = (self._initial << shift) / _NANOSECONDS
        return max(seconds, self._seconds_for_cost(queued)) if queued.costly else seconds

    def _seconds_for_cost(self, queued: QueuedEntityInfo) -> float:
        """Return the seconds that leave most of the scheduler's time to other pods."""
        seconds = _SECONDS_A_SECOND_OF_COST * queued.cost_seconds
        if not queued.consecutive_overruns:
            return min(seconds, self._max / _NANOSECONDS)
        doublings = min(queued.consecutive_overruns - 1, 30)
        return min(seconds * (1 << doublings), _MAX_OVERRUN_SECONDS)

    def is_backing_off(self, queued: QueuedEntityInfo) -> bool:
        """Return whether a pod still backs off; true in the very second of its expiration."""
        now = self._clock.monotonic()
        return self.expiration(queued) >= (whole_second(now) if self._whole_seconds else now)

    def get(self, key: str) -> QueuedEntityInfo | None:
        """Return a pod (``namespace/name``) or group by key, if it is here."""
        return self._rejected.get(key) or self._errors.get(key)

    def put(self, queued: QueuedEntityInfo) -> None:
        """Add a pod, or re-sort it after a change."""
        key = queued.key
        # An update leaves a pod in its heap: it changes the spec, not why the attempt failed.
        rejected = queued.unschedulable_plugins or queued.pending_plugins
        if key in self._errors or queued.costly or not rejected:
            self._errors.put(key, queued)
        else:
            self._rejected.put(key, queued)

    def discard(self, key: str) -> QueuedEntityInfo | None:
        """Remove and return a pod, if it is here."""
        return self._rejected.discard(key) or self._errors.discard(key)

    def pop(self) -> QueuedEntityInfo | None:
        """Remove and return the rejected pod whose back-off ends first, even if it is not over."""
        return self._rejected.pop()

    def pop_completed(self) -> list[QueuedEntityInfo]:
        """Remove and return all pods whose back-off is over: rejected ones, then the others."""
        completed = []
        for heap in (self._rejected, self._errors):
            while (head := heap.peek()) is not None and not self.is_backing_off(head):
                completed.append(head)
                heap.pop()
        return completed

    def keys(self) -> Iterable[str]:
        """Return the ``namespace/name`` of all pods."""
        return chain(self._rejected.keys(), self._errors.keys())

    def pods(self) -> list[QueuedEntityInfo]:
        """Return all pods, rejected ones first, each heap in its order."""
        return self._rejected.items() + self._errors.items()

    def set_limits(self, initial_seconds: float, max_seconds: float) -> None:
        """Use other limits for future back-offs, in seconds."""
        self._initial = round(initial_seconds * _NANOSECONDS)
        self._max = round(max_seconds * _NANOSECONDS)

    def set_sort_key(self, sort_key: Callable[[Any], Any], *, changing: bool = False) -> None:
        """Order by another queueSort plugin; ``changing``: see ``QueueSortPlugin``."""
        self._rejected = resorted(self._rejected, self._by_expiration_and(sort_key), changing)

    def _by_expiration_and(
        self, sort_key: Callable[[Any], Any]
    ) -> Callable[[QueuedEntityInfo], tuple[float, Any]]:
        return lambda queued: (self.expiration(queued), sort_key(queued))

    def validate(self) -> None:
        """Assert that each pod is in the heap that its rejectors call for."""
        self._rejected.validate()
        self._errors.validate()
        for queued in self._rejected.items():
            assert queued.rejectors, f"{queued.key} was rejected by nobody"
            assert queued.key not in self._errors, f"{queued.key} backs off twice"
        for queued in self._errors.items():
            assert queued.costly or not queued.rejectors, f"{queued.key} may be taken out early"
