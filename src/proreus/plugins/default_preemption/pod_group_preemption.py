"""Preemption for a whole pod group (KEP-5710, gate GenericWorkload).

    remove all units of lower priority ─► one dry run of the group ─► it fits, each pod on a node,
      by choice where the units cost little (``victim_costs``)
    ─► unit by unit, the most important first: back to its nodes if all these pods still fit there
    ─► what could not be put back are the victims; the pods are nominated to their nodes

The domain is the whole cluster. The dry run works on the live table, which is restored afterwards.
kube-scheduler's ``PodGroupEvaluator``.
"""

from __future__ import annotations

from collections import Counter
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
from proreus.framework.workload_forest import Group
from proreus.plugins.default_preemption.domain_victims import (
    DomainVictim,
    DomainVictims,
    NodeNotFound,
    check_nodes,
    with_dependents,
)
from proreus.plugins.default_preemption.eviction import Evictor, Preemptor, is_being_preempted
from proreus.plugins.default_preemption.potential_victims import DisruptionBudgets
from proreus.plugins.default_preemption.select_candidate import Candidate
from proreus.plugins.default_preemption.victim_costs import VictimCosts

DOMAIN = "cluster"
"""In place of the node name of a candidate."""

NO_VICTIMS = "No preemption victims found for incoming preemptor"


Nominations = dict[str, NominatingInfo]
"""Of pods, by ``namespace/name``."""


class GroupCandidate(Struct, frozen=True):
    """The victims of a group, and where its pods go."""

    candidate: Candidate
    assignments: Sequence[ProposedAssignment]

    @property
    def nominating(self) -> Nominations:
        """The nominations of its pods."""
        return {pod.key: NominatingInfo(node_name) for pod, node_name, _ in self.assignments}


