"""Finds nodes where online pods need resources back, and the offline pods to evict there.

A node is under pressure when its margin is used, in two measurements: it is a reserve for short
peaks. Offline pods leave then, the lowest priority first, until use is below the margin by the
hysteresis, so that the next of them is not evicted for the next small change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from proreus.addons.colocation import BATCH
from proreus.addons.pod_amounts import requests_of
from proreus.controller.amounts import is_assigned
from proreus.controller.colocation.measurements import CpuAndMemory, Measured
from proreus.controller.evictions.safe_to_evict import is_safe_to_evict
from proreus.controller.options import ControllerOptions
from proreus.objects import Pod
from proreus.objects.pod import priority_of


class OfflinePod(NamedTuple):
    """A pod on a node, and its use as far as that was measured."""

    pod: Pod
    used: CpuAndMemory


def is_offline(pod: Pod) -> bool:
    """Return whether a pod is offline: it requests batch resources."""
    requests = requests_of(pod)
    return any(requests.get(name, 0) for name in BATCH)


def offline_by_node(pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    """Return the offline pods that have a node and have not finished, by its name."""
    found: dict[str, list[Pod]] = {}
    for pod in pods:
        if is_assigned(pod) and is_offline(pod):
            found.setdefault(pod.spec.node_name, []).append(pod)
    return found


class Pressure:
    """Remembers the measurement at which the margin of each node was used."""

    def __init__(self) -> None:
        self._seen_at: dict[str, float] = {}

    def note(self, node: str, measured: Measured, allocatable: CpuAndMemory, margin: int) -> bool:
        """Note a measurement; return whether the margin is used in this and an earlier one."""
        limit = _percent(allocatable, 100 - margin)
        if not any(used > most for used, most in zip(measured.used, limit, strict=True)):
            self._seen_at.pop(node, None)
            return False
        first = self._seen_at.setdefault(node, measured.at)
        return measured.at > first

    def forget(self, node: str) -> None:
        """Start again, since the measurements are from before an eviction."""
        self._seen_at.pop(node, None)

    def keep_only(self, nodes: Mapping[str, object]) -> None:
        """Forget nodes that are gone."""
        for name in self._seen_at.keys() - nodes.keys():
            del self._seen_at[name]


def victims(
    used: CpuAndMemory,
    allocatable: CpuAndMemory,
    offline: Iterable[OfflinePod],
    options: ControllerOptions,
) -> list[Pod]:
    """Return the offline pods to evict from a node under pressure, the first to go first.

    A pod that uses none of the short resources stays. The use of pods that are leaving counts as
    given back already.
    """
    limit = _percent(allocatable, 100 - options.colocation_margin)
    target = _percent(allocatable, 100 - options.colocation_margin - options.colocation_hysteresis)
    excess = [
        now - aim if now > most else 0 for now, most, aim in zip(used, limit, target, strict=True)
    ]
    staying = []
    for one in offline:
        if one.pod.metadata.deletion_timestamp is not None:
            excess = [over - part for over, part in zip(excess, one.used, strict=True)]
        elif is_safe_to_evict(one.pod):
            staying.append(one)

    def order(one: OfflinePod) -> tuple[int, int, str]:
        shares = zip(one.used, allocatable, strict=True)
        largest = max((part * 100 // most for part, most in shares if most), default=0)
        return priority_of(one.pod), -largest, one.pod.metadata.uid

    chosen: list[Pod] = []
    for one in sorted(staying, key=order):
        helps = any(over > 0 and part for over, part in zip(excess, one.used, strict=True))
        if helps:
            chosen.append(one.pod)
            excess = [over - part for over, part in zip(excess, one.used, strict=True)]
    return chosen


def _percent(amounts: CpuAndMemory, percent: int) -> CpuAndMemory:
    return CpuAndMemory(*(amount * percent // 100 for amount in amounts))
