"""The scheduling cycle of a whole PodGroup (KEP-4671, gate GenericWorkload).

    run ─► pop the other pods of the group ─► _schedule
      _find     algorithm: on all nodes, or in each placement (the best one is taken)
      _run_post_filter   preemption for the group as a whole (gate WorkloadAwarePreemption)
      _submit   commit and start_binding for each pod that fits, failure.handle for the others

Either enough pods fit and are bound, or all go back to the queue. kube-scheduler's
``scheduleOnePodGroup``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Unpack

from msgspec.structs import replace

from proreus.base.errors import PluginError
from proreus.base.kubernetes_version import V1_36
from proreus.base.logs import logger
from proreus.engine.cycles.attempt import Attempt, Failure, NodeSubset
from proreus.engine.groups.cycle import CycleParts, GroupCycle
from proreus.engine.groups.v1_36.algorithm import GroupResult, Member, PodGroupAlgorithmV136
from proreus.engine.runtime.plugin_errors import as_status
from proreus.engine.runtime.pod_group_points import run_placement_generate, run_placement_score
from proreus.engine.runtime.points import await_plugin
from proreus.engine.runtime.profile import Profile
from proreus.framework.cycle_state import CycleState
from proreus.framework.pod_group import (
    POD_GROUP_SCHEDULING_CYCLE,
    Placement,
    PodGroupAssignments,
    PodGroupInfo,
    PodGroupSchedulingCycle,
    ProposedAssignment,
    SchedulePodGroup,
)
from proreus.framework.pod_group_plugin import PodGroupPostFilterPlugin
from proreus.framework.pod_info import QueuedPodInfo
from proreus.framework.status import Code, Status
from proreus.objects.scheduling import POD_GROUP_SCHEDULED, POD_GROUPS, PodGroup, pod_group_key

log = logger(__name__)


class PodGroupCycleV136(GroupCycle):
    """Schedules PodGroups: the waiting pods of a group are tried together."""

    condition_type = POD_GROUP_SCHEDULED
    resource = POD_GROUPS.as_of(V1_36)

    def __init__(self, **parts: Unpack[CycleParts]) -> None:
        super().__init__(**parts)
        self._cache, environment = parts["cache"], parts["environment"]
        groups, gates = environment.stores.store(POD_GROUPS), environment.feature_gates
        self._topology_aware = gates.enabled("TopologyAwareWorkloadScheduling")
        self._groups = groups if gates.enabled("WorkloadAwarePreemption") else None
        """The PodGroups, for preemption as a whole; None if pods preempt one by one."""

    async def run(self, popped: QueuedPodInfo) -> str:
        """Schedule the group of a popped pod; return that pod's node, "" if it has none."""
        key = pod_group_key(popped.pod)
        state = self._cache.pod_group_states.get(key)
        if state is None:
            text = f"pod group state not found for pod group {key}"
            return self._fail([popped], f"error while retrieving pod group state: {text}")
        # Also from back-off: a gang cannot be placed while some of its members wait elsewhere.
        members = [popped]
        for other in list(state.unscheduled.values()):
            if other.uid != popped.uid:
                queued = self._queue.pop_specific(other.key)
                if queued is not None:
                    members.append(queued)
        # The most important pods choose their nodes first; among equals those that waited longest.
        members.sort(key=lambda m: (-m.info.priority, m.initial_attempt_timestamp or 0.0))
        names = list(dict.fromkeys(member.pod.spec.scheduler_name for member in members))
        if len(names) > 1:
            return self._fail(
                members,
                "all pods in a single pod group should have the same .spec.schedulerName set, "
                f'got: "{names[0]}" and "{names[1]}"',
            )
        # Pods that need no attempt leave before the group is formed, or its size would be wrong.
        profile = self._pods.profiles.get(names[0])
        left = []
        for member in members:
            if profile is None or self._pods.skip_pod_schedule(member, profile):
                self._queue.done(member.uid)
            else:
                left.append(member)
        if profile is None or not left:
            return ""
        namespace, _, name = key.partition("/")
        group = PodGroupInfo(namespace, name, tuple(member.info for member in left))
        # For the whole group: the table holds pods that are only tried.
        with self._paused():
            placed = await self._schedule(profile, group, left)
        return placed.get(popped.uid, "")

    def _fail(self, members: Sequence[QueuedPodInfo], text: str) -> str:
        self._fail_pods(members, text)
        return ""

    # ---- find ----------------------------------------------------------------------------------

    async def _schedule(
        self, profile: Profile, group: PodGroupInfo, pods: Sequence[QueuedPodInfo]
    ) -> dict[str, str]:
        started = perf_counter()
        result = await self._find(profile, group, pods)
        seconds = perf_counter() - started
        duration = self._metrics.podgroup_scheduling_algorithm_duration_seconds
        duration.labels(profile.name, "podgroup").observe(seconds)
        unschedulable = result.status is not None and result.status.code == Code.UNSCHEDULABLE
        # An error is no reason to evict pods: the group might fit without.
        if self._groups is not None and unschedulable:
            await self._run_post_filter(profile, group, pods, result)
        placed = await self._submit(profile, pods, result)
        self._report(profile, group, result, started)
        return placed

    async def _find(
        self,
        profile: Profile,
        group: PodGroupInfo,
        pods: Sequence[QueuedPodInfo],
        preempt: bool = True,
    ) -> GroupResult:
        """Find nodes for all pods; nothing stays assumed."""
        group_state = self._cache.pod_group_states.get(group.key)
        scheduled_before = 0 if group_state is None else group_state.scheduled_count
        algorithm = PodGroupAlgorithmV136(
            self._cycle,
            self._queue.nominator,
            lambda queued: self._begin_attempt(queued, profile, scheduled_before),
            preempt,
        )
        if not self._topology_aware:
            return await algorithm.run(pods)
        state = CycleState()
        try:
            placements = run_placement_generate(profile, state, group)
            if isinstance(placements, Status):
                return GroupResult(placements)
            return await self._find_among(profile, state, group, placements, pods, algorithm)
        except PluginError as error:
            return GroupResult(Status.error(str(error)))

    async def _find_among(
        self,
        profile: Profile,
        state: CycleState,
        group: PodGroupInfo,
        placements: Sequence[Placement],
        pods: Sequence[QueuedPodInfo],
        algorithm: PodGroupAlgorithmV136,
    ) -> GroupResult:
        """Try the group in each placement; return the result of the best feasible one."""
        first: GroupResult | None = None
        found: list[tuple[PodGroupAssignments, GroupResult]] = []
        for placement in placements:
            result = await algorithm.run(pods, self._node_subset(placement))
            if result.failed:
                return result
            first = first or result
            if result.status is None or result.waiting_on_preemption:
                found.append((PodGroupAssignments(placement, result.placed), result))
        if not found:
            assert first is not None
            assert first.status is not None
            first.status = Status.unschedulable(
                f"0/{len(placements)} placements are available, first placement status: "
                f"{first.status.reasons[0]}"
            )
            return first
        if len(found) == 1:
            return found[0][1]
        # Equal totals are drawn at random, as for nodes.
        totals = run_placement_score(profile, state, group, [one for one, _ in found]).tolist()
        best = [index for index, total in enumerate(totals) if total == max(totals)]
        return found[self._rng.choice(best)][1]

    def _node_subset(self, placement: Placement) -> NodeSubset | None:
        if placement.node_names is None:
            return None
        return NodeSubset.of(placement.node_names, self._cache.table)

    def _begin_attempt(
        self, queued: QueuedPodInfo, profile: Profile, scheduled_before: int
    ) -> Attempt:
        attempt = self._pods.begin(queued, profile)
        cycle = PodGroupSchedulingCycle(scheduled_before)
        attempt.state.write(POD_GROUP_SCHEDULING_CYCLE, cycle)
        self._cycle.set_interested_extenders(attempt)
        return attempt

    # ---- preempt -------------------------------------------------------------------------------

    async def _run_post_filter(
        self,
        profile: Profile,
        group: PodGroupInfo,
        pods: Sequence[QueuedPodInfo],
        result: GroupResult,
    ) -> None:
        """Preempt for the group as a whole; record the outcome in ``result``."""
        assert result.status is not None
        assert self._groups is not None

        async def schedule() -> Sequence[ProposedAssignment] | Status:
            return (await self._find(profile, group, pods, preempt=False)).status or ()

        status = await _run_pod_group_post_filter(profile, group, self._groups, schedule)
        if status is None:
            result.waiting_on_preemption = True
        elif status.rejected:
            result.status = replace(
                result.status, reasons=(*result.status.reasons, *status.reasons)
            )
        else:
            result.status = status

    # ---- submit --------------------------------------------------------------------------------

    async def _submit(
        self, profile: Profile, pods: Sequence[QueuedPodInfo], result: GroupResult
    ) -> dict[str, str]:
        """Bind the pods that fit and requeue the others; return node names by UID of the former."""
        placed = {}
        for index, queued in enumerate(pods):
            if index < len(result.members):
                member = result.members[index]
                # The metric of attempts counts each pod's own time, not that of the whole group.
                member.attempt.started = perf_counter() - member.seconds
                failure = result.failure_of(member)
            else:
                # An error ended the attempt before this pod was tried.
                assert result.status is not None
                member = Member(self._pods.begin(queued, profile))
                failure = Failure(result.status)
            if failure is None:
                failure = await self._commit(member.attempt, member.node_name)
            if failure is None:
                placed[queued.uid] = member.node_name
            else:
                self._failures.handle(member.attempt, failure)
        return placed

    def _report(
        self, profile: Profile, group: PodGroupInfo, result: GroupResult, started: float
    ) -> None:
        status = result.status
        if status is not None and result.failed:
            log.error("Error scheduling pod group", err=status.message, podGroup=group.key)
        elif status is not None:
            log.v(2).info("Unable to schedule pod group", podGroup=group.key, err=status.message)
        self._count(profile, result, started, "podgroup")
        self._status_writer.write(group.key, status)