class PodGroupEvaluator:
    """Preempts for groups. ``victims``: finds the units that pods belong to."""

    no_victims = Status.unschedulable(NO_VICTIMS)

    def __init__(self, handle: Handle, victims: DomainVictims, evictor: Evictor) -> None:
        self._handle = handle
        self._victims = victims
        self._evictor = evictor
        self.costs: VictimCosts | None = None
        """During a dry run, where its pods are to go by choice."""

    async def preempt(
        self, group: PodGroupInfo, budgets: DisruptionBudgets, schedule: SchedulePodGroup
    ) -> PodGroupPostFilterResult:
        """Evict what is in the way of a group and nominate its pods, or return why not."""
        result = await self._preempt(group, budgets, schedule)
        code, message = result.status.code, result.status.message
        attempts = self._handle.metrics.workload_preemption_attempts_total
        attempts.labels(group.entity_key.type, code.label).inc()
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
    ) -> GroupCandidate | Nominations | Status:
        """Return the victims; the present nominations if some are still terminating; or why none
        would help."""
        assert group.group is not None
        nodes = self._handle.nodes
        # In the order of kube-scheduler's snapshot: it decides between victims that are equal.
        infos = (nodes[row] for row in self._handle.node_order().tolist())
        units = self._victims.of_nodes(infos)
        end = self._end_before_victims(group.group, group.unscheduled_pods, units)
        if end is not None:
            return end
        started = perf_counter()
        units = self._victims.evictable(units, group)
        found: GroupCandidate | Status = self.no_victims
        try:
            for some in self._victims.rounds(units):
                found = await self._dry_run(some, budgets, schedule)
                if isinstance(found, GroupCandidate) or found.code == Code.ERROR:
                    break
        except PluginError as error:
            found = Status.error(str(error))
        except NodeNotFound as error:
            found = Status.error(f'node "{error.node_name}" not found in the snapshot')
        code = found.code if isinstance(found, Status) else Code.SUCCESS
        seconds = self._handle.metrics.preemption_evaluation_duration_seconds
        seconds.labels(self._kind_of(group), code.label).observe(perf_counter() - started)
        return found

    def _end_before_victims(
        self, group: Group, pods: Sequence[PodInfo], units: Iterable[DomainVictim]
    ) -> Nominations | Status | None:
        """Return what ends a preemption before victims are looked for among all ``units``."""
        return self._ongoing(group, pods) or self._refusal(group, pods)

    def _refusal(self, group: Group, pods: Sequence[PodInfo]) -> Status | None:
        """Return why a group may not preempt."""
        if "Never" not in self._policies(group, pods):
            return None
        return Status.unschedulable("not eligible due to preemptionPolicy=Never.")

    def _policies(self, group: Group, pods: Iterable[PodInfo]) -> list[str | None]:
        """Return the preemption policy of a group, those of its pods if it has none."""
        own = group.spec.preemption_policy
        return [own] if own else [pod.pod.spec.preemption_policy for pod in pods]

    def _ongoing(self, group: Group, pods: Sequence[PodInfo]) -> Nominations | None:
        """Return the nominations if a victim is still terminating on a node of theirs."""
        nodes, priority = self._handle.nodes, group.priority
        names = {pod.key: pod.pod.status.nominated_node_name for pod in pods}
        for name in set(names.values()) & nodes.rows.keys():
            for other in nodes[nodes.rows[name]].pods.values():
                if is_being_preempted(other.pod) and self._victims.priority_of(other) < priority:
                    return {key: NominatingInfo(name) for key, name in names.items()}
        return None

    async def _dry_run(
        self, units: list[DomainVictim], budgets: DisruptionBudgets, schedule: SchedulePodGroup
    ) -> GroupCandidate | Status:
        nodes = self._handle.nodes
        check_nodes(units, nodes)
        rows = {nodes.rows[node_name] for unit in units for _, node_name in unit.placed}
        # kube-scheduler throws its changed copy away; here the pods have to get their places back.
        before = {row: (dict(nodes[row].pods), nodes[row].order.copy()) for row in rows}
        in_order, violations = budgets.reprieve_order(units)
        try:
            for unit in units:
                for pod, node_name in unit.placed:
                    nodes.remove_pod(nodes.rows[node_name], pod.uid)
            with self._victims.removed(units):
                self._prefer_nodes(units, violations)
                assignments = await schedule()
                self.costs = None
                if isinstance(assignments, Status):
                    return assignments
                reprieved = self._reprieved(in_order, assignments)
                victims = with_dependents([unit for unit in units if id(unit) not in reprieved])
                return self._candidate(victims, violations, assignments)
        finally:
            self.costs = None
            # Also after an error or a cancellation: the table is the one that cycles schedule on.
            for row, (pods, order) in before.items():
                _restore(nodes, row, pods, order)

    def _prefer_nodes(self, units: Iterable[DomainVictim], violations: Mapping[int, int]) -> None:
        """Prefer nodes whose victims cost little, until ``costs`` is None again."""
        self.costs = VictimCosts(self._handle.nodes, units, violations)

    def _nodes_to_clear(self, assignments: Iterable[ProposedAssignment]) -> tuple[str, ...]:
        """Return the nodes to which pods of a lower priority are not to be nominated any more."""
        return tuple(dict.fromkeys(node_name for _, node_name, _ in assignments))

    def _reprieved(
        self, units: Iterable[DomainVictim], assignments: Sequence[ProposedAssignment]
    ) -> set[int]:
        """Put units back in their order as long as the group fits; return the ``id`` of each."""
        reprieve = self._handle.pod_group_reprieve(assignments)
        reprieved = set()
        for unit in units:
            if not self._victims.may_be_put_back(unit):
                continue
            if reprieve.reprieve(unit.placed):
                reprieved.add(id(unit))
            else:
                self._victims.not_put_back(unit)
        return reprieved

    def _disruptions(self, victims: Iterable[DomainVictim]) -> tuple[tuple[str, int], ...]:
        """Return how many units are evicted, by kind."""
        return tuple(Counter(unit.kind for unit in victims).items())

    def _kind_of(self, group: PodGroupInfo) -> str:
        """Return the kind of a preemptor, as a metric names it."""
        return group.entity_key.type

    def _candidate(
        self,
        victims: Sequence[DomainVictim],
        violations: Mapping[int, int],
        assignments: Sequence[ProposedAssignment],
    ) -> GroupCandidate:
        pods = tuple(pod for unit in victims for pod in unit.pods)
        violated = sum(violations.get(id(unit), 0) for unit in victims)
        disruptions = self._disruptions(victims)
        nodes = self._nodes_to_clear(assignments)
        return GroupCandidate(Candidate(DOMAIN, pods, violated, disruptions, nodes), assignments)


def _restore(nodes: NodeTable, row: int, pods: Mapping[str, PodInfo], order: list[str]) -> None:
    """Give a row the pods that it had before, in their order; it has no others."""
    # An exception in a plugin leaves the pods of the unit that was being put back, or some of them.
    for uid, pod in pods.items():
        if uid not in nodes[row].pods:
            nodes.add_pod(row, pod)
    nodes[row].order[:] = order
