"""Fragmentation of GPUs under a mixed trace: ``python tests/bench/gpu_fragmentation.py``.

One random trace of arrivals and departures is played with each way of packing: DeviceShare's
strategies, and the formulas of Volcano (binpack of nodes, most used card first) and KAI (9 points
for the fullest node, partly used cards first). All place pods by DeviceShare's own Filter; only the
choice of node and card differs. Arrivals that fit nowhere are lost.

Fragmentation is the share of the free GPUs that a request of the trace's mix cannot use, as
expected over the mix by how often each occurs (addons/device_share/fragmentation.py).
It is sampled every 100 arrivals; the table is of the second half of the trace.
``--plot FILE`` draws it (matplotlib, the extra ``bench``).
"""

from __future__ import annotations

import argparse
import heapq
import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from proreus.addons.device_share.devices import WHOLE, Inventory, NodeDevice
from proreus.addons.device_share.fragmentation import RecentRequests, normalize
from proreus.addons.device_share.placement import (
    DeviceOrder,
    least_used_first,
    most_used_first,
    place,
)
from proreus.addons.device_share.requests import PodDeviceRequest, Share
from proreus.addons.device_share.usage import DeviceUsage, Grant, NodeDeviceUsage

GIB = 2**30
GPUS = 8
MIX: tuple[tuple[Share, int], ...] = (
    (Share(1, 100, 0, 100), 15),
    (Share(1, 250, 0, 250), 15),
    (Share(1, 300, 0, 300), 8),
    (Share(1, 500, 0, 500), 15),
    (Share(1, 700, 0, 700), 7),
    (Share(1, 0, 24 * GIB), 6),
    (Share(2, 500, 0, 500), 4),
    (Share(1, WHOLE, 0, WHOLE), 17),
    (Share(2, WHOLE, 0, WHOLE), 6),
    (Share(4, WHOLE, 0, WHOLE), 4),
    (Share(8, WHOLE, 0, WHOLE), 3),
)
"""What pods ask for, and how many of a hundred do."""

NodeScore = Callable[[list[NodeDeviceUsage], list[int], list[list[Grant]], Share], list[float]]


def used(node: NodeDeviceUsage) -> int:
    return sum(one.used_milli for one in node.by_key.values())


def request_milli(node: NodeDeviceUsage, share: Share) -> float:
    memory = WHOLE * share.memory / next(iter(node.by_key.values())).device.memory_capacity
    return share.count * max(share.milli, memory)


def most_allocated(nodes: Any, rows: list[int], grants: Any, share: Share) -> list[float]:
    return [used(nodes[row]) for row in rows]


def least_allocated(nodes: Any, rows: list[int], grants: Any, share: Share) -> list[float]:
    return [-used(nodes[row]) for row in rows]


def volcano_binpack(nodes: Any, rows: list[int], grants: Any, share: Share) -> list[float]:
    """100 · (used + requested) / allocatable of the GPU resource."""
    return [
        100 * (used(nodes[row]) + request_milli(nodes[row], share)) / (GPUS * WHOLE) for row in rows
    ]


def volcano_vgpu(nodes: Any, rows: list[int], grants: Any, share: Share) -> list[float]:
    """Σ over the chosen cards of 100 · used memory / memory, after adding."""
    scores = []
    for row, chosen in zip(rows, grants, strict=True):
        nodes[row].add(chosen)
        cards = [nodes[row].by_key[one.type, one.minor] for one in chosen]
        scores.append(sum(100 * one.memory / one.device.memory_capacity for one in cards))
        nodes[row].add(chosen, sign=-1)
    return scores


def kai_pack(nodes: Any, rows: list[int], grants: Any, share: Share) -> list[float]:
    """9 · (1 - (free - least) / (most - least)), and 1000 for a fraction on a card in use."""
    free = [GPUS * WHOLE - used(nodes[row]) for row in rows]
    least, most = min(free), max(free)
    scores = []
    for row, amount, chosen in zip(rows, free, grants, strict=True):
        score = 9 * (1 - (amount - least) / (most - least)) if most > least else 9.0
        card = nodes[row].by_key[chosen[0].type, chosen[0].minor]
        if not share.is_whole and not card.is_idle:
            score += 1000
        scores.append(score)
    return scores


def kai_order(one: DeviceUsage, share: Share) -> Any:
    """Cards that are shared already first, of these the fuller one."""
    return one.is_idle, -one.used_milli, one.device.minor


@dataclass
class Way:
    """A way of packing: how it orders nodes and cards."""

    name: str
    score: NodeScore
    order: DeviceOrder
    recent: RecentRequests | None = None
    allocated: list[float] = field(default_factory=list)
    fragmentation: list[float] = field(default_factory=list)
    lost: int = 0
    lost_gpus: float = 0.0
    seconds: float = 0.0


