"""Keeps the latest records, and the last one of every pod that still waits.

The oldest records go first. If those of waiting pods alone exceed the budget, they are reduced to
how many nodes each plugin rejected, and only then dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from proreus.insight.decisions.record import DecisionRecord

DEFAULT_BUDGET_BYTES = 64 * 2**20

_BYTES_A_COUNT = 100
_BYTES_REDUCED = 700


class KeptRecords:
    """The records of recent attempts. ``waits(key)``: whether a pod waits to be scheduled.

    ``len`` and iteration: of all, the oldest first.
    """

    # Invariants: ``_latest`` has the last record of each pod; a record is in one of ``_recent``,
    # ``_waiting`` and ``_reduced``; ``size_bytes`` is the sum over all of them, and of the
    # results and names of nodes that they refer to.

    def __init__(self, waits: Callable[[str], bool], budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self.size_bytes = 0
        self.attempts = 0
        """The number of recorded attempts."""
        self._waits = waits
        self._recent: deque[DecisionRecord] = deque()
        self._latest: dict[str, DecisionRecord] = {}
        self._waiting: dict[str, DecisionRecord] = {}
        """Older records of pods that wait, by ``namespace/name``."""
        self._reduced: dict[str, DecisionRecord] = {}
        """Records that had to give up their rows."""

    def __len__(self) -> int:
        return len(self._recent) + len(self._waiting) + len(self._reduced)

    def __iter__(self) -> Iterator[DecisionRecord]:
        yield from self._reduced.values()
        yield from self._waiting.values()
        yield from self._recent

    def latest(self, key: str) -> DecisionRecord | None:
        """Return the record of a pod's last attempt, by ``namespace/name``, or None if it is not
        kept.
        """
        return self._latest.get(key)

    def of(self, key: str) -> list[DecisionRecord]:
        """Return the records of a pod that are kept, the latest first: O(records)."""
        found = [record for record in reversed(self._recent) if record.key == key]
        older = self._waiting.get(key) or self._reduced.get(key)
        return found if older is None else [*found, older]

    def add(self, record: DecisionRecord) -> None:
        """Add the record of an attempt."""
        key = record.key
        self.attempts += 1
        self.size_bytes += record.size_bytes + record.names.retain()
        if record.results is not None:
            self.size_bytes += record.results.retain()
        # Before it is added: its pod is not back in the queue yet, and would not count as waiting.
        if self.size_bytes > self.budget_bytes:
            self._evict()
        self._recent.append(record)
        self._latest[key] = record
        # The record kept for a waiting pod is no longer its last attempt.
        if self._waiting and (before := self._waiting.pop(key, None)) is not None:
            self._drop(before)
        if self._reduced and (before := self._reduced.pop(key, None)) is not None:
            self._drop(before)

    def add_failure(self, record: DecisionRecord) -> None:
        """Add a failed attempt; one that failed just as the one before is only counted."""
        before = self._latest.get(record.key)
        if before is None or not before.same_failure(record):
            self.add(record)
            return
        self.attempts += 1
        before.count += 1
        before.at, before.seconds = record.at, record.seconds
        before.configuration = record.configuration

    def _evict(self) -> None:
        while self.size_bytes > self.budget_bytes and len(self):
            if self._recent:
                record = self._recent.popleft()
                kept = self._still_waits(record)
                if kept:
                    self._waiting[record.key] = record
            elif self._waiting:
                record = self._waiting.pop(next(iter(self._waiting)))
                kept = self._still_waits(record)
                if kept:
                    self._reduced[record.key] = record
                    self._reduce(record)
            else:
                record, kept = self._reduced.pop(next(iter(self._reduced))), False
            if not kept:
                self._drop(record)

    def _still_waits(self, record: DecisionRecord) -> bool:
        return (
            record.failure is not None
            and self._latest.get(record.key) is record
            and self._waits(record.key)
        )

    def _drop(self, record: DecisionRecord) -> None:
        self.size_bytes -= record.size_bytes + record.release() + record.names.release()
        if self._latest.get(record.key) is record:
            del self._latest[record.key]

    def _reduce(self, record: DecisionRecord) -> None:
        """Keep how many nodes each plugin rejected, and no rows."""
        results, failure, before = record.results, record.failure, record.size_bytes
        if results is None or failure is None:
            return
        failure.counts = results.verdicts.counts(len(record.names))
        freed = record.release()
        record.size_bytes = len(failure.message) + _BYTES_REDUCED
        record.size_bytes += _BYTES_A_COUNT * len(failure.counts)
        self.size_bytes += record.size_bytes - before - freed

    def validate(self) -> None:
        """Assert the invariants; for tests."""
        records = list(self)
        assert len({id(record) for record in records}) == len(records), "a record is kept twice"
        for key, record in self._latest.items():
            assert record.key == key, f"{record.key} is the latest of {key}"
            assert record in records, f"the latest record of {key} is not kept"
        results = {id(r.results): r.results.size_bytes for r in records if r.results is not None}
        names = {id(record.names): record.names.size_bytes for record in records}
        size_bytes = sum(record.size_bytes for record in records)
        size_bytes += sum(results.values()) + sum(names.values())
        assert size_bytes == self.size_bytes, f"{self.size_bytes} bytes counted, not {size_bytes}"
