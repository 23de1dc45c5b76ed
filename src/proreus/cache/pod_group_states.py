"""Which pods of each PodGroup we know, and how far each has come (gate GenericWorkload).

Fed by pod events and by the cache's own assume and forget; a trial of a whole group assumes its
pods like any other, so what plugins read here is always the state of the cycle they are in.
"""

from __future__ import annotations

from proreus.framework.pod_group import PlacedPod
from proreus.framework.pod_info import PodInfo
from proreus.objects.pod import Pod
from proreus.objects.scheduling import pod_group_key


class PodGroupState:
    """The pods of one group by UID, each in one of three places."""

    __slots__ = ("assigned", "assumed", "unscheduled")

    def __init__(self) -> None:
        self.unscheduled: dict[str, PodInfo] = {}
        """Without a node; only pods that this scheduler is responsible for."""
        self.assumed: dict[str, PlacedPod] = {}
        """Decided here, not confirmed yet."""
        self.assigned: dict[str, PlacedPod] = {}
        """On a node, by whomever they were put there."""

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
        self.unscheduled.pop(uid, None)
        self.assumed.pop(uid, None)
        self.assigned.pop(uid, None)


class PodGroupStates:
    """All groups that pods name, by ``namespace/name``; whether a PodGroup exists is not asked.

    Pods that belong to no group pass by. Invariants: a pod is in one place; no group is empty.
    """

    def __init__(self) -> None:
        self._groups: dict[str, PodGroupState] = {}

    def get(self, key: str) -> PodGroupState | None:
        """Return what is known of a group; None when none of its pods is."""
        return self._groups.get(key)

    def add(self, pod: PodInfo) -> None:
        """Take over a pod without a node, or its new version."""
        state = self._of(pod.pod)
        if state is None or pod.uid in state.assigned:
            return
        placed = state.assumed.get(pod.uid)
        if placed is None:
            state.unscheduled[pod.uid] = pod
        else:
            state.assumed[pod.uid] = PlacedPod(pod, placed.node_name)

    def assign(self, pod: PodInfo) -> None:
        """Take over a pod that is on a node, or its new version."""
        state = self._of(pod.pod)
        if state is not None:
            state.discard(pod.uid)
            state.assigned[pod.uid] = PlacedPod(pod, pod.pod.spec.node_name)

    def assume(self, pod: PodInfo, node_name: str) -> None:
        """Note that a pod was given a node."""
        state = self._of(pod.pod)
        if state is not None:
            state.unscheduled.pop(pod.uid, None)
            state.assumed[pod.uid] = PlacedPod(pod, node_name)

    def forget(self, pod: PodInfo) -> None:
        """Note that a pod has lost its node; one that is gone altogether stays so."""
        state = self._groups.get(pod_group_key(pod.pod))
        if state is not None and state.assumed.pop(pod.uid, None) is not None:
            state.unscheduled[pod.uid] = pod

    def remove(self, pod: Pod) -> None:
        """Forget a pod that is gone."""
        key = pod_group_key(pod)
        state = self._groups.get(key)
        if state is not None:
            state.discard(pod.metadata.uid)
            if not state.all_pods_count:
                del self._groups[key]

    def _of(self, pod: Pod) -> PodGroupState | None:
        key = pod_group_key(pod)
        return self._groups.setdefault(key, PodGroupState()) if key else None

    def validate(self) -> None:
        """Assert that each pod is in one place, and that no group is kept for nobody."""
        for key, state in self._groups.items():
            places = (state.unscheduled, state.assumed, state.assigned)
            uids = [uid for place in places for uid in place]
            assert uids, f"{key} is kept without pods"
            assert len(uids) == len(set(uids)), f"a pod of {key} is in two places"
