"""The score of soft constraints: the fewer pods are in a node's domains, the higher.

A domain's count is multiplied by log(domains + 2), so that a constraint over few zones weighs
about as much as one over many hosts. Until NormalizeScore an ignored node has ``INVALID_SCORE``.

Worked example: one constraint over two zones with 4 and 1 pods, ``maxSkew`` 1. The weight is log 4,
1.39, the raw scores are 6 and 1 (5.55 and 1.39 rounded), normalised 100 * (6 + 1 - 6) // 6 = 16 and
100.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log

import numpy as np
from msgspec import Struct

from proreus.framework.interning import ABSENT
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import MAX_SCORE
from proreus.framework.pod_info import PodInfo
from proreus.framework.verdicts import BoolArray, FloatArray, IntArray
from proreus.objects.node import LABEL_HOSTNAME
from proreus.plugins.pod_topology_spread.constraints import SpreadConstraint
from proreus.plugins.pod_topology_spread.topology_domains import TopologyDomainCache

INVALID_SCORE = -1


class SpreadScores(Struct, eq=False):
    """Cycle state for Score.

    ``all_keys``: nodes that lack a topology key are ignored. ``points``: for each constraint the
    points of its domains by code, and 0 at the end for nodes without the label; None if each node
    is its own domain, or none has the label.
    """

    constraints: Sequence[SpreadConstraint]
    all_keys: bool
    weights: list[float]
    points: list[FloatArray | None]

    @classmethod
    def from_nodes(
        cls,
        constraints: Sequence[SpreadConstraint],
        all_keys: bool,
        pod: PodInfo,
        feasible: NodeTable,
        cluster: NodeTable,
        domain_cache: TopologyDomainCache,
    ) -> SpreadScores:
        """Count the pods of the whole cluster, by the domains that feasible nodes are in."""
        ignored = _missing_any(constraints, feasible) if all_keys else None
        weights: list[float] = []
        points: list[FloatArray | None] = []
        domains = domain_cache.of(constraints, pod, cluster, all_keys)
        sizes: dict[str, int] = {}
        for constraint, one in zip(constraints, domains, strict=True):
            key = constraint.topology_key
            host = key == LABEL_HOSTNAME
            # Score reads nothing of keys that no node has, and a pod may name thousands of them.
            if not host and not cluster.has_label(key):
                weights.append(0.0)
                points.append(None)
                continue
            size = sizes.get(key)
            if size is None:
                size = sizes[key] = _size(key, feasible, ignored, host)
            weight = log(size + 2)
            weights.append(weight)
            # A host's pods are counted in Score, for feasible nodes only; as a column of domains it
            # would be as long as the cluster.
            if host:
                points.append(None)
                continue
            if constraint.query is None:
                sums = np.zeros(one.codes + 1, dtype=np.int64)
            else:
                sums = one.sums(cluster.count_pods(constraint.query))
            by_code = sums.astype(np.float64) * weight + float(constraint.max_skew - 1)
            by_code[-1] = 0.0
            points.append(by_code)
        return cls(constraints, all_keys, weights, points)

    def of(self, nodes: NodeTable) -> IntArray:
        """Return the raw scores of all nodes."""
        total = np.zeros(len(nodes), dtype=np.float64)
        for constraint, weight, points in zip(
            self.constraints, self.weights, self.points, strict=True
        ):
            if not nodes.has_label(constraint.topology_key):
                continue
            codes = nodes.label(constraint.topology_key)
            if points is not None:
                total += points[codes]
                continue
            skew = float(constraint.max_skew - 1)
            if constraint.query is None:
                own = np.full(len(nodes), skew)
            else:
                own = nodes.count_pods(constraint.query) * weight + skew
            own[codes == ABSENT] = 0.0
            total += own
        # Go's math.Round: half away from zero. NumPy's `rint` rounds half to even.
        whole = np.floor(total)
        scores = (whole + (total - whole >= 0.5)).astype(np.int64)
        if self.all_keys:
            scores[_missing_any(self.constraints, nodes)] = INVALID_SCORE
        return scores


def normalize(scores: IntArray) -> IntArray:
    """Invert raw scores to 0 to 100, so that the emptiest domain has 100; ignored nodes get 0."""
    ignored = scores == INVALID_SCORE
    counted = scores[~ignored]
    if not len(counted):
        return np.zeros_like(scores)
    lowest, highest = int(counted.min()), int(counted.max())
    if highest <= 0:
        # No domain has a pod: all are best, and the quotient below does not exist.
        inverted = np.full_like(scores, MAX_SCORE)
    else:
        inverted = MAX_SCORE * (highest + lowest - scores) // highest
    inverted[ignored] = 0
    return inverted


def _missing_any(constraints: Sequence[SpreadConstraint], nodes: NodeTable) -> BoolArray:
    if not all(nodes.has_label(constraint.topology_key) for constraint in constraints):
        return np.ones(len(nodes), dtype=np.bool_)
    missing = np.zeros(len(nodes), dtype=np.bool_)
    for constraint in constraints:
        missing |= nodes.label(constraint.topology_key) == ABSENT
    return missing


def _size(key: str, feasible: NodeTable, ignored: BoolArray | None, host: bool) -> int:
    """Return the number of domains of feasible nodes."""
    # A missing label reads as "" in Go, so that it is one domain with the empty value.
    if host:
        return len(feasible) - (0 if ignored is None else int(np.count_nonzero(ignored)))
    codes = feasible.label(key)
    if ignored is not None:
        codes = codes[~ignored]
    values = feasible.label_values(key)
    present = np.bincount(codes + 1, minlength=len(values) + 1) > 0
    empty = values.find("")
    both = empty != ABSENT and present[0] and present[empty + 1]
    return int(np.count_nonzero(present)) - bool(both)
