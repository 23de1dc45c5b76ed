"""Carrying a preemption out: nominations cleared, victims told and deleted.

With gate SchedulerAsyncPreemption (on by default) this goes on beside the scheduling loop, and the
preemptor is kept out of the queue until its last victim is on its way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from time import perf_counter
from typing import Any

from proreus.errors import ApiError, NotFound
from proreus.framework.handle import Handle
from proreus.framework.pod_info import PodInfo
from proreus.framework.post_filter_result import CLEAR_NOMINATION
from proreus.logs import logger
from proreus.objects.meta import key_of
from proreus.objects.pod import Pod, condition_of
from proreus.objects.scheduling import PodGroup
from proreus.plugins.default_preemption.dry_run_cache import Candidate
from proreus.plugins.default_preemption.running_preemptions import (
    RunningPreemption,
    RunningPreemptions,
)

log = logger(__name__)

DISRUPTION_TARGET = "DisruptionTarget"
PREEMPTION_BY_SCHEDULER = "PreemptionByScheduler"


@dataclass(frozen=True, slots=True)
class Preemptor:
    """On whose behalf pods are evicted: a pod, or a whole PodGroup (``pods``: their keys).

    ``group``: named in the Events of victims; kube-scheduler names no pod there.
    """

    group: PodGroup | None
    kind: str
    uid: str
    name: str
    priority: int
    scheduler_name: str
    pods: tuple[str, ...]

    @classmethod
    def of_pod(cls, pod: PodInfo) -> Preemptor:
        """Return a pod as a preemptor."""
        scheduler = pod.pod.spec.scheduler_name
        return cls(None, "pod", pod.uid, pod.key, pod.priority, scheduler, (pod.key,))

    @classmethod
    def of_group(cls, group: PodGroup, pods: Sequence[PodInfo], scheduler_name: str) -> Preemptor:
        """Return a PodGroup as a preemptor."""
        uid, keys = group.metadata.uid, tuple(pod.key for pod in pods)
        return cls(group, "podgroup", uid, key_of(group), group.priority, scheduler_name, keys)


class Evictor:
    """Evicts the victims of preemptions; ``running`` are those that it has begun and not ended."""

    def __init__(self, handle: Handle, pods: Mapping[str, Pod], plugin_name: str) -> None:
        self._handle = handle
        self._plugin_name = plugin_name
        self.running = RunningPreemptions(pods)

    async def evict(self, candidate: Candidate, preemptor: Preemptor) -> None:
        """Evict all victims now; raises ``ApiError`` for the first that could not be evicted."""
        self._handle.metrics.preemption_victims.observe(len(candidate.victims))
        for victim in _not_terminating(candidate):
            await self._evict_one(victim, preemptor, candidate.node_name)
        await self._clear_nominations(candidate, preemptor)

    def evict_in_background(self, candidate: Candidate, preemptor: Preemptor) -> None:
        """Evict the victims that are not on their way out already, beside the scheduling loop."""
        victims = _not_terminating(candidate)
        if not victims:
            return
        self._handle.metrics.preemption_victims.observe(len(candidate.victims))
        running = self.running.begin(preemptor.uid)
        self._handle.spawn(self._evict_all(candidate, preemptor, victims, running))

    async def _evict_all(
        self,
        candidate: Candidate,
        preemptor: Preemptor,
        victims: list[Pod],
        running: RunningPreemption,
    ) -> None:
        started = perf_counter()
        metrics = self._handle.metrics
        *others, last = victims
        result, deleted = "success", False
        try:
            await self._clear_nominations(candidate, preemptor)
            node_name = candidate.node_name
            evictions = [self._evict_one(victim, preemptor, node_name) for victim in others]
            for outcome in await asyncio.gather(*evictions, return_exceptions=True):
                if isinstance(outcome, BaseException):
                    raise outcome
            self.running.set_last_victim(running, last)
            deleted = await self._evict_one(last, preemptor, node_name)
        except ApiError as error:
            result = "error"
            log.error("Error occurred during async preemption", err=error, preemptor=preemptor.name)
        finally:
            (self.running.last_victim_deleted if deleted else self.running.end)(running)
        if result == "error":
            self._handle.activate(preemptor.pods)
        metrics.preemption_goroutines_execution_total.labels(result).inc()
        metrics.preemption_goroutines_duration_seconds.labels(result).observe(
            perf_counter() - started
        )

    async def _evict_one(self, victim: Pod, preemptor: Preemptor, node_name: str) -> bool:
        """Evict a victim; tell whether it was deleted, and not just kept from being bound."""
        handle = self._handle
        in_memory = False
        waiting = handle.get_waiting_pod(victim.metadata.uid)
        if waiting is not None:
            in_memory = waiting.preempt(self._plugin_name, "preempted")
        if not in_memory:
            cause = f"preempted by {self._plugin_name}"
            in_memory = handle.cancel_binding(victim.metadata.uid, cause)
        if not in_memory:
            try:
                await self._set_disruption_target(victim, preemptor)
                await handle.api.delete_pod(victim)
            except NotFound:
                return True
        note = f"Preempted by {preemptor.kind} {preemptor.uid} on node {node_name}"
        if in_memory:
            note += " (in kube-scheduler memory)."
        handle.event_recorder.event(
            victim, "Normal", "Preempted", "Preempting", note, handle.profile_name, preemptor.group
        )
        return not in_memory

    async def _set_disruption_target(self, victim: Pod, preemptor: Preemptor) -> None:
        """Say on the victim why it has to go."""
        scheduler = preemptor.scheduler_name
        message = f"{scheduler}: preempting to accommodate a higher priority {preemptor.kind}"
        old = condition_of(victim, DISRUPTION_TARGET)
        if old is not None and (old.status, old.reason, old.message) == (
            "True",
            PREEMPTION_BY_SCHEDULER,
            message,
        ):
            return
        now = datetime.fromtimestamp(self._handle.clock.now(), UTC)
        condition: dict[str, Any] = {
            "type": DISRUPTION_TARGET,
            "status": "True",
            "reason": PREEMPTION_BY_SCHEDULER,
            "message": message,
            "lastProbeTime": None,
            "lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        if victim.metadata.generation:
            condition["observedGeneration"] = victim.metadata.generation
        await self._handle.api.patch_pod_status(victim, {"status": {"conditions": [condition]}})

    async def _clear_nominations(self, candidate: Candidate, preemptor: Preemptor) -> None:
        """Less important pods that wait for this node need not wait for it any more."""
        nominator = self._handle.nominator
        for other in nominator.nominated_pods(candidate.node_name):
            if other.priority >= preemptor.priority:
                continue
            nominator.add_nominated_pod(other, CLEAR_NOMINATION)
            if not other.pod.status.nominated_node_name:
                continue
            try:
                patch = {"status": {"nominatedNodeName": None}}
                await self._handle.api.patch_pod_status(other.pod, patch)
            except ApiError as error:
                log.error("Cannot clear nominatedNodeName", err=error, pod=other.key)


def _not_terminating(candidate: Candidate) -> list[Pod]:
    """Return the victims that nobody has begun to delete yet."""
    pods = (victim.pod for victim in candidate.victims)
    return [pod for pod in pods if pod.metadata.deletion_timestamp is None]
