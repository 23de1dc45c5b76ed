"""Settings of garbage collector and allocator for a scheduler's heap."""

from __future__ import annotations

import ctypes
import gc
import os
import sys


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
