"""Settings of garbage collector and allocator for a scheduler's heap."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from time import perf_counter


def collect_rarely_at_start() -> None:
    """Let imports and first lists allocate almost without collections; call at the very start."""
    # Hardly anything that a start allocates is garbage, and each collection would walk it.
    gc.set_threshold(200_000, 50, 1_000)


def freeze_startup_heap() -> None:
    """Exempt all present objects from collection; call once all informers are synced."""
    # Most of these objects live as long as the process, and hardly any form reference cycles: full
    # collections would walk the whole cluster again and again, and block the event loop. What is
    # garbage by now stays for good; it is left by imports, about 1 MB, and not worth the tenth of
    # a second that a collection takes here.
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def collect_between_cycles() -> None:
    """Collect the second generation if much has come into it; call where no pod is tried."""
    # On its own it would be collected while an object is allocated: in the middle of the attempt
    # to schedule a pod of a megabyte, whose parts make it 40 ms, on top of the attempt's own 70.
    if gc.get_count()[1] >= _MANY_FIRST_GENERATIONS:
        gc.collect(1)


_MANY_FIRST_GENERATIONS = 4
"""So rarely that objects of one attempt are not taken for old ones."""


class CollectionAfterPeak:
    """A collection of everything, once memory has fallen from a peak."""

    # It is less for the garbage than for what Python keeps of freed tuples for the next ones, two
    # thousand of each length: after large objects they lie among what is free otherwise, and each
    # keeps a page. Only a full collection gives them back.

    def __init__(self) -> None:
        self._peak_bytes = 0
        self._not_before = self._falling_until = 0.0
        self._last_at: float | None = None
        self._fallen_to = 0
        self._waits_since: float | None = None

    def collect_if_fallen(self) -> bool:
        """Collect if memory is less than at its peak since the last time; call between cycles.

        Collects once more when memory has not fallen further for a while. Returns whether it did.
        """
        resident = resident_bytes()
        if not resident:
            return False
        self._peak_bytes = max(self._peak_bytes, resident)
        started = perf_counter()
        # What falls further, as caches age, leaves holes again between what was copied by then.
        falling = started < self._falling_until
        limit = _FALLEN_FURTHER if falling else _FALLEN
        fallen = resident <= limit * self._peak_bytes
        if not fallen and not self._last_is_due(started, resident):
            return False
        if started < self._not_before:
            return False
        if collection_is_long():
            self._waits_since = self._waits_since or started
            if started < self._waits_since + _LONGEST_WAIT_SECONDS:
                return False
        self._waits_since = None
        gc.collect()
        ended = perf_counter()
        self._not_before = ended + (ended - started) * _TIMES_APART
        self._peak_bytes = self._fallen_to = resident
        self._last_at = None
        if fallen:
            self._falling_until = started + _FALLING_SECONDS
            self._last_at = ended + _LAST_SECONDS
        return True

    def _last_is_due(self, now: float, resident: int) -> bool:
        """Return whether it is time for the last collection after a fall."""
        if self._last_at is None or now < self._last_at:
            return False
        # Large objects have come again, or are still there: what is copied now would lie among
        # them.
        if resident > _RISEN * self._fallen_to or collection_is_long():
            self._last_at = None
            return False
        return True


def collection_is_long() -> bool:
    """Return whether so much is tracked that a collection of everything delays pods."""
    return len(gc.get_objects()) > _MANY_OBJECTS


_MANY_OBJECTS = 120_000
"""Of which a collection takes some 50 ms; of a cluster of 5,000 nodes 40,000 are tracked."""
_LONGEST_WAIT_SECONDS = 600.0
"""For there to be fewer objects: large ones are gone once memory falls further."""
_FALLEN, _FALLEN_FURTHER = 0.95, 0.98
_FALLING_SECONDS = 300.0
"""For how long after a fall one further is looked for: caches are empty again by then."""
_LAST_SECONDS = 30.0
"""After a fall, if none follows: its last few per cent are too small to count as one."""
_RISEN = 1.02
_TIMES_APART = 1_000
"""A collection takes a thousandth of the time, at most."""


def resident_bytes() -> int:
    """Return how much memory this process has; 0 where that is not known."""
    try:
        with open("/proc/self/statm", "rb") as sizes:
            return int(sizes.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def use_one_heap() -> None:
    """Let all threads allocate from one heap, on glibc; call at the very start."""
    # Otherwise each thread gets a heap of its own, whose free end glibc never returns: 12 MiB after
    # a thread has decoded the largest objects. Threads that hold Python's global lock while they
    # allocate do not contend for it.
    if _mallopt is not None:
        _mallopt(_M_ARENA_MAX, 1)


_M_ARENA_MAX = -8
"""From glibc's malloc.h."""


def return_free_memory() -> None:
    """Return memory that nothing uses to the operating system, where the C library can."""
    # glibc keeps what lies between blocks in use: after large objects have come and gone, a
    # multiple of what is needed. Takes 0.1 ms, or tens of milliseconds after hundreds of megabytes.
    if _malloc_trim is not None:
        _malloc_trim(0)


_libc = ctypes.CDLL(None) if sys.platform == "linux" else None
_malloc_trim = getattr(_libc, "malloc_trim", None)
# musl has neither; a name that only glibc has tells whose mallopt it is.
_mallopt = getattr(_libc, "mallopt", None) if _malloc_trim is not None else None
