"""``proreus bench --simulate`` runs the engine at various cluster sizes, without an apiserver."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from proreus.workbench.bench.simulation import Scale, SimulationResult, simulate

_TITLES = ("nodes", "pods/s", "µs/pod", "start s", "B/node", "B/pod", "MiB", "spread")
_SIZES = (1_000, 5_000, 15_000, 50_000, 100_000)
_PODS = 10_000
_MOST_PODS = 150_000


def run(
    nodes: Sequence[int],
    pods: int | None,
    rounds: int,
    json_path: Path | None,
    recorded: bool = False,
) -> None:
    """Simulate each cluster size ``rounds`` times, and print the medians.

    ``recorded``: once more with the record of decisions, round by round.
    """
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("pods", no_wrap=True)
    for title in _TITLES:
        table.add_column(title, justify="right", no_wrap=True)
    documents = []
    console, progress = Console(), Console(stderr=True)
    for scale in _scales(nodes, pods):
        scales = [scale, replace(scale, recorded=True)] if recorded else [scale]
        with progress.status(f"{scale.nodes:,} nodes, {scale.title}"):
            # In turns, so that other work on this machine slows both down.
            rounds_of_all = [[simulate(one) for one in scales] for _ in range(rounds)]
        for outcomes in zip(*rounds_of_all, strict=True):
            documents.append(_as_json(outcomes))
            table.add_row(*_row(outcomes))
    console.print(table)
    if json_path:
        json_path.write_text(json.dumps(documents, indent=2) + "\n")


def _scales(nodes: Sequence[int], pods: int | None) -> Iterable[Scale]:
    """Return the clusters to simulate: the given sizes, or a series of growing ones."""
    for size in nodes or _SIZES:
        yield Scale(size, pods or _PODS)
    if not nodes and pods is None:
        yield Scale(5_000, _PODS, alike=False)
        yield Scale(5_000, _PODS, placed=30_000)
        yield Scale(_SIZES[-1], _PODS, placed=_MOST_PODS - _PODS)


def _row(outcomes: Sequence[SimulationResult]) -> list[str]:
    middle = _medians(outcomes)
    return [
        outcomes[0].scale.title,
        f"{outcomes[0].scale.nodes:,}",
        f"{middle['pods_per_second']:,.0f}",
        f"{1e6 / middle['pods_per_second']:,.0f}",
        f"{middle['start_seconds']:.2f}",
        f"{middle['bytes_a_node']:,.0f}",
        f"{middle['bytes_a_pod']:,.0f}",
        f"{middle['peak_bytes'] / 2**20:,.0f}",
        f"{100 * middle['cpu_spread']:.2f}",
    ]


def _medians(outcomes: Sequence[SimulationResult]) -> dict[str, float]:
    names = [name for name in outcomes[0]._fields if name != "scale"]
    return {name: statistics.median(getattr(one, name) for one in outcomes) for name in names}


def _as_json(outcomes: Sequence[SimulationResult]) -> dict[str, Any]:
    return {**asdict(outcomes[0].scale), "rounds": len(outcomes), **_medians(outcomes)}
