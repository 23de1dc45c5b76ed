"""What many dry runs at once cost the event loop, the scheduler and memory.

    PYTHONPATH=tests python -m bench.dry_runs [--nodes N] [--placed N] [--clients N] [--rounds N]

``--clients`` dry runs are asked at once, each of ``--pods`` pods of which no two ask alike, and
asked again where they are refused; another task measures how long the event loop kept it waiting,
and for how much of that this process computed.
Once alone, once with pods to schedule all the time. Memory is the resident set after each round.
The garbage collector is set as in a process.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any

import msgspec

from bench.engine import CONFIGURATION, fill, put
from bench.shapes import FAMILIES
from proreus.base.feature_gates import FeatureGates
from proreus.config.load import load
from proreus.engine.runtime.registry import Registry
from proreus.insight.dry_run.api import DryRunSpec
from proreus.insight.dry_run.service import Busy, DryRunService
from proreus.offline.cluster import OfflineCluster
from proreus.plugins import IN_TREE_PLUGINS
from proreus.process import gc_tuning


def question(number: int, pods: int, family: str) -> DryRunSpec:
    """Return a dry run of pods that differ in what they request."""
    items = []
    for n in range(pods):
        pod = FAMILIES[family].pending(f"asked-{number}-{n}")
        requests = {"cpu": f"{100 + number}m", "memory": f"{n + 1}Mi"}
        pod["spec"]["containers"][0]["resources"] = {"requests": requests}
        items.append({"pod": pod})
    node = {"status": {"allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110"}}}
    templates = [{"name": f"new-{number}", "count": 10, "node": node}]
    spec = {"pods": items, "nodeTemplates": templates, "timeoutSeconds": 60}
    return msgspec.json.decode(msgspec.json.encode(spec), type=DryRunSpec)


class Delays:
    """How late a task is that wants a turn all the time."""

    def __init__(self) -> None:
        self.worst = self.worst_cpu = 0.0
        self.over_20_ms = 0
        self.turns = 0

    async def measure(self) -> None:
        """Measure until cancelled."""
        last, used = perf_counter(), thread_time()
        while True:
            await asyncio.sleep(0.001)
            now, used_now = perf_counter(), thread_time()
            late = now - last - 0.001
            self.worst, last = max(self.worst, late), now
            self.worst_cpu, used = max(self.worst_cpu, used_now - used), used_now
            self.over_20_ms += late >= 0.02
            self.turns += 1


async def schedule(cluster: OfflineCluster, placed: list[int]) -> None:
    """Schedule pods without end."""
    number = 0
    while True:
        put(cluster, (FAMILIES["plain"].pending(f"live-{number + n}") for n in range(100)))
        number += 100
        while await cluster.schedule_next() is not None:
            placed[0] += 1
            await asyncio.sleep(0)


async def measured(args: argparse.Namespace, service: DryRunService, name: str) -> None:
    """Print one line: all clients at once."""
    delays, refused = Delays(), 0

    async def client(number: int) -> None:
        nonlocal refused
        spec = question(number, args.pods, args.family)
        while True:
            try:
                with service.admit():
                    await service.answer(spec)
                return
            except Busy:
                refused += 1
                await asyncio.sleep(0.2)

    watching = asyncio.create_task(delays.measure())
    await asyncio.sleep(0.05)
    delays.worst = delays.worst_cpu = 0.0
    started = perf_counter()
    # Requests arrive one by one, and each is decoded when it arrives.
    clients = []
    for number in range(args.clients):
        clients.append(asyncio.create_task(client(number)))
        await asyncio.sleep(0)
    await asyncio.gather(*clients)
    seconds = perf_counter() - started
    watching.cancel()
    print(
        f"{name:<20}{args.clients / seconds:>10.1f}{delays.worst * 1000:>10.1f}"
        f"{delays.worst_cpu * 1000:>10.1f}"
        f"{delays.over_20_ms:>10}{refused:>10}{resident():>10.1f}",
        flush=True,
    )


def resident() -> float:
    """Return the resident set in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


async def run(args: argparse.Namespace) -> None:
    """Print a line for each round."""
    gc_tuning.collect_rarely_at_start()
    gates, registry = FeatureGates(), Registry(IN_TREE_PLUGINS)
    cluster = OfflineCluster(load(CONFIGURATION, registry, gates), registry, gates)
    fill(cluster, FAMILIES[args.family], args.nodes, args.placed)
    gc_tuning.freeze_startup_heap()  # as a process does once its informers are synced
    service = DryRunService(cluster.assembly)
    heads = ("runs/s", "worst ms", "cpu ms", ">20 ms", "refused", "MiB")
    print(f"{'':<20}" + "".join(f"{head:>10}" for head in heads))
    for number in range(args.rounds):
        await measured(args, service, f"alone, {number + 1}")
    placed = [0]
    scheduling = asyncio.create_task(schedule(cluster, placed))
    started = perf_counter()
    await asyncio.sleep(1)
    alone = placed[0] / (perf_counter() - started)
    before, started = placed[0], perf_counter()
    await measured(args, service, "while scheduling")
    beside = (placed[0] - before) / (perf_counter() - started)
    scheduling.cancel()
    print(f"pods/s of the scheduling loop: {alone:.0f} alone, {beside:.0f} beside dry runs")


def main() -> None:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    integers: dict[str, int] = {
        "nodes": 5000,
        "placed": 10_000,
        "clients": 200,
        "pods": 5,
        "rounds": 5,
    }
    for name, value in integers.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--family", default="plain")
    work: Callable[[Any], Any] = run
    asyncio.run(work(parser.parse_args()))


if __name__ == "__main__":
    main()
