"""The nominated pods of one moment, which a dry run may change."""

from __future__ import annotations

from collections.abc import Iterable

from proreus.framework.nominated_pods import Nominator
from proreus.framework.pod_info import PodInfo
from proreus.framework.post_filter_result import NominatingInfo


class NominationsCopy:
    """A copy of the scheduler's nominations (``framework.nominated_pods.Nominator``)."""

    def __init__(self, original: Nominator) -> None:
        self._original = original
        self._by_node: dict[str, list[PodInfo]] = {}
        self._position = 0

    def sync(self) -> None:
        """Copy the original anew."""
        by_node = {name: self._original.nominated_pods(name) for name in self._nodes()}
        if by_node != self._by_node:
            self._by_node = by_node
            self._position += 1

    def _nodes(self) -> list[str]:
        return [name for name in self._original.nominated_nodes() if name]

    def nominated_pods(self, node_name: str) -> list[PodInfo]:
        """Return the pods nominated to a node."""
        return list(self._by_node.get(node_name, ()))

    def nominated_nodes(self) -> Iterable[str]:
        """Return the names of all nodes that pods are nominated to."""
        return list(self._by_node)

    def nominated_node_of(self, uid: str) -> str | None:
        """Return the node that a pod is nominated to; None if it is not."""
        for name, pods in self._by_node.items():
            if any(pod.uid == uid for pod in pods):
                return name
        return None

    @property
    def position(self) -> int:
        """A number that grows with each change."""
        return self._position

    def changes_since(self, position: int) -> Iterable[str] | None:
        """Return no node if nothing changed since, None (not known) otherwise."""
        return () if position == self._position else None

    def add_nominated_pod(self, pod: PodInfo, nominating: NominatingInfo | None) -> None:
        """Do nothing: a dry run nominates no pod."""

    def delete_nominated_pod(self, uid: str) -> None:
        """Forget a nomination, if there is one."""
        node = self.nominated_node_of(uid)
        if node is None:
            return
        self._position += 1
        left = [pod for pod in self._by_node[node] if pod.uid != uid]
        if left:
            self._by_node[node] = left
        else:
            del self._by_node[node]
