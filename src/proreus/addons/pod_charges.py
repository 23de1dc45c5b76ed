"""Charges each pod with a node once, in an account that labels and annotations of pods fill.

A pod's owner may change these at any time. So the choice of Reserve counts for as long as this
process lives. A pod that another scheduler bound, or this one before it started, is charged by its
labels and annotations when it is first seen with a node: a claim, which the account checks. Later
ones change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, Generic, TypeVar, cast
from weakref import WeakKeyDictionary, ref

from proreus.framework import Handle, NodeTable, PodInfo
from proreus.objects import PODS, Pod, condition_of
from proreus.objects.pod import is_terminal

T = TypeVar("T")
S = TypeVar("S")

_MOST_GONE = 1_000
"""The number of charges of deleted pods that are kept."""


class PodCharges(Generic[T]):
    """The charges of one account. Its owner calls ``pod_changed`` for each change of a pod.

    ``claim``: returns the charge by the labels and annotations of a pod, None for nothing.
    ``account``: the name of the plugin, for Events and metrics.
    """

    # Invariant: _nodes has every pod that is reserved or bound, and _by_node those of them that are
    # charged with anything. So a pod is charged once, in whatever order handlers are called.

    def __init__(self, handle: Handle, account: str, claim: Callable[[Pod], T | None]) -> None:
        self._handle = handle
        self._account = account
        self._claim = claim
        self._pods = handle.store(PODS)
        self._nodes: dict[str, str] = {}
        """The node of each pod, by UID."""
        self._by_node: dict[str, dict[str, T]] = {}
        self._gone: dict[str, T] = {}
        """Of pods that are gone, the latest at the end."""
        self._refused: set[str] = set()
        self._refused_total = handle.metrics.counter(
            "proreus_refused_allocations_total",
            "ALPHA",
            "Pods whose labels or annotations claim what they cannot have, by the plugin that does "
            "not count it.",
            "plugin",
        )

    def get(self, uid: str) -> T | None:
        """Return the charge of a pod, None without one."""
        return self._by_node.get(self._nodes.get(uid, ""), {}).get(uid)

    def latest(self, uid: str) -> T | None:
        """Return the charge of a pod, or the last one of a pod that has gone lately.

        Hints need the latter, once the pod that was tried meanwhile is back in the queue.
        """
        return self.get(uid) or self._gone.get(uid)

    def on_node(self, node_name: str) -> Mapping[str, T]:
        """Return the charges of the pods on a node, by UID."""
        return self._by_node.get(node_name, {})

    def is_decided(self, pod: Pod) -> bool:
        """Return whether the charge of a pod is decided, since it is reserved or bound."""
        return pod.metadata.uid in self._nodes or bool(pod.spec.node_name)

    def reserve(self, pod: PodInfo, node_name: str, charge: T | None) -> None:
        """Charge a pod with the choice of Reserve."""
        self._put(pod.uid, node_name, charge)

    def unreserve(self, pod: PodInfo) -> None:
        """Take back the choice of Reserve; a pod that is bound all the same has its claim."""
        self._remove(pod.uid)
        found = self._pods.get(pod.key)
        if found is not None and found.metadata.uid == pod.uid:
            self.decide(found)

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """Charge a pod that has got a node, and forget a pod that is gone or has finished."""
        if new is None or is_terminal(new):
            gone = new or old
            assert gone is not None
            self._forget(gone.metadata.uid)
        else:
            self.decide(new)

    def decide(self, pod: Pod) -> None:
        """Charge a pod by its claim, if it has a node and is not charged on that node already."""
        uid, node_name = pod.metadata.uid, pod.spec.node_name
        if node_name and self._nodes.get(uid) != node_name:
            self._put(uid, node_name, self._claim(pod))

    def _forget(self, uid: str) -> None:
        charge = self.get(uid)
        if charge is not None:
            self._gone[uid] = charge
            if len(self._gone) > _MOST_GONE:
                del self._gone[next(iter(self._gone))]
        self._remove(uid)
        self._refused.discard(uid)

    def refuse(self, pod: Pod, why: str) -> None:
        """Report once, by an Event and the metric, that a pod's claim does not count."""
        if pod.metadata.uid in self._refused:
            return
        self._refused.add(pod.metadata.uid)
        self._refused_total.labels(self._account).inc()
        text = f"{self._account} does not count what the pod claims: {why}"
        scheduler = pod.spec.scheduler_name
        self._handle.event_recorder.event(
            pod, "Warning", "AllocationRefused", "Scheduling", text, scheduler
        )

    def _put(self, uid: str, node_name: str, charge: T | None) -> None:
        self._remove(uid)
        # A provided pod comes back with the same UID.
        self._gone.pop(uid, None)
        self._nodes[uid] = node_name
        if charge is not None:
            self._by_node.setdefault(node_name, {})[uid] = charge

    def _remove(self, uid: str) -> None:
        node_name = self._nodes.pop(uid, "")
        charges = self._by_node.get(node_name)
        if charges is not None:
            charges.pop(uid, None)
            if not charges:
                del self._by_node[node_name]


def bound_at(pod: Pod) -> str:
    """Return the time of a pod's binding as text that sorts, "" without one in its status.

    Only components that may write a pod's status can change it, unlike labels and annotations.
    """
    condition = condition_of(pod, "PodScheduled")
    return "" if condition is None else condition.last_transition_time or ""


def of_cluster(handle: Handle, key: Hashable, make: Callable[[], S]) -> S:
    """Return an object that plugins of all profiles and configurations share; make it if needed.

    ``key``: of the object. ``make``: makes it, and adds it to the handlers of ``handle.shared``.
    """
    # By table of nodes, which they all have in common. Shared objects refer to the handle, and so
    # to the table: plugins and handlers hold them.
    known = _of_cluster.setdefault(handle.nodes, {})
    found = known[key]() if key in known else None
    if found is None:
        found = make()
        known[key] = ref(found)
    return cast(S, found)


_of_cluster: WeakKeyDictionary[NodeTable, dict[Hashable, ref[Any]]] = WeakKeyDictionary()
