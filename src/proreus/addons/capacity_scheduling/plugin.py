"""The plugin: admission by quotas, borrowing, and eviction for a guarantee.

Worked example: A is guaranteed 4 CPUs and uses 5, B is guaranteed 6 and uses 4. A may have one more
as long as the sum stays within 10. A pod of B that asks for 2 is within B's guarantee, but the sum
would be 11: pods of A are evicted, whatever their priority, since A has more than its guarantee.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from math import inf

from proreus.addons.capacity_scheduling.args import CapacitySchedulingArgs
from proreus.addons.capacity_scheduling.queue_claims import Claim
from proreus.addons.capacity_scheduling.queue_state import SHARES_CHANGED, QueueState
from proreus.addons.capacity_scheduling.quota_state import QuotaState
from proreus.addons.capacity_scheduling.quota_victims import QuotaVictims
from proreus.addons.gang_preemption.placed_gangs import PlacedGangs
from proreus.addons.preemption_texts import without_prefix
from proreus.framework import (
    BackgroundPlugin,
    ClusterEvent,
    Code,
    CycleState,
    Handle,
    NodeInfo,
    NodeTable,
    PodGroupInfo,
    PodGroupPostFilterResult,
    PodInfo,
    PostFilterResult,
    PreFilterPlugin,
    QuotaPlugin,
    QuotaUse,
    Rows,
    SchedulePodGroup,
    Status,
    Verdicts,
    Victims,
    events,
)
from proreus.objects import PODS, Pod, condition_of
from proreus.plugins.default_preemption import (
    Candidate,
    DefaultPreemption,
    DisruptionBudgets,
    UnitDryRun,
    candidate_of_units,
)

_COUNTED_PHASES = ("", "Pending", "Running")
_EVICTION_SECONDS = 30.0
"""A victim that is not terminating after this time was not evicted: the request failed."""


class CapacityScheduling(DefaultPreemption, PreFilterPlugin, BackgroundPlugin, QuotaPlugin):
    """Keeps namespaces or queues within their quotas, and gives back guarantees."""

    needs_points = {"postFilter": "preFilter"}
    reserve_changes_filter = True

    Args = CapacitySchedulingArgs

    def __init__(self, args: CapacitySchedulingArgs, handle: Handle) -> None:
        self._state: QuotaState | QueueState = (
            QuotaState(handle) if args.queues is None else QueueState(args.queues, handle)
        )
        self._leaving: dict[str, tuple[PodInfo, float]] = {}
        """Victims that are not gone yet, by UID, and the time by which they should be gone."""
        self._gangs = PlacedGangs()
        self._units = QuotaVictims(handle, self._gangs, self._state, self._leaving)
        super().__init__(args, handle)
        handle.on_change(PODS, self._pod_changed, with_provided=True)

    def events_to_register(self) -> Iterable[ClusterEvent]:
        """Register deleted pods, pods that borrow, another queue, and any change of quotas."""
        return (
            *super().events_to_register(),
            ClusterEvent(events.ASSIGNED_POD, events.DELETE, hint=self._state.may_help),
            ClusterEvent(events.ASSIGNED_POD, events.ADD, hint=self._state.may_reclaim),
            *self._state.events(),
        )

    async def run_in_background(self) -> None:
        """Announce that a fair share has grown: others ask for less, or had much in the past."""
        while isinstance(self._state, QueueState):
            await asyncio.sleep(self._state.refresh_seconds)
            if self._state.have_shares_grown():
                self.handle.announce(SHARES_CHANGED)

    def quotas(self) -> Iterable[QuotaUse]:
        """Return the use of every quota or queue."""
        return self._state.uses()

    def quota_of(self, pod: Pod) -> str:
        """Return the quota or queue that counts a pod, "" if none does."""
        return self._state.name_for(pod)

    # ---- use -----------------------------------------------------------------------------------

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        assert pod is not None
        if new is None or new.status.phase not in _COUNTED_PHASES:
            self._leaving.pop(pod.metadata.uid, None)
            self._gangs.remove(pod.metadata.uid)
            self._state.forget(pod)
            return
        if new.spec.node_name:
            self._gangs.put(new, new.spec.node_name)
        if new.metadata.deletion_timestamp is not None and new.metadata.uid in self._leaving:
            self._leaving[new.metadata.uid] = PodInfo(new), inf
        self._state.note(new, placed=bool(new.spec.node_name))

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Count the pod."""
        self._state.reserve(pod, node_name)
        self._gangs.put(pod.pod, node_name)
        return super().reserve(state, pod, node_name)

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Do not count the pod any more."""
        super().unreserve(state, pod, node_name)
        self._state.unreserve(pod)
        self._gangs.remove(pod.uid)
        stored = self._pods.get(pod.key)
        if stored is not None and stored.metadata.uid == pod.uid:
            # It may be bound all the same: the watch said so before the request failed.
            self._pod_changed(None, stored)

    # ---- PreFilter -----------------------------------------------------------------------------

    def pre_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable
    ) -> Status | frozenset[str] | None:
        """Reject a pod that is beyond its maximum, or borrows a guarantee that is not idle."""
        claim: Claim = self._state.claim(pod)
        state.write(self.name, claim)
        rejection = claim.rejection()
        if rejection is None:
            return None
        # A pod that takes from a provided pod, such as a reservation, takes over its use.
        nodes_with_room = frozenset(
            name
            for name, provided in self.handle.provided_for(pod).items()
            if _without(claim, provided).rejection() is None
        )
        return nodes_with_room or rejection

    def add_pod(
        self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo
    ) -> bool | None:
        """Count a pod in the snapshot."""
        claim: Claim = state.read(self.name)
        claim.add(added)
        return None

    def remove_pod(
        self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo
    ) -> bool | None:
        """Do not count a pod any more in the snapshot."""
        claim: Claim = state.read(self.name)
        claim.remove(removed)
        return None

    # ---- PostFilter ----------------------------------------------------------------------------

    async def post_filter(
        self, state: CycleState, pod: PodInfo, verdicts: Verdicts
    ) -> PostFilterResult:
        """Take guarantees back, or preempt within the namespace or queue."""
        claim: Claim = state.read(self.name)
        self._expect_evictions(claim)
        result = await super().post_filter(state, pod, verdicts)
        if result.victims is None and claim.reaches_its_guarantee():
            # Borrowers may be spread over many nodes, a pod on each: no single node gives back
            # enough. Then the guarantee is taken back node by node, an attempt each.
            claim.last_resort = True
            again = await super().post_filter(state, pod, verdicts)
            result = result if again.victims is None else again
        self._note_victims(result.victims)
        return without_prefix(result)

    async def pod_group_post_filter(
        self, state: CycleState, group: PodGroupInfo, schedule: SchedulePodGroup
    ) -> PodGroupPostFilterResult:
        """Take guarantees back for a whole gang, or preempt within the namespace or queue."""
        self._forget_overdue_victims()
        result = await super().pod_group_post_filter(state, group, schedule)
        self._note_victims(result.victims)
        return result

    def _note_victims(self, victims: Victims | None) -> None:
        if victims is not None:
            deadline = self.handle.clock.monotonic() + _EVICTION_SECONDS
            self._leaving.update((one.uid, (one, deadline)) for one in victims.pods)

    def preemption_units(self) -> QuotaVictims:
        """Return the finder of units, in which pods that a gang needs go together."""
        return self._units

    def _expect_evictions(self, claim: Claim) -> None:
        """Do not count pods that are leaving.

        Otherwise every preemptor that comes before they are gone would evict for their quota again.
        """
        self._forget_overdue_victims()
        for pod, _ in self._leaving.values():
            claim.remove(pod)

    def _forget_overdue_victims(self) -> None:
        now = self.handle.clock.monotonic()
        for uid in [uid for uid, (_, deadline) in self._leaving.items() if deadline <= now]:
            del self._leaving[uid]

    def num_candidates(self, nodes: int) -> int:
        """Return the number of all nodes."""
        return nodes

    def order_of_nodes(self, rows: Rows) -> Rows:
        """Return the rows as they are."""
        return rows

    def ineligibility(self, state: CycleState, pod: Pod, verdicts: Verdicts) -> str:
        """Return the reason why the pod may not preempt, "" if it may."""
        if pod.spec.preemption_policy == "Never":
            return "not eligible due to preemptionPolicy=Never."
        nodes = self.handle.nodes
        row = nodes.rows.get(pod.status.nominated_node_name)
        status = None if row is None else verdicts.status(row)
        if row is None or (status is not None and status.code == Code.UNRESOLVABLE):
            return ""
        claim: Claim = state.read(self.name)
        for other in nodes[row].pods.values():
            if _is_terminating(other.pod) and claim.may_evict(other):
                return "not eligible due to a terminating pod on the nominated node."
        return ""

    def select_victims_on_node(
        self, state: CycleState, pod: PodInfo, node: NodeInfo, budgets: DisruptionBudgets
    ) -> Candidate | Status:
        """Remove all potential victims, then put back as many as filters and quotas allow."""
        nothing = Status.unresolvable(
            f"No victims found on node {node.name} for preemptor pod {pod.name}"
        )
        claim: Claim = state.read(self.name)
        units = list(claim.in_order_of_removal(self._units.of_nodes([node])))
        # Of most nodes no unit may go, and a dry run costs a copy of the node.
        may_go = (
            self._units.is_leaving(unit) or self._units.may_evict(claim, unit) for unit in units
        )
        if not any(may_go):
            return nothing
        dry_run = UnitDryRun(self.handle, state, pod, self.handle.nodes.rows[node.name])
        claim = dry_run.state.read(self.name)
        potential = []
        for unit in units:
            if self._units.is_leaving(unit):
                dry_run.remove(unit)
            elif self._units.may_evict(claim, unit):
                potential.append(unit)
                dry_run.remove(unit)
        kept = claim.protected(potential)
        for unit in kept:
            dry_run.add(unit)
        potential = [unit for unit in potential if all(unit is not one for one in kept)]
        if not potential:
            return nothing
        rejected = dry_run.rejection()
        if rejected is not None:
            return rejected
        if claim.exceeds_alone():
            return Status.unschedulable("global quota max exceeded")
        order, violations = budgets.reprieve_order(potential)
        victims = []
        for unit in order:
            dry_run.add(unit)
            if claim.exceeds() or dry_run.rejection() is not None:
                dry_run.remove(unit)
                victims.append(unit)
        return candidate_of_units(node.name, victims, violations)


def _without(claim: Claim, pod: PodInfo) -> Claim:
    """Return a clone of a claim without another pod."""
    other = claim.clone()
    other.remove(pod)
    return other


def _is_terminating(pod: Pod) -> bool:
    return (
        pod.metadata.deletion_timestamp is not None
        or condition_of(pod, "DisruptionTarget") is not None
    )
