"""Preemption for a whole pod group (KEP-5710, gate GenericWorkload).

    remove all units of lower priority ─► one dry run of the group ─► it fits, each pod on a node
    ─► unit by unit, the most important first: back to its nodes if all these pods still fit there
    ─► what could not be put back are the victims; the pods are nominated to their nodes

The domain is the whole cluster. The dry run works on the live table, which is restored afterwards.
kube-scheduler's ``PodGroupEvaluator``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from time import perf_counter

from msgspec import Struct
from msgspec.structs import replace

from proreus.base.errors import ApiError, PluginError
from proreus.framework.handle import Handle
from proreus.framework.node_table import NodeTable
from proreus.framework.pod_group import (
    PodGroupInfo,
    PodGroupPostFilterResult,
    ProposedAssignment,
    SchedulePodGroup,
)
from proreus.framework.pod_info import PodInfo
from proreus.framework.post_filter_result import NominatingInfo, Victims
from proreus.framework.status import Code, Status
from proreus.plugins.default_preemption.domain_victims import (
    DomainVictim,
    DomainVictims,
    NodeNotFound,
    with_dependents,
)
from proreus.plugins.default_preemption.eviction import Evictor, Preemptor, is_being_preempted
from proreus.plugins.default_preemption.potential_victims import DisruptionBudgets
from proreus.plugins.default_preemption.select_candidate import Candidate

DOMAIN = "cluster"
"""In place of the node name of a candidate."""

NO_VICTIMS = "No preemption victims found for incoming preemptor"


class GroupCandidate(Struct, frozen=True):
    """The victims of a group, and where its pods go."""

    candidate: Candidate
    assignments: Sequence[ProposedAssignment]

    @property
    def nominating(self) -> dict[str, NominatingInfo]:
        """The nominations by ``namespace/name``."""
        return {pod.key: NominatingInfo(node_name) for pod, node_name, _ in self.assignments}


class PodGroupEvaluator:
    """Preempts for groups. ``victims``: finds the units that pods belong to."""

    def __init__(self, handle: Handle, victims: DomainVictims, evictor: Evictor) -> None:
        self._handle = handle
        self._victims = victims
        self._evictor = evictor
        self._policy_of_group = handle.feature_gates.enabled("PodGroupPreemptionPolicy")
        """Whether the preemption policy is that of the root group."""

    async def preempt(
        self, group: PodGroupInfo, budgets: DisruptionBudgets, schedule: SchedulePodGroup
    ) -> PodGroupPostFilterResult:
        """Evict what is in the way of a group and nominate its pods, or return why not."""
        result = await self._preempt(group, budgets, schedule)
        code, message = result.status.code, result.status.message
        self._handle.metrics.workload_preemption_attempts_total.labels(code.label).inc()
        text = (f"pod group preemption: {message}",) if message else ()
        return replace(result, status=Status(code, text))

    async def _preempt(
        self, group: PodGroupInfo, budgets: DisruptionBudgets, schedule: SchedulePodGroup
    ) -> PodGroupPostFilterResult:
        assert group.group is not None
        found = await self.evaluate(group, budgets, schedule)
        if isinstance(found, Status):
            return PodGroupPostFilterResult(found)
        if not isinstance(found, GroupCandidate):
            text = "ongoing preemption on nominated nodes"
            return PodGroupPostFilterResult(Status.success(text), found)
        pods, candidate = group.unscheduled_pods, found.candidate
        preemptor = Preemptor.of_group(group.group, pods, self._handle.profile_name)
        try:
            await self._evictor.prepare_candidate(candidate, preemptor)
        except ApiError as error:
            return PodGroupPostFilterResult(Status.error(str(error)))
        text = f"found a placement for podgroup, preempting {len(candidate.victims)} victims"
        victims = Victims(candidate.victims, candidate.pdb_violations)
        return PodGroupPostFilterResult(Status.success(text), found.nominating, victims)

    async def evaluate(
        self, group: PodGroupInfo, budgets: DisruptionBudgets, schedule: SchedulePodGroup
    ) -> GroupCandidate | dict[str, NominatingInfo] | Status:
        """Return the victims; the present nominations if some are still terminating; or why none
        would help."""
        assert group.group is not None
        nodes = self._handle.nodes
        # In the order of kube-scheduler's snapshot: it decides between victims that are equal.
        infos = (nodes[row] for row in self._handle.node_order().tolist())
        try:
            units = self._victims.of_nodes(infos)
        except NodeNotFound as error:
            return Status.error(f"failed to create domain: {error}")
        pods, priority = group.unscheduled_pods, group.group.priority
        if self._never_preempts(group, pods):
            return Status.unschedulable("not eligible due to preemptionPolicy=Never.")
        if self._is_ongoing(pods, priority):
            return {pod.key: NominatingInfo(pod.pod.status.nominated_node_name) for pod in pods}
        started = perf_counter()
        units = self._victims.evictable(units, group)
        found: GroupCandidate | Status = Status.unresolvable(NO_VICTIMS)
        try:
            for some in self._victims.rounds(units):
                found = await self._dry_run(some, budgets, schedule)
                if isinstance(found, GroupCandidate) or found.code == Code.ERROR:
                    break
        except PluginError as error:
            found = Status.error(str(error))
        code = found.code if isinstance(found, Status) else Code.SUCCESS
        seconds = self._handle.metrics.preemption_evaluation_duration_seconds
        seconds.labels("podgroup", code.label).observe(perf_counter() - started)
        return found

    def _never_preempts(self, group: PodGroupInfo, pods: Iterable[PodInfo]) -> bool:
        if self._policy_of_group:
            return group.group is not None and group.group.spec.preemption_policy == "Never"
        return any(pod.pod.spec.preemption_policy == "Never" for pod in pods)

    def _is_ongoing(self, pods: Iterable[PodInfo], priority: int) -> bool:
        """Return whether a victim is still terminating on a node that a pod is nominated to."""
        nodes = self._handle.nodes
        rows = {nodes.rows.get(pod.pod.status.nominated_node_name) for pod in pods} - {None}
        return any(
            is_being_preempted(other.pod) and self._victims.priority_of(other) < priority
            for row in rows
            if row is not None
            for other in nodes[row].pods.values()
        )

    async def _dry_run(
        self, units: list[DomainVictim], budgets: DisruptionBudgets, schedule: SchedulePodGroup
    ) -> GroupCandidate | Status:
        nodes = self._handle.nodes
        rows = {nodes.rows[node_name] for unit in units for _, node_name in unit.placed}
        # kube-scheduler throws its changed copy away; here the pods have to get their places back.
        before = {row: (dict(nodes[row].pods), nodes[row].order.copy()) for row in rows}
        try:
            for unit in units:
                for pod, node_name in unit.placed:
                    nodes.remove_pod(nodes.rows[node_name], pod.uid)
            with self._victims.removed(units):
                assignments = await schedule()
                if isinstance(assignments, Status):
                    return assignments
                return self._reprieve(units, budgets, assignments)
        finally:
            # Also after an error or a cancellation: the table is the one that cycles schedule on.
            for row, (pods, order) in before.items():
                _restore(nodes, row, pods, order)

    def _reprieve(
        self,
        units: list[DomainVictim],
        budgets: DisruptionBudgets,
        assignments: Sequence[ProposedAssignment],
    ) -> GroupCandidate:
        """Put units back as long as the group fits; the others are victims."""
        order, violations = budgets.reprieve_order(units)
        reprieve = self._handle.pod_group_reprieve(assignments)
        reprieved = set()
        for unit in order:
            if not self._victims.may_be_put_back(unit):
                continue
            if reprieve.reprieve(unit.placed):
                reprieved.add(id(unit))
            else:
                self._victims.not_put_back(unit)
        victims = with_dependents([unit for unit in units if id(unit) not in reprieved])
        pods = tuple(pod for unit in victims for pod in unit.pods)
        violated = sum(violations.get(id(unit), 0) for unit in victims)
        disruptions = sum(unit.is_group for unit in victims)
        return GroupCandidate(Candidate(DOMAIN, pods, violated, disruptions), assignments)


def _restore(nodes: NodeTable, row: int, pods: Mapping[str, PodInfo], order: list[str]) -> None:
    """Give a row the pods that it had before, in their order; it has no others."""
    # An exception in a plugin leaves the pods of the unit that was being put back, or some of them.
    for uid, pod in pods.items():
        if uid not in nodes[row].pods:
            nodes.add_pod(row, pod)
    nodes[row].order[:] = order
