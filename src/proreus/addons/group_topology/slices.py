"""Slices of a group (Kueue): so many pods each, and each slice in one domain of a label.

Worked example: 8 pods in slices of 4, racks ``a`` and ``b`` with room for 6 and 4. The first pod
may go to either, since both have room for a slice; say it goes to ``a``. The next three follow it.
The fifth pod begins a slice: ``a`` has room for 2, so that it goes to ``b``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

import numpy as np
from msgspec import Struct

from proreus.addons.coscheduling.ranks import rank_of
from proreus.addons.group_topology.domains import ProvidedFor, pods_by_node
from proreus.framework import NodeTable, PlacedPod, PodInfo
from proreus.objects import Pod
from proreus.objects.selectors import parse_int64

_KEY = "kueue.x-k8s.io/podset-slice-required-topology"
_SIZE = "kueue.x-k8s.io/podset-slice-size"


class TopologySlices(Struct, frozen=True):
    """What the pods of a group ask for: ``size`` of them in one domain of the label ``key``."""

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
        """Return which slice a pod is of, by its number; None for a pod without one."""
        rank = rank_of(pod)
        return (*rank[:-1], rank[-1] // self.size) if rank else None


def slices_of(pod: Pod) -> TopologySlices | None:
    """Return what a pod's annotations say of slices; None if they say nothing that can be read."""
    annotations = pod.metadata.annotations
    key, size = annotations.get(_KEY), parse_int64(annotations.get(_SIZE, "")) or 0
    return TopologySlices(key, size) if key and size > 0 else None
