"""PodState: prefer nodes that are about to be free.

Source: kubernetes-sigs/scheduler-plugins, ``pkg/podstate``.

Terminating pods count for a node, nominated ones against it.

Worked example: two pods of node ``a`` are terminating, one pod is nominated to ``b``. The raw
scores are 2 and -1, so that ``a`` gets 100 and ``b`` 0; a node with neither gets 33.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from proreus.addons.min_max import min_max_normalize
from proreus.framework import (
    CycleState,
    Handle,
    IntArray,
    NodeInfo,
    NodeTable,
    PodInfo,
    ScorePlugin,
)


class PodState(ScorePlugin):
    """Prefer nodes with many terminating pods and few nominated ones."""

    row_local = True

    def __init__(self, args: None, handle: Handle) -> None:
        super().__init__(args, handle)
        self._ending: IntArray = np.zeros(0, dtype=np.int64)
        """The number of terminating pods by row of ``handle.nodes``, as of ``_position``."""
        self._position = 0

    def sign(self, pod: PodInfo) -> Hashable:
        """Return one signature for all pods: none of their fields is read."""
        return ()

    def invalidation_key(self, nodes: NodeTable) -> Hashable:
        """Return the state of the nominations, since rows do not show them."""
        return self.handle.nominator.position

    def score_all(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> IntArray:
        """Score nodes by the number of terminating pods less the number of nominated ones."""
        if nodes is self.handle.nodes:
            scores = self._ending_by_row(nodes).copy()
        else:
            scores = np.array([_ending(node) for node in nodes], dtype=np.int64)
        nominator, rows = self.handle.nominator, nodes.rows
        for name in nominator.nominated_nodes():
            if (row := rows.get(name)) is not None:
                scores[row] -= len(nominator.nominated_pods(name))
        return scores

    def _ending_by_row(self, nodes: NodeTable) -> IntArray:
        """Return the number of terminating pods on each node of the cluster."""
        # Nominations come and go with every preemption, and drop all cached results. Pods differ
        # only on nodes that changed since.
        changed: Sequence[int] | None = nodes.changes_since(self._position)
        if changed is None or len(self._ending) != len(nodes):
            self._ending = np.zeros(len(nodes), dtype=np.int64)
            changed = range(len(nodes))
        for row in changed:
            self._ending[row] = _ending(nodes[row])
        self._position = nodes.position
        return self._ending

    def normalize(self, state: CycleState, pod: PodInfo, scores: IntArray) -> IntArray:
        """Stretch the range of the raw scores to 0..100; equal ones become 0."""
        return min_max_normalize(scores)


def _ending(node: NodeInfo) -> int:
    """Return the number of terminating pods on a node."""
    return sum(one.pod.metadata.deletion_timestamp is not None for one in node.pods.values())
