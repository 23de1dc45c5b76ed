"""Events that wait to be written, by namespace.

Whoever may create pods decides how many Events there are, and an admission webhook of one namespace
may hang. So namespaces take turns, and none may have more that wait, or that are being written,
than are left of the room for all.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Generic, TypeVar

T = TypeVar("T")


class EventQueue(Generic[T]):
    """A queue for each namespace, which alone may use ``capacity`` and ``workers``.

    There is room for twice as much in all.
    """

    def __init__(self, capacity: int, workers: int) -> None:
        self._capacity = 2 * capacity
        self.workers = 2 * workers
        """The number of Events that may be written at a time."""
        self._waiting: dict[str, deque[T]] = {}
        self._length = 0
        self._writing: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._length

    def put(self, namespace: str, event: T) -> bool:
        """Add an Event; return False if there is no room for it."""
        queue = self._waiting.get(namespace)
        if (len(queue) if queue else 0) >= self._capacity - self._length:
            return False
        if queue is None:
            queue = self._waiting[namespace] = deque()
        queue.append(event)
        self._length += 1
        return True

    def take(self) -> T | None:
        """Return the Event to write next, if one may be; ``done`` must follow."""
        free = self.workers - self._writing.total()
        namespace = next((name for name in self._waiting if self._writing[name] < free), None)
        if namespace is None:
            return None
        queue = self._waiting.pop(namespace)
        event = queue.popleft()
        if queue:
            self._waiting[namespace] = queue  # at the end
        self._length -= 1
        self._writing[namespace] += 1
        return event

    def done(self, namespace: str) -> None:
        """Record that an Event of a namespace is written, or given up."""
        self._writing[namespace] -= 1
        if not self._writing[namespace]:
            del self._writing[namespace]
