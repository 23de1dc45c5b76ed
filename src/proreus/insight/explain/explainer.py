"""Answers questions about pods, nodes and the queue of a running scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proreus.base.clock import Clock
from proreus.engine.scheduler import Scheduler
from proreus.framework.pod_info import QueuedPodInfo
from proreus.insight.decisions.recorder import DecisionRecorder
from proreus.insight.explain.attempts import NAMES_SHOWN, explain_attempt
from proreus.insight.explain.engine import Engine
from proreus.insight.explain.explanation import (
    AttemptExplanation,
    NodeExplanation,
    PermitHold,
    PodExplanation,
    QueueExplanation,
)
from proreus.insight.explain.group_help import LIMIT_SECONDS, help_for_group
from proreus.insight.explain.group_trial import GroupTrial
from proreus.insight.explain.groups import PodsOfGroup, group_of, missing_object_of
from proreus.insight.explain.nodes import explain_node
from proreus.insight.explain.preemptions import Preemption, recent_preemptions
from proreus.insight.explain.queues import explain_queue, explain_waiting, group_message
from proreus.insight.explain.summaries import bound_summary, waiting_summary
from proreus.insight.explain.what_if import help_for
from proreus.objects.pod import Pod


class Explainer:
    """Explains the decisions of one scheduler, as of the moment of the question.

    ``recorder``: None where nothing is recorded. ``pods``: all pods by ``namespace/name``.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        recorder: DecisionRecorder | None,
        pods: Mapping[str, Pod],
        clock: Clock,
    ) -> None:
        self._scheduler = scheduler
        self._records = None if recorder is None else recorder.records
        self._pods = pods
        self._clock = clock

    # ---- pods ----------------------------------------------------------------------------------

    def pod(
        self, namespace: str, name: str, *, names: int = NAMES_SHOWN, changes: bool = True
    ) -> PodExplanation:
        """Explain a pod. ``names``: how many rejected nodes of each kind are named.

        ``changes``: look for what would have to change, if it waits.
        """
        key = f"{namespace}/{name}"
        live = self._pods.get(key)
        explanation = PodExplanation(pod=key, state="unknown", summary="")
        record = None if self._records is None else self._records.latest(key)
        if live is not None and record is not None and record.uid != live.metadata.uid:
            record = None  # of an earlier pod of that name
        if record is not None:
            assert self._records is not None
            explanation.attempt = explain_attempt(record, self._pods, names=names)
            explanation.uid = record.uid
            explanation.earlier_attempts = len(self._records.of(key)) - 1
        if live is None:
            if record is not None:
                explanation.state = "deleted"
                explanation.node = record.node
                explanation.summary = "The pod is gone. This is the record of its last attempt."
            else:
                explanation.summary = "There is no pod of this name, and no record of one."
            return explanation
        explanation.uid = live.metadata.uid
        explanation.scheduler_name = live.spec.scheduler_name
        explanation.node = live.spec.node_name
        if live.spec.scheduler_name not in self._scheduler.profiles:
            explanation.state = "notOurs"
            explanation.summary = (
                f"Its schedulerName is {live.spec.scheduler_name}. This scheduler has the profiles "
                f"{', '.join(self._scheduler.profiles)}."
            )
        elif live.spec.node_name:
            explanation.state = "bound"
            explanation.summary = bound_summary(explanation)
        else:
            self._explain_pending(explanation, live, changes)
        return explanation

    def history(
        self, namespace: str, name: str, *, limit: int = 10
    ) -> tuple[AttemptExplanation, ...]:
        """Return the recorded attempts of a pod of this name, latest first."""
        if self._records is None:
            return ()
        records = self._records.of(f"{namespace}/{name}")[:limit]
        return tuple(explain_attempt(record, self._pods, names=0, nodes=0) for record in records)

    def why_waiting(self, key: str) -> str:
        """Return the message of a waiting pod's last attempt, or which group is missing; or ""."""
        record = None if self._records is None else self._records.latest(key)
        if record is not None and record.failure is not None:
            return record.failure.message
        queued = self._scheduler.queue.get(key)
        missing = "" if queued is None else missing_object_of(self._scheduler, queued.pod)
        return missing and f"{missing} does not exist: the pod waits until it is created"

    def preemptions(self, limit: int) -> tuple[Preemption, ...]:
        """Return the recorded preemptions, the latest first."""
        if self._records is None:
            return ()
        return recent_preemptions(self._records, self._pods, limit)

    def _explain_pending(self, explanation: PodExplanation, live: Pod, changes: bool) -> None:
        scheduler, key = self._scheduler, explanation.pod
        queued = scheduler.queue.get(key)
        if queued is not None:
            explanation.state = "waiting"
            group = group_of(scheduler, queued.pod)
            explanation.waiting = explain_waiting(scheduler, queued, self._clock, group)
            if group is not None:
                explanation.group = group.state
                explanation.group.message = group_message(group, self._records)
            if changes:
                if explanation.waiting.queue not in ("gated", "incomplete"):
                    self._explain_help(explanation, queued, group)
                # Also of a pod that DefaultPreemption gates until its victims are evicted.
                self._explain_victims(explanation, queued)
            explanation.summary = waiting_summary(explanation)
            return
        binding = self._binding(key)
        if binding is not None:
            explanation.state = "binding"
            explanation.node = binding["node"]
            explanation.binding_point = binding["point"]
            explanation.binding_plugins = tuple(binding["plugins"])
            point = binding["point"] or "Bind"
            explanation.summary = f"Node {binding['node']} is chosen; the pod is in {point}."
            self._explain_permit(explanation, live.metadata.uid)
            if (held := group_of(scheduler, live)) is not None:
                explanation.group = held.state
                if explanation.permit:
                    explanation.summary = (
                        f"Node {binding['node']} is chosen. The pod is held at Permit until enough "
                        f"pods of its group {held.name} have a node: {held.scheduled} of "
                        f"{held.min_count} so far."
                    )
        elif scheduler.is_under_way(live.metadata.uid) or scheduler.cache.is_assumed(
            live.metadata.uid
        ):
            explanation.state = "inFlight"
            explanation.summary = "Being scheduled at this moment."
        elif live.metadata.deletion_timestamp is not None:
            explanation.state = "deleted"
            explanation.summary = "Being deleted: it is not scheduled any more."
        else:
            explanation.summary = "It has no node and is not in the queue. Ask again in a moment."

    def _binding(self, key: str) -> dict[str, Any] | None:
        bindings = self._scheduler.describe_bindings(len(self._pods))["oldest"]
        found: dict[str, Any] | None = next((one for one in bindings if one["pod"] == key), None)
        return found

    def _explain_permit(self, explanation: PodExplanation, uid: str) -> None:
        """Say which plugins hold a pod in Permit, since when, and until when."""
        waiting = self._scheduler.waiting_pods.get(uid)
        if waiting is None:
            return
        now = self._clock.now() - self._clock.monotonic()
        holds = [
            PermitHold(
                plugin=plugin,
                since=now + waiting.since,
                until=now + waiting.since + seconds,
            )
            for plugin, seconds in waiting.timeouts.items()
        ]
        pending = {hold.plugin for hold in holds}
        if (attempt := explanation.attempt) is not None:
            # Plugins that have allowed it since the attempt.
            for hold in attempt.permit:
                if hold.plugin not in pending:
                    hold.allowed = True
                    holds.append(hold)
            attempt.permit = tuple(holds)
        explanation.permit = tuple(holds)

    def _engine(self, queued: QueuedPodInfo, **limit: float) -> Engine | None:
        profile = self._scheduler.profiles.get(queued.pod.spec.scheduler_name)
        # Plugins of other processes answer requests: they cannot be asked without waiting.
        if profile is None or profile.fetching:
            return None
        return Engine(profile, self._scheduler.scheduling_cycle.node_search, **limit)

    def _explain_help(
        self, explanation: PodExplanation, queued: QueuedPodInfo, group: PodsOfGroup | None
    ) -> None:
        """Say what would help the pod, or its group as a whole where that needs several pods."""
        if group is None or group.missing or group.min_count - group.scheduled <= 1:
            if (engine := self._engine(queued)) is not None:
                explanation.help = help_for(engine, queued.info)
            return
        engine = self._engine(queued, limit_seconds=LIMIT_SECONDS)
        # While pods are missing, no change of those that are there helps.
        if engine is None or group.root is None or group.known < group.min_count:
            return
        trial = GroupTrial(self._scheduler, engine.profile, group, lambda: engine.out_of_time)
        found, explanation.help = help_for_group(trial, engine, group)
        found.message = found.message or group_message(group, self._records)
        explanation.group = found

    def _explain_victims(self, explanation: PodExplanation, queued: QueuedPodInfo) -> None:
        """Say for which reason each victim has to go that is still there."""
        attempt = explanation.attempt
        if attempt is None or not attempt.victims:
            return
        engine = self._engine(queued)
        if engine is None:
            return
        names = [victim.pod for victim in attempt.victims if victim.state != "gone"]
        found = engine.rejections_beside(queued.info, attempt.nominated_node, names)
        for victim in attempt.victims:
            if victim.pod in found:
                victim.reason += f"; if it stayed, the preemptor would not fit: {found[victim.pod]}"

    # ---- nodes and the queue -------------------------------------------------------------------

    def node(self, name: str) -> NodeExplanation:
        """Explain a node: its pods, and the pods that it rejects."""
        return explain_node(name, self._scheduler, self._records)

    def queue(self) -> QueueExplanation:
        """Explain the whole queue."""
        return explain_queue(self._scheduler, self._records, self._clock)
