"""Executing a preemption: prepareCandidate and prepareCandidateAsync of kube-scheduler.

Pods nominated to the node lose their nomination, and the victims are evicted. With gate
SchedulerAsyncPreemption (on by default) a background task does so, and PreEnqueue keeps the
preemptor out of the scheduling queue until the last victim is terminating.

Worked example: victims ``a``, ``b``, ``c``. ``a`` and ``b`` are patched and deleted in parallel,
then ``c``. When the watch reports ``c`` as terminating, the preemptor is no longer gated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import perf_counter
from typing import Any

from proreus.errors import ApiError, NotFound
from proreus.framework.handle import Handle
from proreus.framework.pod_info import PodInfo
from proreus.framework.post_filter_result import CLEAR_NOMINATION
from proreus.kubernetes_version import Change
from proreus.logs import logger
from proreus.objects.meta import key_of
from proreus.objects.pod import Pod, condition_of
from proreus.objects.scheduling import CompositePodGroup, PodGroup
from proreus.plugins.default_preemption.select_candidate import Candidate

log = logger(__name__)

DISRUPTION_TARGET = "DisruptionTarget"
PREEMPTION_BY_SCHEDULER = "PreemptionByScheduler"


@dataclass(frozen=True, slots=True)
class Preemptor:
    """The pod or group that victims are evicted for. ``pods``: ``namespace/name`` of its pods.

    ``group``: the ``related`` object of the victims' Events; kube-scheduler sets none for a pod.
    """

    group: PodGroup | CompositePodGroup | None
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
    def of_group(
        cls, group: PodGroup | CompositePodGroup, pods: Sequence[PodInfo], scheduler_name: str
    ) -> Preemptor:
        """Return a group as a preemptor."""
        uid, keys = group.metadata.uid, tuple(pod.key for pod in pods)
        kind, name = group.key.type, key_of(group)
        return cls(group, kind, uid, name, group.priority, scheduler_name, keys)


class Evictor:
    """Evicts the victims of preemptions. ``running``: those in the background."""

    def __init__(self, handle: Handle, pods: Mapping[str, Pod], plugin_name: str) -> None:
        self._handle = handle
        self._plugin_name = plugin_name
        gates = handle.feature_gates
        self._counts_groups = gates.enabled("GenericWorkload") and gates.includes(
            Change.POD_GROUP_ENTITIES
        )
        """Whether preemptions by groups, and victims that are groups, have metrics of their own."""
        self.running = RunningPreemptions(pods)

    async def evict(self, candidate: Candidate, preemptor: Preemptor) -> None:
        """Evict all victims. Raises ``ApiError`` for the first one that cannot be evicted."""
        self._count_victims(candidate, preemptor)
        for victim in _not_terminating(candidate):
            await self._evict_one(victim, preemptor, candidate.node_name)
        await self._clear_nominations(candidate, preemptor)

    def _count_victims(self, candidate: Candidate, preemptor: Preemptor) -> None:
        metrics, count = self._handle.metrics, len(candidate.victims)
        if preemptor.group is None or not self._counts_groups:
            metrics.preemption_victims.observe(count)
        else:
            metrics.workload_preemption_victims.observe(count)

    def evict_in_background(self, candidate: Candidate, preemptor: Preemptor) -> None:
        """Start a task that evicts the victims that are not terminating already."""
        victims = _not_terminating(candidate)
        # As kube-scheduler: then nominations stay as well, and the preemptor is not gated.
        if not victims:
            return
        self._count_victims(candidate, preemptor)
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
            # In parallel, and the last one only after them: when its watch event comes, all are
            # terminating.
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
            # A victim that was still in memory has no watch event to wait for.
            (self.running.last_victim_deleted if deleted else self.running.end)(running)
        # Some victims may stay, so that no event of theirs would requeue the preemptor.
        if result == "error":
            self._handle.activate(preemptor.pods)
        metrics.preemption_goroutines_execution_total.labels(result).inc()
        seconds = perf_counter() - started
        metrics.preemption_goroutines_duration_seconds.labels(result).observe(seconds)
        if self._counts_groups:
            labels = (preemptor.kind, result)
            metrics.preemption_execution_duration_seconds.labels(*labels).observe(seconds)

    async def _evict_one(self, victim: Pod, preemptor: Preemptor, node_name: str) -> bool:
        """Evict a victim and return whether it was deleted, rather than kept from being bound."""
        handle = self._handle
        in_memory = False
        # A pod that waits on permit or is in PreBind runs nowhere yet: its binding cycle fails, and
        # the apiserver does not hear of it.
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
                # Somebody else was faster; kube-scheduler sends no Event then either.
                return True
        note = f"Preempted by {preemptor.kind} {preemptor.uid} on node {node_name}"
        if in_memory:
            note += " (in kube-scheduler memory)."
        handle.event_recorder.event(
            victim, "Normal", "Preempted", "Preempting", note, handle.profile_name, preemptor.group
        )
        return not in_memory

    async def _set_disruption_target(self, victim: Pod, preemptor: Preemptor) -> None:
        """Set the victim's DisruptionTarget condition."""
        scheduler = preemptor.scheduler_name
        message = f"{scheduler}: preempting to accommodate a higher priority {preemptor.kind}"
        # An equal condition is not written again: it would only get another transition time.
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
        """Clear the nominations of lower-priority pods to the candidate's node.

        They would find the preemptor there, so that they had better be scheduled elsewhere.
        """
        nominator = self._handle.nominator
        for other in nominator.nominated_pods(candidate.node_name):
            if other.priority >= preemptor.priority:
                continue
            # In memory at once: the next cycle must not count the pod on this node.
            nominator.add_nominated_pod(other, CLEAR_NOMINATION)
            if not other.pod.status.nominated_node_name:
                continue
            try:
                patch = {"status": {"nominatedNodeName": None}}
                await self._handle.api.patch_pod_status(other.pod, patch)
            except ApiError as error:
                # Only logged, as in kube-scheduler: the victims can be evicted all the same.
                log.error("Cannot clear nominatedNodeName", err=error, pod=other.key)


