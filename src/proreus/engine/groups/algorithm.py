"""The dry run of a pod group: whether it fits, and where each of its pods.

    run ─► _schedule_group ─┬─ PodGroup ──────────► _schedule_pods      (in each placement)
                            └─ CompositePodGroup ─► _schedule_children  (in each placement)
        ─► all of it undone in reverse ─► Results

Pods are tried one after another, in the order of the queue, each assumed where it fits, so that the
next ones see it. Before the first one and after each of them, PlacementFeasible says whether the
group can still be scheduled. It works on the live table, without a copy: the group's cycle has
paused the informers, so nothing else reads the table meanwhile. Pods that are alike share cached
results as everywhere.

With gate TopologyAwareWorkloadScheduling a group is tried in each of its placements, a set of
nodes; children of a CompositePodGroup are placed within that of their parent.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter

from msgspec import structs

from proreus.base.errors import PluginError
from proreus.base.metrics import SchedulerMetrics
from proreus.engine.cycles.attempt import NodeSubset
from proreus.engine.groups.failures import GroupFailures
from proreus.engine.groups.orders import Order, OtherOrders, kind_of
from proreus.engine.groups.placement_search import (
    NOMINATED_WITHOUT_POD,
    GroupPlacements,
    PlacementSearch,
    SearchPlacements,
    every_placement,
)
from proreus.engine.groups.results import (
    UNSCHEDULABLE,
    PodGroupResult,
    Results,
    add_rejectors,
    naming_placements,
    naming_rejected_pod,
    pods_lacking,
    reason_of,
    say_of_rejected_pods,
    successful_leaves,
)
from proreus.engine.groups.tentative_pods import TentativePods
from proreus.engine.runtime.pod_group_points import (
    run_placement_feasible,
    run_placement_generate,
    run_placement_score,
)
from proreus.engine.runtime.points import PluginTimer
from proreus.engine.runtime.profile import Profile
from proreus.framework.cycle_state import CycleState
from proreus.framework.node_table import NodeTable
from proreus.framework.pod_group import (
    PlacedPod,
    Placement,
    PlacementProgress,
    PodGroupAssignments,
    PodGroupInfo,
    PodGroupSchedulingCycle,
    PodGroupStates,
)
from proreus.framework.pod_info import QueuedPodInfo
from proreus.framework.queued_pod_group import PodsByGroup
from proreus.framework.status import Code, Status, code_of

Try = Callable[[PodGroupInfo, CycleState, NodeSubset | None], Awaitable[Results]]
"""Tries a group on some nodes, None for all; leaves its pods assumed if it fits."""


_MOST_TRIES = 1000
"""After how many pods no further placement is tried in one attempt."""


@dataclass(kw_only=True, eq=False)
class PodGroupAlgorithm:
    """Tries the pods of root groups of one profile.

    ``pods``: what is assumed meanwhile. ``states``: the pods of groups that have a node.
    ``failures``: what groups that do not fit tell. ``search``: chooses the placements to try.
    ``topology_aware``: gate TopologyAwareWorkloadScheduling.
    """

    profile: Profile
    pods: TentativePods
    states: PodGroupStates
    failures: GroupFailures
    search: SearchPlacements
    topology_aware: bool
    rng: random.Random
    metrics: SchedulerMetrics

    def __post_init__(self) -> None:
        """Begin with no pod tried."""
        self._timer = PluginTimer(self.metrics)
        self._queued: PodsByGroup = {}
        self._root: PodGroupInfo | None = None
        self._first_placement = self._next_placement = 0
        self._generating_plugins = {plugin.name for plugin in self.profile.placement_generate}
        self._in_the_way: dict[bytes, QueuedPodInfo] = {}
        """One pod of each kind that took the place of a pod that found no node."""
        self._order: Order | None = None
        """The order in which the pods are tried; None for their own."""

    async def run(
        self,
        root: PodGroupInfo,
        pods: PodsByGroup,
        state: CycleState,
        first_placement: int = 0,
        rejectors: Iterable[str] = (),
    ) -> Results:
        """Try a root group; undo everything and return the results.

        ``state``: what plugins keep about the group's cycle. ``first_placement``: the place of the
        placement to begin with. ``rejectors``: the plugins that rejected pods in those before it.
        """
        self._queued, self._root = pods, root
        self.pods.rejectors = set(rejectors)
        self._first_placement, self._next_placement = first_placement, 0
        try:
            results = await self._schedule_group(root, state, None)
        finally:
            self.pods.revert_to(0)
        result = results[root.entity_key]
        if result.status is None and not result.any_scheduled:
            result.status = self.failures.nothing_placed
        if result.status is not None and root.entity_key.is_provided:
            # The other orders and placements may be helped by events that these pods know not of.
            result.rejectors = frozenset(self.pods.rejectors)
            result.in_the_way = self._in_the_way
            add_rejectors(results.values(), result.rejectors)
        return results

    async def _schedule_group(
        self, group: PodGroupInfo, state: CycleState, nodes: NodeSubset | None
    ) -> Results:
        try_ = self._schedule_children if group.is_composite else self._schedule_pods
        if group.is_composite or self.topology_aware:
            return await self._schedule_in_placements(group, state, nodes, try_)
        return await try_(group, state, nodes)

    # ---- pods and child groups -----------------------------------------------------------------

    async def _schedule_pods(
        self, group: PodGroupInfo, state: CycleState, nodes: NodeSubset | None
    ) -> Results:
        """Try the pods of a PodGroup in their order; they stay assumed if the group fits."""
        before = len(self.pods.assumed)
        pods = self._ordered(group)
        known = self.states.get(group.key)
        scheduled = 0 if known is None else known.scheduled_count
        cycle = PodGroupSchedulingCycle(scheduled, state)
        progress = PlacementProgress(len(pods), scheduled)
        result = PodGroupResult(group)
        result.status = self._feasible(result, progress)
        if result.failed or code_of(result.status) == Code.UNSCHEDULABLE:
            assert result.status is not None
            if not result.failed:
                result.status = self.failures.rejection(result.status)
            return {group.entity_key: result}
        for queued in pods:
            pod = await self.pods.schedule(queued, cycle, nodes)
            result.pods.append(pod)
            result.any_scheduled = result.any_scheduled or bool(pod.node_name)
            if pod.failure is not None and not pod.failure.status.rejected:
                text = "failed to schedule other pod from a pod group"
                result.status = Status.error(f"{text}: {pod.failure.message}")
                break
            progress = progress.after(fits=bool(pod.node_name))
            result.status = self._feasible(result, progress)
            if result.failed or code_of(result.status) == Code.UNSCHEDULABLE:
                break
        if result.status is not None and group.entity_key.is_provided:
            result.lacking = pods_lacking(result, pods, progress.scheduled)
            self._note_in_the_way(result, nodes)
        self._conclude(result, before)
        return {group.entity_key: result}

    def _note_in_the_way(self, result: PodGroupResult, nodes: NodeSubset | None) -> None:
        """Note the assumed pods whose place would let another pod find a node."""
        verdicts = {
            kind_of(pod.queued): pod.failure.fit_error.diagnosis.verdicts
            for pod in result.pods
            if pod.failure is not None and pod.failure.fit_error is not None
        }
        rows = (self.profile.table if nodes is None else nodes.nodes).rows
        for pod in self.pods.assumed:
            # Those of child groups have placements of their own.
            if (row := rows.get(pod.node_name)) is None:
                continue
            codes = {code_of(one.status(row)) for one in verdicts.values()}
            # Where it is unresolvable, as on a node without GPUs, nobody is in the way.
            if Code.UNSCHEDULABLE in codes:
                self._in_the_way.setdefault(kind_of(pod.queued), pod.queued)

    def _conclude(self, result: PodGroupResult, before: int) -> None:
        """Undo a group that does not fit; ``before``: how many pods were assumed before it."""
        if result.status is None:
            return
        if result.status.code == Code.WAIT:
            result.status = self.failures.rejection(result.status)
        if result.group.entity_key.is_provided:
            result.status = naming_rejected_pod(result.status, result.pods)
        self.pods.revert_to(before)
        result.any_scheduled = False

    def _feasible(self, result: PodGroupResult, progress: PlacementProgress) -> Status | None:
        group = result.group
        status = run_placement_feasible(self.profile, result.state, group, progress)
        if status is not None and status.code == Code.ERROR:
            return self.failures.error_of_feasibility(group, status)
        return status

    async def _schedule_children(
        self, group: PodGroupInfo, state: CycleState, nodes: NodeSubset | None
    ) -> Results:
        """Try the child groups, the oldest first; their pods stay assumed if the group fits.

        Each has a state of its own: ``state`` is that of this group alone.
        """
        before = len(self.pods.assumed)
        progress = PlacementProgress(len(group.children))
        result = PodGroupResult(group)
        result.status = self._feasible(result, progress)
        results: Results = {}
        rejected: Status | None = None
        children = sorted(group.children, key=self._place_of)
        for child in children:
            if code_of(result.status) in (Code.UNSCHEDULABLE, Code.ERROR):
                break
            assumed = len(self.pods.assumed)
            results |= await self._schedule_group(child, CycleState(), nodes)
            # A child that was tried in placements has been undone. Of the last one nobody sees the
            # pods, but what decides whether a group is feasible that a plugin provides.
            is_undone = len(self.pods.assumed) == assumed
            if is_undone and (child is not children[-1] or group.entity_key.is_provided):
                await self._hold(child, results)
            found = results[child.entity_key]
            if found.failed:
                assert found.status is not None
                result.status = self.failures.error_of_child(group, child, found.status)
                break
            result.any_scheduled = result.any_scheduled or found.any_scheduled
            fits = found.status is None
            if not fits and group.entity_key.is_provided:
                rejected = rejected or found.status
            progress = progress.after(fits=fits)
            result.status = self._feasible(result, progress)
        if rejected is not None and code_of(result.status) == Code.UNSCHEDULABLE:
            assert result.status is not None
            reasons = (*result.status.reasons, *rejected.reasons[1:])
            result.status = structs.replace(result.status, reasons=reasons)
        self._conclude(result, before)
        return results | {group.entity_key: result}

    async def _hold(self, child: PodGroupInfo, results: Results) -> None:
        """Assume the pods of a child group again where they fitted; it fails if one cannot be."""
        for leaf in successful_leaves(child, results):
            failure = await self.pods.assume_again(leaf.pods)
            if failure is not None:
                results[child.entity_key].status = self.failures.error_of_subtree(child, failure)
                return

    # ---- orders --------------------------------------------------------------------------------

    def _ordered(self, group: PodGroupInfo) -> Sequence[QueuedPodInfo]:
        """Return the pods of a PodGroup as they are tried."""
        pods, order = self._queued.get(group.entity_key, ()), self._order
        return pods if order is None else sorted(pods, key=lambda queued: order[queued.uid])

    def _place_of(self, group: PodGroupInfo) -> int:
        """Return the place of the first pod of a child group; all are equal in their own order."""
        order = self._order
        if order is None:
            return 0
        return min((order[pod.uid] for pod in group.unscheduled_pods), default=0)

    async def _try_in_orders(
        self, group: PodGroupInfo, state: CycleState, nodes: NodeSubset | None, try_: Try
    ) -> Results:
        """Try a group in one placement; a root that a plugin provides in several orders."""
        key = group.entity_key
        first = results = await try_(group, state, nodes)
        if group is not self._root or not key.is_provided:
            return results
        orders: OtherOrders | None = None
        while code_of(results[key].status) == Code.UNSCHEDULABLE:
            if orders is None:
                table = self.profile.table if nodes is None else nodes.nodes
                states = (self.states.get(leaf.key) for leaf in group.leaves)
                placed = sum(one.scheduled_count for one in states if one is not None)
                orders = OtherOrders(
                    group,
                    self._queued,
                    # What is held for the pods is room for them, and not known here.
                    None if self.profile.pod_sources else table,
                    placed,
                    self.rng,
                )
            self._order = orders.next(results)
            if self._order is None:
                return first
            try:
                results = await try_(group, state, nodes)
            finally:
                self._order = None
            first[key].lacking = min(first[key].lacking, results[key].lacking)
        return results

    # ---- placements ----------------------------------------------------------------------------

    async def _schedule_in_placements(
        self, group: PodGroupInfo, state: CycleState, nodes: NodeSubset | None, try_: Try
    ) -> Results:
        """Try a group in each of its placements; return the results of the best one."""
        key, before = group.entity_key, len(self.pods.assumed)
        # As in kube-scheduler: such calls are few, and all of them are timed.
        state.timer = self._timer
        try:
            table = None if nodes is None else nodes.nodes
            placements = run_placement_generate(self.profile, state, group, table)
        except PluginError as error:
            placements = Status.error(str(error))
        if isinstance(placements, Status):
            return {key: PodGroupResult(group, placements, verbatim=True)}
        counted = self.metrics.counts_trees or not group.is_composite
        if counted:
            generated = self.metrics.generated_placements_total
            generated.labels(self.profile.name, key.type).inc(len(placements))
        first: Results | None = None
        found: list[tuple[Placement, Results]] = []
        reasons = [placement.lacking for placement in placements]
        search = self._search_of(group, placements, self.profile.table if table is None else table)
        for place in search.places:
            placement = placements[place]
            started = perf_counter()
            within = self._subset(placement, nodes)
            if isinstance(within, Status):
                return {key: PodGroupResult(group, within)}
            results = await self._try_in_orders(group, state, within, try_)
            self.pods.revert_to(before)
            result = results[key]
            if result.failed:
                return self.failures.after_error(results, key)
            if group is self._root and key.is_provided and not result.any_scheduled:
                # A group that has its minimum: another placement may have room for one pod more.
                result.status = result.status or naming_rejected_pod(
                    Status.unschedulable(UNSCHEDULABLE), result.pods
                )
            first = first or results
            first[key].lacking = min(first[key].lacking, result.lacking)
            if result.status is not None:
                reasons[place] = reason_of(result.status)
            elif result.any_scheduled or place != search.nominated:
                found.append((placement, results))
            if counted:
                self._observe(key.type, result.status is None, perf_counter() - started)
            if search.is_over(len(found), place):
                break
        if not found:
            assert first is not None
            status = first[key].status or NOMINATED_WITHOUT_POD
            first[key].status = self.failures.in_no_placement(status, len(placements))
            if key.is_provided:
                first[key].status = naming_placements(status, placements, reasons)
                # A domain may get what it lacks, or another node.
                if any(one.lacking or placements[-1].node_names is not None for one in placements):
                    self.pods.rejectors.update(self._generating_plugins)
                first[key].next_placement = self._next_placement
                if len(placements) > 1:
                    say_of_rejected_pods(first.values(), first[key].status)
            return first
        try:
            return self._best_placement(group, state, found)
        except PluginError as error:
            return {key: PodGroupResult(group, Status.error(str(error)))}

    def _search_of(
        self, group: PodGroupInfo, placements: Sequence[Placement], nodes: NodeTable
    ) -> PlacementSearch:
        is_root, provided = group is self._root, group.entity_key.is_provided
        pods = self._queued.get(group.entity_key, ()) if is_root else ()
        find = every_placement if provided else self.search
        search = find(GroupPlacements(placements, pods, self.profile, nodes, self.rng))
        if not (is_root and provided):
            return search
        return structs.replace(search, places=self._places(placements, [*search.places]))

    def _places(self, placements: Sequence[Placement], places: list[int]) -> Iterator[int]:
        """Yield the places of the placements to try, until so many pods have been tried.

        The next attempt of a root that a plugin provides goes on with the others. A last placement
        that is all nodes is tried in any case: the group does not insist on those before it.
        """
        # Where it went on, fewer are there now: from the first one again.
        start = self._first_placement
        places = [place for place in places if place >= start] or places
        self._next_placement = 0
        started = self.pods.tries
        for place in places:
            if self.pods.tries - started < _MOST_TRIES or (
                place == places[-1] and placements[place].node_names is None
            ):
                yield place
            elif not self._next_placement:
                self._next_placement = place

    def _subset(
        self, placement: Placement, parent: NodeSubset | None
    ) -> NodeSubset | Status | None:
        """Return the nodes of a placement, or an error if one of them does not exist."""
        if placement.node_names is None:
            return parent
        table = self.profile.table
        subset = NodeSubset.of(placement.node_names, table)
        if len(subset.rows) == len(subset.names):
            return subset
        unknown = min(name for name in subset.names if name not in table.rows)
        text = f"node {unknown} in placement is not present in snapshot"
        return Status.error(f"failed to assume pod group placement: {text}")

    def _observe(self, entity: str, feasible: bool, seconds: float) -> None:
        labels = ("feasible" if feasible else "infeasible", self.profile.name, entity)
        self.metrics.placement_evaluations_total.labels(*labels).inc()
        self.metrics.placement_evaluation_duration_seconds.labels(*labels).observe(seconds)

    def _best_placement(
        self, group: PodGroupInfo, state: CycleState, found: Sequence[tuple[Placement, Results]]
    ) -> Results:
        """Return the results of the placement with the highest score; raises ``PluginError``."""
        if len(found) == 1:
            return found[0][1]
        candidates = [
            PodGroupAssignments(
                placement,
                tuple(
                    PlacedPod(assignment.pod, assignment.node_name)
                    for leaf in successful_leaves(group, results)
                    for assignment in leaf.assignments
                ),
            )
            for placement, results in found
        ]
        # Equal totals are drawn at random, as for nodes.
        states = [results[group.entity_key].state for _, results in found]
        totals = run_placement_score(self.profile, state, group, candidates, states).tolist()
        best = [index for index, total in enumerate(totals) if total == max(totals)]
        return found[self.rng.choice(best)][1]
