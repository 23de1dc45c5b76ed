"""Counts the pods of a group that each topology domain holds, and chooses domains.

Slices of a group (Kueue) have a number of pods each, and each slice goes to one domain of a label.
Worked example: 8 pods in slices of 4, racks ``a`` and ``b`` with room for 6 and 4. The first pod
may go to either, since both have room for a slice; say it goes to ``a``. The next three follow it.
The fifth pod begins a slice: ``a`` has room for 2, so that it goes to ``b``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct

from proreus.addons.coscheduling.ranks import rank_of
from proreus.framework import IntArray, NodeTable, PlacedPod, PodInfo, Rows
from proreus.objects import Pod
from proreus.objects.selectors import parse_int64

ProvidedFor = Callable[[PodInfo], Mapping[str, PodInfo]]
"""``Handle.provided_for``."""


def pods_by_node(nodes: NodeTable, pods: Sequence[PodInfo], provided_for: ProvidedFor) -> IntArray:
    """Return the number of pods of the largest size that fit on each node, shape ``(len(nodes),)``.

    By resources alone, with the largest request of any pod for each resource: a lower bound where
    the pods differ. Room that ``provided_for`` holds for the pods counts as free.
    """
    free = _free(nodes, pods, provided_for)
    largest: dict[str, int] = {}
    for pod in _unlike(pods):
        for name, amount in pod.requests.amounts.items():
            largest[name] = max(amount, largest.get(name, 0))
    return _count(nodes, free, largest)


def _free(
    nodes: NodeTable, pods: Sequence[PodInfo], provided_for: ProvidedFor
) -> dict[str, IntArray]:
    """Return the free amounts of each node, at least 0, for the resources of pods."""
    held = {
        one.uid: one
        for pod in _unlike(pods)
        for name, one in provided_for(pod).items()
        if name in nodes.rows
    }
    found: dict[str, IntArray] = {}
    for name in {name for pod in _unlike(pods) for name in pod.requests.amounts}:
        free = nodes.allocatable[name] - nodes.requested[name]
        for one in held.values():
            free[nodes.rows[one.pod.spec.node_name]] += one.requests.amounts.get(name, 0)
        free[nodes.unschedulable] = 0
        found[name] = np.maximum(free, 0)
    return found


def _count(nodes: NodeTable, free: Mapping[str, IntArray], requests: Mapping[str, int]) -> IntArray:
    """Return the number of pods with some requests that fit on each node."""
    room = np.maximum(nodes.allowed_pods - nodes.pod_count, 0)
    for name, amount in requests.items():
        if amount:
            room = np.minimum(room, free[name] // amount)
    room[nodes.unschedulable] = 0
    found: IntArray = room.astype(np.int64)
    return found


def _unlike(pods: Sequence[PodInfo]) -> Iterable[PodInfo]:
    """Return one pod for each distinct request object; most pods of a gang share one."""
    return {id(pod.requests): pod for pod in pods}.values()


class GroupRoom:
    """Finds domains that cannot hold ``needed`` of some pods.

    A domain that is not named may hold them: taints, selectors and in what portions the resources
    are free are found out by trying. Example: pods of 4, 1 and 1 CPUs, of which 2 are needed, need
    2 CPUs in all and 1 on one node.
    """

    def __init__(
        self, nodes: NodeTable, pods: Sequence[PodInfo], needed: int, provided_for: ProvidedFor
    ) -> None:
        self.needed = needed
        self._free = _free(nodes, pods, provided_for)
        self._least: dict[str, tuple[int, int]] = {}
        """By resource: the sum and the largest of the smallest requests that are enough."""
        smallest: dict[str, int] = {}
        for name in sorted(self._free):
            amounts = sorted(pod.requests.amounts.get(name, 0) for pod in pods)[:needed]
            self._least[name] = sum(amounts), amounts[-1]
            smallest[name] = amounts[0]
        self._most_pods = _count(nodes, self._free, smallest)

    def of_domains(self, domains: Sequence[Rows]) -> list[tuple[int, str]]:
        """Return for each domain the most pods that it holds, and the resources that it lacks.

        ``domains``: the rows of each, at least one.
        """
        if not domains:
            return []
        rows = np.concatenate(domains)
        starts = np.cumsum([0, *(len(one) for one in domains[:-1])])
        counts = np.add.reduceat(self._most_pods[rows], starts).tolist()
        lacking: list[list[str]] = [[] for _ in domains]
        for name, (total, largest) in self._least.items():
            free = self._free[name][rows]
            short = np.add.reduceat(free, starts) < total
            short |= np.maximum.reduceat(free, starts) < largest
            for index in np.flatnonzero(short).tolist():
                lacking[index].append(f"Insufficient {name}")
        for index, count in enumerate(counts):
            if count < self.needed and not lacking[index]:
                lacking[index].append(f"room for {count} pods")
        return [(count, ", ".join(texts)) for count, texts in zip(counts, lacking, strict=True)]


def best_fit(capacities: Sequence[int], needed: int) -> list[int]:
    """Return the indexes of the domains that hold ``needed`` pods: the largest, the last tightly.

    Largest first, so that there are as few as possible; where one holds all that is left, it is the
    smallest that does. All domains with room where they do not suffice. Source: Kueue's BestFit.
    """
    left = sorted((i for i, n in enumerate(capacities) if n > 0), key=lambda i: -capacities[i])
    chosen = []
    while left and needed > 0:
        enough = [index for index in left if capacities[index] >= needed]
        index = min(enough, key=lambda i: capacities[i]) if enough else left[0]
        left.remove(index)
        chosen.append(index)
        needed -= capacities[index]
    return chosen


def least_free(capacities: Sequence[int], needed: int) -> list[int]:
    """Return the indexes of the domains that hold ``needed`` pods, the smallest first."""
    chosen = []
    for index in sorted((i for i, n in enumerate(capacities) if n > 0), key=capacities.__getitem__):
        if needed <= 0:
            break
        chosen.append(index)
        needed -= capacities[index]
    return chosen


# ---- slices --------------------------------------------------------------------------------------

_SLICE_KEY = "kueue.x-k8s.io/podset-slice-required-topology"
_SLICE_SIZE = "kueue.x-k8s.io/podset-slice-size"


class TopologySlices(Struct, frozen=True):
    """The slices of a group: ``size`` pods each, in one domain of the label ``key``."""

    key: str
    size: int

    def node_names(
        self,
        pod: PodInfo,
        placed: Sequence[PlacedPod],
        nodes: NodeTable,
        provided_for: ProvidedFor,
    ) -> frozenset[str]:
        """Return the nodes that a pod may go to, beside those of its group that have one.

        Pods with a number are of the slice that it falls into; another pod joins a slice that is
        not complete. Where there is none, domains with room for a whole slice, by resources alone.
        """
        codes = nodes.label(self.key)
        found = [one for one in placed if one.node_name in nodes.rows]
        of_domain = Counter(int(codes[nodes.rows[one.node_name]]) for one in found)
        own = self._number_of(pod.pod)
        if own is None:
            domains = [code for code, count in of_domain.items() if count % self.size]
        else:
            siblings = (one for one in found if self._number_of(one.pod.pod) == own)
            domains = [int(codes[nodes.rows[one.node_name]]) for one in siblings]
        if not domains:
            present = codes >= 0
            by_node = pods_by_node(nodes, [pod], provided_for)
            room = np.bincount(codes[present], weights=by_node[present])
            domains = np.flatnonzero(room >= self.size).tolist()
        rows = np.flatnonzero(np.isin(codes, domains) & (codes >= 0))
        return frozenset(nodes[row].name for row in rows.tolist())

    def _number_of(self, pod: Pod) -> Hashable:
        """Return the slice of a pod by its number, None for a pod without one."""
        rank = rank_of(pod)
        return (*rank[:-1], rank[-1] // self.size) if rank else None


def slices_of(pod: Pod) -> TopologySlices | None:
    """Return the slices by a pod's annotations, None without valid ones."""
    annotations = pod.metadata.annotations
    key, size = annotations.get(_SLICE_KEY), parse_int64(annotations.get(_SLICE_SIZE, "")) or 0
    return TopologySlices(key, size) if key and size > 0 else None
