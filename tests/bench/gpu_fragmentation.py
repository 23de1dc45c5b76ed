"""Fragmentation of GPUs under a mixed trace: ``python tests/bench/gpu_fragmentation.py``.

Random traces of arrivals and departures are played with each way of packing: DeviceShare's
strategies, and the formulas of Volcano (binpack of nodes, most used card first) and KAI (9 points
for the fullest node, partly used cards first). All place pods by DeviceShare's own Filter; only the
choice of node and card differs. Arrivals that fit nowhere are lost.

Fragmentation is the share of the free GPUs that a request of the trace's mix cannot use, as
expected over the mix by how often each occurs (addons/device_share/fragmentation.py).
It is sampled every 100 arrivals. The table has means over the traces: of the second half of each,
and of its last sample, with the standard error; and in how many traces DeviceShare LeastFragmented
was not above. ``--plot FILE`` draws the means (matplotlib, the extra ``bench``).
"""

from __future__ import annotations

import argparse
import heapq
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from proreus.addons.device_share.devices import WHOLE, Inventory, NodeDevice
from proreus.addons.device_share.fragmentation import RecentRequests
from proreus.addons.device_share.placement import (
    DeviceOrder,
    least_used_first,
    most_used_first,
    place,
)
from proreus.addons.device_share.requests import PodDeviceRequest, Share
from proreus.addons.device_share.usage import DeviceUsage, Grant, NodeDeviceUsage
from proreus.addons.min_max import min_max_normalize

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
        return min_max_normalize(np.array(raw, dtype=np.int64)).tolist()

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


class Played:
    """A way of packing, played with several traces."""

    def __init__(self, runs: Sequence[Way]) -> None:
        self.name = runs[0].name
        self.is_own = runs[0].recent is not None
        self.fragmentation = np.array([way.fragmentation for way in runs])
        half = self.fragmentation.shape[1] // 2
        self.means = self.fragmentation[:, half:].mean(axis=1)
        self.ends = self.fragmentation[:, -1]
        self.allocated = float(np.array([way.allocated for way in runs])[:, half:].mean())
        self.lost = statistics.mean(way.lost for way in runs)
        self.lost_gpus = statistics.mean(way.lost_gpus for way in runs)


def mean_and_error(values: np.ndarray) -> str:
    """Return the mean with its standard error, in percent."""
    text = f"{values.mean():.2f}"
    if len(values) > 1:
        text += f" ± {values.std(ddof=1) / len(values) ** 0.5:.2f}"
    return f"{text} %"


def report(played: Sequence[Played]) -> None:
    """Print a line for each way."""
    own = next(one for one in played if one.is_own)
    print(
        "| packing | fragmentation, mean | own not above | at the end | own not above "
        "| allocated | arrivals lost | GPUs lost |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for one in played:
        cells = [one.name]
        for values, of_own in ((one.means, own.means), (one.ends, own.ends)):
            wins = int((of_own <= values).sum())
            cells += [mean_and_error(values), "" if one is own else f"{wins} of {len(values)}"]
        cells += [f"{one.allocated:.2f} %", f"{one.lost:.0f}", f"{one.lost_gpus:.0f}"]
        print(f"| {' | '.join(cells)} |")


def draw(path: Path, played: Sequence[Played]) -> None:
    """Draw fragmentation over the trace, the mean of all traces."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4.5), layout="constrained")
    axes = figure.subplots()
    for one in played:
        curve = one.fragmentation.mean(axis=0)
        numbers = [100 * (index + 1) for index in range(len(curve))]
        axes.plot(numbers, curve, label=one.name, linewidth=2.2 if one.is_own else 1.0)
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
    parser.add_argument("--seed", type=int, default=0, help="of the first trace")
    parser.add_argument("--traces", type=int, default=8)
    parser.add_argument("--plot", type=Path, help="draw fragmentation over the trace")
    args = parser.parse_args()
    runs = []
    for seed in range(args.seed, args.seed + args.traces):
        arrivals = trace(args.arrivals, args.nodes, args.load, seed)
        runs.append(ways())
        for way in runs[-1]:
            play(way, arrivals, args.nodes)
    played = [Played(of_way) for of_way in zip(*runs, strict=True)]
    report(played)
    if args.plot:
        draw(args.plot, played)


if __name__ == "__main__":
    main()
