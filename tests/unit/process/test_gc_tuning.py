"""When the garbage collector runs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from proreus.process import gc_tuning
from proreus.process.gc_tuning import _mallopt


def test_resident_memory_is_read() -> None:
    assert sys.platform != "linux" or gc_tuning.resident_bytes() > 2**20


_ALLOCATE_IN_A_THREAD = """
import ctypes, sys, threading
from proreus.process.gc_tuning import use_one_heap

if sys.argv[1] == "one":
    use_one_heap()
malloc = ctypes.CDLL(None).malloc
malloc.restype = ctypes.c_size_t
addresses = []
thread = threading.Thread(target=lambda: addresses.append(malloc(ctypes.c_size_t(1_000))))
thread.start()
thread.join()
(heap,) = [line.split()[0] for line in open("/proc/self/maps") if line.endswith("[heap]\\n")]
start, end = (int(bound, 16) for bound in heap.split("-"))
print(start <= addresses[0] < end)
"""


@pytest.mark.skipif(_mallopt is None, reason="not glibc")
@pytest.mark.parametrize(("heaps", "same_heap"), [("one", "True"), ("several", "False")])
def test_threads_share_one_heap(heaps: str, same_heap: str) -> None:
    command = [sys.executable, "-c", _ALLOCATE_IN_A_THREAD, heaps]
    assert subprocess.check_output(command, text=True).strip() == same_heap
