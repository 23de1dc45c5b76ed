"""The source files that scheduling a pod runs through, between pop and assume.

    PYTHONPATH=tests python -m bench.cycle_files [--nodes N]

Prints every file in the order of the first call into it, with the number of calls, and how often a
call leads from one file to another: what a reader of the scheduling cycle has to open. The first
pods of a process, which fill the caches, are not traced.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import proreus
from bench.engine import CONFIGURATION, fill, place, put
from bench.shapes import FAMILIES
from proreus.base.feature_gates import FeatureGates
from proreus.config.load import load
from proreus.engine.cache.cache import Cache
from proreus.engine.runtime.registry import Registry
from proreus.engine.scheduler import Scheduler
from proreus.offline.cluster import OfflineCluster
from proreus.plugins import IN_TREE_PLUGINS

SOURCES = str(Path(proreus.__file__).parent)
WARM = 50
FIRST, LAST = Scheduler.schedule_one.__code__, Cache.assume.__code__


class FileTrace:
    """Records the file of every call between the end of ``pop`` and the start of ``assume``.

    ``calls``: by path relative to the package; ``moves``: how often the next call is in another
    file than the one before.
    """

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.moves = 0
        self._file = ""
        self._running = False

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Handle an event of ``sys.setprofile``."""
        code = frame.f_code
        if event != "call":
            return
        if code is FIRST:
            self._running = True
        elif code is LAST:
            self._running = False
        if self._running and code.co_filename.startswith(SOURCES):
            file = code.co_filename[len(SOURCES) + 1 :]
            self.calls[file] += 1
            self.moves += file != self._file
            self._file = file


async def trace_one_pod(nodes: int) -> FileTrace:
    """Return the trace of one pod that is scheduled after equivalent ones."""
    gates, registry = FeatureGates(), Registry(IN_TREE_PLUGINS)
    cluster = OfflineCluster(load(CONFIGURATION, registry, gates), registry, gates)
    family = FAMILIES["plain"]
    fill(cluster, family, nodes, placed=2 * nodes)
    await place(cluster, family, (f"warm-{number}" for number in range(WARM)))
    put(cluster, [family.pending("traced")])
    # One attempt in ten is timed, which runs additional code: trace one that is not.
    cluster.assembly.environment.rng.seed(1)
    trace = FileTrace()
    sys.setprofile(trace)
    try:
        await cluster.schedule_next()
    finally:
        sys.setprofile(None)
    return trace


def main() -> None:
    """Print the files and the moves."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=100)
    trace = asyncio.run(trace_one_pod(parser.parse_args().nodes))
    for file, calls in trace.calls.items():
        print(f"{calls:>6}  {file}")
    outside = [file for file in trace.calls if not file.startswith("plugins/")]
    print(f"{len(outside)} files outside plugins, {len(trace.calls)} in all, {trace.moves} moves")


if __name__ == "__main__":
    main()
