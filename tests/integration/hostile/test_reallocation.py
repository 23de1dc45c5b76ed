"""Memory after large objects have come and gone, with the image's allocator."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from .allocator import allocator_environment

_SURVIVORS = """
import time
from proreus.gc_tuning import resident_bytes
from proreus.reallocation import reallocated

kept, others = [], []
for number in range(4_000):
    kept.append(f"a record that is kept for long {number:030}")
    others += [f"a part of something large {part:035}" for part in range(100)]
others.clear()
time.sleep(2.5)
before = resident_bytes()
kept = reallocated(kept)
time.sleep(2.5)
print(before, resident_bytes())
"""


def test_copies_of_what_is_kept_take_memory_that_is_in_use_anyway() -> None:
    allocator = allocator_environment()
    if not allocator:
        pytest.skip("libjemalloc2 is not installed")
    done = subprocess.run(
        [sys.executable, "-c", _SURVIVORS],
        env={**os.environ, **allocator},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "jemalloc" not in done.stderr  # it ignores settings that it does not know, and says so
    before, after = map(int, done.stdout.split())
    # 4,000 pages with one text each
    assert before - after > 10 * 2**20
