"""Nominated pods by node: kube-scheduler's ``nominator``.

Preemption nominates a pod to the node of its victims. Until the pod is assumed, Filter counts it on
that node for pods of equal or lower priority.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from proreus.framework.change_log import Changes
from proreus.framework.pod_info import PodInfo, QueuedPodInfo
from proreus.framework.post_filter_result import NominatingInfo
from proreus.objects.meta import ObjectMeta
from proreus.objects.pod import Pod

_MAX_CACHED_EVENTS = 20_000
"""How many changes are kept for ``changes_since`` at most."""


class Nominator:
    """Nominated pods by node, in the order of their nominations (``framework.handle.Nominator``).

    ``pod_lister``: returns the informer's pod of a ``namespace/name``. ``queued_pod``: returns the
    queue's. ``keeps_nowhere``: register also that a pod is nominated to no node, as up to 1.36
    (``Change.QUEUE_BOOKKEEPING_OF_1_37``).
    """

    # Invariant: _node_of[uid] is the one node whose dict in _by_node has uid; no dict is empty.
    # A pod is kept by name only and looked up on each call, so that it is never out of date.
    # _changes has the nodes whose nominated pods changed.

    def __init__(
        self,
        pod_lister: Callable[[str], Pod | None],
        queued_pod: Callable[[str], QueuedPodInfo | None],
        *,
        keeps_nowhere: bool = True,
    ) -> None:
        self._keeps_nowhere = keeps_nowhere
        self._pod_lister = pod_lister
        self._queued_pod = queued_pod
        self._node_of: dict[str, str] = {}
        self._by_node: dict[str, dict[str, PodInfo]] = {}
        self._changes = Changes[str](_MAX_CACHED_EVENTS)

    def nominated_pods(self, node_name: str) -> list[PodInfo]:
        """Return the pods nominated to a node, as they are now.

        A pod that is in flight comes as a stub without requests and with priority 0, as in
        kube-scheduler.
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
        """The end of the record of changes, for a later ``changes_since``."""
        return self._changes.position

    def changes_since(self, position: int) -> Iterable[str] | None:
        """Return the nodes whose nominated pods may have changed since then; None if not known."""
        return self._changes.changed_since(position)

    def record_change(self, uid: str) -> None:
        """Record that a pod, if it is nominated, now counts with other requests."""
        node = self._node_of.get(uid)
        if node:
            self._changes.record(node)

    def add_nominated_pod(self, pod: PodInfo, nominating: NominatingInfo | None) -> None:
        """Register a nomination, and drop an earlier one; None is the node in its status.

        Up to 1.36, an empty node name registers the pod without a node. A pod that is gone or bound
        is not registered.
        """
        # The empty name had a purpose: the patch that clears the status may not have arrived yet,
        # and the node that it still names must not count.
        self.delete_nominated_pod(pod.uid)
        node = nominating.node_name if nominating else pod.pod.status.nominated_node_name
        if not node and (nominating is None or not self._keeps_nowhere):
            return
        # A patch may come back after the pod was deleted or bound: nobody would ever remove it.
        latest = self._pod_lister(pod.key)
        if latest is None or latest.spec.node_name:
            return
        self._node_of[pod.uid] = node
        self._by_node.setdefault(node, {})[pod.uid] = _stub(pod)
        self.record_change(pod.uid)

    def delete_nominated_pod(self, uid: str) -> None:
        """Forget a nomination, if there is one."""
        if uid not in self._node_of:
            return
        self.record_change(uid)
        node = self._node_of.pop(uid)
        pods = self._by_node[node]
        del pods[uid]
        if not pods:
            del self._by_node[node]

    def update(self, old: PodInfo | None, new: PodInfo) -> None:
        """Apply an update of a pod."""
        former = old if old is not None else new
        # Where neither version names a node, our own nomination has not come back from the
        # apiserver yet, and stays. Otherwise the new version counts: someone else may have set it.
        keep: NominatingInfo | None = None
        if not (former.pod.status.nominated_node_name or new.pod.status.nominated_node_name):
            node = self._node_of.get(former.uid)
            keep = None if node is None else NominatingInfo(node)
        self.delete_nominated_pod(former.uid)
        self.add_nominated_pod(new, keep)

    def validate(self) -> None:
        """Assert that both directions agree."""
        nodes = {uid: node for node, pods in self._by_node.items() for uid in pods}
        assert nodes == self._node_of, "nominations are out of step"
        assert all(self._by_node.values()), "a node is kept without nominations"


def _stub(pod: PodInfo) -> PodInfo:
    meta = pod.pod.metadata
    return PodInfo(Pod(metadata=ObjectMeta(name=meta.name, namespace=meta.namespace, uid=meta.uid)))
