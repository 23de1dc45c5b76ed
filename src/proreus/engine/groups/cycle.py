"""The scheduling cycle of a whole pod group: one attempt of a root group that was popped.

    run ─► validation ─► skip deleted pods ─► _schedule
      algorithm.run              a dry run: nodes for the pods, or why the group does not fit
      run_pod_group_post_filter  preemption for the group as a whole, if it does not fit
      _submit                    start_binding for each pod that fits, failure.handle for the others
    ─► conditions of the PodGroups ─► queue: the pods that came back, as one entity

kube-scheduler's ``scheduleOnePodGroup``. Its queue and its snapshot can disagree about the shape of
a group, which fails the attempt; ours read the same forest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from time import perf_counter
from typing import ClassVar, Protocol, TypedDict, Unpack

from msgspec import Struct

from proreus.base.kubernetes_version import Change
from proreus.base.logs import logger
from proreus.engine.cache.cache import Cache
from proreus.engine.cycles.attempt import Attempt, Failure, ScheduleResult, error_failure
from proreus.engine.cycles.failure import FailureHandler
from proreus.engine.cycles.scheduling_cycle import SchedulingCycle
from proreus.engine.environment import Environment
from proreus.engine.groups.algorithm import PodGroupAlgorithm
from proreus.engine.groups.failures import GroupFailures, failures_of
from proreus.engine.groups.placement_search import search_of
from proreus.engine.groups.results import (
    PodGroupResult,
    PodResult,
    Results,
    all_assignments,
    fitting_assignments,
)
from proreus.engine.groups.status import PodGroupStatusWriter
from proreus.engine.groups.tentative_pods import TentativePods
from proreus.engine.groups.validation import InvalidPodGroup, validation_of
from proreus.engine.queue.scheduling_queue import SchedulingQueue
from proreus.engine.runtime.pod_group_points import run_pod_group_post_filter
from proreus.engine.runtime.profile import Profile
from proreus.framework.cycle_state import CycleState
from proreus.framework.pod_group import POD_GROUP_SCHEDULING_CYCLE, PodGroupInfo, ProposedAssignment
from proreus.framework.pod_info import QueuedPodInfo
from proreus.framework.queued_pod_group import QueuedPodGroupInfo
from proreus.framework.status import Code, Status
from proreus.objects.meta import Resource
from proreus.objects.scheduling import (
    COMPOSITE_POD_GROUP_INITIALLY_SCHEDULED,
    COMPOSITE_POD_GROUP_TYPE,
    COMPOSITE_POD_GROUPS,
    POD_GROUP_INITIALLY_SCHEDULED,
    POD_GROUP_TYPE,
    POD_GROUPS,
    PodGroup,
)

log = logger(__name__)

_REPORT_SECONDS = 10.0
"""How often the pods of a group that a plugin provides are told why it does not fit."""


class PodScheduling(Protocol):
    """The part of ``Scheduler`` that a group's cycle uses for each pod."""

    @property
    def profiles(self) -> Mapping[str, Profile]:
        """All profiles by schedulerName."""
        ...

    def skip_pod_schedule(self, queued: QueuedPodInfo, profile: Profile) -> bool:
        """Return whether a pod is being deleted, or is assumed already."""
        ...

    def begin(self, queued: QueuedPodInfo, profile: Profile) -> Attempt:
        """Return a new attempt for a pod."""
        ...

    def start_binding(self, schedule_result: ScheduleResult) -> None:
        """Start the binding cycle of an assumed pod."""
        ...


class GroupOutcome(Protocol):
    """The outcome of an attempt of a group. ``status`` is None if it is scheduled."""

    status: Status | None
    waiting_on_preemption: bool

    @property
    def failed(self) -> bool:
        """Whether an error ended the attempt, rather than a rejection."""
        ...


class _Cycle(Struct, frozen=True):
    """One attempt. ``popped`` is the queue's entity, ``root`` the group with the pods to try,
    ``failures`` what they tell if they do not fit."""

    popped: QueuedPodGroupInfo
    root: PodGroupInfo
    profile: Profile
    failures: GroupFailures
    started: float


