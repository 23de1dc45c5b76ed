"""The demo's result as tables: placements, throughput, and why pods were not scheduled."""

from __future__ import annotations

from collections import Counter

from rich.console import Console
from rich.table import Table

from proreus.workbench.cli.demo.progress import Progress
from proreus.workbench.cli.demo.workload import OTHERS, OURS
from proreus.workbench.sandbox.store import Store

_ZONE = "topology.kubernetes.io/zone"


def print_report(console: Console, progress: Progress, store: Store) -> None:
    """Print placements by zone and profile, the throughput, and why pods have no node."""
    zone_of = {
        node["metadata"]["name"]: node["metadata"]["labels"].get(_ZONE, "")
        for node in (version.object() for version in store.list("nodes"))
    }
    console.print(_placements(progress, zone_of))
    bound = sum(map(progress.bound, OURS))
    seconds = progress.last_bound - progress.idle_until
    if seconds > 0:
        console.print(
            f"{bound} pods placed in {seconds:.2f} s: {bound / seconds:.0f} pods/s "
            "(apiserver emulator and fake kubelets on the same machine)"
        )
    untouched = progress.total(OTHERS) - progress.bound(OTHERS)
    console.print(f"{untouched} of {progress.total(OTHERS)} pods for {OTHERS} left untouched")
    if progress.reason_of:
        console.print(_reasons(progress))


def _placements(progress: Progress, zone_of: dict[str, str]) -> Table:
    zones = sorted(set(zone_of.values()))
    table = Table("profile", *zones, "pods", "nodes", title="placements by zone")
    for column in table.columns[1:]:
        column.justify = "right"
    for scheduler in OURS:
        nodes = [
            node
            for name, node in progress.node_of.items()
            if progress.scheduler_of[name] == scheduler
        ]
        by_zone = Counter(zone_of[node] for node in nodes)
        counts = (str(by_zone[zone]) for zone in zones)
        table.add_row(scheduler, *counts, str(len(nodes)), str(len(set(nodes))))
    return table


def _reasons(progress: Progress) -> Table:
    table = Table("pods", "why they have no node", title="not placed")
    table.columns[0].justify = "right"
    for reason, count in Counter(progress.reason_of.values()).most_common():
        table.add_row(str(count), reason)
    return table
