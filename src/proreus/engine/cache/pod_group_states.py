"""The known pods of each PodGroup: unscheduled, assumed or assigned (gate GenericWorkload).

Event handlers and the cache's assume and forget keep it up to date. A group's scheduling cycle
assumes its pods like any other, so plugins always read the state of the current cycle here.
"""

from __future__ import annotations

from collections.abc import Iterable

from proreus.framework.change_log import Changes
from proreus.framework.pod_group import PlacedPod
from proreus.framework.pod_info import PodInfo
from proreus.objects.pod import Pod
from proreus.objects.scheduling import pod_group_key

_CHANGES_KEPT = 4096


class PodGroupState:
    """The pods of one group by UID, each in one of three dicts.

    ``generation`` grows with every change of the pods that have a node. ``reported_uid``: UID of
    the PodGroup that this scheduler has reported as scheduled.
    """

    __slots__ = ("assigned", "assumed", "generation", "reported_uid", "unscheduled")

    def __init__(self) -> None:
        self.generation = 0
        self.reported_uid = ""
        self.unscheduled: dict[str, PodInfo] = {}
        """Without a node; only pods of this scheduler's profiles."""
        self.assumed: dict[str, PlacedPod] = {}
        """Assumed by this scheduler, not confirmed yet."""
        self.assigned: dict[str, PlacedPod] = {}
        """On a node, bound by any scheduler."""

    @property
    def all_pods_count(self) -> int:
        """How many pods are known."""
        return len(self.unscheduled) + len(self.assumed) + len(self.assigned)

    @property
    def scheduled_count(self) -> int:
        """How many pods have a node, assumed ones included."""
        return len(self.assumed) + len(self.assigned)

    def scheduled(self) -> list[PlacedPod]:
        """Return the pods that have a node, assumed ones included."""
        return [*self.assigned.values(), *self.assumed.values()]

    def discard(self, uid: str) -> None:
        """Forget a pod, wherever it is."""
        self.generation += 1
        self.unscheduled.pop(uid, None)
        self.assumed.pop(uid, None)
        self.assigned.pop(uid, None)


class PodGroupStates:
    """All groups that pods name, by ``namespace/name``, whether or not the PodGroup object exists.

    Pods without a group are ignored. Invariants: a pod is in one dict; no group is empty.
    """

    def __init__(self) -> None:
        self._groups: dict[str, PodGroupState] = {}
        self._changes: Changes[str] = Changes(_CHANGES_KEPT)

    @property
    def position(self) -> int:
        """The number of changes so far: pods that came, went, or got or lost a node."""
        return self._changes.position

    def changed_since(self, position: int) -> list[str] | None:
        """Return the groups whose pods changed since, each once; None if that is forgotten."""
        return self._changes.changed_since(position)

    def get(self, key: str) -> PodGroupState | None:
        """Return the state of a group; None if none of its pods is known."""
        return self._groups.get(key)

    def keys(self) -> Iterable[str]:
        """Return the ``namespace/name`` of every group."""
        return self._groups.keys()

    def all(self) -> Iterable[PodGroupState]:
        """Return the state of every group."""
        return self._groups.values()

    def add(self, pod: PodInfo) -> None:
        """Add a pod without a node, or its new version."""
        state = self._of(pod.pod)
        # Events of an assumed pod still show it without a node.
        if state is None or pod.uid in state.assigned:
            return
        placed = state.assumed.get(pod.uid)
        if placed is None:
            if pod.uid not in state.unscheduled:
                self._changes.record(pod_group_key(pod.pod))
            state.unscheduled[pod.uid] = pod
        else:
            state.generation += 1
            state.assumed[pod.uid] = PlacedPod(pod, placed.node_name)

    def assign(self, pod: PodInfo) -> None:
        """Add a pod that is on a node, or its new version."""
        state = self._of(pod.pod)
        if state is not None:
            state.discard(pod.uid)
            state.assigned[pod.uid] = PlacedPod(pod, pod.pod.spec.node_name)
            self._changes.record(pod_group_key(pod.pod))

    def assume(self, pod: PodInfo, node_name: str) -> None:
        """Record that a pod was assumed on a node, unless it was deleted during its cycle."""
        key = pod_group_key(pod.pod)
        state = self._groups.get(key)
        if state is not None and state.unscheduled.pop(pod.uid, None) is not None:
            self._changes.record(key)
            state.generation += 1
            state.assumed[pod.uid] = PlacedPod(pod, node_name)

    def forget(self, pod: PodInfo) -> None:
        """Record that an assumption was undone, unless the pod was deleted meanwhile."""
        key = pod_group_key(pod.pod)
        state = self._groups.get(key)
        if state is not None and state.assumed.pop(pod.uid, None) is not None:
            self._changes.record(key)
            state.generation += 1
            state.unscheduled[pod.uid] = pod

    def remove(self, pod: Pod) -> None:
        """Forget a pod that is gone."""
        key = pod_group_key(pod)
        state = self._groups.get(key)
        if state is not None:
            state.discard(pod.metadata.uid)
            self._changes.record(key)
            if not state.all_pods_count:
                del self._groups[key]

    def _of(self, pod: Pod) -> PodGroupState | None:
        key = pod_group_key(pod)
        return self._groups.setdefault(key, PodGroupState()) if key else None

    def validate(self) -> None:
        """Assert that each pod is in one dict, and that each group has pods."""
        for key, state in self._groups.items():
            places = (state.unscheduled, state.assumed, state.assigned)
            uids = [uid for place in places for uid in place]
            assert uids, f"{key} is kept without pods"
            assert len(uids) == len(set(uids)), f"a pod of {key} is in two places"
