"""Follows the changes of the demo's pods; shows progress bars, then the result as tables, and
commands for a look around."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.table import Table

from proreus.workbench.cli.demo.workload import NAMESPACE, OTHERS, OURS
from proreus.workbench.sandbox.store import Store


class Progress:
    """The node of each pod, or the reason why it has none.

    ``idle_until``: time of the last poll that found no bound pod; ``last_bound``: time of the poll
    that found the last bound pod. Both in seconds of the monotonic clock.
    """

    def __init__(self, store: Store) -> None:
        self._pods = store.collection("pods")
        self._position = self._pods.end
        self._bars: Bars | None = None
        self._tasks: dict[str, TaskID] = {}
        self.scheduler_of: dict[str, str] = {}
        self.node_of: dict[str, str] = {}
        self.reason_of: dict[str, str] = {}
        self.idle_until = self._looked_at = time.monotonic()
        self.last_bound = 0.0

    @property
    def waiting(self) -> int:
        """The number of pods of our two profiles that have neither a node nor a reason."""
        ours = sum(scheduler in OURS for scheduler in self.scheduler_of.values())
        settled = self.node_of.keys() | self.reason_of.keys()
        return ours - sum(self.scheduler_of[name] in OURS for name in settled)

    def problem(self) -> str:
        """Return a clause about the pods that wait."""
        return f"{self.waiting} pods have neither a node nor a reason"

    def follow(self) -> bool:
        """Process the changes since the last call; return whether no pod is waiting any more."""
        if not self.node_of:
            self.idle_until = self._looked_at
        self._looked_at = time.monotonic()
        changes = self._pods.changes_from(self._position)
        self._position += len(changes)
        for change in changes:
            self._take(change.version.object())
        self._show()
        return bool(self.scheduler_of) and self.waiting == 0

    def bound(self, scheduler: str) -> int:
        """Return how many pods of a scheduler have a node."""
        return sum(self.scheduler_of[name] == scheduler for name in self.node_of)

    def total(self, scheduler: str) -> int:
        """Return how many pods have this schedulerName."""
        return Counter(self.scheduler_of.values())[scheduler]

    @contextlib.contextmanager
    def shown(self, console: Console) -> Iterator[None]:
        """Show a progress bar for each scheduler during a ``with`` block."""
        columns = (TextColumn("{task.description:>18}"), BarColumn(), MofNCompleteColumn())
        with Bars(*columns, TimeElapsedColumn(), console=console) as self._bars:
            for scheduler in (*OURS, OTHERS):
                self._tasks[scheduler] = self._bars.add_task(scheduler, total=None)
            yield
            self._show()

    def _take(self, pod: dict[str, Any]) -> None:
        metadata, spec = pod["metadata"], pod["spec"]
        if metadata["namespace"] != NAMESPACE:
            return
        name = metadata["name"]
        self.scheduler_of[name] = spec["schedulerName"]
        node = spec.get("nodeName")
        if node and name not in self.node_of:
            self.node_of[name] = node
            self.reason_of.pop(name, None)
            self.last_bound = self._looked_at
        elif not node:
            for condition in pod.get("status", {}).get("conditions", ()):
                if condition["type"] == "PodScheduled" and condition["status"] == "False":
                    self.reason_of[name] = condition.get("message", "")

    def _show(self) -> None:
        if self._bars is not None:
            for scheduler, task in self._tasks.items():
                self._bars.update(
                    task, completed=self.bound(scheduler), total=self.total(scheduler) or None
                )


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


def print_commands(
    console: Console, kubeconfig: Path, dashboard: str, scheduler: str, pod: str
) -> None:
    """Print commands for a look around; ``dashboard``, ``scheduler``: their addresses."""
    for line in (
        f"\nwhy do pods wait? http://{dashboard}/dashboard/pods",
        f"kubectl --kubeconfig {kubeconfig} get pods -n {NAMESPACE} -o wide",
        f"proreus explain pod {NAMESPACE}/{pod} --kubeconfig {kubeconfig} "
        f"--scheduler https://{scheduler} --insecure-skip-tls-verify",
        "Ctrl-C ends it.",
    ):
        # Unbroken, so that it can be copied.
        console.print(line, soft_wrap=True, highlight=False)