class CycleParts(TypedDict):
    """The parts of the scheduler that a group's cycle uses."""

    pods: PodScheduling
    cache: Cache
    queue: SchedulingQueue
    cycle: SchedulingCycle
    failures: FailureHandler
    environment: Environment


class GroupCycle:
    """The part of a group's cycle that is the same in all versions.

    ``condition_type`` and ``resource``: of the condition that is written to PodGroups.
    """

    condition_type: ClassVar[str]
    resource: ClassVar[Resource[PodGroup]]

    def __init__(self, **parts: Unpack[CycleParts]) -> None:
        environment = parts["environment"]
        self._pods = parts["pods"]
        self._queue = parts["queue"]
        self._cycle = parts["cycle"]
        self._failures = parts["failures"]
        self._rng = environment.rng
        self._paused = environment.paused
        self._status_writer = PodGroupStatusWriter.of(
            environment, self.resource, self.condition_type
        )
        self._metrics = environment.metrics
        self._metrics.describe_pod_groups()

    def _fail_pods(self, pods: Iterable[QueuedPodInfo], text: str) -> None:
        """Fail an attempt of each pod."""
        for queued in pods:
            profile = self._pods.profiles.get(queued.pod.spec.scheduler_name)
            if profile is None:
                self._queue.done(queued.uid)
            else:
                self._failures.handle(self._pods.begin(queued, profile), error_failure(text))

    async def _commit(self, attempt: Attempt, node_name: str) -> Failure | None:
        """Assume a pod for good and start its binding cycle."""
        attempt.state.write(POD_GROUP_SCHEDULING_CYCLE, None)
        schedule_result = await self._cycle.prepare_for_binding_cycle(attempt, node_name)
        if isinstance(schedule_result, Failure):
            return schedule_result
        self._pods.start_binding(schedule_result)
        return None

    def _count(self, profile: Profile, result: GroupOutcome, started: float, entity: str) -> None:
        """Count an attempt of a group by its outcome; ``entity``: its type."""
        if result.status is None:
            label = "scheduled"
        elif result.failed:
            label = "error"
        else:
            label = "waiting_on_preemption" if result.waiting_on_preemption else "unschedulable"
        labels = (label, profile.name, entity)
        self._metrics.podgroup_schedule_attempts_total.labels(*labels).inc()
        seconds = perf_counter() - started
        self._metrics.podgroup_scheduling_attempt_duration_seconds.labels(*labels).observe(seconds)


