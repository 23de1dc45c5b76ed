"""Gangs and quotas: eviction by a gang as one, and of gangs as a whole.

Worked example: A and B are guaranteed 4 CPUs each, and two gangs of A, of 3 pods of 1 CPU each, run
on all but 2. A gang of B needs 4. The gangs of A have 6: one of them goes, and A keeps the other,
which is within its guarantee. Pods of both would leave two gangs that are of no use.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager

from proreus.addons.capacity_scheduling.queue_claims import Claim
from proreus.addons.capacity_scheduling.queue_state import QueueState
from proreus.addons.capacity_scheduling.quota_state import QuotaState
from proreus.addons.coscheduling.groups import Group, membership_of
from proreus.addons.gang_preemption.gang_victims import GangVictims
from proreus.addons.gang_preemption.placed_gangs import PlacedGangs
from proreus.framework import Handle, PodGroupInfo, PodInfo
from proreus.objects import Pod
from proreus.objects.scheduling import (
    COMPOSITE_POD_GROUP_TYPE,
    POD_GROUP_TYPE,
    CompositePodGroup,
    EntityKey,
)
from proreus.plugins.default_preemption import DomainVictim

_BELOW_ALL = -(2**31) - 1


class QuotaVictims(GangVictims):
    """Finds the units that may be evicted for a quota or queue.

    ``leaving``: UIDs of pods that were evicted and are not gone yet.
    """

    def __init__(
        self,
        handle: Handle,
        gangs: PlacedGangs,
        state: QuotaState | QueueState,
        leaving: Container[str],
    ) -> None:
        super().__init__(handle, gangs, self._group_of)
        self._handle = handle
        self._state = state
        self._leaving = leaving
        self._preemptors: list[PodInfo] = []
        self._claim: Claim | None = None
        """In the context of ``removed``: that of the group, as units are put back."""

    def _group_of(self, pod: Pod) -> Group | None:
        """Return the minimums of a pod's gang if it is planned as a whole."""
        membership, forest = membership_of(pod), self._handle.workload_forest
        if membership is None:
            return None
        name, namespace = membership.provided_name(), membership.namespace
        for kind in (POD_GROUP_TYPE, COMPOSITE_POD_GROUP_TYPE):
            group = forest.get(EntityKey(kind, namespace, name))
            if isinstance(group, CompositePodGroup):
                tasks = forest.children_of(group.key)
                minimums = {
                    task.metadata.name.removeprefix(f"{name}/"): task.min_count for task in tasks
                }
                return Group(membership.key, group.min_count, minimums=minimums)
            if group is not None:
                return Group(membership.key, group.min_count)
        return None

    def priority_of(self, pod: PodInfo) -> int:
        """Return the priority of a pod; an evicted one is waited for, whatever its priority."""
        return _BELOW_ALL if pod.uid in self._leaving else super().priority_of(pod)

    def may_evict(self, claim: Claim, unit: DomainVictim) -> bool:
        """Return whether a claim allows to evict a unit, and none of its pods is leaving."""
        return not self.is_leaving(unit) and all(map(claim.may_evict, unit.pods))

    def is_leaving(self, unit: DomainVictim) -> bool:
        """Return whether a pod of a unit was evicted and is not gone yet."""
        return any(pod.uid in self._leaving for pod in unit.pods)

    # ---- for a group ---------------------------------------------------------------------------

    def evictable(self, units: Iterable[DomainVictim], group: PodGroupInfo) -> list[DomainVictim]:
        """Return the units that a group may evict by its claim as a whole."""
        self._preemptors = self._needed_pods(group)
        if not self._preemptors:
            return []
        claim = self._state.claim(*self._preemptors)
        # The least important first: the most important units are left of a quota.
        claim.last_resort = True
        found = []
        for unit in claim.in_order_of_removal(units):
            if self.may_evict(claim, unit):
                found.append(unit)
                for pod in unit.pods:
                    claim.remove(pod)
        kept = {id(unit) for unit in claim.protected(found)}
        return [unit for unit in found if id(unit) not in kept]

    @contextmanager
    def removed(self, units: Iterable[DomainVictim]) -> Iterator[None]:
        """Do not count units in their quotas: the pods of the group are held against these."""
        pods = [pod.pod for unit in units for pod in unit.pods]
        try:
            for pod in pods:
                self._state.unplace(pod)
            self._claim = self._state.claim(*self._preemptors)
            yield
        finally:
            self._claim = None
            for pod in pods:
                self._state.note(pod, placed=True)

    def may_be_put_back(self, unit: DomainVictim) -> bool:
        """Count a unit, unless the claim of the group would be too much then."""
        claim = self._claim
        assert claim is not None
        for pod in unit.pods:
            claim.add(pod)
        if not claim.exceeds():
            return True
        self.not_put_back(unit)
        return False

    def not_put_back(self, unit: DomainVictim) -> None:
        """Do not count a unit any more."""
        assert self._claim is not None
        for pod in unit.pods:
            self._claim.remove(pod)

    def _needed_pods(self, group: PodGroupInfo) -> list[PodInfo]:
        """Return the pods that a group lacks: of each task its minimum, then up to that of all."""
        needed: list[PodInfo] = []
        others: list[PodInfo] = []
        scheduled = 0
        for leaf in group.leaves:
            assert leaf.group is not None
            state = self._handle.pod_group_states.get(leaf.key)
            before = 0 if state is None else state.scheduled_count
            lacking = max(0, leaf.group.min_count - before)
            needed += leaf.pods[:lacking]
            others += leaf.pods[lacking:]
            scheduled += before
        if group.is_composite:
            assert group.group is not None
            needed += others[: max(0, group.group.min_count - scheduled - len(needed))]
        # It has its minimum: surplus pods are tried one by one.
        return needed or others[:1]
