"""The scheduling loop: pop a pod, decide, start its binding, pop the next.

All of it is one thread; ``queue.pop`` is the only place where the loop waits. It hands the event
loop a turn every few milliseconds rather than after every pod, so that watch events and bindings
go on while many pods are decided in a row.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from time import perf_counter

from proreus.cache.cache import Cache
from proreus.framework.attempt_budget import AttemptBudget
from proreus.framework.cycle_state import CycleState
from proreus.framework.events import ASSIGNED_POD_DELETE
from proreus.framework.pod_info import QueuedPodInfo
from proreus.logs import logger
from proreus.queue.scheduling_queue import SchedulingQueue
from proreus.runtime.background import BackgroundWork
from proreus.runtime.calls import PluginTimer
from proreus.runtime.plugin_health import DEFAULT_RULES
from proreus.runtime.profile import Profile
from proreus.runtime.waiting_pods import WaitingPods
from proreus.scheduler.attempt import Attempt, AttemptObserver, Failure, ScheduleResult
from proreus.scheduler.binding_cycle import BindingCycle
from proreus.scheduler.cluster_events import as_assigned
from proreus.scheduler.environment import Environment
from proreus.scheduler.failure import FailureHandler
from proreus.scheduler.pod_group_cycle import PodGroupCycle
from proreus.scheduler.profile_set import ProfileSet
from proreus.scheduler.scheduling_cycle import SchedulingCycle

log = logger(__name__)

_YIELD_SECONDS = 0.003
_LONG_SECONDS = 0.05
_MAX_REST_SECONDS = 0.05
_METRICS_SAMPLE_RATE = 0.1
MAX_BINDINGS_IN_FLIGHT = 1000
"""So many bindings may wait for the apiserver; then the loop waits with them. What is not decided
yet can still be overtaken by a more important pod."""


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
        """For pods of PodGroups; None while gate GenericWorkload is off."""
        self._binding_cycle = binding_cycle
        self._failures = failures
        self._events = environment.event_recorder
        self._rng = environment.rng
        self._spawn = environment.spawn
        self._timer = PluginTimer(environment.metrics)
        self._background = BackgroundWork()
        health_context = environment.health_context
        rules = DEFAULT_RULES if health_context is None else health_context.rules
        self._attempt_seconds = rules.attempt_seconds
        """How long one attempt may compute; 0: as long as it likes."""
        self._stopwatch = environment.stopwatch
        self._costs = 0.0
        """Seconds that attempts have computed since the event loop last had a turn."""
        self._background_started = False
        self._ready = asyncio.Event()
        self._binding_finished = asyncio.Event()
        self._stopping = False
        self.bindings_in_flight = 0
        self._retired: list[ProfileSet] = []
        """Sets by which no pod is decided any more, and some are still being bound."""
        self.cycle_started_at: float | None = None
        """``perf_counter`` at the start of the scheduling cycle that is going on, its awaits
        included; None between cycles. Other threads look at it."""
        self._changes: list[Callable[[], None]] = []
        """What is to be done between this cycle and the next."""
        queue.on_ready = self._ready.set
        self._take(profile_set)

    async def run(self) -> None:
        """Schedule until ``stop``."""
        self.start_background_work()
        now = turn = perf_counter()
        while not self._stopping:
            queued = self.queue.pop()
            if queued is None:
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
            now = perf_counter()
            if now - turn > _YIELD_SECONDS:
                await asyncio.sleep(self._rest_seconds())
                now = turn = perf_counter()

    @property
    def cycle_seconds(self) -> float:
        """How long the scheduling cycle that is going on has taken so far; 0 between cycles."""
        started_at = self.cycle_started_at
        return 0.0 if started_at is None else perf_counter() - started_at

    def _rest_seconds(self) -> float:
        """Return how long others are to have the event loop, and count anew.

        A binding or a relist takes several turns of the loop, with answers to wait for in between:
        after an attempt that was long, one turn would be too few.
        """
        costs, self._costs = self._costs, 0.0
        return min(costs / 10, _MAX_REST_SECONDS) if costs >= _LONG_SECONDS else 0.0

    def start_background_work(self) -> None:
        """Let plugins begin what they have to do beside scheduling; ``run`` does."""
        self._background_started = True
        self._background.sync(p for one in (*self._retired, self.profile_set) for p in one.plugins)

    # ---- another configuration -----------------------------------------------------------------

    def between_cycles(self, change: Callable[[], None]) -> None:
        """Do something now, or as soon as the cycle that is going on has ended."""
        if self.cycle_started_at is not None:
            self._changes.append(change)
        else:
            change()

    def use(self, profile_set: ProfileSet) -> None:
        """Decide by another set from now on; to be called between cycles.

        Pods that were decided by the one before are bound by it.
        """
        before = self.profile_set
        self._take(profile_set)
        self._retired.append(before)
        before.retire(partial(self._forget, before))
        if self._background_started:
            self.start_background_work()

    def _take(self, profile_set: ProfileSet) -> None:
        self.profile_set = profile_set
        self.profiles = profile_set.profiles
        self.scheduling_cycle.extenders = profile_set.extenders
        self._binding_cycle.extenders = profile_set.extenders

    def _forget(self, retired: ProfileSet) -> None:
        """The last pod has been bound that was decided by a set."""
        self._retired.remove(retired)
        if retired.extenders is not None:
            self._spawn(retired.extenders.close())
        if self._background_started:
            self.start_background_work()

    def observe(self, observer: AttemptObserver) -> None:
        """Let somebody know of every attempt what was found out on the way."""
        self.scheduling_cycle.observer = self._failures.observer = observer

    def pods_in_flight(self) -> list[str]:
        """Return the keys of pods that were popped and are not done with, bindings included."""
        return sorted({*self.queue.in_flight_keys(), *self._binding_cycle.pods()})

    def stop(self) -> None:
        """Pop no more pods; those that Permit holds are turned down."""
        self._stopping = True
        self._ready.set()
        self._binding_finished.set()
        for waiting in self.waiting_pods:
            waiting.reject("", "the scheduler is shutting down")

    async def close(self) -> None:
        """Let go of what outlives ``run``: work of plugins, connections to extenders."""
        self._background_started = False
        await self._background.close()
        for one in (*self._retired, self.profile_set):
            if one.extenders is not None:
                await one.extenders.close()

    async def schedule_one(self, queued: QueuedPodInfo) -> str:
        """Make one attempt for a popped pod; return the chosen node's name, "" if there is none."""
        if self.pod_group_cycle is not None and queued.pod.spec.scheduling_group is not None:
            return await self.pod_group_cycle.run(queued)
        profile = self.profiles.get(queued.pod.spec.scheduler_name)
        if profile is None or self.skip_pod_schedule(queued, profile):
            self.queue.done(queued.uid)
            return ""
        attempt = self.begin(queued, profile)
        outcome = await self.scheduling_cycle.run(attempt)
        if attempt.state.budget is not None:
            self._costs += attempt.state.budget.used
        if isinstance(outcome, Failure):
            self._failures.handle(attempt, outcome)
            return ""
        self.start_binding(outcome)
        return outcome.node_name

    def begin(self, queued: QueuedPodInfo, profile: Profile) -> Attempt:
        """Return a new attempt for a popped pod."""
        for health in profile.health_monitors:
            health.begin_attempt()
        state = CycleState()
        if self._rng.random() < _METRICS_SAMPLE_RATE:
            state.timer = self._timer
        if self._attempt_seconds:
            state.budget = AttemptBudget(self._attempt_seconds, self._stopwatch)
        return Attempt(queued, queued.info, profile, state, perf_counter())

    def start_binding(self, schedule_result: ScheduleResult) -> None:
        """Begin to bind a decided pod, beside the loop."""
        state = schedule_result.attempt.state
        if state.pods_to_activate:
            self.queue.activate(state.pods_to_activate)
            # What is added from here on is meant for the end of the binding.
            state.pods_to_activate.clear()
        self.profile_set.bindings += 1
        self._spawn(self._bind(schedule_result, self.profile_set))

    async def _bind(self, schedule_result: ScheduleResult, profile_set: ProfileSet) -> None:
        # A pod that Permit holds must not keep the loop from deciding the pods it waits for.
        counted = schedule_result.waiting is None
        self.bindings_in_flight += counted
        try:
            await self._binding_cycle.run(schedule_result)
        finally:
            self.bindings_in_flight -= counted
            self._binding_finished.set()
            profile_set.binding_ended()

    def skip_pod_schedule(self, queued: QueuedPodInfo, profile: Profile) -> bool:
        """Tell whether the pod needs no node any more, or has one."""
        pod = queued.pod
        if pod.metadata.deletion_timestamp is not None:
            note = f"skip schedule deleting pod: {queued.key}"
            self._events.event(pod, "Warning", "FailedScheduling", "Scheduling", note, profile.name)
            return True
        return self.cache.is_assumed(queued.uid)

    # ---- time ----------------------------------------------------------------------------------

    def tick(self) -> None:
        """Do what is due by now: back-offs, left-over pods, Permit's and assumptions' time limits.

        To be called at every whole second of the clock.
        """
        self.queue.flush()
        self.waiting_pods.expire()
        for pod, node_name in self.cache.expire_assumed():
            log.warning("Assumed pod was never confirmed; forgetting it", pod=pod.key)
            assigned_pod = as_assigned(pod.pod, node_name)
            self.queue.move_all_to_active_or_backoff(ASSIGNED_POD_DELETE, assigned_pod, None)
        self._watch_gates()
        self._measure_cache()

    def _watch_gates(self) -> None:
        """Let pods pass that a plugin gated which is left out from now on."""
        for profile in self.profiles.values():
            for health in profile.health_monitors:
                if health.tick():
                    gated = self.queue.gated_pods()
                    self.queue.activate([q.key for q in gated if q.gating_plugin == health.plugin])

    def _measure_cache(self) -> None:
        sizes, cache = self.metrics.cache_size, self.cache
        sizes.labels("assumed_pods").set(cache.assumed_count)
        sizes.labels("pods").set(cache.pod_count)
        sizes.labels("nodes").set(cache.node_count)