def least_fragmented() -> Way:
    """DeviceShare's own: it knows no mix but what it has seen."""
    recent = RecentRequests(1000)

    def score(nodes: Any, rows: list[int], grants: Any, share: Share) -> list[float]:
        raw = [recent.score(nodes[row], one) for row, one in zip(rows, grants, strict=True)]
        return normalize(np.array(raw, dtype=np.int64)).tolist()

    return Way("DeviceShare LeastFragmented", score, recent.least_added_waste_first, recent)


def ways() -> list[Way]:
    return [
        least_fragmented(),
        Way("DeviceShare MostAllocated", most_allocated, most_used_first),
        Way("DeviceShare LeastAllocated", least_allocated, least_used_first),
        Way("Volcano binpack", volcano_binpack, most_used_first),
        Way("Volcano vGPU binpack", volcano_vgpu, most_used_first),
        Way("KAI pack", kai_pack, kai_order),
    ]


def trace(events: int, nodes: int, load: float, seed: int) -> list[tuple[float, Share]]:
    """Return arrivals: how long each stays, in numbers of arrivals, and what it asks for."""
    rng = random.Random(seed)
    shares, weights = zip(*MIX, strict=True)
    mean = sum(share.count * max(share.milli, 300) * weight for share, weight in MIX) / sum(weights)
    stay = load * nodes * GPUS * WHOLE / mean
    chosen = rng.choices(shares, weights, k=events)
    return [(rng.expovariate(1 / stay), share) for share in chosen]


def play(way: Way, arrivals: list[tuple[float, Share]], nodes: int) -> None:
    devices = tuple(
        NodeDevice(n, memory=80 * GIB, numa=n // 4, pcie=str(n // 2)) for n in range(GPUS)
    )
    cluster = [NodeDeviceUsage(Inventory(devices)) for _ in range(nodes)]
    truth = RecentRequests(1, MIX)
    departures: list[tuple[float, int, int, list[Grant]]] = []
    started = process_time()
    for number, (stay, share) in enumerate(arrivals):
        while departures and departures[0][0] <= number:
            _, _, row, gone = heapq.heappop(departures)
            cluster[row].add(gone, sign=-1)
        if way.recent is not None:
            way.recent.note(share)
        request = PodDeviceRequest("nvidia", (share,))
        found = [place(node, request, way.order) for node in cluster]
        rows = [row for row, grants in enumerate(found) if grants is not None]
        if rows:
            grants = [one for one in found if one is not None]
            scores = way.score(cluster, rows, grants, share)
            best = max(range(len(rows)), key=lambda index: (scores[index], -rows[index]))
            cluster[rows[best]].add(grants[best])
            heapq.heappush(departures, (number + stay, number, rows[best], grants[best]))
        else:
            way.lost += 1
            way.lost_gpus += request_milli(cluster[0], share) / WHOLE
        if number % 100 == 99:
            total = nodes * GPUS * WHOLE
            taken = sum(map(used, cluster))
            wasted = sum(truth.fragmentation(node) for node in cluster)
            way.allocated.append(100 * taken / total)
            way.fragmentation.append(100 * wasted / total)
    way.seconds = process_time() - started


def report(played: list[Way]) -> None:
    """Print a line for each way, of the second half of the trace."""
    print("| packing | fragmentation, mean | at the end | allocated | arrivals lost | GPUs lost |")
    print("|---|---|---|---|---|---|")
    for way in played:
        half = len(way.fragmentation) // 2
        fragmentation = statistics.mean(way.fragmentation[half:])
        print(
            f"| {way.name} | {fragmentation:.2f} % | {way.fragmentation[-1]:.2f} % | "
            f"{statistics.mean(way.allocated[half:]):.2f} % | {way.lost} | {way.lost_gpus:.0f} |"
        )


def draw(path: Path, played: list[Way]) -> None:
    """Draw fragmentation over the trace."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4.5), layout="constrained")
    axes = figure.subplots()
    for way in played:
        numbers = [100 * (index + 1) for index in range(len(way.fragmentation))]
        own = way.recent is not None
        axes.plot(numbers, way.fragmentation, label=way.name, linewidth=2.2 if own else 1.0)
    axes.set_xlabel("arrivals")
    axes.set_ylabel("free GPUs that cannot be used, % of all GPUs")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize="small")
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arrivals", type=int, default=10_000)
    parser.add_argument("--nodes", type=int, default=20, help="of 8 GPUs each")
    parser.add_argument("--load", type=float, default=0.95, help="demand by capacity")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", type=Path, help="draw fragmentation over the trace")
    args = parser.parse_args()
    arrivals = trace(args.arrivals, args.nodes, args.load, args.seed)
    played = ways()
    for way in played:
        play(way, arrivals, args.nodes)
    report(played)
    if args.plot:
        draw(args.plot, played)


if __name__ == "__main__":
    main()
