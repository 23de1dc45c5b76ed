"""What the pods of each node request and are limited to, kept from pod to pod."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from proreus.addons.pod_amounts import CPU_AND_MEMORY, effective_amounts
from proreus.framework import Handle, NodeInfo, PodInfo
from proreus.objects import NODES, Node


class Committed(NamedTuple):
    """Sums of requests and limits of pods."""

    requests: int
    limits: int

    def __add__(self, other: object) -> Committed:
        """Return the sums of both."""
        assert isinstance(other, Committed)
        return Committed(self.requests + other.requests, self.limits + other.limits)

    def __sub__(self, other: Committed) -> Committed:
        return Committed(self.requests - other.requests, self.limits - other.limits)

    def bounded(self) -> Committed:
        """Return the sums, or ``_MOST`` where they are more."""
        return Committed(min(self.requests, _MOST), min(self.limits, _MOST))


NOTHING = Committed(0, 0)
_MOST = 2**61
"""Nobody checks limits: a few pods may have more together than an int64 holds. So much fits into a
column, also with one more pod, and is as bad as more."""

Commitments = tuple[Committed, Committed]
"""Of cpu and of memory."""


def commitments_of(pod: PodInfo) -> Commitments:
    """Return what a pod adds; a limit below the request counts as the request."""
    requests, limits = effective_amounts(pod.pod), effective_amounts(pod.pod, limits=True)
    cpu, memory = (Committed(requests[r], max(limits[r], requests[r])) for r in CPU_AND_MEMORY)
    return cpu.bounded(), memory.bounded()


class _Known(NamedTuple):
    """What is known of a node. ``exact``: the sums of ``pods``, ``bounded``: of which no more."""

    pods: Mapping[str, PodInfo]
    exact: Commitments
    bounded: Commitments


_NO_PODS = _Known({}, (NOTHING, NOTHING), (NOTHING, NOTHING))


class NodeCommitments:
    """The sums of each node. Of a node whose pods changed, only these are looked at."""

    def __init__(self, handle: Handle) -> None:
        self._known: dict[str, _Known] = {}
        handle.on_change(NODES, self._node_changed)

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        if new is None and old is not None:
            self._known.pop(old.metadata.name, None)

    def of(self, node: NodeInfo) -> Commitments:
        """Return the sums of cpu and of memory on a node."""
        known = self._known.get(node.name, _NO_PODS)
        before, (cpu, memory) = known.pods, known.exact
        if before == node.pods:
            return known.bounded
        for uid in before.keys() | node.pods.keys():
            old, new = before.get(uid), node.pods.get(uid)
            if old is new:
                continue
            if old is not None:
                of_cpu, of_memory = commitments_of(old)
                cpu, memory = cpu - of_cpu, memory - of_memory
            if new is not None:
                of_cpu, of_memory = commitments_of(new)
                cpu, memory = cpu + of_cpu, memory + of_memory
        bounded = cpu.bounded(), memory.bounded()
        self._known[node.name] = _Known(dict(node.pods), (cpu, memory), bounded)
        return bounded
