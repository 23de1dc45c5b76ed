"""Preemption for a whole PodGroup as in Kubernetes 1.36 (KEP-5710, gate WorkloadAwarePreemption).

The cluster is one domain: all units of lower priority are removed from the nodes, and if the group
fits then, units are reprieved, the most important first. A group whose disruption mode is PodGroup
is one unit. The dry run works on the live table and restores it afterwards.

Worked example: of 10 CPUs the units ``a`` to ``d`` hold 2 each; a group needs 4. Without them it
fits. ``a`` is reprieved (fits), then ``b`` and ``c`` (fit), then ``d``: the only victim.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from proreus.base.errors import ApiError
from proreus.base.kubernetes_version import Change
from proreus.framework.handle import Handle
from proreus.framework.node_table import NodeTable
from proreus.framework.pod_group import (
    PlacedPod,
    PodGroupInfo,
    PodGroupPostFilterResult,
    SchedulePodGroup,
)
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.objects.scheduling import POD_GROUPS, PodGroup, pod_group_key
from proreus.plugins.default_preemption.domain_victims import POD, POD_GROUP, DomainVictim
from proreus.plugins.default_preemption.eviction import Evictor, Preemptor
from proreus.plugins.default_preemption.potential_victims import DisruptionBudgets
from proreus.plugins.default_preemption.select_candidate import Candidate

DOMAIN = "cluster"
"""In place of the node name of a candidate."""

NO_VICTIMS = "No preemption victims found for incoming preemptor"

Fits = Callable[[], Awaitable[Status | None]]
"""Returns None if the group fits the nodes as they are now, or else why it does not."""


def preemption_units(
    nodes: NodeTable, groups: Mapping[str, PodGroup], priority: int
) -> list[DomainVictim]:
    """Return all units with a priority below ``priority``, the most important first."""
    of_group: dict[str, DomainVictim] = {}
    units: list[DomainVictim] = []
    for node in nodes:
        for pod in node.pods.values():
            key = pod_group_key(pod.pod)
            group = groups.get(key)
            if group is None or not group.disrupted_as_whole:
                unit = DomainVictim(pod.priority, POD, [])
                units.append(unit)
            elif (known := of_group.get(key)) is not None:
                unit = known
            else:
                # The group's priority: those of its pods do not count when it is evicted whole.
                unit = of_group[key] = DomainVictim(group.priority, POD_GROUP, [])
                units.append(unit)
            unit.placed.append(PlacedPod(pod, node.name))
    return sorted((u for u in units if u.priority < priority), key=lambda unit: unit.importance)


class PodGroupPreemption:
    """Preempts for whole PodGroups, and says when their pods do not preempt by themselves."""

    def __init__(self, handle: Handle, evictor: Evictor) -> None:
        self._handle = handle
        self._evictor = evictor
        gates = handle.feature_gates
        of_1_36 = not gates.includes(Change.POD_GROUP_ENTITIES)
        self._by_topology = of_1_36 and gates.enabled("TopologyAwareWorkloadScheduling")
        self._by_group = of_1_36 and gates.enabled("WorkloadAwarePreemption")
        # Without these alpha gates the apiserver may not serve PodGroups: a watch would fail.
        watched = self._by_topology or self._by_group
        self._groups: Mapping[str, PodGroup] = handle.store(POD_GROUPS) if watched else {}

    def preempts_as_group(self, pod: PodInfo) -> bool:
        """Return whether a pod's PodGroup preempts, and never the pod by itself."""
        return self._by_group and bool(pod_group_key(pod.pod))

    def uid_of_group(self, pod: PodInfo) -> str:
        """Return the UID of a pod's PodGroup, "" if there is none."""
        group = self._groups.get(pod_group_key(pod.pod))
        return "" if group is None else group.metadata.uid

    def ineligibility(self, pod: PodInfo) -> str:
        """Return the reason why a pod of a PodGroup may not preempt by itself; "" if it may."""
        key = pod_group_key(pod.pod)
        if not key:
            return ""
        if self._by_topology:
            group = self._groups.get(key)
            if group is None:
                return "pod group for pod not found"
            if group.spec.scheduling_constraints is not None:
                return "not eligible due to placement-based pod group scheduling limitation"
        if self._by_group:
            return "not eligible due to workload aware preemption enabled"
        return ""

    async def preempt(
        self, info: PodGroupInfo, budgets: DisruptionBudgets, schedule: SchedulePodGroup
    ) -> PodGroupPostFilterResult:
        """Evict what is in the way of a group, or return why that would not help."""
        group = info.group
        # There were no groups of groups.
        if not isinstance(group, PodGroup):
            return PodGroupPostFilterResult(Status.unschedulable())
        if any(pod.pod.spec.preemption_policy == "Never" for pod in info.pods):
            status = Status.unschedulable("not eligible due to preemptionPolicy=Never.")
            return PodGroupPostFilterResult(status)

        async def fits() -> Status | None:
            found = await schedule()
            return found if isinstance(found, Status) else None

        units = preemption_units(self._handle.nodes, self._groups, group.priority)
        found = await PodGroupDryRun(self._handle.nodes, budgets, fits).run(units)
        if isinstance(found, Status):
            return PodGroupPostFilterResult(found)
        preemptor = Preemptor.of_group(group, info.pods, self._handle.profile_name)
        try:
            await self._evictor.prepare_candidate(found, preemptor)
        except ApiError as error:
            return PodGroupPostFilterResult(Status.error(str(error)))
        return PodGroupPostFilterResult(Status.success())


