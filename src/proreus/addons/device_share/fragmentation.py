"""Estimates how much of a node's free GPUs the next pods could use.

The last pods that asked for GPUs are replayed on the node, in groups: a pod of the group that fits
takes its CPU, memory and GPUs, one that does not fit is left out. The mean over the groups of what
the pods take is the usable part of the free GPUs; the rest is wasted, because the node lacks CPU,
memory, whole GPUs, or a model or taint that they accept. A pod goes where the usable part shrinks
least. Pods with several GPUs come first in their group: the small ones would take the few empty
nodes that these need, and always find others.

This extends the fragmentation gradient descent of Q. Weng et al. ("Beware of Fragmentation", USENIX
ATC 2023), which asks what the next pod could use. The next 64 also show that a node runs out of CPU
before its GPUs are used.

Worked example: a node with 16 free CPUs and two free GPUs; each pod asks for 12 CPUs and one GPU. A
replay takes one GPU: 1000 milli are usable. After a pod with 4 CPUs and no GPU this is still so,
after one with 8 CPUs nothing is usable.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, cycle, islice
from math import prod
from typing import NamedTuple

from proreus.addons.device_share.devices import MOST_DEVICES, WHOLE, Inventory, NodeDevice
from proreus.addons.device_share.requests import PodDeviceRequest, Share
from proreus.addons.device_share.usage import MEMORY_SLICES, size_of
from proreus.framework import NodeInfo, PodInfo
from proreus.framework.node_affinity import PodNodeAffinity, node_affinity
from proreus.framework.tolerations import toleration_index
from proreus.objects.taints import TolerationIndex

_GROUP = 64
"""The number of pods that are replayed on a node one after the other."""
_ALIKE = 0.75
"""The share of the pods replayed that is to be found among the recent ones. Two samples of 1,024
tasks of Alibaba's trace share 0.88. All scores are computed anew for other pods."""
_MOST_REQUIREMENTS = 32
"""The number of different requirements about nodes that count, the most frequent ones."""
_PRECISION = 1000
"""The parts of a thousandth of a GPU that the score tells apart."""
_MOST_ROOMS = 50_000
"""The number of rooms of which the usable part is kept, and of nodes of which the kind is."""

Gpus = tuple[int, ...]
"""The free thousandths of each GPU of a node, the least first."""


class NodeRequirement(NamedTuple):
    """Requirements of a pod about the node, besides the amounts."""

    affinity: PodNodeAffinity
    tolerations: TolerationIndex
    request: PodDeviceRequest
    """Without its shares."""

    def is_met(self, node: NodeInfo, device: NodeDevice) -> bool:
        """Return whether the pod may run on a node whose GPUs are like ``device``."""
        return (
            self.request.allows(device)
            and self.affinity.matches(node.labels, node.name)
            and self.tolerations.first_untolerated(node.taints) is None
        )


class GpuPod(NamedTuple):
    """A pod that asked for GPUs; CPU in thousandths, memory in bytes."""

    cpu: int
    memory: int
    shares: tuple[Share, ...]
    requirement: NodeRequirement


class Replayed(NamedTuple):
    """A pod as it is replayed on nodes of one kind.

    ``takes``: how many GPUs, and the thousandths of each; ``most``: the most of one GPU,
    ``total``: of all.
    """

    cpu: int
    memory: int
    most: int
    total: int
    takes: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, eq=False)
class NodeKind:
    """Nodes on which the same pods may run, with the same takes; ``groups`` of these pods."""

    groups: tuple[tuple[Replayed, ...], ...]


class Room(NamedTuple):
    """The free part of a node: thousandths of CPUs, bytes of memory, and GPUs."""

    kind: NodeKind
    cpu: int
    memory: int
    gpus: Gpus


