"""Computes the resources for offline pods: the part that online pods and the system leave, less a
margin.

    allocatable ├── online pods and system, measured ──┼── batch resources ──┼── margin ──┤

Worked example: of 10 CPUs 4 are used, 1 of them by offline pods, and the margin is 30 %: 10 - 3 - 3
leaves 4 CPUs, ``kubernetes.io/batch-cpu: 4000``.

Numbers follow the measurements with hysteresis: a change that is small against the node is written
with the next refresh only. Of a node that is not measured any more, offline pods get nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from proreus.addons.colocation import BATCH, MEASURED_AT
from proreus.addons.node_metrics.recent_pods import timestamp
from proreus.base.clock import rfc3339
from proreus.controller.colocation.measurements import NOTHING, CpuAndMemory, Measured
from proreus.controller.options import ControllerOptions
from proreus.objects import Node, parse_amount


class BatchResources(NamedTuple):
    """The numbers of a node, and the time of their measurement, None without one."""

    amounts: CpuAndMemory
    at: float | None

    def patch(self) -> dict[str, object]:
        """Return the merge patch of a node's status."""
        quantities = dict(zip(BATCH, map(str, self.amounts), strict=True))
        stamp = None if self.at is None else rfc3339(self.at)
        return {
            "metadata": {"annotations": {MEASURED_AT: stamp}},
            "status": {"capacity": quantities, "allocatable": quantities},
        }


def written_on(node: Node) -> BatchResources | None:
    """Return the numbers on a node; None if it has none, or none that can be read."""
    allocatable = node.status.allocatable
    if not all(name in allocatable for name in BATCH):
        return None
    try:
        amounts = CpuAndMemory(*(parse_amount(name, allocatable[name]) for name in BATCH))
    except ValueError:
        return None
    return BatchResources(amounts, timestamp(node.metadata.annotations.get(MEASURED_AT, "")))


def left_by_online(
    allocatable: CpuAndMemory,
    used: CpuAndMemory,
    by_offline: Iterable[CpuAndMemory],
    margin_percent: int,
) -> CpuAndMemory:
    """Return the resources that only offline pods use or nobody, less a margin of the
    allocatable.
    """
    offline = list(by_offline)
    found = []
    for index, (most, all_used) in enumerate(zip(allocatable, used, strict=True)):
        online = max(0, all_used - sum(one[index] for one in offline))
        found.append(max(0, most * (100 - margin_percent) // 100 - online))
    return CpuAndMemory(*found)


def to_write(
    written: BatchResources | None,
    measured: Measured | None,
    computed: CpuAndMemory,
    allocatable: CpuAndMemory,
    options: ControllerOptions,
    now: float,
) -> BatchResources | None:
    """Return the numbers to write to a node, or None if it keeps the present ones.

    ``computed``: from ``measured``; ``now``: Unix seconds.
    """
    if measured is None or now - measured.at > options.colocation_max_age:
        return _withdrawn(written, options, now)
    fresh = BatchResources(computed, measured.at)
    if written is None or written.at is None:
        return fresh
    if int(measured.at) <= int(written.at):
        return None
    # Half the age at which they would count as old: one cycle may fail.
    if measured.at - written.at >= options.colocation_max_age / 2:
        return fresh
    band = options.colocation_hysteresis
    moved = any(
        abs(new - old) * 100 > band * most
        for new, old, most in zip(computed, written.amounts, allocatable, strict=True)
    )
    return fresh if moved else None


def _withdrawn(
    written: BatchResources | None, options: ControllerOptions, now: float
) -> BatchResources | None:
    """Return zeros for a node with numbers that are too old; None if they are not, or are zeros."""
    if written is None or written.amounts == NOTHING:
        return None
    if written.at is not None and now - written.at <= options.colocation_max_age:
        return None
    return BatchResources(NOTHING, written.at)