class PodGroupCycle(GroupCycle):
    """Schedules root groups."""

    condition_type = POD_GROUP_INITIALLY_SCHEDULED
    resource = POD_GROUPS

    def __init__(self, *, provided_groups: bool = False, **parts: Unpack[CycleParts]) -> None:
        """``provided_groups``: plugins may provide groups (``PodGroupSourcePlugin``)."""
        super().__init__(**parts)
        cache, environment = parts["cache"], parts["environment"]
        gates = environment.feature_gates
        assert self._queue.pod_groups is not None
        self._states = cache.pod_group_states
        self._forest = cache.workload_forest
        self._pod_groups = self._queue.pod_groups
        self._clock = environment.clock
        self._topology_aware = provided_groups or gates.enabled("TopologyAwareWorkloadScheduling")
        self._search = search_of(gates)
        fitting = gates.includes(Change.PREEMPTION_FOR_FITTING_GROUPS)
        self._assignments = fitting_assignments if fitting else all_assignments
        if gates.includes(Change.GROUPS_REPORTED_ONCE):
            self._status_writer.states = self._states
        self._status_writers = {POD_GROUP_TYPE: self._status_writer}
        if gates.includes(Change.COMPOSITE_CONDITIONS) and gates.enabled("CompositePodGroup"):
            self._status_writers[COMPOSITE_POD_GROUP_TYPE] = PodGroupStatusWriter.of(
                environment, COMPOSITE_POD_GROUPS, COMPOSITE_POD_GROUP_INITIALLY_SCHEDULED
            )
        self._gates = gates
        self._metrics.describe_group_preemption()
        if self._topology_aware:
            self._metrics.describe_placements()

    async def run(self, popped: QueuedPodGroupInfo) -> dict[str, str]:
        """Schedule a group; return node names ("" for none) by ``namespace/name`` of its pods."""
        started = perf_counter()
        root = self._forest.pod_group_info(popped.root, popped.pods_by_group)
        if root is None or root.group is None:
            # Deleted since the last event: its pods wait for it again.
            return self._fail(popped, Status.error(_not_found(popped)), ())
        try:
            validation_of(root, self._gates)(root, self._states)
        except InvalidPodGroup as error:
            invalid = self._gates.includes(Change.GROUP_TREES_VALIDATED)
            return self._fail(popped, Status.error(str(error)), root.subtree, invalid=invalid)
        name = popped.pod.spec.scheduler_name
        profile = self._pods.profiles.get(name)
        if profile is None:
            text = f'profile not found for scheduler name "{name}"'
            return self._fail(popped, Status.error(text), root.subtree)
        self._skip_pods(popped, profile)
        if popped.root.is_provided:
            _sort_by_rank(popped, profile)
        root = self._forest.pod_group_info(popped.root, popped.pods_by_group)
        if root is None or not popped.pods_by_group:
            self._pod_groups.add_attempted(popped, None)
            return {}
        # For the whole group: the table holds pods that are only tried.
        with self._paused():
            failures = failures_of(root, self._gates)
            return await self._schedule(_Cycle(popped, root, profile, failures, started))

    def _skip_pods(self, popped: QueuedPodGroupInfo, profile: Profile) -> None:
        """Drop the pods that need no attempt."""
        for queued in list(popped.queued_pods):
            if self._pods.skip_pod_schedule(queued, profile):
                popped.remove_pod(queued)
                self._queue.done(queued.uid)

    def _fail(
        self,
        popped: QueuedPodGroupInfo,
        status: Status,
        groups: Sequence[PodGroupInfo],
        *,
        invalid: bool = False,
    ) -> dict[str, str]:
        """Fail an attempt that has not begun; ``invalid``: by a fault of the groups."""
        self._fail_pods(popped.queued_pods, status.message)
        for group in groups:
            self._write_status(group, status, invalid=invalid)
        self._pod_groups.add_attempted(popped, status)
        return dict.fromkeys((queued.key for queued in popped.queued_pods), "")

    # ---- find ----------------------------------------------------------------------------------

    async def _schedule(self, cycle: _Cycle) -> dict[str, str]:
        popped, root, profile = cycle.popped, cycle.root, cycle.profile
        algorithm = PodGroupAlgorithm(
            profile=profile,
            pods=TentativePods(
                self._cycle,
                self._queue.nominator,
                begin=lambda queued: self._pods.begin(queued, profile),
            ),
            states=self._states,
            failures=cycle.failures,
            search=self._search,
            topology_aware=self._topology_aware,
            rng=self._rng,
            metrics=self._metrics,
        )
        state = CycleState()
        results = await algorithm.run(
            root, popped.pods_by_group, state, popped.next_placement, popped.round_rejectors
        )
        cycle.failures.complete(root, results)
        seconds = perf_counter() - cycle.started
        duration = self._metrics.podgroup_scheduling_algorithm_duration_seconds
        duration.labels(profile.name, root.entity_key.type).observe(seconds)
        result = results[root.entity_key]
        status, popped.lacking = result.status, result.lacking
        earlier = popped.in_the_way if popped.next_placement else {}
        popped.in_the_way = {**earlier, **result.in_the_way}
        popped.next_placement = result.next_placement
        popped.round_rejectors = result.rejectors
        # Pods that were not tried fail with the group's status as it is before preemption.
        untried = {
            queued.uid: failure
            for result in results.values()
            for queued, failure in cycle.failures.of_untried(
                result, popped.pods_by_group.get(result.group.entity_key, ())
            )
        }
        # An error is no reason to evict pods: the group might fit without.
        if status is not None and status.code == Code.UNSCHEDULABLE:

            async def schedule() -> Sequence[ProposedAssignment] | Status:
                found = await algorithm.run(root, popped.pods_by_group, CycleState())
                return found[root.entity_key].status or self._assignments(root, found)

            post_filter = await run_pod_group_post_filter(profile, state, root, schedule)
            if post_filter.status.code == Code.SUCCESS:
                for result in results.values():
                    result.waiting_on_preemption = True
                    result.nominating = post_filter.nominating
            if post_filter.status.code == Code.ERROR:
                for result in results.values():
                    result.status = post_filter.status
            else:
                cycle.failures.append_reason(results.values(), post_filter.status.message)
        placed = await self._submit(cycle, results, untried)
        key = root.entity_key
        self._count(profile, results[key], cycle.started, key.type)
        self._pod_groups.add_attempted(popped, status)
        return placed

    # ---- submit --------------------------------------------------------------------------------

    async def _submit(
        self, cycle: _Cycle, results: Results, untried: Mapping[str, Failure]
    ) -> dict[str, str]:
        """Bind the pods that fit and requeue the others; return the node names of all."""
        placed: dict[str, str] = {}
        fits = results[cycle.root.entity_key].status is None
        repeated = not fits and self._was_reported(cycle.popped)
        for leaf in cycle.root.leaves:
            result = results[leaf.entity_key]
            tried = {pod.queued.uid: pod for pod in result.pods}
            for queued in cycle.popped.pods_by_group.get(leaf.entity_key, ()):
                pod = tried.get(queued.uid)
                if pod is None:
                    pod = PodResult(queued, self._pods.begin(queued, cycle.profile))
                    pod.failure = untried[queued.uid]
                # The metric of attempts counts each pod's own time, not that of the whole group.
                pod.attempt.started = perf_counter() - pod.seconds
                failure = cycle.failures.of_pod(result, pod) or await self._commit(
                    pod.attempt, pod.node_name
                )
                if failure is not None:
                    self._failures.handle(pod.attempt, failure, repeated=repeated)
                placed[queued.key] = "" if failure is not None else pod.node_name
        for group in cycle.root.subtree:
            result = results[group.entity_key]
            self._log(group, result)
            self._write_status(group, result.status)
        return placed

    def _was_reported(self, popped: QueuedPodGroupInfo) -> bool:
        """Return whether the pods of a provided group were told a moment ago why it does not fit.

        A group of many pods is tried at every event that might help, and each time another one is
        the pod that does not fit: writing that to all of them would keep the apiserver busy.
        """
        now = self._clock.monotonic()
        if not popped.root.is_provided:
            return False
        if popped.reported is not None and now - popped.reported < _REPORT_SECONDS:
            return True
        popped.reported = now
        return False

    def _write_status(
        self, group: PodGroupInfo, status: Status | None, *, invalid: bool = False
    ) -> None:
        # The API has no object of a group that a plugin provides.
        if group.group is None or group.entity_key.is_provided:
            return
        writer = self._status_writers.get(group.entity_key.type)
        if writer is not None:
            writer.write(group.key, status, invalid=invalid)

    def _log(self, group: PodGroupInfo, result: PodGroupResult) -> None:
        kind = "composite pod group" if group.is_composite else "pod group"
        if result.status is None:
            log.v(2).info(f"Successfully scheduled a {kind}", podGroup=group.key)
        elif result.failed:
            log.error(f"Error scheduling {kind}", err=result.status.message, podGroup=group.key)
        else:
            text = f"Unable to schedule a {kind}"
            if result.waiting_on_preemption:
                text = f"{kind.capitalize()} is waiting for preemption"
            log.v(2).info(text, podGroup=group.key, err=result.status.message)


def _sort_by_rank(popped: QueuedPodGroupInfo, profile: Profile) -> None:
    source = profile.pod_group_source
    if source is None:
        return
    for pods in popped.pods_by_group.values():
        pods.sort(key=lambda queued: source.pod_rank(queued.pod))


def _not_found(popped: QueuedPodGroupInfo) -> str:
    return f"pod group object not found for pod group {popped.root}"