async def _run_pod_group_post_filter(
    profile: Profile,
    group: PodGroupInfo,
    groups: Mapping[str, PodGroup],
    schedule: SchedulePodGroup,
) -> Status | None:
    """Let the profile's plugin preempt for a whole group; None if it will, else why not.

    ``schedule``: tries the group on the nodes as they are at that moment. Gate
    WorkloadAwarePreemption; kube-scheduler's ``podGroupPostFilter``.
    """
    plugins = [
        plugin
        for plugin in profile.post_filter
        if isinstance(plugin, PodGroupPostFilterPlugin) and plugin.name == "DefaultPreemption"
    ]
    if not plugins:
        return Status.unschedulable(
            "default preemption plugin is not registered, workload aware preemption is disabled"
        )
    found = groups.get(group.key)
    if found is None:
        text = f'podgroup.scheduling.k8s.io "{group.name}" not found'
        return Status.error(f"failed to get pod group object: {text}")
    if found.topology_keys:
        return Status.unschedulable(
            "workload aware preemption is not supported for pod groups with scheduling constraints"
        )
    plugin, point, state = plugins[0], "PodGroupPostFilter", CycleState()
    method = plugin.pod_group_post_filter
    try:
        info = replace(group, group=found)
        result = await await_plugin(plugin, point, state, method, state, info, schedule)
        return as_status(plugin, point, result.status)
    except PluginError as error:
        return Status.error(str(error))