class PodGroupDryRun:
    """Finds the units that have to be evicted for a group to fit."""

    def __init__(self, nodes: NodeTable, budgets: DisruptionBudgets, fits: Fits) -> None:
        self._nodes = nodes
        self._budgets = budgets
        self._fits = fits
        self._removed: dict[int, DomainVictim] = {}

    async def run(self, units: Sequence[DomainVictim]) -> Candidate | Status:
        """Return the victims, or the status of the group without all of the units."""
        if not units:
            return Status.unresolvable(NO_VICTIMS)
        try:
            self._remove(units)
            status = await self._fits()
            if status is not None:
                return status
            violating, others = self._budgets.filter_units_with_pdb_violation(units)
            victims, violations = [], 0
            # Violating ones are reprieved first, as for a single pod: so that few stay victims.
            for split in (violating, others):
                left = await self._reprieve(split)
                if isinstance(left, Status):
                    return left
                victims += left
                violations += len(left) if split is violating else 0
            victims.sort(key=lambda unit: unit.importance)
            pods = tuple(pod for unit in victims for pod in unit.pods)
            return Candidate(DOMAIN, pods, violations)
        finally:
            # Also after an error or a cancellation: the table is the one that cycles schedule on.
            self._restore(list(self._removed.values()))

    async def _reprieve(self, units: Sequence[DomainVictim]) -> list[DomainVictim] | Status:
        """Reprieve units in order while the group still fits; return those that stay victims."""
        victims: list[DomainVictim] = []
        for unit in units:
            self._restore([unit])
            status = await self._fits()
            if status is None:
                continue
            # An error does not mean that the group does not fit: it ends the preemption.
            if not status.rejected:
                return status
            self._remove([unit])
            victims.append(unit)
        return victims

    def _remove(self, units: Iterable[DomainVictim]) -> None:
        for unit in units:
            self._removed[id(unit)] = unit
            for pod, node_name in unit.placed:
                self._nodes.remove_pod(self._nodes.rows[node_name], pod.uid)

    def _restore(self, units: Iterable[DomainVictim]) -> None:
        for unit in units:
            del self._removed[id(unit)]
            for pod, node_name in unit.placed:
                self._nodes.add_pod(self._nodes.rows[node_name], pod)
