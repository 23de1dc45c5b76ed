"""Read-only access to a scheduler: the state of a pod, its queue, its latest attempt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from proreus.engine.scheduler import Scheduler
from proreus.objects.pod import Pod
from proreus.testing.outcome import AttemptLog, Outcome, State

QueueName = Literal["active", "backoff", "unschedulable", "gated", ""]


class Inspector:
    """Inspects a scheduler. Pods are named by key (``namespace/name``).

    ``pods``: the pods of the apiserver.
    """

    def __init__(
        self, scheduler: Scheduler, pods: Mapping[str, Pod], attempt_log: AttemptLog
    ) -> None:
        self._scheduler = scheduler
        self._pods = pods
        self._attempt_log = attempt_log

    def outcome(self, key: str) -> Outcome:
        """Return the result of a pod's latest attempt, and the pod's present state."""
        record, state = self._attempt_log.get(key), self.state(key)
        live = self._pods.get(key)
        gating = self._gating_plugin(key)
        if record is None:
            node = live.spec.node_name if live else ""
            return Outcome(key, state, node, rejected_by=frozenset(gating))
        failure = record.failure if state in ("unschedulable", "error") else None
        fit = failure.fit_error if failure else None
        return Outcome(
            pod=key,
            state=state,
            node=self._node_of(live),
            message=failure.message if failure else "",
            nominated_node=live.status.nominated_node_name if live else "",
            rejected_by=frozenset(fit.diagnosis.unschedulable_plugins if fit else gating),
            feasible=record.feasible,
            rejections=record.rejections,
            scores=record.scores,
        )

    def state(self, key: str) -> State:
        """Return the state of a pod (see ``Outcome.state``)."""
        pod = self._pods.get(key)
        if pod is None:
            return "deleted"
        if pod.spec.node_name:
            return "bound"
        if self._scheduler.waiting_pods.get(pod.metadata.uid) is not None:
            return "waiting"
        if self._scheduler.cache.is_assumed(pod.metadata.uid):
            return "binding"
        if self._gating_plugin(key):
            return "gated"
        record = self._attempt_log.get(key)
        if record is None or record.failure is None:
            return "pending"
        return "unschedulable" if record.failure.status.rejected else "error"

    def queue_of(self, key: str) -> QueueName:
        """Return the queue that a pod is in, "" for none."""
        queue = self._scheduler.queue
        queued = queue.get(key)
        if queued is None:
            return ""
        if queued.gated:
            return "gated"
        if any(other is queued for other in queue.active_pods()):
            return "active"
        backs_off = any(other is queued for other in queue.backoff_pods())
        return "backoff" if backs_off else "unschedulable"

    def why_not_queued(self, key: str) -> str:
        """Return why a pod that is neither active nor in back-off will not be scheduled now."""
        pod = self._pods.get(key)
        if pod is not None and pod.spec.scheduler_name not in self._scheduler.profiles:
            names = ", ".join(self._scheduler.profiles)
            return (
                f"its schedulerName is {pod.spec.scheduler_name!r}, the profiles are {names}; "
                "use make_pod(..., scheduler_name=...)"
            )
        queued = self._scheduler.queue.get(key)
        if queued is not None:
            return (
                f"{', '.join(sorted(queued.rejectors))} rejected it, and no event since then makes "
                "it schedulable (see events_to_register); or advance(330): after five minutes "
                "every unschedulable pod is tried again"
            )
        outcome = self.outcome(key)
        return f"it is {outcome.state}" + (f" on {outcome.node}" if outcome.node else "")

    def _gating_plugin(self, key: str) -> tuple[str, ...]:
        """Return the PreEnqueue plugin that gates the pod, or ()."""
        queued = self._scheduler.queue.get(key)
        return (queued.gating_plugin,) if queued is not None and queued.gated else ()

    def _node_of(self, pod: Pod | None) -> str:
        if pod is None:
            return ""
        assumed = self._scheduler.cache.is_assumed(pod.metadata.uid)
        node_of = self._scheduler.cache.node_of
        return node_of(pod.metadata.uid) if assumed else pod.spec.node_name
