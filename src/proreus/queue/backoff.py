"""Pods that failed and are to be tried again when a little time has passed.

Two heaps: pods that a plugin rejected, which may be taken out early when there is nothing else to
do, and pods which may not: those whose attempt ended in an error, since an ailing apiserver is to
be spared, and those whose attempts take so long that others notice.

Time is cut to whole wall-clock seconds, in which order pods by the active queue's order: pods that
become ready in the same second leave by priority, not by the fraction of the second (KEP-5142).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from proreus.clock import Clock
from proreus.framework.pod_info import QueuedPodInfo
from proreus.queue.keyed_heap import KeyedHeap

NO_BACKOFF = -math.inf
_NANOSECONDS = 1_000_000_000
# A float clock that reaches a whole second by small steps may fall short of it by its last bits.
_CLOCK_TOLERANCE_SECONDS = 1e-6

_SECONDS_A_SECOND_OF_COST = 10.0
"""A pod whose attempts others notice waits so many times as long as its last attempt took."""
_MAX_OVERRUN_SECONDS = 300.0
"""The longest wait after an attempt that was ended because it took too long; until then each
doubles it."""


def whole_second(instant: float) -> int:
    """Return the wall-clock second that an instant lies in."""
    return math.floor(instant + _CLOCK_TOLERANCE_SECONDS)


class BackoffQueue:
    """Pods by the end of their back-off: 1, 2, 4, 8, 10, 10 … seconds by default.

    ``whole_seconds`` False compares exact instants (feature gate SchedulerPopFromBackoffQ off).
    """

    def __init__(
        self,
        clock: Clock,
        sort_key: Callable[[QueuedPodInfo], Any],
        initial_seconds: float,
        max_seconds: float,
        whole_seconds: bool = True,
    ) -> None:
        self._clock = clock
        self.set_limits(initial_seconds, max_seconds)
        self._whole_seconds = whole_seconds
        self._rejected: KeyedHeap[QueuedPodInfo] = KeyedHeap(self._by_expiration_and(sort_key))
        self._errors: KeyedHeap[QueuedPodInfo] = KeyedHeap(self.expiration)

    def __len__(self) -> int:
        return len(self._rejected) + len(self._errors)

    def __contains__(self, key: object) -> bool:
        return key in self._rejected or key in self._errors

    @property
    def poppable(self) -> int:
        """How many pods may be taken out early."""
        return len(self._rejected)

    def expiration(self, queued: QueuedPodInfo) -> float:
        """Return when the back-off of a pod ends; cached in it until its next failed attempt.

        The instant is the last one that still counts as backing off. ``NO_BACKOFF``: no back-off.
        """
        if queued.backoff_expiration is None:
            seconds = self._duration_seconds(queued)
            if seconds is None:
                return NO_BACKOFF
            end = queued.timestamp + seconds
            queued.backoff_expiration = whole_second(end) if self._whole_seconds else end
        return queued.backoff_expiration

    def _duration_seconds(self, queued: QueuedPodInfo) -> float | None:
        count = queued.consecutive_errors_count or queued.unschedulable_count
        if not (self._max and count):
            return None
        shift = count - 1
        seconds = self._max / _NANOSECONDS
        if self._initial <= self._max >> shift:
            seconds = (self._initial << shift) / _NANOSECONDS
        return max(seconds, self._seconds_for_cost(queued)) if queued.costly else seconds

    def _seconds_for_cost(self, queued: QueuedPodInfo) -> float:
        """Return the wait that leaves the scheduler to other pods most of the time."""
        seconds = _SECONDS_A_SECOND_OF_COST * queued.cost_seconds
        if not queued.consecutive_overruns:
            return min(seconds, self._max / _NANOSECONDS)
        doublings = min(queued.consecutive_overruns - 1, 30)
        return min(seconds * (1 << doublings), _MAX_OVERRUN_SECONDS)

    def is_backing_off(self, queued: QueuedPodInfo) -> bool:
        """Tell whether a pod has to wait yet; in the second in which its back-off ends it has."""
        now = self._clock.now()
        return self.expiration(queued) >= (whole_second(now) if self._whole_seconds else now)

    def get(self, key: str) -> QueuedPodInfo | None:
        """Return a pod by ``namespace/name``, if it is here."""
        return self._rejected.get(key) or self._errors.get(key)

    def put(self, queued: QueuedPodInfo) -> None:
        """Add a pod, or re-sort it after a change."""
        key = queued.key
        rejected = queued.unschedulable_plugins or queued.pending_plugins
        if key in self._errors or queued.costly or not rejected:
            self._errors.put(key, queued)
        else:
            self._rejected.put(key, queued)

    def discard(self, key: str) -> QueuedPodInfo | None:
        """Remove and return a pod, if it is here."""
        return self._rejected.discard(key) or self._errors.discard(key)

    def pop(self) -> QueuedPodInfo | None:
        """Take out the rejected pod that is nearest to the end of its back-off, over or not."""
        return self._rejected.pop()

    def pop_completed(self) -> list[QueuedPodInfo]:
        """Take out all pods whose back-off is over: those that were rejected, then the errors."""
        completed = []
        for heap in (self._rejected, self._errors):
            while (head := heap.peek()) is not None and not self.is_backing_off(head):
                completed.append(head)
                heap.pop()
        return completed

    def pods(self) -> list[QueuedPodInfo]:
        """Return all pods, those that were rejected first, each heap in its order."""
        return self._rejected.items() + self._errors.items()

    def set_limits(self, initial_seconds: float, max_seconds: float) -> None:
        """Back off by other limits; a back-off that has begun keeps its end."""
        self._initial = round(initial_seconds * _NANOSECONDS)
        self._max = round(max_seconds * _NANOSECONDS)

    def set_sort_key(self, sort_key: Callable[[QueuedPodInfo], Any]) -> None:
        """Order by another queueSort plugin."""
        self._rejected.set_sort_key(self._by_expiration_and(sort_key))

    def _by_expiration_and(
        self, sort_key: Callable[[QueuedPodInfo], Any]
    ) -> Callable[[QueuedPodInfo], tuple[float, Any]]:
        return lambda queued: (self.expiration(queued), sort_key(queued))

    def validate(self) -> None:
        """Assert that each pod is in the heap that its rejecters call for."""
        self._rejected.validate()
        self._errors.validate()
        for queued in self._rejected.items():
            assert queued.rejectors, f"{queued.key} was rejected by nobody"
            assert queued.key not in self._errors, f"{queued.key} backs off twice"
        for queued in self._errors.items():
            assert queued.costly or not queued.rejectors, f"{queued.key} may be taken out early"
