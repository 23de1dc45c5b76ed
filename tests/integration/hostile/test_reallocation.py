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

_RECORDS = """
import gc, math, time
from proreus.decisions.attempt_scores import KeptScores
from proreus.decisions.node_names import NodeNames
from proreus.decisions.record import DecisionRecord, FailureRecord, Victim
from proreus.decisions.retention import KeptRecords
from proreus.framework.status import Status
from proreus.gc_tuning import resident_bytes

kept, names, others = KeptRecords(lambda key: True, 2**26), NodeNames(["a"]), []
for number in range(1_350):
    victims = tuple(Victim(f"default/victim-{number}-{n}", f"uid-{n}", n) for n in range(3))
    plugins = tuple(f"Plugin{number}-{n}" for n in range(number % 5))
    status = Status.unschedulable(f"reason {number}", f"another {number}")
    failure = FailureRecord(status, f"message {number}", plugins, victims=victims)
    record = DecisionRecord(f"default/pod-{number}", f"uid-{number}", "p", 1, 1.5, 1.5, 0.1, names)
    record.failure = failure
    scores = tuple((f"Plugin{n}", 1, None, n) for n in range(8))
    record.scores = KeptScores(scores, None, None)
    kept.add(record)
    others += [f"a part of something large {part:035}" for part in range(6_000)]
    if number % 150 == 149:
        others.clear()
time.sleep(2.5)
before = resident_bytes()
# as the scheduler does after each fall of memory, of which there are several after a peak
for _ in range(2):
    gc.collect()
    for _ in kept.reallocate(math.inf):
        pass
    gc.collect()
time.sleep(2.5)
print(before, resident_bytes())
"""


def test_copies_of_what_is_kept_take_memory_that_is_in_use_anyway() -> None:
    before, after = resident_before_and_after(_SURVIVORS)
    # 4,000 pages with one text each
    assert before - after > 10 * 2**20


def test_copies_of_records_are_not_made_of_tuples_that_were_freed() -> None:
    before, after = resident_before_and_after(_RECORDS)
    assert before - after > 10 * 2**20


def resident_before_and_after(code: str) -> tuple[int, int]:
    """Run a program with the image's allocator, which prints how much memory it has."""
    allocator = allocator_environment()
    if not allocator:
        pytest.skip("libjemalloc2 is not installed")
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **allocator},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "jemalloc" not in done.stderr  # it ignores settings that it does not know, and says so
    before, after = map(int, done.stdout.split())
    return before, after
