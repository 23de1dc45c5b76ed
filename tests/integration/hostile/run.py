"""Hostile objects of every kind, and malformed lines, in three waves, with figures.

    PYTHONPATH=tests:tests/integration python -m hostile.run [--objects N] [--nodes N] [KIND ...]

``make hostile``. Objects are created, and deleted in batches, on a cluster of 5,000 nodes in one
process: decoding, informers, cache, queue and plugins are real, the network is left out. Next to
each object a plain pod is scheduled. Judged: nothing raises, no cycle of a second, no plain pod
waits for more than 100 ms, and nothing leaks: the second and the third wave consist of the objects
of the first, and leave no more memory in use than that did. That is the resident memory where
objects come from jemalloc, as in the image (Debian's package libjemalloc2), and otherwise the
number of Python's objects: its own allocator keeps a megabyte for each small object in it.

Times are CPU time of the event loop's thread: wall-clock time would tell of what else the machine
does. That of the process that evaluates a selector is added.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import logging
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from proreus.base.bounded_cache import AGE_INTERVAL_SECONDS
from proreus.objects.kinds import BY_KIND
from proreus.process.gc_tuning import freeze_startup_heap, return_free_memory, use_one_heap

from .allocator import run_with_jemalloc
from .cluster import HostileCluster
from .maker import made_elsewhere
from .objects import event_line, malformed_lines

MAX_CYCLE_SECONDS = 1.0
MAX_WAIT_SECONDS = 0.1
WAVES = 3
MAX_GROWTH = 1.02
"""From the end of the first wave to the end of any later one."""
_DECAY_SECONDS = 2.0
"""After which jemalloc has returned what is free (the image's MALLOC_CONF)."""
_ALIVE = 20
"""How many objects of a kind exist at the same time."""


@dataclass
class Figures:
    """What one kind cost; seconds, and mebibytes after the objects were gone."""

    kind: str
    longest_wait: float
    longest_cycle: float
    misunderstood: int
    handler_failures: float
    rss: float
    worst: str

    def __str__(self) -> str:
        return (
            f"{self.kind:22} wait {self.longest_wait * 1000:6.1f} ms  "
            f"cycle {self.longest_cycle * 1000:6.1f} ms  new lists {self.misunderstood}  "
            f"handlers {self.handler_failures:g}  RSS {self.rss:.0f} MiB  ({self.worst})"
        )

    def problems(self) -> list[str]:
        """Return what was not as it should be."""
        found = []
        if self.longest_wait > MAX_WAIT_SECONDS:
            found.append(f"{self.kind}: a plain pod waited {self.longest_wait:.3f} s")
        if self.longest_cycle > MAX_CYCLE_SECONDS:
            found.append(f"{self.kind}: a cycle of {self.longest_cycle:.3f} s")
        if self.handler_failures:
            found.append(f"{self.kind}: {self.handler_failures:g} handlers raised")
        return found


@dataclass(frozen=True)
class Memory:
    """What is in use: resident mebibytes, and blocks of Python's own allocator (0: another one)."""

    rss: float
    blocks: int

    def growth_since(self, before: Memory) -> float:
        """Return how many times as much it is, by blocks where they are known."""
        return self.blocks / before.blocks if self.blocks else self.rss / before.rss

    def __str__(self) -> str:
        return f"RSS {self.rss:.0f} MiB, {self.blocks:,} blocks"


async def memory() -> Memory:
    """Return what is in use."""
    return Memory(await rss_after_decay(), sys.getallocatedblocks())


async def rss_after_decay() -> float:
    """Return the resident memory once jemalloc has returned what is free."""
    await asyncio.sleep(_DECAY_SECONDS)
    return rss_mebibytes()


def rss_mebibytes() -> float:
    """Return the resident memory of this process."""
    with open("/proc/self/statm", encoding="ascii") as sizes:
        return int(sizes.read().split()[1]) * 4096 / 2**20


async def settle(cluster: HostileCluster) -> None:
    """Let three minutes pass, in which what is not used is forgotten."""
    for _ in range(3 * AGE_INTERVAL_SECONDS + 1):
        cluster.tick()
    await cluster.schedule_all()
    return_free_memory()


def remove(cluster: HostileCluster, kind: str) -> None:
    """Delete all hostile objects of a kind, and the pods that use them."""
    for one in dict.fromkeys(("Pod", kind)):
        cluster.remove_all_of(one, f"{kind.lower()}-")


async def try_kind(cluster: HostileCluster, kind: str, count: int, scale: float) -> Figures:
    """Create and delete hostile objects of one kind."""
    figures = Figures(kind, 0.0, 0.0, 0, 0.0, 0.0, "")
    cluster.longest_cycle, cluster.misunderstood = 0.0, 0
    failures = cluster.handler_failures()
    for number, made in enumerate(made_elsewhere(kind, 1, scale, count)):
        waited = await cluster.wait_beside(kind, number, event_line("ADDED", made.json))
        if waited > figures.longest_wait:
            figures.longest_wait = waited
            figures.worst = f"{made.shape}, {len(made.json):,} bytes"
        if number % _ALIVE == _ALIVE - 1:
            remove(cluster, kind)
            cluster.tick()
    remove(cluster, kind)
    await settle(cluster)
    figures.longest_cycle, figures.misunderstood = cluster.longest_cycle, cluster.misunderstood
    figures.handler_failures = cluster.handler_failures() - failures
    figures.rss = await rss_after_decay()
    return figures


async def try_lines(cluster: HostileCluster, count: int) -> int:
    """Handle malformed lines; return how many would have caused a new list."""
    refused = 0
    for line, kind in zip(
        itertools.islice(malformed_lines(1), count), itertools.cycle(BY_KIND), strict=False
    ):
        refused += not await cluster.watch(kind, [line])
    await cluster.wait_of_another_pod("last")
    return refused


async def run(kinds: Iterable[str], count: int, nodes: int, scale: float) -> list[str]:
    """Try all kinds and print figures; return what was not as it should be."""
    cluster = HostileCluster(nodes)
    # What is imported and created at first use belongs to the memory before.
    for kind in BY_KIND:
        await try_kind(cluster, kind, 20, 0.01)
    freeze_startup_heap()  # as a process does once its informers are synced
    print(f"{nodes} nodes, {await memory()}", flush=True)
    problems, levels = [], []
    for wave in range(1, WAVES + 1):
        for kind in kinds:
            figures = await try_kind(cluster, kind, count, scale)
            print(figures, flush=True)
            problems += figures.problems()
        refused = await try_lines(cluster, count)
        await settle(cluster)
        levels.append(await memory())
        print(f"{count} malformed lines, {refused} refused; wave {wave}: {levels[-1]}", flush=True)
    cluster.scheduler.cache.table.validate()
    cluster.scheduler.queue.validate()
    problems += [f"a task raised {failure!r}" for failure in cluster.failures]
    growth = max(later.growth_since(levels[0]) for later in levels[1:])
    if growth > MAX_GROWTH:
        problems.append(f"memory grew to {growth:.3f} times what the first wave left")
    return problems


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse arguments, run, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, prog="hostile.run")
    parser.add_argument("--objects", type=int, default=3_400, help="of each kind in each wave")
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("kinds", nargs="*", metavar="KIND", default=list(BY_KIND))
    options = parser.parse_args(arguments)
    logging.getLogger("proreus").setLevel(logging.CRITICAL)
    run_with_jemalloc()
    if sys.getallocatedblocks():
        print("libjemalloc2 is not installed: resident memory is not judged")
    use_one_heap()  # as a process does
    started = time.perf_counter()
    problems = asyncio.run(run(options.kinds, options.objects, options.nodes, options.scale))
    print(f"{time.perf_counter() - started:.0f} s")
    print("\n".join(problems) or "all as it should be")
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
