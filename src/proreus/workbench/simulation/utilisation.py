"""Measures the utilisation of a cluster, and the free resources that are of no use.

Fragmentation is measured as in "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with
Fragmentation Gradient Descent" (USENIX ATC 2023): what is free on a node is a fragment for a pod
that does not fit there. Over all nodes, and over the requests that the cluster's own pods have,
each as often as it occurs, this gives the expected share of free capacity that the next pod cannot
use. It is 0 where any pod fits on any node with something free, and 1 where no pod fits at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from proreus.framework.node_table import NodeTable
from proreus.framework.verdicts import BoolArray, IntArray
from proreus.workbench.simulation.results import ResourceUse, Utilisation

PODS = "pods"
_ALWAYS = ("cpu", "memory")
_BINS = 20
_MOST_SHAPES = 256
"""Kinds of pods that fragmentation is averaged over; the most frequent ones are representative."""

Shapes = Mapping[tuple[tuple[str, int], ...], int]
"""The number of pods with certain requests; requests are sorted (resource, amount)."""


def shapes_of(requests: Iterable[Mapping[str, int]]) -> Shapes:
    """Count equal requests of pods, without pods that request nothing."""
    counted: Counter[tuple[tuple[str, int], ...]] = Counter()
    for amounts in requests:
        shape = tuple(sorted((name, amount) for name, amount in amounts.items() if amount))
        if shape:
            counted[shape] += 1
    # By frequency, then by content: equal clusters give equal figures.
    return dict(sorted(counted.items(), key=lambda one: (-one[1], one[0]))[:_MOST_SHAPES])


def measure(table: NodeTable, shapes: Shapes) -> Utilisation:
    """Return the utilisation of the nodes of a table, for pods of these shapes.

    Resources are those of the nodes that take pods: a cordoned one, as it is drained, has no room.
    """
    taking: BoolArray = ~table.unschedulable
    names = sorted(
        {*_ALWAYS, *(name for name in table.allocatable if table.allocatable[name].any())}
    )
    allocatable = {name: table.allocatable[name][taking] for name in names}
    requested = {name: table.requested[name][taking] for name in names}
    allocatable[PODS], requested[PODS] = table.allowed_pods[taking], table.pod_count[taking]
    free: dict[str, IntArray] = {
        name: np.maximum(allocatable[name] - requested[name], 0) for name in allocatable
    }
    fragments = _fragments(free, shapes)
    return Utilisation(
        nodes=len(table),
        empty_nodes=int((table.pod_count == 0).sum()),
        pods=int(table.pod_count.sum()),
        resources={
            name: _use(allocatable[name], requested[name], free[name], fragments[name])
            for name in allocatable
        },
    )


def _use(
    allocatable: IntArray, requested: IntArray, free: IntArray, fragments: float
) -> ResourceUse:
    # Sums of bytes over many nodes exceed int64 no sooner than at 9 EB.
    has = allocatable > 0
    shares = requested[has] / allocatable[has]
    total, used, unused = int(allocatable.sum()), int(requested.sum()), int(free.sum())
    return ResourceUse(
        allocatable=total,
        requested=used,
        share=round(used / total, 6) if total else 0.0,
        imbalance=round(float(np.std(shares)), 6) if len(shares) else 0.0,
        fragmentation=round(fragments / unused, 6) if unused else 0.0,
        histogram=_histogram(shares),
    )


def _histogram(shares: npt.NDArray[np.float64]) -> tuple[int, ...]:
    bins = np.clip((shares * _BINS).astype(np.int64), 0, _BINS - 1)
    return tuple(np.bincount(bins, minlength=_BINS).tolist())


def _fragments(free: Mapping[str, IntArray], shapes: Shapes) -> dict[str, float]:
    """Return the mean amount of each resource that is on nodes where a pod does not fit."""
    total = sum(shapes.values())
    fragments = dict.fromkeys(free, 0.0)
    if not total:
        return fragments
    open_nodes: BoolArray = free[PODS] > 0
    for shape, count in shapes.items():
        fits = open_nodes.copy()
        for name, amount in shape:
            fits &= free[name] >= amount if name in free else False
        for name, amounts in free.items():
            fragments[name] += float(amounts[~fits].sum()) * count / total
    return fragments
