"""Which pods are to be kept room for, and on which node.

A pod is nominated to a node after preemption made room there, or is about to; until it is assumed,
Filter counts it in on that node for pods of no higher priority.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from proreus.framework.change_log import Changes
from proreus.framework.pod_info import PodInfo, QueuedPodInfo
from proreus.framework.post_filter_result import NominatingInfo
from proreus.objects.meta import ObjectMeta
from proreus.objects.pod import Pod

_MAX_CACHED_EVENTS = 20_000
"""So many changes are remembered at most."""


class Nominator:
    """Nominated pods by node, in the order of their nominations (``framework.handle.Nominator``).

    ``pod_lister``: what the watch says of a pod, by ``namespace/name``. ``queued_pod``: the pod in
    the queue, by ``namespace/name``.
    """

    # Invariant: _node_of[uid] is the one node whose dict in _by_node has uid; no dict is empty.
    # A pod is kept by name only and looked up when asked for, so that it is never out of date.
    # _changes names the nodes whose answers changed.

    def __init__(
        self,
        pod_lister: Callable[[str], Pod | None],
        queued_pod: Callable[[str], QueuedPodInfo | None],
    ) -> None:
        self._pod_lister = pod_lister
        self._queued_pod = queued_pod
        self._node_of: dict[str, str] = {}
        self._by_node: dict[str, dict[str, PodInfo]] = {}
        self._changes = Changes[str](_MAX_CACHED_EVENTS)

    def nominated_pods(self, node_name: str) -> list[PodInfo]:
        """Return the pods nominated to a node, as they are now.

        A pod that is not queued (it is being tried) comes as a stub that asks for nothing and has
        priority 0: kube-scheduler does so.
        """
        return [
            stub if (queued := self._queued_pod(stub.key)) is None else queued.info
            for stub in self._by_node.get(node_name, {}).values()
        ]

    def nominated_nodes(self) -> list[str]:
        """Return the names of all nodes that pods are nominated to."""
        return [name for name in self._by_node if name]

    def nominated_node_of(self, uid: str) -> str | None:
        """Return the node that a pod is nominated to; None if it is not."""
        return self._node_of.get(uid)

    @property
    def position(self) -> int:
        """Where the record of changes ends now; to be handed to ``changes_since`` later."""
        return self._changes.position

    def changes_since(self, position: int) -> Iterable[str] | None:
        """Return the nodes with perhaps other nominated pods since then; None: not known."""
        return self._changes.changed_since(position)

    def record_change(self, uid: str) -> None:
        """Note that a pod is another one now for those who ask, if it is nominated."""
        node = self._node_of.get(uid)
        if node:
            self._changes.record(node)

    def add_nominated_pod(self, pod: PodInfo, nominating: NominatingInfo | None) -> None:
        """Register a nomination in place of an earlier one (None: the one that its status has).

        The empty name registers the pod under no node, so that the name in its status, which may
        still be on its way out, does not count. A pod that is gone, or bound, is not registered.
        """
        self.delete_nominated_pod(pod.uid)
        node = nominating.node_name if nominating else pod.pod.status.nominated_node_name
        if not node and nominating is None:
            return
        latest = self._pod_lister(pod.key)
        if latest is None or latest.spec.node_name:
            return
        self._node_of[pod.uid] = node
        self._by_node.setdefault(node, {})[pod.uid] = _stub(pod)
        self.record_change(pod.uid)

    def delete_nominated_pod(self, uid: str) -> None:
        """Forget a nomination, if there is one."""
        self.record_change(uid)
        node = self._node_of.pop(uid, None)
        if node is not None:
            pods = self._by_node[node]
            del pods[uid]
            if not pods:
                del self._by_node[node]

    def update(self, old: PodInfo | None, new: PodInfo) -> None:
        """Follow a change of a pod.

        Where neither version names a node, a nomination made here has not reached the apiserver
        yet, or not come back: it stays. Otherwise the new version counts.
        """
        former = old if old is not None else new
        keep: NominatingInfo | None = None
        if not (former.pod.status.nominated_node_name or new.pod.status.nominated_node_name):
            node = self._node_of.get(former.uid)
            keep = None if node is None else NominatingInfo(node)
        self.delete_nominated_pod(former.uid)
        self.add_nominated_pod(new, keep)

    def validate(self) -> None:
        """Assert that both directions tell the same."""
        nodes = {uid: node for node, pods in self._by_node.items() for uid in pods}
        assert nodes == self._node_of, "nominations are out of step"
        assert all(self._by_node.values()), "a node is kept without nominations"


def _stub(pod: PodInfo) -> PodInfo:
    meta = pod.pod.metadata
    return PodInfo(Pod(metadata=ObjectMeta(name=meta.name, namespace=meta.namespace, uid=meta.uid)))
