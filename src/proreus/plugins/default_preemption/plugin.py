"""The plugin: the steps of a preemption in order. The package's docstring is their table.

Worked example: of 1000 nodes 600 are rejected as Unschedulable, the others as
UnschedulableAndUnresolvable. Candidates are looked for among the 600, from a random one on, until
there are 100 (the larger of 10 % of 600 and ``minCandidateNodesAbsolute``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from proreus.base.errors import ApiError, ExtenderError
from proreus.base.feature_gates import FeatureGates
from proreus.base.known_faults import KnownFault
from proreus.base.kubernetes_version import Change
from proreus.base.logs import logger
from proreus.config.field_errors import child, invalid
from proreus.config.fields import Int32, PluginArgs
from proreus.framework.cycle_state import CycleState
from proreus.framework.diagnosis import Diagnosis, FitError
from proreus.framework.events import DELETE, ClusterEvent
from proreus.framework.handle import Handle
from proreus.framework.node_info import NodeInfo
from proreus.framework.plugin import PostFilterPlugin, PreEnqueuePlugin, ReservePlugin
from proreus.framework.pod_events import pod_registrations
from proreus.framework.pod_group import (
    PodGroupInfo,
    PodGroupPostFilterResult,
    SchedulePodGroup,
)
from proreus.framework.pod_group_plugin import PodGroupPostFilterPlugin, RankNodesPlugin
from proreus.framework.pod_info import NOT_STARTED, PodInfo
from proreus.framework.post_filter_result import (
    CLEAR_NOMINATION,
    NominatingInfo,
    PostFilterResult,
    Victims,
)
from proreus.framework.status import Code, Status, code_of
from proreus.framework.verdicts import IntArray, Rows, Verdicts
from proreus.objects.kinds import PODS
from proreus.objects.pod import Pod
from proreus.objects.policy import POD_DISRUPTION_BUDGETS
from proreus.objects.scheduling import pod_group_entity_key
from proreus.plugins.default_preemption.candidates import DryRun
from proreus.plugins.default_preemption.domain_victims import DomainVictims
from proreus.plugins.default_preemption.dry_run_cache import DryRunCaches
from proreus.plugins.default_preemption.eviction import (
    Evictor,
    Preemptor,
    is_being_preempted,
    uid_of_group,
)
from proreus.plugins.default_preemption.pod_group_preemption import PodGroupEvaluator
from proreus.plugins.default_preemption.pod_group_preemption_v1_36 import (
    PodGroupPreemption,
)
from proreus.plugins.default_preemption.pod_group_preemption_v1_37 import PodGroupEvaluatorV137
from proreus.plugins.default_preemption.potential_victims import (
    DisruptionBudgets,
    EqualVictims,
    PinnedPods,
    PodsByPriority,
)
from proreus.plugins.default_preemption.select_candidate import (
    Candidate,
    pick_one_node_for_preemption,
)
from proreus.plugins.default_preemption.victim_costs import VictimCosts

log = logger(__name__)

_CONDEMNED = "DefaultPreemption/condemned"
"""``CycleState`` key of the units that Reserve has condemned."""

_EVALUATORS = (PodGroupEvaluatorV137, PodGroupEvaluator)

NOT_HELPFUL = "Preemption is not helpful for scheduling"


class DefaultPreemptionArgs(PluginArgs):
    """The number of candidate nodes that a dry run has to find.

    ``min_candidate_nodes_percentage``: their share of all nodes, ``min_candidate_nodes_absolute``:
    their least number. A subclass may have fields of its own. ``go_type`` is the name in
    kube-scheduler's messages.
    """

    go_type = "v1.DefaultPreemptionArgs"

    min_candidate_nodes_percentage: Int32 = 10
    min_candidate_nodes_absolute: Int32 = 100

    def problems(self, path: str, gates: FeatureGates) -> Iterator[str]:
        """Check both ranges; at most one of the values may be zero."""
        percentage, absolute = "minCandidateNodesPercentage", "minCandidateNodesAbsolute"
        if not 0 <= self.min_candidate_nodes_percentage <= 100:
            value = self.min_candidate_nodes_percentage
            yield invalid(child(path, percentage), value, "not in valid range [0, 100]")
        if self.min_candidate_nodes_absolute < 0:
            value = self.min_candidate_nodes_absolute
            yield invalid(child(path, absolute), value, "not in valid range [0, inf)")
        if self.min_candidate_nodes_percentage == self.min_candidate_nodes_absolute == 0:
            for name, other in ((percentage, absolute), (absolute, percentage)):
                yield invalid(child(path, name), 0, f"cannot be zero at the same time as {other}")


class DefaultPreemption(
    PostFilterPlugin, PodGroupPostFilterPlugin, RankNodesPlugin, PreEnqueuePlugin, ReservePlugin
):
    """Evicts lower-priority pods so that a pod or PodGroup that fits nowhere will fit.

    ``Args``: ``DefaultPreemptionArgs`` of the configuration.
    """

    Args = DefaultPreemptionArgs
    reserve_changes_filter = False
    """No Filter plugin reads what it reserves."""

    def __init__(self, args: DefaultPreemptionArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._pods = handle.store(PODS, with_provided=True)
        self._budgets = handle.store(POD_DISRUPTION_BUDGETS)
        gates = handle.feature_gates
        self._equal_victims = EqualVictims.of(gates)
        self._prefers_movable = gates.corrects(KnownFault.PINNED_VICTIM)
        self._evictor = Evictor(handle, self._pods, self.name)
        self._group_preemption_v1_36 = PodGroupPreemption(handle, self._evictor)
        self._victims = self.preemption_units()
        """The units of eviction where a group may be evicted whole; None means pod by pod."""
        self._group_preemption: PodGroupEvaluator | None = None
        if self._victims is not None:
            handle.metrics.describe_group_preemption()
            evaluator = _EVALUATORS[gates.includes(Change.GROUP_VICTIMS_OF_1_38)]
            self._group_preemption = evaluator(handle, self._victims, self._evictor)
        forest = None if self._victims is None else handle.workload_forest
        self._dry_run_caches = DryRunCaches(handle.nodes, forest)
        self._pods_by_priority = PodsByPriority(
            handle.nodes,
            self._equal_victims,
            is_grouped=None if self._victims is None else self._victims.is_grouped,
        )
        # Results of a subclass's own choice depend on what it reads, and are not kept.
        self._chooses = type(self).potential_victims is not DefaultPreemption.potential_victims
        self._selects = (
            type(self).select_victims_on_node is not DefaultPreemption.select_victims_on_node
        )
        self._has_own_units = type(self).preemption_units is not DefaultPreemption.preemption_units

    def events_to_register(self) -> Iterable[ClusterEvent]:
        """Register Pod/Delete: it ungates preemptors, and by its hint queues no other pod."""
        return pod_registrations(
            self.handle.feature_gates,
            assigned=DELETE,
            hint=self._is_ungated,
            ungated_pods=self._ungated_by,
        )

    def _ungated_by(self, gone: Pod, new: None) -> Collection[str]:
        return self._evictor.running.ungated_by(gone.metadata.uid)

    def _is_ungated(self, pod: PodInfo, old: Any, new: Any) -> bool:
        # The event of any victim will do: those of earlier victims found the pod gated.
        return self._evictor.running.is_ungated(pod.key)

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        """Gate a preemptor until its last victim is terminating."""
        running = self._evictor.running
        if running.is_idle:
            return None
        preemptor = "pod group"
        if self._victims is not None and pod.pod.spec.scheduling_group is not None:
            root = self.handle.workload_forest.root_of(pod_group_entity_key(pod.pod))
            uid = "" if root is None else uid_of_group(root)
        elif self._group_preemption_v1_36.preempts_as_group(pod):
            uid = self._group_preemption_v1_36.uid_of_group(pod)
        else:
            preemptor, uid = "pod", pod.uid
        if not uid or not running.is_gated(uid, pod.key):
            return None
        return Status.unresolvable(
            f"waiting for the preemption for this {preemptor} to be finished"
        )

    async def post_filter(
        self, state: CycleState, pod: PodInfo, verdicts: Verdicts
    ) -> PostFilterResult:
        """Preempt on the best candidate and nominate the pod to it."""
        self.handle.metrics.preemption_attempts_total.inc()
        reason = self._group_preemption_v1_36.ineligibility(pod)
        if reason:
            return PostFilterResult(Status.unschedulable(f"preemption: {reason}"))
        started = perf_counter()
        found = await self._evaluate(state, pod, verdicts)
        if self._victims is not None:
            status = None if isinstance(found, Candidate) else found.status
            seconds = self.handle.metrics.preemption_evaluation_duration_seconds
            seconds.labels("pod", code_of(status).label).observe(perf_counter() - started)
        return await self._preempt(found, pod) if isinstance(found, Candidate) else found

    def potential_victims(self, pod: PodInfo, node: NodeInfo) -> Sequence[PodInfo] | Status:
        """Return the pods on a node that may be evicted for ``pod``, the most important first.

        By default all pods of lower priority. Override it to choose among them: it is called in
        PostFilter for nodes where removing pods may help. A Status says why the node is no
        candidate. Nodes with pods of PodGroups (gate GenericWorkload) are not asked about.
        """
        row = self.handle.nodes.rows[node.name]
        return self._pods_by_priority.lower_priority_pods(row, pod.priority)

    def select_victims_on_node(
        self, state: CycleState, pod: PodInfo, node: NodeInfo, budgets: DisruptionBudgets
    ) -> Candidate | Status:
        """Return the victims on one node, or why it is no candidate.

        Not called by DefaultPreemption itself, which looks at many nodes at a time. Override it for
        rules that ``potential_victims`` cannot express; ``NodeDryRun`` is made for it.
        """
        raise NotImplementedError

    def preemption_units(self) -> DomainVictims | None:
        """Return the finder of units that are evicted together; None means each pod by itself.

        It is called once, by the constructor. By default pods of PodGroups are evicted together as
        their disruption mode says (gate GenericWorkload). Override it for other units: then groups
        preempt as in Kubernetes 1.37, groups of groups included.
        """
        handle, gates = self.handle, self.handle.feature_gates
        if not (gates.enabled("GenericWorkload") and gates.includes(Change.POD_GROUP_ENTITIES)):
            return None
        return DomainVictims(
            handle.workload_forest,
            handle.pod_group_states,
            handle.nodes,
            by_root=not gates.includes(Change.VICTIMS_COUNT_AS_PODS),
        )

    def preferred_candidates(self, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """Return the candidates, at least one, of which the best is picked. By default all.

        Override it for what is to count more than the victims' number and priorities.
        """
        return candidates

    def order_of_nodes(self, rows: Rows) -> Rows:
        """Return the rows where removing pods may help in the order in which they are tried.

        By default from a random one on, so that not the same nodes' pods are evicted each time. But
        nodes that lose pods to preemptions on other nodes, because groups are evicted as a whole,
        are among those that become candidates: fewer pods may have to be evicted for all.
        """
        rows = np.roll(rows, -self.handle.rng.randrange(len(rows)))
        losing = self._evictor.pods_leaving_other_nodes
        if not losing:
            return rows
        # Nodes that lose most come last: of candidates that cost the same, and whose victims have
        # not started, the last is picked. Nominated nodes after all: they hardly become candidates.
        losing_rows = self._among(rows, sorted(losing, key=losing.__getitem__))
        nominated_rows = self._among(rows, self.handle.nominator.nominated_nodes())
        losing_rows = losing_rows[~np.isin(losing_rows, nominated_rows)]
        others = rows[~np.isin(rows, np.concatenate((losing_rows, nominated_rows)))]
        before = max(0, self.num_candidates(len(rows)) - len(losing_rows))
        return np.concatenate((others[:before], losing_rows, others[before:], nominated_rows))

    def _among(self, rows: Rows, names: Iterable[str]) -> Rows:
        """Return the rows of the named nodes that are among ``rows``, in the order of the names."""
        by_name = self.handle.nodes.rows
        found = np.array([by_name[name] for name in names if name in by_name], dtype=np.intp)
        return found[np.isin(found, rows)]

    async def _evaluate(
        self, state: CycleState, pod: PodInfo, verdicts: Verdicts
    ) -> Candidate | PostFilterResult:
        """Return the best candidate, or why there is none."""
        # As kube-scheduler does, the newest version from the informer: `pod` is as old as its
        # place in the queue, and its nomination may have changed since.
        live = self._pods.get(pod.key)
        if live is None:
            return PostFilterResult(Status.error(f'pods "{pod.name}" not found'))
        reason = self.ineligibility(state, live, verdicts)
        if reason:
            log.v(5).info("Pod is not eligible for preemption", pod=pod.key, reason=reason)
            return PostFilterResult(Status.unschedulable(f"preemption: {reason}"))
        dry_run_key = self.handle.dry_run_key(state, pod)
        # Nor are those that depend on which other nodes there are.
        if self._chooses or self._selects or self._prefers_movable:
            dry_run_key = None
        dry_run_cache = self._dry_run_caches.of(dry_run_key, pod, self._budgets.values())
        budgets = self._disruption_budgets(partial(state.check_budget, self.name, "PostFilter"))
        in_units = not (self._selects and self._has_own_units)
        dry_run = DryRun(
            self.handle,
            state,
            pod,
            budgets,
            self._pods_by_priority,
            dry_run_cache,
            choose=self.potential_victims if self._chooses else None,
            select=self.select_victims_on_node if self._selects else None,
            units=self._victims if in_units else None,
            extender_may_preempt=(
                self.handle.extender_may_preempt(live)
                if self.handle.feature_gates.includes(Change.CANDIDATES_WITHOUT_VICTIMS)
                else None
            ),
        )
        candidates = self._find_candidates(dry_run, verdicts)
        if not candidates:
            if not len(verdicts.rows_with(Code.UNSCHEDULABLE)):
                log.v(3).info("Preemption will not help schedule pod on any node", pod=pod.key)
            log.v(2).info(
                "No preemption candidate is found; preemption is not helpful for scheduling",
                pod=pod.key,
            )
            # With candidates left, errors on other nodes are not reported at all.
            if dry_run.errors:
                return PostFilterResult(Status.error(f"preemption: {_aggregate(dry_run.errors)}"))
            text = self._no_candidates_message(dry_run)
            return PostFilterResult(Status.unschedulable(f"preemption: {text}"), CLEAR_NOMINATION)
        try:
            candidates = await self._call_extenders(live, candidates)
        except ExtenderError as error:
            return PostFilterResult(Status.error(f"preemption: {error}"))
        if candidates:
            candidates = list(self.preferred_candidates(candidates))
        by_uid = self._equal_victims is EqualVictims.BY_UID
        best = pick_one_node_for_preemption(
            candidates,
            NOT_STARTED if by_uid else self.handle.clock.now(),
            sampled_once=self._equal_victims is not EqualVictims.REVERSED,
        )
        if best is None:
            text = "preemption: no candidate node for preemption"
            return PostFilterResult(Status.unschedulable(text))
        log.v(2).info(
            "the target node for the preemption is determined", node=best.node_name, pod=pod.key
        )
        return best

    def ineligibility(self, state: CycleState, pod: Pod, verdicts: Verdicts) -> str:
        """Return the reason why the pod may not preempt; "" if it may."""
        if pod.spec.preemption_policy == "Never":
            return "not eligible due to preemptionPolicy=Never."
        nodes = self.handle.nodes
        row = nodes.rows.get(pod.status.nominated_node_name)
        if row is None:
            return ""
        status = verdicts.status(row)
        # No eviction there can help any more, so that waiting for the victims would be in vain.
        if status is not None and status.code == Code.UNRESOLVABLE:
            return ""
        priority = pod.spec.priority or 0
        # A second preemption would evict more pods while the victims of the first are terminating.
        for other in nodes[row].pods.values():
            lower = other.priority if self._victims is None else self._victims.priority_of(other)
            if lower < priority and is_being_preempted(other.pod):
                return "not eligible due to a terminating pod on the nominated node."
        return ""

    def _find_candidates(self, dry_run: DryRun, verdicts: Verdicts) -> list[Candidate]:
        """Return enough candidates to pick from, those without PDB violations first."""
        # Unresolvable ones and errors: removing pods would not make the pod fit there.
        rows = verdicts.rows_with(Code.UNSCHEDULABLE)
        if not len(rows):
            return []
        wanted = self.num_candidates(len(rows))
        log.v(5).info(
            "Dry run the preemption",
            potentialNodesNumber=len(rows),
            pdbsNumber=len(self._budgets),
            candidatesNumber=wanted,
        )
        return dry_run.candidates(self.order_of_nodes(rows), wanted)

    async def _call_extenders(self, pod: Pod, candidates: list[Candidate]) -> list[Candidate]:
        """Return the candidates and victims that HTTP extenders keep. Raises ``ExtenderError``."""
        proposed = {c.node_name: Victims(c.victims, c.pdb_violations) for c in candidates}
        left = await self.handle.preempt_through_extenders(pod, proposed)
        if left is proposed:
            return candidates
        return [
            Candidate(name, victims.pods, victims.pdb_violations) for name, victims in left.items()
        ]

    async def pod_group_post_filter(
        self, state: CycleState, group: PodGroupInfo, schedule: SchedulePodGroup
    ) -> PodGroupPostFilterResult:
        """Preempt for a whole group, on all nodes at once (KEP-5710)."""
        # Without gate GenericWorkload there are groups too: those that plugins provide.
        preemption = self._group_preemption or self._group_preemption_v1_36
        return await preemption.preempt(group, self._disruption_budgets(), schedule)

    def rank_nodes(self) -> IntArray | None:
        """Return the ranks of nodes by what their victims cost, while a group preempts."""
        costs = self._victim_costs()
        return None if costs is None else costs.ranks

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Condemn the victims on the node of a pod whose group preempts."""
        costs = self._victim_costs()
        if costs is not None:
            state.write(_CONDEMNED, costs.condemn(node_name))
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Take back what ``reserve`` has done."""
        costs = self._victim_costs()
        if costs is not None:
            costs.release(state.get(_CONDEMNED) or ())
            state.write(_CONDEMNED, None)

    def _victim_costs(self) -> VictimCosts | None:
        preemption = self._group_preemption
        return None if preemption is None else preemption.costs

    def _disruption_budgets(self, check: Callable[[], None] = lambda: None) -> DisruptionBudgets:
        gates, pinned = self.handle.feature_gates, None
        if self._prefers_movable:
            compare = gates.enabled("TaintTolerationComparisonOperators")
            pinned = PinnedPods(self.handle.nodes, compare)
        return DisruptionBudgets(
            self._budgets.values(),
            stop_at_first_exhausted=gates.includes(Change.FIRST_EXHAUSTED_BUDGET),
            as_disruption_controller=gates.includes(Change.BUDGETS_SELECT_AS_CONTROLLER),
            check=check,
            pinned=pinned,
        )

    def num_candidates(self, nodes: int) -> int:
        """Return the number of candidates that are enough among ``nodes`` potential nodes."""
        args: DefaultPreemptionArgs = self.args
        by_percentage = nodes * args.min_candidate_nodes_percentage // 100
        return min(nodes, max(by_percentage, args.min_candidate_nodes_absolute))

    def _no_candidates_message(self, dry_run: DryRun) -> str:
        """Return the FitError over all nodes of the cluster, for a dry run without candidates."""
        verdicts = dry_run.verdicts
        # Only nodes without a status yet get this one: those that were not dry-run.
        all_nodes_feasible = np.ones(verdicts.size, dtype=np.bool_)
        verdicts.reject_with(all_nodes_feasible, Status.unresolvable(NOT_HELPFUL))
        return FitError(verdicts.size, Diagnosis(verdicts)).message

    async def _preempt(self, best: Candidate, pod: PodInfo) -> PostFilterResult:
        nominating = NominatingInfo(best.node_name)
        victims = Victims(best.victims, best.pdb_violations)
        success: Status | None = None
        if self.handle.feature_gates.includes(Change.PREEMPTION_MESSAGE):
            success = Status.success(
                "preemption: found a potential placement for pod on node "
                f"{best.node_name}, preempting {len(best.victims)} victims"
            )
        try:
            await self._evictor.prepare_candidate(best, Preemptor.of_pod(pod))
        except ApiError as error:
            return PostFilterResult(Status.error(f"preemption: {error}"))
        return PostFilterResult(success, nominating, victims)


def _aggregate(errors: list[str]) -> str:
    distinct = list(dict.fromkeys(errors))
    return distinct[0] if len(distinct) == 1 else "[" + ", ".join(distinct) + "]"
