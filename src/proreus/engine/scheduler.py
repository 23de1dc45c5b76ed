"""The scheduling loop: pop a pod, decide, start its binding, pop the next.

    run ─► queue.pop ─► schedule_one ─┬► scheduling_cycle.run ─► start_binding ─► binding_cycle
                                      │     (sync, unless extenders)   (a task a pod)
                                      └► Failure ─► failure.handle ─► queue

All of it is one thread, and the loop waits for a pod only between cycles. It yields to the event
loop every few milliseconds rather than after every pod: watch events and bindings proceed while
many pods are decided in a row, at a small part of the cost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import Any

from proreus.base.logs import logger
from proreus.engine.cache.cache import Cache
from proreus.engine.cycles.attempt import (
    Attempt,
    AttemptObserver,
    Failure,
    FailureObserver,
    OutcomeRecorder,
    ScheduleResult,
    Shadow,
)
from proreus.engine.cycles.binding_cycle import BindingCycle
from proreus.engine.cycles.failure import FailureHandler
from proreus.engine.cycles.scheduling_cycle import SchedulingCycle
from proreus.engine.environment import Environment
from proreus.engine.groups.cycle import PodGroupCycle
from proreus.engine.groups.v1_36.cycle import PodGroupCycleV136
from proreus.engine.guards.avoided_nodes import AvoidedNodes
from proreus.engine.profile_set import ProfileSet, ProfileSets
from proreus.engine.queue.scheduling_queue import SchedulingQueue
from proreus.engine.runtime.plugin_health import DEFAULT_RULES
from proreus.engine.runtime.points import PluginTimer
from proreus.engine.runtime.profile import Profile
from proreus.engine.runtime.waiting_pods import WaitingPods
from proreus.framework.attempt_budget import AttemptBudget
from proreus.framework.cycle_state import CycleState
from proreus.framework.pod_info import QueuedPodInfo
from proreus.framework.queued_pod_group import QueuedEntityInfo, QueuedPodGroupInfo

log = logger(__name__)

_YIELD_SECONDS = 0.003
_PORTION = 500
"""How many pods are asked about an event before another one is scheduled: 1 to 5 ms."""
_LONG_SECONDS = 0.01
_MAX_REST_SECONDS = 0.05
_METRICS_SAMPLE_RATE = 0.1
MAX_BINDINGS_IN_FLIGHT = 1000
"""The loop pauses while so many bindings wait for the apiserver: pods that stay in the queue can
still be overtaken by one of higher priority."""


class Scheduler:
    """One scheduler: all profiles, one queue, one cache, one loop."""

    def __init__(
        self,
        *,
        profile_set: ProfileSet,
        cache: Cache,
        queue: SchedulingQueue,
        waiting_pods: WaitingPods,
        scheduling_cycle: SchedulingCycle,
        binding_cycle: BindingCycle,
        failures: FailureHandler,
        environment: Environment,
    ) -> None:
        self.cache = cache
        self.queue = queue
        self.waiting_pods = waiting_pods
        self.metrics = environment.metrics
        self.scheduling_cycle = scheduling_cycle
        self.pod_group_cycle: PodGroupCycle | None = None
        """For pod groups; None while gate GenericWorkload is off."""
        self.pod_group_cycle_v1_36: PodGroupCycleV136 | None = None
        """For pods of PodGroups as in Kubernetes 1.36."""
        self.avoided_nodes: AvoidedNodes | None = None
        """None where nodes are never avoided."""
        self.shadow: Shadow | None = None
        """A candidate configuration that decides in parallel with the one in force."""
        self._binding_cycle = binding_cycle
        self._failures = failures
        self.environment = environment
        self._timer = PluginTimer(environment.metrics)
        health_context = environment.health_context
        rules = DEFAULT_RULES if health_context is None else health_context.rules
        self._attempt_seconds = rules.attempt_seconds
        """How long one attempt may compute; 0 means no limit."""
        self._costs = 0.0
        """Seconds that attempts have computed since the event loop last had a turn."""
        self._ready = asyncio.Event()
        self._binding_finished = asyncio.Event()
        self._stopping = False
        self.bindings_in_flight = 0
        self._sets = ProfileSets(environment.spawn)
        self.cycle_started_at: float | None = None
        """``perf_counter`` at the start of the current scheduling cycle; None between cycles. Read
        by other threads."""
        self._changes: list[Callable[[], None]] = []
        """Calls to make between this cycle and the next."""
        queue.on_ready = self._ready.set
        self.use(profile_set)

    async def run(self) -> None:
        """Schedule until ``stop``."""
        self.start_background_work()
        self.queue.move_in_portions(_PORTION)
        now = turn = perf_counter()
        while not self._stopping:
            queued = self.queue.pop()
            if queued is None and self.queue.is_moving:
                await asyncio.sleep(0)
                now = turn = perf_counter()
                continue
            if queued is None:
                # Nothing is awaited between pop and clear, so no wake-up can be lost.
                self._ready.clear()
                await self._ready.wait()
                now = turn = perf_counter()
                continue
            self.cycle_started_at = now
            try:
                await self.schedule_one(queued)
            finally:
                self.cycle_started_at = None
            while self._changes:
                self._changes.pop(0)()
            if self.bindings_in_flight >= MAX_BINDINGS_IN_FLIGHT:
                self._binding_finished.clear()
                await self._binding_finished.wait()
                now = turn = perf_counter()
                continue
            # One clock reading a pod serves as this cycle's end and the next one's start.
            now = perf_counter()
            if now - turn > _YIELD_SECONDS:
                await asyncio.sleep(self._rest_seconds())
                now = turn = perf_counter()

    @property
    def schedules_groups(self) -> bool:
        """Whether pods that name a group are scheduled with it."""
        return self.pod_group_cycle is not None or self.pod_group_cycle_v1_36 is not None

    @property
    def cycle_seconds(self) -> float:
        """How long the current scheduling cycle has taken so far; 0 between cycles."""
        started_at = self.cycle_started_at
        return 0.0 if started_at is None else perf_counter() - started_at

    def _rest_seconds(self) -> float:
        """Return for how many seconds to leave the event loop to other tasks."""
        # A binding or a relist takes several turns of the loop with responses to wait for in
        # between: after a long attempt, the single turn of sleep(0) would starve them.
        costs, self._costs = self._costs, 0.0
        return min(costs / 10, _MAX_REST_SECONDS) if costs >= _LONG_SECONDS else 0.0

    def start_background_work(self) -> None:
        """Start the background work of plugins (``BackgroundPlugin``); ``run`` calls this."""
        self._sets.start_background_work()

    # ---- another configuration -----------------------------------------------------------------

    def between_cycles(self, change: Callable[[], None]) -> None:
        """Call ``change`` now, or as soon as the current cycle has ended."""
        if self.cycle_started_at is not None:
            self._changes.append(change)
        else:
            change()

    def use(self, profile_set: ProfileSet) -> None:
        """Schedule by another set from now on; to be called between cycles.

        Pods that were assumed by the previous set are bound by it.
        """
        self.profile_set = profile_set
        self.profiles = profile_set.profiles
        self.scheduling_cycle.extenders = profile_set.extenders
        self._binding_cycle.extenders = profile_set.extenders
        self._use_optional_filters()
        self._sets.use(profile_set)

    def use_optional_filters(self) -> None:
        """Run the profiles' optional filters from now on if a node is avoided."""
        # A cycle that awaits something filters all nodes by the same plugins.
        self.between_cycles(self._use_optional_filters)

    def _use_optional_filters(self) -> None:
        if self.avoided_nodes is not None:
            for profile in self.profiles.values():
                profile.use_optional_filter(self.avoided_nodes.active)

    def observe(self, observer: AttemptObserver) -> None:
        """Report the intermediate results of every attempt to an observer."""
        self.scheduling_cycle.observer = self._failures.observer = observer

    def observe_failures(self, observer: FailureObserver) -> None:
        """Report failed attempts to an observer; others are as fast as without one."""
        self._failures.observer = observer

    def record(self, recorder: OutcomeRecorder | None) -> None:
        """Record every attempt from now on; None ends that."""
        self.scheduling_cycle.recorder = self._failures.recorder = recorder
        self.scheduling_cycle.outcome_recorder = self._binding_cycle.recorder = recorder

    def pods_in_flight(self) -> list[str]:
        """Return the keys of pods that were popped and whose attempt or binding has not ended."""
        return sorted({*self.queue.in_flight_keys(), *self._binding_cycle.pods()})

    def is_under_way(self, uid: str) -> bool:
        """Return whether a pod was popped and its attempt or binding has not ended."""
        return self.queue.is_in_flight(uid) or self._binding_cycle.is_under_way(uid)

    def describe_bindings(self, limit: int) -> dict[str, Any]:
        """Return the pods in Permit, PreBind and Bind, see ``BindingCycle.describe``."""
        return self._binding_cycle.describe(limit)

    def stop(self) -> None:
        """Pop no more pods; reject those that Permit holds."""
        self._stopping = True
        # Wake the loop wherever it waits, so that it sees the flag.
        self._ready.set()
        self._binding_finished.set()
        for waiting in self.waiting_pods:
            waiting.reject("", "the scheduler is shutting down")

    async def close(self) -> None:
        """End what outlives ``run``: background work of plugins, connections to extenders."""
        await self._sets.close()

    async def schedule_one(self, queued: QueuedEntityInfo) -> str:
        """Make one attempt for a popped pod; return the name of its node, "" if there is none.

        A popped group has an attempt as a whole.
        """
        if isinstance(queued, QueuedPodGroupInfo):
            assert self.pod_group_cycle is not None
            log.v(3).info("Attempting to schedule pod group", podGroup=queued.root.namespaced_name)
            self._pass_over_group_in_shadow()
            await self.pod_group_cycle.run(queued)
            return ""
        spec = queued.info.pod.spec
        if log.threshold >= 4:
            log.v(4).info("About to try and schedule pod", pod=queued.key)
        if self.pod_group_cycle_v1_36 is not None and spec.scheduling_group is not None:
            self._pass_over_group_in_shadow()
            return await self.pod_group_cycle_v1_36.run(queued)
        profile = self.profiles.get(spec.scheduler_name)
        # A reload may have removed the profile while the pod was queued or in flight: it is
        # dropped.
        if profile is None or self.skip_pod_schedule(queued, profile):
            self.queue.done(queued.uid)
            return ""
        if log.threshold >= 3:
            log.v(3).info("Attempting to schedule pod", pod=queued.key)
        decision = None
        if self.shadow is not None:
            decision = self.shadow.evaluate(queued, self.scheduling_cycle.node_search)
        attempt = self.begin(queued, profile)
        attempt.shadow = decision
        outcome = await self.scheduling_cycle.run(attempt)
        if attempt.state.budget is not None:
            self._costs += attempt.state.budget.used
        if isinstance(outcome, Failure):
            self._failures.handle(attempt, outcome)
            return ""
        self.start_binding(outcome)
        return outcome.node_name

    def _pass_over_group_in_shadow(self) -> None:
        if self.shadow is not None:
            self.shadow.pass_over_group()

    def begin(self, queued: QueuedPodInfo, profile: Profile) -> Attempt:
        """Return a new attempt for a popped pod."""
        for health in profile.health_monitors:
            health.begin_attempt()
        state = CycleState()
        # kube-scheduler samples plugin_execution_duration_seconds too: two clock readings a plugin
        # would cost more than most plugins.
        environment = self.environment
        if environment.rng.random() < _METRICS_SAMPLE_RATE:
            state.timer = self._timer
        if self._attempt_seconds:
            state.budget = AttemptBudget(
                self._attempt_seconds, environment.stopwatch, environment.cpu_time
            )
        return Attempt(queued, queued.info, profile, state, perf_counter())

    def start_binding(self, schedule_result: ScheduleResult) -> None:
        """Start the binding cycle of an assumed pod, as a task."""
        state = schedule_result.attempt.state
        if state.pods_to_activate:
            # Plugins of the binding cycle may add pods again; those are activated at its end.
            self.queue.activate(state.take_pods_to_activate())
        self.profile_set.bindings += 1
        self.environment.spawn(self._bind(schedule_result, self.profile_set))

    async def _bind(self, schedule_result: ScheduleResult, profile_set: ProfileSet) -> None:
        # Pods that Permit holds do not count: a gang larger than the limit would wait for members
        # that the paused loop never schedules.
        counted = schedule_result.waiting is None
        self.bindings_in_flight += counted
        try:
            await self._binding_cycle.run(schedule_result)
        finally:
            self.bindings_in_flight -= counted
            self._binding_finished.set()
            profile_set.binding_ended()

    def skip_pod_schedule(self, queued: QueuedPodInfo, profile: Profile) -> bool:
        """Return whether the pod is being deleted, or is assumed already."""
        pod = queued.info.pod
        if pod.metadata.deletion_timestamp is not None:
            note = f"skip schedule deleting pod: {queued.key}"
            self.environment.event_recorder.event(
                pod, "Warning", "FailedScheduling", "Scheduling", note, profile.name
            )
            log.v(3).info("Skip schedule deleting pod", pod=queued.key)
            return True
        # An update that arrived before the pod was assumed may have queued it a second time.
        return self.cache.is_assumed(queued.info.uid)
