"""Handles a pod that could not be scheduled (``handleSchedulingFailure``).

    handle ─► count, log ─► queue.add_unschedulable, with the plugins that rejected it
           ─► nominator ─► Event FailedScheduling ─► patch of the condition PodScheduled

The pod is requeued before anything is written: an event that arrives during the write finds it in
the queue.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

from proreus.base.clock import rfc3339
from proreus.base.errors import ApiError
from proreus.base.logs import logger
from proreus.base.repeated_failures import LineLimit
from proreus.client.writing.event_bodies import printf_without_arguments, truncate_note
from proreus.client.writing.pod_patches import StillRefused
from proreus.engine.cycles.attempt import Attempt, AttemptRecorder, Failure, FailureObserver
from proreus.engine.environment import Environment
from proreus.engine.queue.scheduling_queue import SchedulingQueue
from proreus.framework.pod_info import PodInfo
from proreus.framework.post_filter_result import NominatingInfo
from proreus.objects.kinds import PODS
from proreus.objects.meta import key_of
from proreus.objects.pod import POD_SCHEDULED, Pod, PodCondition, condition_of

log = logger(__name__)

UNSCHEDULABLE = "Unschedulable"
SCHEDULER_ERROR = "SchedulerError"
NOTICED_SECONDS = 0.1
"""Attempts that compute for longer delay other pods noticeably: they back off for longer."""


class FailureHandler:
    """Requeues failed pods and reports the reason."""

    def __init__(
        self,
        queue: SchedulingQueue,
        environment: Environment,
        pod_lister: Callable[[str], Pod | None] | None = None,
    ) -> None:
        """``pod_lister``: as the queue's; None: of the informer's store."""
        self._queue = queue
        self._pod_lister = pod_lister or environment.stores.store(PODS).get
        self._api = environment.api
        self._events = environment.event_recorder
        self._metrics = environment.metrics
        self._clock = environment.clock
        self._spawn = environment.spawn
        # One fault of the apiserver or a webhook may concern the pods of a whole namespace.
        self._refusals_logged = LineLimit(now=environment.clock.monotonic)
        self.observer: FailureObserver | None = None
        self.recorder: AttemptRecorder | None = None

    def handle(self, attempt: Attempt, failure: Failure, *, repeated: bool = False) -> None:
        """Requeue the pod, register its nomination, write Event and condition.

        ``repeated``: it failed alike a moment ago, so nothing is written again.
        """
        if self.observer is not None:
            self.observer.on_failure(attempt, failure)
        rejected = failure.status.rejected
        # Composed once: it names every reason on thousands of nodes, and is long for some pods.
        message = failure.message
        if self.recorder is not None:
            self.recorder.failed(attempt, failure, message)
        self._count(attempt, rejected)
        self._log(attempt, message, rejected)
        queued = attempt.queued
        self._note_rejectors(attempt, failure)
        _note_cost(attempt)
        is_deferred_resize = attempt.profile.is_deferred_resize(queued.pod)
        pod = self._requeue(attempt)
        # The kubelet reports on a resize; for the scheduler such a pod has its node and keeps it.
        if pod is None or is_deferred_resize:
            return
        # After the requeue: the nominator looks nominated pods up in the queue.
        self._queue.nominator.add_nominated_pod(queued.info, failure.nominating)
        nominating = failure.nominating
        nominated = failure.nominated_node or pod.status.nominated_node_name
        stays = nominating is None or nominating.node_name == nominated
        if repeated and rejected and stays:
            old = condition_of(pod, POD_SCHEDULED)
            if old is not None and (old.status, old.reason) == ("False", UNSCHEDULABLE):
                return
        profile = attempt.profile.name
        # kube-scheduler passes its message as a format string, so "%" comes out as Go prints it.
        note = printf_without_arguments(truncate_note(message))
        self._events.event(pod, "Warning", "FailedScheduling", "Scheduling", note, profile)
        reason = UNSCHEDULABLE if rejected else SCHEDULER_ERROR
        patch = self._status_patch(pod, reason, message, nominating, nominated)
        # Not awaited: the next pod need not wait for the apiserver.
        if patch:
            log.v(3).info(
                "Updating pod condition and nominated node name",
                pod=queued.key,
                conditionType=POD_SCHEDULED,
                conditionStatus="False",
                conditionReason=reason,
                nominatedNodeName=patch["status"].get("nominatedNodeName"),
            )
            self._spawn(self._patch(pod, patch))

    def _note_rejectors(self, attempt: Attempt, failure: Failure) -> None:
        queued = attempt.queued
        queued.gating_plugin = ""
        fit = failure.fit_error
        queued.unschedulable_plugins = set(
            fit.diagnosis.unschedulable_plugins if fit else failure.rejectors
        )
        if fit:
            # Whatever rejected it, room that is held for it may help.
            queued.unschedulable_plugins |= attempt.profile.pod_sources
        queued.pending_plugins = set(fit.diagnosis.pending_plugins) if fit else set()

    def _requeue(self, attempt: Attempt) -> Pod | None:
        """Requeue the pod as the informer knows it; None if its name belongs to another pod now."""
        queued = attempt.queued
        live = self._pod_lister(queued.key)
        # Deleted or bound by now, perhaps by the very attempt whose response was lost.
        if live is None or (live.spec.node_name and not attempt.profile.is_deferred_resize(live)):
            self._queue.done(queued.uid)
            return queued.pod
        if live.metadata.uid != queued.uid:
            self._queue.done(queued.uid)
            return None
        # Updates of a pod in flight do not reach its queue entry (SchedulingQueue.update).
        if live is not queued.pod:
            queued.info = PodInfo(live, queued.info.resources_options, queued.info)
        self._queue.add_unschedulable(queued)
        return live

    # ---- reports -------------------------------------------------------------------------------

    def _count(self, attempt: Attempt, rejected: bool) -> None:
        labels = ("unschedulable" if rejected else "error", attempt.profile.name)
        metrics, seconds = self._metrics, perf_counter() - attempt.started
        metrics.schedule_attempts_total.labels(*labels).inc()
        metrics.scheduling_attempt_duration_seconds.labels(*labels).observe(seconds)

    def _log(self, attempt: Attempt, message: str, rejected: bool) -> None:
        if not rejected:
            # The 1st, 2nd, 4th, 8th … error in a row: what fails may do so for days.
            errors = attempt.queued.consecutive_errors_count + 1
            if not errors & (errors - 1) or log.v(2):
                log.error(
                    "Error scheduling pod; retrying",
                    err=message,
                    pod=attempt.pod.key,
                    errorsInARow=errors,
                )
        elif log.v(2):
            log.v(2).info(
                "Unable to schedule pod; no fit; waiting",
                pod=attempt.pod.key,
                err=message,
            )

    def _status_patch(
        self,
        pod: Pod,
        reason: str,
        message: str,
        nominating: NominatingInfo | None,
        nominated: str,
    ) -> dict[str, Any]:
        """Return the patch of the pod's status; empty if nothing would change.

        ``nominated``: the node that the status names, or is about to name.
        """
        status: dict[str, Any] = {}
        old = condition_of(pod, POD_SCHEDULED)
        # A pod that fails for the same reason again costs no write: thousands of pending pods are
        # retried at every event.
        if old is None or (old.status, old.reason, old.message) != ("False", reason, message):
            status["conditions"] = [self._condition(pod, old, reason, message)]
        if nominating is not None and nominating.node_name != nominated:
            status["nominatedNodeName"] = nominating.node_name or None
        return {"status": status} if status else {}

    def _condition(
        self, pod: Pod, old: PodCondition | None, reason: str, message: str
    ) -> dict[str, Any]:
        # The time of the transition to False, not of the latest attempt.
        since = old.last_transition_time if old is not None and old.status == "False" else None
        if since is None:
            since = rfc3339(self._clock.now())
        condition: dict[str, Any] = {
            "type": POD_SCHEDULED,
            "status": "False",
            "reason": reason,
            "message": message,
            "lastProbeTime": None,
            "lastTransitionTime": since,
        }
        if pod.metadata.generation:
            condition["observedGeneration"] = pod.metadata.generation
        return condition

    async def _patch(self, pod: Pod, patch: dict[str, Any]) -> None:
        try:
            await self._api.patch_pod_status(pod, patch)
        except StillRefused:
            return  # logged when it was refused for the first time
        except ApiError as error:
            if self._refusals_logged.allows():
                more = self._refusals_logged.take_suppressed()
                fields: dict[str, Any] = {"notLogged": more} if more else {}
                log.error("Error updating pod", err=error, pod=key_of(pod), **fields)


def _note_cost(attempt: Attempt) -> None:
    """Record the computing time of the attempt, by which the queue lengthens its back-off."""
    queued, budget = attempt.queued, attempt.state.budget
    if budget is None:
        return
    noticed = budget.exceeded or budget.used >= NOTICED_SECONDS
    queued.cost_seconds = budget.used if noticed else 0.0
    queued.consecutive_overruns = queued.consecutive_overruns + 1 if budget.exceeded else 0
