"""The pods of every node by importance, remembered from one preemption to the next.

Only nodes that changed since are looked at again, and only those that are tried are sorted: most
clusters are large, and most preemptions change one node.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np

from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.pod_info import NOT_STARTED, PodInfo
from proreus.framework.verdicts import BoolArray, IntArray, Rows

_NO_PODS = 2**31
"""Above every priority: stands for a node without pods."""


@dataclass(frozen=True, slots=True)
class _NodePods:
    """The pods of a node, the most important first: ``ranks`` are their negative priorities."""

    pods: list[PodInfo]
    ranks: list[int]

    @classmethod
    def of(cls, node: NodeInfo) -> _NodePods:
        pods = sorted_by_importance([node.pods[uid] for uid in node.order])
        return cls(pods, [pod.importance[0] for pod in pods])


class PodsByPriority:
    """Who is on the nodes of a table. ``refresh`` comes first, whenever the table may have changed.

    A pod that was assumed may stand for the confirmed one, which weighs the same.
    """

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._position = -1
        self._lowest: IntArray = np.empty(0, dtype=np.int64)
        """By row: the priority of the least important pod."""
        self._pods_by_row: dict[int, _NodePods] = {}

    def refresh(self) -> None:
        """Look at the nodes that changed."""
        nodes = self._nodes
        rows = None
        if len(self._lowest) == len(nodes) and self._position >= 0:
            rows = nodes.changes_since(self._position)
        if rows is None:
            self._pods_by_row.clear()
            self._lowest = np.array([_lowest(node) for node in nodes], dtype=np.int64)
        else:
            for row in rows:
                self._pods_by_row.pop(row, None)
                self._lowest[row] = _lowest(nodes[row])
        self._position = nodes.position

    def has_lower_priority_pods(self, rows: Rows, priority: int) -> BoolArray:
        """Return which of the rows have pods below a priority."""
        below: BoolArray = self._lowest[rows] < priority
        return below

    def lower_priority_pods(self, row: int, priority: int) -> list[PodInfo]:
        """Return the pods of a row below a priority, the most important first."""
        node_pods = self._pods_by_row.get(row)
        if node_pods is None:
            node_pods = self._pods_by_row[row] = _NodePods.of(self._nodes[row])
        return node_pods.pods[bisect_right(node_pods.ranks, -priority) :]


def sorted_by_importance(pods: list[PodInfo]) -> list[PodInfo]:
    """Sort pods by priority, then by how long they have run.

    Of pods that have not started the last one comes first: kube-scheduler asks the clock anew for
    each comparison, so that of two the one it asks about first is always the older one.
    """
    ranked = []
    for place, pod in enumerate(pods):
        prioritize_nodes, start = pod.importance
        ranked.append((prioritize_nodes, start, -place if start == NOT_STARTED else place, pod))
    ranked.sort()
    return [pod for *_, pod in ranked]


def _lowest(node: NodeInfo) -> int:
    return min([pod.priority for pod in node.pods.values()], default=_NO_PODS)