class RecentGpuPods:
    """The last ``size`` pods that asked for GPUs; before the first one, pods with a whole GPU.

    ``generation`` changes when other pods are replayed.
    """

    def __init__(self, size: int) -> None:
        self._pods: deque[GpuPod] = deque(maxlen=size)
        self._since = 0
        self._groups: tuple[tuple[GpuPod | None, ...], ...] = ((None,) * _GROUP,)
        self._requirements: tuple[NodeRequirement, ...] = ()
        self._kinds: dict[tuple[object, ...], NodeKind] = {}
        self._kind_of: dict[str, tuple[object, object, NodeKind]] = {}
        self._usable: dict[Room, float] = {}
        self.generation = 0

    def note(self, pod: PodInfo, request: PodDeviceRequest) -> None:
        """Count a pod, if it asks for GPUs."""
        shares = tuple(share for share in request.shares if share.type == "gpu")
        if not shares:
            return
        requirement = NodeRequirement(
            node_affinity(pod), toleration_index(pod), replace(request, shares=())
        )
        self._pods.append(GpuPod(*cpu_and_memory(pod), shares, requirement))
        self._since += 1
        # At first after each doubling, so that the first few pods count at once.
        count = len(self._pods)
        if count < (self._pods.maxlen or 0):
            if self._since >= max(count // 2, 1):
                self._replace_groups()
        elif self._since >= count:
            self._since = 0
            if self._have_changed():
                self._replace_groups()

    def _have_changed(self) -> bool:
        """Return whether other pods come than those that are replayed."""
        replayed = Counter(chain.from_iterable(self._groups))
        recent: Counter[GpuPod | None] = Counter(self._pods)
        times = replayed.total() / recent.total()
        alike = sum(min(count, times * recent[pod]) for pod, count in replayed.items())
        return alike < _ALIKE * replayed.total()

    def _replace_groups(self) -> None:
        common = Counter(one.requirement for one in self._pods).most_common(_MOST_REQUIREMENTS)
        self._requirements = tuple(requirement for requirement, _ in common)
        pods = [one for one in self._pods if one.requirement in self._requirements]
        number = max(self._pods.maxlen or 0, _GROUP) // _GROUP
        filled = list(islice(cycle(pods), number * _GROUP))
        groups = (filled[start::number] for start in range(number))
        self._groups = tuple(tuple(sorted(group, key=_several_first)) for group in groups)
        self._since = 0
        self._kinds.clear()
        self._kind_of.clear()
        self._usable.clear()
        self.generation += 1

    def score(
        self, node: NodeInfo, inventory: Inventory, pod: PodInfo, free: Gpus, left: Gpus
    ) -> int:
        """Return the score of a node if a pod leaves so much of its GPUs: 0 is the best.

        Of nodes on which the usable part shrinks equally, the one with fewer free GPUs is better.
        """
        if not free or not free[-1]:
            return 0
        kind = self.kind(node, inventory)
        allocatable, requested = node.allocatable, node.requested
        cpu = allocatable["cpu"] - requested["cpu"]
        memory = allocatable["memory"] - requested["memory"]
        its_cpu, its_memory = cpu_and_memory(pod)
        before = self.usable(Room(kind, cpu, memory, free))
        after = self.usable(Room(kind, cpu - its_cpu, memory - its_memory, left))
        return round(_PRECISION * (after - before)) - sum(left)

    def usable(self, room: Room) -> float:
        """Return the usable part of the free GPUs, in thousandths of a GPU."""
        found = self._usable.get(room)
        if found is None:
            if len(self._usable) >= _MOST_ROOMS:
                self._usable.clear()
            groups = room.kind.groups
            found = sum(_replay(group, room) for group in groups) / len(groups)
            self._usable[room] = found
        return found

    def kind(self, node: NodeInfo, inventory: Inventory) -> NodeKind:
        """Return the kind of a node that has GPUs."""
        known = self._kind_of.get(node.name)
        if known is not None and known[0] is node.node and known[1] is inventory:
            return known[2]
        device = next(one for one in inventory.devices if one.type == "gpu")
        met = tuple(one.is_met(node, device) for one in self._requirements)
        key = (met, device.memory_capacity, device.memory, device.mig)
        kind = self._kinds.get(key)
        if kind is None:
            allowed = {one for one, is_met in zip(self._requirements, met, strict=True) if is_met}
            groups = (tuple(_on_kind(group, allowed, device)) for group in self._groups)
            kind = self._kinds[key] = NodeKind(tuple(groups))
        if len(self._kind_of) >= _MOST_ROOMS:
            self._kind_of.clear()
        self._kind_of[node.name] = node.node, inventory, kind
        return kind


def cpu_and_memory(pod: PodInfo) -> tuple[int, int]:
    """Return the CPU, in thousandths, and the memory, in bytes, that a pod requests."""
    amounts = pod.requests.amounts
    return amounts.get("cpu", 0), amounts.get("memory", 0)


def _several_first(pod: GpuPod | None) -> int:
    return -1 if pod is None else -max(share.count for share in pod.shares)


def _on_kind(
    group: Sequence[GpuPod | None], allowed: set[NodeRequirement], device: NodeDevice
) -> Iterator[Replayed]:
    """Yield the pods of a group that may run on a node with such devices."""
    for pod in group:
        if pod is None:
            yield Replayed(0, 0, WHOLE, WHOLE, ((1, WHOLE),))
        elif pod.requirement in allowed:
            takes = tuple(take for share in pod.shares for take in _takes(share, device))
            most, total = max(milli for _, milli in takes), sum(map(prod, takes))
            yield Replayed(pod.cpu, pod.memory, most, total, takes)


def _takes(share: Share, device: NodeDevice) -> Iterator[tuple[int, int]]:
    """Yield how many GPUs, and the thousandths of each: more than there are if it fits none."""
    if share.profile:
        _, slices = size_of(share.profile, device)
        milli = WHOLE * slices // MEMORY_SLICES if device.mig and slices else WHOLE + 1
        # Each instance by itself: several may be on one GPU.
        yield from [(1, milli)] * min(share.count, MOST_DEVICES)
        return
    memory = -(-WHOLE * share.memory_of(device) // device.memory_capacity)
    yield share.count, max(share.milli, memory)


def _replay(group: Sequence[Replayed], room: Room) -> int:
    """Return the thousandths of GPUs that the pods of a group take."""
    _, cpu, memory, gpus = room
    free, taken = list(gpus), 0
    for pod in group:
        if pod.most > free[-1] or pod.cpu > cpu or pod.memory > memory:
            continue
        left = _left(free, pod.takes)
        if left is not None:
            free, cpu, memory = left, cpu - pod.cpu, memory - pod.memory
            taken += pod.total
    return taken


def _left(free: list[int], takes: Sequence[tuple[int, int]]) -> list[int] | None:
    """Return the free GPUs, the least first, after takes by best fit; None if they are too few."""
    for count, milli in takes:
        first = bisect_left(free, milli)
        if first + count > len(free):
            return None
        used = (one - milli for one in free[first : first + count])
        free = sorted((*free[:first], *used, *free[first + count :]))
    return free
