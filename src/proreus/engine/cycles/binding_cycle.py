"""The binding cycle: from an assumed pod to a bound one, or back to the queue.

    run ─► _bind    PreBindPreFlight ─► nominatedNodeName ─► WaitOnPermit ─► queue.done ─► PreBind
                    ─► the extender that binds, or Bind
        ─► _succeed   finish the assumption, Event, PostBind, activate pods
        ─► _fail      Unreserve ─► forget the assumption ─► wake other pods, requeue this one

One task for each assumed pod, concurrent with the scheduling loop. kube-scheduler's
``bindingCycle`` and ``handleBindingCycleError``. A binding whose response was lost is verified by
``client/writing/dispatcher`` before it counts as failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from heapq import nlargest
from operator import itemgetter
from time import perf_counter
from typing import Any

from proreus.base.errors import ApiError, ExtenderError, PluginError
from proreus.base.logs import logger
from proreus.client.writing.pod_patches import StillRefused
from proreus.engine.cache.cache import Cache, CacheError
from proreus.engine.cluster_events import as_assigned
from proreus.engine.cycles.attempt import (
    Failure,
    OutcomeRecorder,
    ScheduleResult,
    error_failure,
    rejected_on_node,
)
from proreus.engine.cycles.failure import FailureHandler
from proreus.engine.cycles.scheduling_cycle import timed_point
from proreus.engine.environment import Environment
from proreus.engine.extenders.extender_chain import ExtenderChain
from proreus.engine.queue.scheduling_queue import SchedulingQueue
from proreus.engine.runtime.binding_points import (
    Cancellation,
    run_bind,
    run_post_bind,
    run_pre_bind,
    run_pre_bind_pre_flight,
)
from proreus.engine.runtime.scheduling_points import run_unreserve
from proreus.engine.runtime.waiting_pods import WaitingPods
from proreus.framework.events import ASSIGNED_POD_DELETE
from proreus.framework.status import SKIP, SUCCESS, Status, code_of

log = logger(__name__)


class BindingCycle:
    """Binds assumed pods."""

    def __init__(
        self,
        *,
        cache: Cache,
        queue: SchedulingQueue,
        waiting_pods: WaitingPods,
        failures: FailureHandler,
        environment: Environment,
    ) -> None:
        self.extenders: ExtenderChain | None = None
        self.recorder: OutcomeRecorder | None = None
        self._cache = cache
        self._queue = queue
        self._waiting_pods = waiting_pods
        self._failures = failures
        self._api = environment.api
        self._events = environment.event_recorder
        self._metrics = environment.metrics
        self._clock = environment.clock
        self._gates = environment.feature_gates
        self._spawn = environment.spawn
        self._under_way: dict[str, ScheduleResult] = {}
        """The pods whose binding cycles have not ended, by UID."""
        self._running = environment.metrics.goroutines.labels("binding")

    async def run(self, schedule_result: ScheduleResult) -> None:
        """Bind the pod; after any failure it is back in the queue. Raises nothing."""
        pod = schedule_result.attempt.pod
        self._running.inc()
        self._under_way[pod.uid] = schedule_result
        try:
            failure = await self._bind(schedule_result)
            if failure is None:
                self._succeed(schedule_result)
            else:
                waited = schedule_result.waiting is not None
                failure.point = schedule_result.point or ("Permit" if waited else "PreBind")
                if schedule_result.nominated:
                    failure.nominated_node = schedule_result.node_name
                self._fail(schedule_result, failure)
        finally:
            self._running.dec()
            if schedule_result.ended is not None:
                schedule_result.ended.set()
            # A restored etcd, or a watch that jumps back, may show the pod as deleted and created
            # again under the same UID: then a second cycle has begun, and the entry is its own.
            if self._under_way.get(pod.uid) is schedule_result:
                del self._under_way[pod.uid]

    def is_under_way(self, uid: str) -> bool:
        """Return whether a pod's binding cycle has not ended."""
        return uid in self._under_way

    def pods(self) -> Iterable[str]:
        """Return the keys of pods that are being bound."""
        return [schedule_result.attempt.pod.key for schedule_result in self._under_way.values()]

    def describe(self, limit: int) -> dict[str, Any]:
        """Return the pods in Permit, PreBind and Bind as JSON-compatible data.

        ``count``: of all; ``oldest``: up to ``limit`` of them, those that are there longest first.
        """
        now = self._clock.monotonic()
        found = [self._described(one, now) for one in self._under_way.values()]
        found = [one for one in found if one["point"]]
        oldest = nlargest(limit, found, key=itemgetter("ageSeconds"))
        return {"count": len(found), "oldest": oldest}

    def _described(self, schedule_result: ScheduleResult, now: float) -> dict[str, Any]:
        attempt, pod = schedule_result.attempt, schedule_result.attempt.pod
        point, since = schedule_result.point, schedule_result.since
        plugins = list(attempt.state.binding_plugins)
        waiting = self._waiting_pods.get(pod.uid)
        if waiting is not None:
            point, since, plugins = "Permit", waiting.since, waiting.pending_plugins()
        return {
            "pod": pod.key,
            "node": schedule_result.node_name,
            "profile": attempt.profile.name,
            "point": point,
            "plugins": plugins,
            "ageSeconds": round(max(now - since, 0.0), 1),
        }

    def cancel(self, uid: str, message: str) -> bool:
        """Cancel a binding between Permit and Bind; return whether that was possible."""
        schedule_result = self._under_way.get(uid)
        waiting = self._waiting_pods.get(uid)
        if schedule_result is None or schedule_result.point == "Bind":
            return False
        if waiting is not None and not waiting.allowed:
            return False
        if schedule_result.cancellation is None:
            schedule_result.cancellation = Cancellation()
        return schedule_result.cancellation.cancel(message)

    async def wait_for(self, uid: str) -> None:
        """Wait for the end of a pod's binding cycle, if one is under way: bound, or undone."""
        schedule_result = self._under_way.get(uid)
        if schedule_result is None:
            return
        if schedule_result.ended is None:
            schedule_result.ended = asyncio.Event()
        await schedule_result.ended.wait()

    # ---- the steps -----------------------------------------------------------------------------

    async def _bind(self, schedule_result: ScheduleResult) -> Failure | None:
        attempt, pod = schedule_result.attempt, schedule_result.attempt.pod
        profile, state, node_name = attempt.profile, attempt.state, schedule_result.node_name
        nomination: Awaitable[None] | None = None
        try:
            plugins_with_work = self._pre_flight(schedule_result)
            # Only for a pod that stays unbound for a while: for all others the binding itself
            # follows at once, and this would be a second write a pod.
            if (plugins_with_work or schedule_result.waiting) and self._gates.enabled(
                "NominatedNodeNameForExpectation"
            ):
                nomination = self._spawn(self._nominate(schedule_result))
            # A pod that is rejected gives up its node at once: while it waited for the apiserver
            # to answer, the node would be kept from others, perhaps for nothing again.
            rejected = await self._wait_on_permit(schedule_result)
            if rejected is not None:
                return rejected
            if nomination is not None:
                await nomination
            # Before PreBind, as in kube-scheduler: volumes may take minutes, and all events since
            # the pop would be kept for this pod, whose failure from here on is not for hints.
            self._queue.done(pod.uid)
            failure = await self._pre_bind(schedule_result, plugins_with_work)
            if failure is not None:
                return failure
            schedule_result.point, schedule_result.since = "Bind", self._clock.monotonic()
            if log.threshold >= 3:
                log.v(3).info("Attempting to bind pod to node", pod=pod.key, node=node_name)
            # An extender that binds replaces the Bind plugins for the pods of its interest.
            if self.extenders is not None and await self._bind_by_extender(schedule_result):
                return None
            started = perf_counter()
            status = await run_bind(profile, state, pod, node_name)
            profile.point_seconds["Bind", code_of(status)].observe(perf_counter() - started)
        except (PluginError, ExtenderError) as error:
            return error_failure(str(error), error)
        if status is None:
            return None
        log.v(4).info(
            "Pod rejected by Bind plugin",
            pod=pod.key,
            node=node_name,
            plugin=status.plugin,
            status=status.message,
        )
        return Failure(status)

    def _pre_flight(self, schedule_result: ScheduleResult) -> frozenset[str]:
        attempt = schedule_result.attempt
        with timed_point(attempt.profile, "PreBindPreFlight") as timed:
            plugins_with_work = run_pre_bind_pre_flight(
                attempt.profile, attempt.state, attempt.pod, schedule_result.node_name
            )
            timed.code = SUCCESS if plugins_with_work else SKIP
        return plugins_with_work

    async def _nominate(self, schedule_result: ScheduleResult) -> None:
        """Write the pod's node to its status: autoscalers see it before the binding (KEP-5278)."""
        pod = schedule_result.attempt.pod.pod
        if pod.status.nominated_node_name == schedule_result.node_name:
            return
        schedule_result.nominated = True
        try:
            patch = {"status": {"nominatedNodeName": schedule_result.node_name}}
            await self._api.patch_pod_status(pod, patch)
        # Only a hint for other components: the binding goes on without it.
        except StillRefused:
            return
        except ApiError as error:
            log.error(
                "Failed to set nominatedNodeName", err=error, pod=schedule_result.attempt.pod.key
            )

    async def _wait_on_permit(self, schedule_result: ScheduleResult) -> Failure | None:
        waiting = schedule_result.waiting
        if waiting is None:
            return None
        key = schedule_result.attempt.pod.key
        log.v(4).info("Pod waiting on permit", pod=key)
        # The pod counts on its node all the while: that is what a gang holds its resources with.
        try:
            status = await self._waiting_pods.outcome(waiting)
        finally:
            self._waiting_pods.remove(schedule_result.attempt.pod.uid)
        seconds = self._clock.monotonic() - waiting.since
        label = code_of(status).label
        self._metrics.permit_wait_duration_seconds.labels(label).observe(seconds)
        if self.recorder is not None:
            self.recorder.permitted(schedule_result.attempt, seconds)
        if status is None:
            return None
        if status.rejected:
            log.v(4).info("Pod rejected while waiting on permit", pod=key, status=status.message)
            return rejected_on_node(status)
        return error_failure(f"waiting on permit for pod: {status.message}")

    async def _pre_bind(
        self, schedule_result: ScheduleResult, plugins_with_work: frozenset[str]
    ) -> Failure | None:
        attempt, pod = schedule_result.attempt, schedule_result.attempt.pod
        if schedule_result.cancellation is not None:
            # Preemption has chosen this pod while its nomination was written.
            return Failure(Status.error(schedule_result.cancellation.cause))
        if not plugins_with_work:
            attempt.profile.point_seconds["PreBind", SUCCESS].observe(0.0)
            return None
        # If preemption chooses this pod as a victim now, it is cancelled without an eviction.
        cancellation = schedule_result.cancellation = Cancellation()
        schedule_result.point, schedule_result.since = "PreBind", self._clock.monotonic()
        with timed_point(attempt.profile, "PreBind") as timed:
            status = await run_pre_bind(
                attempt.profile,
                attempt.state,
                pod,
                schedule_result.node_name,
                plugins_with_work,
                cancellation,
            )
            timed.code = code_of(status)
        if status is None:
            return None
        log.v(4).info(
            "Pod rejected by PreBind plugin",
            pod=pod.key,
            node=schedule_result.node_name,
            plugin=status.plugin,
            status=status.message,
        )
        return Failure(status)

    async def _bind_by_extender(self, schedule_result: ScheduleResult) -> bool:
        """Let an extender bind the pod; return whether there is one that does."""
        assert self.extenders is not None
        pod = schedule_result.attempt.pod
        # Our status patches must not arrive after the extender's binding: it is not our client, so
        # the dispatcher cannot order the two.
        try:
            await self._api.wait_for_patches(pod.pod)
        except ApiError as error:
            raise ExtenderError(error.message) from error
        return await self.extenders.bind(pod, schedule_result.node_name)

    # ---- the ends ------------------------------------------------------------------------------

    def _succeed(self, schedule_result: ScheduleResult) -> None:
        attempt, pod = schedule_result.attempt, schedule_result.attempt.pod
        self._cache.finish_binding(pod.uid)
        if self.recorder is not None:
            self.recorder.bound(attempt)
        note = f"Successfully assigned {pod.key} to {schedule_result.node_name}"
        self._events.event(pod.pod, "Normal", "Scheduled", "Binding", note, attempt.profile.name)
        if log.v(2):
            log.v(2).info(
                "Successfully bound pod to node", pod=pod.key, node=schedule_result.node_name
            )
        self._count(schedule_result)
        run_post_bind(attempt.profile, attempt.state, pod, schedule_result.node_name)
        if attempt.state.pods_to_activate:
            self._queue.activate(attempt.state.take_pods_to_activate())

    def _count(self, schedule_result: ScheduleResult) -> None:
        attempt, metrics = schedule_result.attempt, self._metrics
        queued = attempt.queued
        labels = ("scheduled", attempt.profile.name)
        metrics.schedule_attempts_total.labels(*labels).inc()
        metrics.scheduling_attempt_duration_seconds.labels(*labels).observe(
            perf_counter() - attempt.started
        )
        metrics.pod_scheduling_attempts.observe(queued.attempts)
        if queued.was_flushed_from_unschedulable:
            metrics.pod_scheduled_after_flush_total.inc()
            for plugin in queued.rejectors:
                metrics.scheduled_after_flush_total.labels(plugin).inc()
        if queued.initial_attempt_timestamp is not None:
            attempts = str(queued.attempts) if queued.attempts < 15 else "15+"
            metrics.pod_scheduling_sli_duration_seconds.labels(attempts).observe(
                self._clock.monotonic() - queued.initial_attempt_timestamp
            )

    def _fail(self, schedule_result: ScheduleResult, failure: Failure) -> None:
        """Undo Reserve and the assumption; requeue the pod and wake those that may fit now."""
        attempt, pod = schedule_result.attempt, schedule_result.attempt.pod
        run_unreserve(attempt.profile, attempt.state, pod, schedule_result.node_name)
        try:
            self._cache.forget(pod, schedule_result.node_name)
        except CacheError as error:
            # The watch event of the binding was faster than its response: the pod is bound, and no
            # resources are freed.
            log.error("Scheduler cache forget pod failed", err=error, pod=pod.key)
            self._failures.handle(attempt, failure)
            return
        assigned_pod = as_assigned(pod.pod, schedule_result.node_name)
        move = self._queue.move_all_to_active_or_backoff
        if failure.status.rejected:
            self._failures.handle(attempt, failure)
            # Requeued first, and then excluded: its own removal must not wake a rejected pod, or
            # it would be tried and rejected for ever.
            move(ASSIGNED_POD_DELETE, assigned_pod, None, lambda other: other.uid != pod.uid)
        else:
            # After an error the pod backs off in any case; the others need not wait for that.
            move(ASSIGNED_POD_DELETE, assigned_pod, None)
            self._failures.handle(attempt, failure)
