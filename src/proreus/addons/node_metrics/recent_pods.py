"""Pods that metrics do not show yet, by node, with a prediction for each.

A pod counts from Reserve on, before its binding has come back from the apiserver, until the plugin
drops it, because metrics show it, or it is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Generic, NamedTuple, TypeVar

from proreus.framework import CycleState, Handle, PodInfo, ReservePlugin, Status, is_provided
from proreus.objects import POD_SCHEDULED, PODS, Pod, true_condition_of

T = TypeVar("T")


class RecentPod(NamedTuple, Generic[T]):
    """The time when a pod got its node, in seconds since the epoch, and its prediction."""

    assigned_at: float
    predicted: T


class RecentPods(Generic[T]):
    """The pods of each node that metrics do not show yet."""

    def __init__(self, handle: Handle, predict: Callable[[Pod], T]) -> None:
        """``predict``: called once a pod."""
        self._clock = handle.clock
        self._predict = predict
        self._by_node: dict[str, dict[str, RecentPod[T]]] = {}
        handle.on_change(PODS, self._pod_changed)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if new is None:
            assert old is not None
            self.forget(old.metadata.uid, old.spec.node_name)
        elif new.spec.node_name and (old is None or not old.spec.node_name):
            self.note(new, new.spec.node_name)

    def note(self, pod: Pod, node_name: str) -> None:
        """Count a pod on a node, from the moment of its binding if that is known, else from now."""
        if is_provided(pod):
            return
        pods = self._by_node.setdefault(node_name, {})
        if pod.metadata.uid not in pods:
            assigned_at = transition_time(pod, POD_SCHEDULED) or self._clock.now()
            pods[pod.metadata.uid] = RecentPod(assigned_at, self._predict(pod))

    def forget(self, uid: str, node_name: str) -> None:
        """Do not count a pod any more, if it was counted."""
        pods = self._by_node.get(node_name)
        if pods is not None and pods.pop(uid, None) is not None and not pods:
            del self._by_node[node_name]

    def keep(self, counts: Callable[[RecentPod[T]], bool]) -> None:
        """Forget the pods that do not count any more."""
        for name in list(self._by_node):
            self.keep_on(name, counts)

    def keep_on(self, node_name: str, counts: Callable[[RecentPod[T]], bool]) -> None:
        """Forget the pods of one node that do not count any more."""
        pods = self._by_node.get(node_name, {})
        kept = {uid: one for uid, one in pods.items() if counts(one)}
        if kept:
            self._by_node[node_name] = kept
        else:
            self._by_node.pop(node_name, None)

    def on(self, node_name: str) -> Iterable[RecentPod[T]]:
        """Return the pods of a node."""
        return self._by_node.get(node_name, {}).values()

    @property
    def by_node(self) -> Mapping[str, Mapping[str, RecentPod[T]]]:
        """The pods by UID, by node; only nodes that have some."""
        return self._by_node


class RecentPodsPlugin(ReservePlugin, Generic[T]):
    """A plugin that has ``recent`` pods, and counts them from Reserve on."""

    recent: RecentPods[T]

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Count the pod before its binding has come back from the apiserver."""
        self.recent.note(pod.pod, node_name)
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Forget the pod."""
        self.recent.forget(pod.uid, node_name)


def transition_time(pod: Pod, condition_type: str) -> float | None:
    """Return the time since which a condition of a pod is true, in seconds since the epoch.

    Return None if it is not true, or has no time.
    """
    condition = true_condition_of(pod, condition_type)
    return None if condition is None else timestamp(condition.last_transition_time or "")


def timestamp(text: str) -> float | None:
    """Parse an RFC 3339 time; return seconds since the epoch, None for any other text."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
