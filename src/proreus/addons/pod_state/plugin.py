"""The plugin: terminating pods count for a node, nominated ones against it.

Worked example: two pods of node ``a`` are terminating, one pod is nominated to ``b``. The raw
scores are 2 and -1, so that ``a`` gets 100 and ``b`` 0; a node with neither gets 33.
"""

from __future__ import annotations

from collections.abc import Hashable

from proreus.addons.min_max import min_max_normalize
from proreus.framework import (
    ClusterEvent,
    CycleState,
    IntArray,
    NodeInfo,
    NodeTable,
    PodInfo,
    ScorePlugin,
)


class PodState(ScorePlugin):
    """Prefer nodes with many terminating pods and few nominated ones."""

    row_local = True

    def events_to_register(self) -> list[ClusterEvent]:
        """Register nothing: the plugin rejects no pod."""
        return []

    def sign(self, pod: PodInfo) -> Hashable:
        """Return the same for all pods: none of their fields is read."""
        return ()

    def invalidation_key(self, nodes: NodeTable) -> Hashable:
        """Return the state of the nominations, which rows do not show."""
        return self.handle.nominator.position

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Score one node by its pods that end less those that are to come."""
        # Node by node only: results are cached by row, so that few nodes are looked at again.
        pods = node.pods.values()
        ending = sum(one.pod.metadata.deletion_timestamp is not None for one in pods)
        return ending - len(self.handle.nominator.nominated_pods(node.name))

    def normalize(self, state: CycleState, pod: PodInfo, scores: IntArray) -> IntArray:
        """Stretch the range of the raw scores to 0..100; equal ones become 0."""
        return min_max_normalize(scores)