def is_being_preempted(pod: Pod) -> bool:
    """Return whether a pod is terminating because a scheduler has preempted it."""
    condition = condition_of(pod, DISRUPTION_TARGET)
    return (
        pod.metadata.deletion_timestamp is not None
        and condition is not None
        and condition.status == "True"
        and condition.reason == PREEMPTION_BY_SCHEDULER
    )


def _not_terminating(candidate: Candidate) -> list[Pod]:
    """Return the victims without a deletion timestamp."""
    pods = (victim.pod for victim in candidate.victims)
    return [pod for pod in pods if pod.metadata.deletion_timestamp is None]


# ---- running preemptions -----------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class RunningPreemption:
    """A preemption whose victims are being evicted. ``uid``: of its preemptor."""

    uid: str
    last: Pod | None = None
    """The last victim, from when its eviction starts."""
    gated_pods: set[str] = field(default_factory=set)
    """``namespace/name`` of the pods that PreEnqueue has rejected for it."""


class RunningPreemptions:
    """The running preemptions of one profile. ``pods``: the informer's store.

    A preemption ends when the watch reports the last victim as terminating or deleted, and not when
    the apiserver has accepted the request.
    """

    # Ended earlier, the preemptor might be scheduled before that watch event: it would find its
    # node full and evict other pods elsewhere.
    #
    # `ungated_by` is called for every pod that is deleted. A thousand preemptors may wait for three
    # thousand victims, so that its cost has to depend on what has changed: hence the indexes.
    #
    # Invariant: _by_last has those of _by_uid that have a last victim, by its UID;
    # _awaiting_deletion has those of them whose last victim's deletion was accepted and not seen.

    def __init__(self, pods: Mapping[str, Pod]) -> None:
        self._pods = pods
        self._by_uid: dict[str, RunningPreemption] = {}
        self._by_last: dict[str, dict[RunningPreemption, None]] = {}
        self._awaiting_deletion: dict[RunningPreemption, None] = {}
        self._ungated: dict[str, None] = {}
        """Keys of gated pods whose preemption has ended, until ``is_gated`` is called for them."""

    # ---- for PreEnqueue --------------------------------------------------------------------------

    def is_running(self, uid: str) -> bool:
        """Return whether a preemptor's victims are still being evicted; end it if they are not."""
        running = self._by_uid.get(uid)
        if running is None:
            return False
        if running.last is None or not self._is_terminating(running.last):
            return True
        self.end(running)
        return False

    @property
    def is_idle(self) -> bool:
        """Whether no pod waits for a preemption, nor is to be told that one has ended."""
        return not (self._by_uid or self._ungated)

    def is_gated(self, uid: str, key: str) -> bool:
        """Return whether a pod has to wait for a preemptor's victims.

        If so, ``ungated_by`` returns it once they are gone.
        """
        if self.is_running(uid):
            self._by_uid[uid].gated_pods.add(key)
            return True
        self._ungated.pop(key, None)
        return False

    def ungated_by(self, gone: str) -> Collection[str]:
        """Return the keys of gated pods whose preemption has ended, after a pod was deleted.

        A key is returned until ``is_gated`` is called for it. ``gone``: the deleted pod's UID.
        """
        # Those that await a deletion too: the watch may report that one while it reports this.
        for running in (*self._by_last.get(gone, ()), *self._awaiting_deletion):
            self.is_running(running.uid)
        # A gated pod that was deleted itself never reaches `is_gated` again.
        for key in [key for key in self._ungated if key not in self._pods]:
            del self._ungated[key]
        return tuple(self._ungated)

    def _is_terminating(self, victim: Pod) -> bool:
        # Another UID: the victim is gone and a pod of its name was created since.
        live = self._pods.get(key_of(victim))
        if live is None or live.metadata.uid != victim.metadata.uid:
            return True
        return live.metadata.deletion_timestamp is not None

    # ---- for Evictor -----------------------------------------------------------------------------

    def begin(self, uid: str) -> RunningPreemption:
        """Start a preemption; an older one of the same preemptor ends."""
        before = self._by_uid.get(uid)
        if before is not None:
            self.end(before)
        running = self._by_uid[uid] = RunningPreemption(uid)
        return running

    def set_last_victim(self, running: RunningPreemption, victim: Pod) -> None:
        """Record that all other victims have been deleted, and that this one is next."""
        if self._by_uid.get(running.uid) is running:
            running.last = victim
            self._by_last.setdefault(victim.metadata.uid, {})[running] = None

    def last_victim_deleted(self, running: RunningPreemption) -> None:
        """Record that the last victim was deleted; the watch event ends the preemption."""
        if self._by_uid.get(running.uid) is running:
            self._awaiting_deletion[running] = None
            # The watch event may have come before the response.
            self.is_running(running.uid)

    def end(self, running: RunningPreemption) -> None:
        """End a preemption, so that its gated pods may be queued."""
        # `begin` has ended and replaced it, or the watch event came first.
        if self._by_uid.get(running.uid) is not running:
            return
        del self._by_uid[running.uid]
        self._awaiting_deletion.pop(running, None)
        if running.last is not None:
            others = self._by_last[running.last.metadata.uid]
            del others[running]
            if not others:
                del self._by_last[running.last.metadata.uid]
        self._ungated.update(dict.fromkeys(running.gated_pods))
