"""The plugin: DefaultPreemption, but gangs shrink to their minimum before they are broken.

Worked example: gang ``g`` needs 2 pods and has 3 on as many nodes; another node runs a pod by
itself, of a lower priority. A more important pod needs the room of one: the youngest pod of ``g``
goes. The next one takes the place of the pod by itself, and the one after that evicts what is left
of ``g``, both pods, since one alone would be of no use.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from proreus.addons.coscheduling.group_objects import GroupObjects
from proreus.addons.coscheduling.groups import Group, membership_of
from proreus.addons.gang_preemption.gang_victims import GangVictims
from proreus.addons.gang_preemption.placed_gangs import PlacedGangs
from proreus.framework import CycleState, Handle, PodInfo, Rows, Status
from proreus.objects import PODS, Pod
from proreus.objects.pod import is_terminal
from proreus.plugins.default_preemption import (
    Candidate,
    DefaultPreemption,
    DefaultPreemptionArgs,
)


class GangPreemptionArgs(DefaultPreemptionArgs):
    """The arguments of DefaultPreemption."""


class GangPreemption(DefaultPreemption):
    """Evicts surplus pods of gangs first, and pods that a gang needs only with the whole gang."""

    Args = GangPreemptionArgs

    def __init__(self, args: GangPreemptionArgs, handle: Handle) -> None:
        self._gangs = PlacedGangs()
        self._objects = GroupObjects(handle, self._group_changed)
        self._gang_victims = GangVictims(handle, self._gangs, self._group_of)
        super().__init__(args, handle)
        handle.on_change(PODS, self._pod_changed)

    # ---- gangs ---------------------------------------------------------------------------------

    def _group_of(self, pod: Pod) -> Group | None:
        membership = membership_of(pod)
        return None if membership is None else self._objects.group_of(membership)

    def _group_changed(self, key: str, exists: bool) -> None:
        self._gangs.note_change(key)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if new is None or is_terminal(new):
            gone = new or old
            assert gone is not None
            self._remove(gone.metadata.uid)
        elif new.spec.node_name:
            self._put(new, new.spec.node_name)

    def _put(self, pod: Pod, node_name: str) -> None:
        before = self._gangs.of_pod(pod.metadata.uid)
        self._gangs.put(pod, node_name)
        if before is not None and not before.nodes:
            self._objects.forget(before.key)
        if self._gangs.of_pod(pod.metadata.uid) is not None:
            membership = membership_of(pod)
            assert membership is not None
            self._objects.note(membership)

    def _remove(self, uid: str) -> None:
        gang = self._gangs.of_pod(uid)
        self._gangs.remove(uid)
        if gang is not None and not gang.nodes:
            self._objects.forget(gang.key)

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Count the pod to its gang."""
        self._put(pod.pod, node_name)
        return super().reserve(state, pod, node_name)

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Do not count the pod any more."""
        super().unreserve(state, pod, node_name)
        self._remove(pod.uid)

    # ---- preemption ----------------------------------------------------------------------------

    def preemption_units(self) -> GangVictims:
        """Return the finder of units: surplus pods one by one, other pods of gangs together."""
        return self._gang_victims

    def order_of_nodes(self, rows: Rows) -> Rows:
        """Return the nodes with surplus pods first: not all nodes may be tried."""
        rows, by_name = super().order_of_nodes(rows), self.handle.nodes.rows
        names = {
            gang.nodes[uid] for gang in self._gangs for uid in self._gang_victims.surplus_of(gang)
        }
        first = np.isin(rows, [by_name[name] for name in names if name in by_name])
        return np.concatenate((rows[first], rows[~first]))

    def preferred_candidates(self, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """Return the candidates that violate the fewest budgets, then cost gangs least."""
        costs = [(one.pdb_violations, self._cost_for_gangs(one)) for one in candidates]
        least = min(costs)
        return [one for one, cost in zip(candidates, costs, strict=True) if cost == least]

    def _cost_for_gangs(self, candidate: Candidate) -> int:
        """Return 0 if all victims are surplus, 2 if a gang is broken, else 1."""
        cost = 0
        for victim in candidate.victims:
            gang = self._gangs.of_pod(victim.uid)
            if gang is None or gang.leaves(victim.uid):
                cost = max(cost, 1)
            elif victim.uid not in self._gang_victims.surplus_of(gang):
                return 2
        return cost
