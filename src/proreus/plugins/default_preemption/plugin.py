"""The plugin: eligibility, dry run, choice, eviction. Source: KEP-268 and kube-scheduler 1.36."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from proreus.config.plugin_args import DefaultPreemptionArgs
from proreus.errors import ApiError, ExtenderError
from proreus.framework.cycle_state import CycleState
from proreus.framework.diagnosis import Diagnosis, FitError
from proreus.framework.events import DELETE, POD, ClusterEvent
from proreus.framework.handle import Handle
from proreus.framework.plugin import (
    PodGroupPostFilterPlugin,
    PostFilterPlugin,
    PreEnqueuePlugin,
)
from proreus.framework.pod_info import PodInfo
from proreus.framework.post_filter_result import CLEAR_NOMINATION, NominatingInfo, PostFilterResult
from proreus.framework.status import Code, Status
from proreus.framework.verdicts import Rows, Verdicts
from proreus.framework.victims import Victims
from proreus.objects.kinds import PODS
from proreus.objects.pod import Pod, condition_of
from proreus.objects.policy import POD_DISRUPTION_BUDGETS
from proreus.objects.scheduling import POD_GROUPS, PodGroup, pod_group_key
from proreus.plugins.default_preemption.budgets import DisruptionBudgets
from proreus.plugins.default_preemption.candidates import DryRun
from proreus.plugins.default_preemption.dry_run_cache import Candidate, DryRunCaches
from proreus.plugins.default_preemption.eviction import (
    DISRUPTION_TARGET,
    PREEMPTION_BY_SCHEDULER,
    Evictor,
    Preemptor,
)
from proreus.plugins.default_preemption.picking import pick_one_node_for_preemption
from proreus.plugins.default_preemption.pod_group_preemption import (
    Fits,
    PodGroupDryRun,
    preemption_units,
)
from proreus.plugins.default_preemption.pods_by_priority import PodsByPriority

NOT_HELPFUL = "Preemption is not helpful for scheduling"


class DefaultPreemption(PostFilterPlugin, PodGroupPostFilterPlugin, PreEnqueuePlugin):
    """Evicts less important pods from the node where that hurts least."""

    Args = DefaultPreemptionArgs

    def __init__(self, args: DefaultPreemptionArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._pods = handle.store(PODS)
        self._budgets = handle.store(POD_DISRUPTION_BUDGETS)
        self._pods_by_priority = PodsByPriority(handle.nodes)
        self._dry_run_caches = DryRunCaches(handle.nodes)
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
        return (ClusterEvent(POD, DELETE, hint=_never, ungated_pods=self._ungated_by),)

    def _ungated_by(self, gone: Pod, new: None) -> Collection[str]:
        return self._evictor.running.ungated_by(gone.metadata.uid)

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        """Keep a preemptor out of the queue until its last victim is on its way."""
        if not self._async:
            return None
        if self._by_group and (key := pod_group_key(pod.pod)):
            group = self._groups.get(key)
            if group is not None and self._evictor.running.is_gated(group.metadata.uid, pod.key):
                return Status.unresolvable(
                    "waiting for the preemption for this pod group to be finished"
                )
            return None
        if self._evictor.running.is_gated(pod.uid, pod.key):
            return Status.unresolvable("waiting for the preemption for this pod to be finished")
        return None

    async def post_filter(
        self, state: CycleState, pod: PodInfo, verdicts: Verdicts
    ) -> PostFilterResult:
        """Find the cheapest node to make room on, and make it."""
        self.handle.metrics.preemption_attempts_total.inc()
        reason = self._pod_group_ineligibility(pod)
        if reason:
            return PostFilterResult(Status.unschedulable(f"preemption: {reason}"))
        live = self._pods.get(pod.key)
        if live is None:
            return PostFilterResult(Status.error(f'pods "{pod.name}" not found'))
        reason = self._ineligibility(live, verdicts)
        if reason:
            return PostFilterResult(Status.unschedulable(f"preemption: {reason}"))
        dry_run_key = self.handle.dry_run_key(state, pod)
        dry_run_cache = self._dry_run_caches.of(dry_run_key, pod, self._budgets.values())
        budgets = DisruptionBudgets(self._budgets.values())
        dry_run = DryRun(self.handle, state, pod, budgets, self._pods_by_priority, dry_run_cache)
        candidates = self._find_candidates(dry_run, verdicts)
        if not candidates:
            if dry_run.errors:
                return PostFilterResult(Status.error(f"preemption: {_aggregate(dry_run.errors)}"))
            text = self._no_candidates_message(dry_run)
            return PostFilterResult(Status.unschedulable(f"preemption: {text}"), CLEAR_NOMINATION)
        try:
            candidates = await self._call_extenders(live, candidates)
        except ExtenderError as error:
            return PostFilterResult(Status.error(f"preemption: {error}"))
        best = pick_one_node_for_preemption(candidates, self.handle.clock.now())
        if best is None:
            text = "preemption: no candidate node for preemption"
            return PostFilterResult(Status.unschedulable(text))
        return await self._preempt(best, pod)

    def _pod_group_ineligibility(self, pod: PodInfo) -> str:
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

    def _ineligibility(self, pod: Pod, verdicts: Verdicts) -> str:
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
        return dry_run.candidates(self._from_random_offset(rows), self.num_candidates(len(rows)))

    async def _call_extenders(self, pod: Pod, candidates: list[Candidate]) -> list[Candidate]:
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
        units = preemption_units(self.handle.nodes, self._groups, group.priority)
        dry_run = PodGroupDryRun(self.handle.nodes, DisruptionBudgets(self._budgets.values()), fits)
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

    def _from_random_offset(self, rows: Rows) -> Rows:
        return np.roll(rows, -self.handle.rng.randrange(len(rows)))

    def _no_candidates_message(self, dry_run: DryRun) -> str:
        """Return the message when no node can be made to fit."""
        verdicts = dry_run.verdicts
        all_nodes_feasible = np.ones(verdicts.size, dtype=np.bool_)
        verdicts.reject_with(all_nodes_feasible, Status.unresolvable(NOT_HELPFUL))
        return FitError(verdicts.size, Diagnosis(verdicts)).message

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
