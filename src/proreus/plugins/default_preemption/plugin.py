"""The plugin: eligibility, dry run, choice, eviction. Source: KEP-268 and kube-scheduler 1.36."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from proreus.config.plugin_args import DefaultPreemptionArgs
from proreus.errors import ApiError, ExtenderError
from proreus.framework.cycle_state import CycleState
from proreus.framework.diagnosis import Diagnosis, NoFit
from proreus.framework.events import DELETE, POD, ClusterEvent
from proreus.framework.handle import Handle
from proreus.framework.nominating import CLEAR_NOMINATION, NominatingInfo, PostFilterResult
from proreus.framework.plugin import (
    PodGroupPostFilterPlugin,
    PostFilterPlugin,
    PreEnqueuePlugin,
)
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Code, Status
from proreus.framework.verdicts import Rows, Verdicts
from proreus.framework.victims import Victims
from proreus.objects.kinds import PODS
from proreus.objects.pod import Pod, condition_of
from proreus.objects.policy import POD_DISRUPTION_BUDGETS
from proreus.objects.scheduling import POD_GROUPS, PodGroup, pod_group_key
from proreus.plugins.default_preemption.budgets import Budgets
from proreus.plugins.default_preemption.candidates import DryRun
from proreus.plugins.default_preemption.crowds import Crowds
from proreus.plugins.default_preemption.eviction import (
    DISRUPTION_TARGET,
    PREEMPTION_BY_SCHEDULER,
    Evictor,
    Preemptor,
)
from proreus.plugins.default_preemption.outcomes import Candidate, OutcomesByKind
from proreus.plugins.default_preemption.picking import pick_one
from proreus.plugins.default_preemption.whole_groups import Fits, GroupDryRun, victims_for

NOT_HELPFUL = "Preemption is not helpful for scheduling"


class DefaultPreemption(PostFilterPlugin, PodGroupPostFilterPlugin, PreEnqueuePlugin):
    """Evicts less important pods from the node where that hurts least."""

    Args = DefaultPreemptionArgs

    def __init__(self, args: DefaultPreemptionArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._pods = handle.store(PODS)
        self._budgets = handle.store(POD_DISRUPTION_BUDGETS)
        self._crowds = Crowds(handle.nodes)
        self._outcomes = OutcomesByKind(handle.nodes)
        self._evictor = Evictor(handle, self._pods, self.name)
        gates = handle.feature_gates
        self._async = gates.enabled("SchedulerAsyncPreemption")
        self._by_topology = gates.enabled("TopologyAwareWorkloadScheduling")
        self._by_group = gates.enabled("WorkloadAwarePreemption")
        # Not watched unless a gate asks for it.
        watched = self._by_topology or self._by_group
        self._groups: Mapping[str, PodGroup] = handle.store(POD_GROUPS) if watched else {}

    def events_to_register(self) -> Iterable[ClusterEvent]:
        """Register the victims' going, for pods that are gated here; the hint wakes nobody else."""
        return (ClusterEvent(POD, DELETE, hint=_never, lets_in=self._let_in),)

    def _let_in(self, gone: Pod, new: None) -> Collection[str]:
        return self._evictor.running.let_in(gone.metadata.uid)

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        """Keep a preemptor out of the queue until its last victim is on its way."""
        if not self._async:
            return None
        if self._by_group and (key := pod_group_key(pod.pod)):
            group = self._groups.get(key)
            if group is not None and self._evictor.running.keeps_out(group.metadata.uid, pod.key):
                return Status.unresolvable(
                    "waiting for the preemption for this pod group to be finished"
                )
            return None
        if self._evictor.running.keeps_out(pod.uid, pod.key):
            return Status.unresolvable("waiting for the preemption for this pod to be finished")
        return None

    async def post_filter(
        self, state: CycleState, pod: PodInfo, verdicts: Verdicts
    ) -> PostFilterResult:
        """Find the cheapest node to make room on, and make it."""
        self.handle.metrics.preemption_attempts_total.inc()
        obstacle = self._left_to_group(pod)
        if obstacle:
            return PostFilterResult(Status.unschedulable(f"preemption: {obstacle}"))
        live = self._pods.get(pod.key)
        if live is None:
            return PostFilterResult(Status.error(f'pods "{pod.name}" not found'))
        obstacle = self._not_eligible(live, verdicts)
        if obstacle:
            return PostFilterResult(Status.unschedulable(f"preemption: {obstacle}"))
        grounds = self.handle.trial_grounds(state, pod)
        outcomes = self._outcomes.of(grounds, pod, self._budgets.values())
        budgets = Budgets(self._budgets.values())
        dry_run = DryRun(self.handle, state, pod, budgets, self._crowds, outcomes)
        candidates = self._find_candidates(dry_run, verdicts)
        if not candidates:
            if dry_run.errors:
                return PostFilterResult(Status.error(f"preemption: {_aggregate(dry_run.errors)}"))
            text = self._why_not(dry_run)
            return PostFilterResult(Status.unschedulable(f"preemption: {text}"), CLEAR_NOMINATION)
        try:
            candidates = await self._ask_extenders(live, candidates)
        except ExtenderError as error:
            return PostFilterResult(Status.error(f"preemption: {error}"))
        best = pick_one(candidates, self.handle.clock.now())
        if best is None:
            text = "preemption: no candidate node for preemption"
            return PostFilterResult(Status.unschedulable(text))
        return await self._preempt(best, pod)

    def _left_to_group(self, pod: PodInfo) -> str:
        """Return why a pod of a PodGroup may not preempt by itself; "" if it may."""
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

    def _not_eligible(self, pod: Pod, verdicts: Verdicts) -> str:
        """Return why the pod may not preempt; "" if it may."""
        if pod.spec.preemption_policy == "Never":
            return "not eligible due to preemptionPolicy=Never."
        nodes = self.handle.nodes
        row = nodes.rows.get(pod.status.nominated_node_name)
        if row is None:
            return ""
        status = verdicts.status(row)
        if status is not None and status.code == Code.UNRESOLVABLE:
            return ""
        priority = pod.spec.priority or 0
        for other in nodes[row].pods.values():
            if other.priority < priority and _is_being_preempted(other.pod):
                return "not eligible due to a terminating pod on the nominated node."
        return ""

    def _find_candidates(self, dry_run: DryRun, verdicts: Verdicts) -> list[Candidate]:
        """Try nodes, from a random one on, until there are enough to choose from."""
        rows = verdicts.rows_with(Code.UNSCHEDULABLE)
        if not len(rows):
            return []
        return dry_run.candidates(self._from_somewhere(rows), self.num_candidates(len(rows)))

    async def _ask_extenders(self, pod: Pod, candidates: list[Candidate]) -> list[Candidate]:
        """Return the candidates that HTTP extenders leave, with the victims that they leave."""
        proposed = {c.node_name: Victims(c.victims, c.pdb_violations) for c in candidates}
        left = await self.handle.preempt_through_extenders(pod, proposed)
        if left is proposed:
            return candidates
        return [
            Candidate(name, victims.pods, victims.pdb_violations) for name, victims in left.items()
        ]

    async def pod_group_post_filter(
        self, group: PodGroup, pods: Sequence[PodInfo], fits: Fits
    ) -> Status | None:
        """Make room for a whole group: on all nodes at once, at the expense of whole groups too."""
        if any(pod.pod.spec.preemption_policy == "Never" for pod in pods):
            return Status.unschedulable("not eligible due to preemptionPolicy=Never.")
        units = victims_for(self.handle.nodes, self._groups, group.priority)
        dry_run = GroupDryRun(self.handle.nodes, Budgets(self._budgets.values()), fits)
        found = await dry_run.run(units)
        if isinstance(found, Status):
            return found
        preemptor = Preemptor.of_group(group, pods, self.handle.profile_name)
        if self._async:
            self._evictor.evict_in_background(found, preemptor)
            return None
        try:
            await self._evictor.evict(found, preemptor)
        except ApiError as error:
            return Status.error(str(error))
        return None

    def num_candidates(self, nodes: int) -> int:
        """Return how many candidates are enough among ``nodes`` potential ones."""
        args: DefaultPreemptionArgs = self.args
        by_percentage = nodes * args.min_candidate_nodes_percentage // 100
        return min(nodes, max(by_percentage, args.min_candidate_nodes_absolute))

    def _from_somewhere(self, rows: Rows) -> Rows:
        return np.roll(rows, -self.handle.rng.randrange(len(rows)))

    def _why_not(self, dry_run: DryRun) -> str:
        """Return the message when no node can be made to fit."""
        verdicts = dry_run.verdicts
        all_nodes_feasible = np.ones(verdicts.size, dtype=np.bool_)
        verdicts.reject_with(all_nodes_feasible, Status.unresolvable(NOT_HELPFUL))
        return NoFit(verdicts.size, Diagnosis(verdicts)).message

    async def _preempt(self, best: Candidate, pod: PodInfo) -> PostFilterResult:
        nominating = NominatingInfo(best.node_name)
        if self._async:
            self._evictor.evict_in_background(best, Preemptor.of_pod(pod))
            return PostFilterResult(None, nominating)
        try:
            await self._evictor.evict(best, Preemptor.of_pod(pod))
        except ApiError as error:
            return PostFilterResult(Status.error(f"preemption: {error}"))
        return PostFilterResult(None, nominating)


def _is_being_preempted(pod: Pod) -> bool:
    condition = condition_of(pod, DISRUPTION_TARGET)
    return (
        pod.metadata.deletion_timestamp is not None
        and condition is not None
        and condition.status == "True"
        and condition.reason == PREEMPTION_BY_SCHEDULER
    )


def _aggregate(errors: list[str]) -> str:
    distinct = list(dict.fromkeys(errors))
    return distinct[0] if len(distinct) == 1 else "[" + ", ".join(distinct) + "]"


def _never(pod: PodInfo, old: Any, new: Any) -> bool:
    return False
