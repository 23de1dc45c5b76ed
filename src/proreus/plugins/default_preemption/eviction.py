"""Executing a preemption: prepareCandidate and prepareCandidateAsync of kube-scheduler.

Pods nominated to the node lose their nomination, and the victims are evicted. With gate
SchedulerAsyncPreemption (on by default) a background task does so, and PreEnqueue keeps the
preemptor out of the scheduling queue until the last victim is terminating.

Worked example: victims ``a``, ``b``, ``c``. ``a`` and ``b`` are patched and deleted in parallel,
then ``c``. When the watch reports ``c`` as terminating, the preemptor is no longer gated. If ``a``
cannot be deleted, ``c`` stays, and the preemptor is gated for a second, then tried again. If that
fails as well, it is gated for 2, 4, 8, 10 … seconds: a webhook may refuse for hours. If ``c`` was
not bound yet, its binding is cancelled instead, and the preemptor is tried again once ``c`` is
forgotten.

However an eviction ends, somebody wakes the preemptor: the watch event of the last victim, or the
task itself where that event came too early, or does not come.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from time import perf_counter
from typing import Any

from msgspec import Struct

from proreus.base.clock import rfc3339
from proreus.base.errors import ApiError, NotFound
from proreus.base.kubernetes_version import Change
from proreus.base.logs import logger
from proreus.base.repeated_failures import FailureBackoff
from proreus.framework.handle import Handle
from proreus.framework.pod_info import PodInfo
from proreus.framework.post_filter_result import CLEAR_NOMINATION
from proreus.objects.meta import key_of
from proreus.objects.pod import Pod, condition_of, true_condition_of
from proreus.objects.scheduling import CompositePodGroup, PodGroup
from proreus.plugins.default_preemption.eviction_turns import EvictionTurns
from proreus.plugins.default_preemption.running_preemptions import (
    RunningPreemption,
    RunningPreemptions,
)
from proreus.plugins.default_preemption.select_candidate import Candidate

log = logger(__name__)

DISRUPTION_TARGET = "DisruptionTarget"
PREEMPTION_BY_SCHEDULER = "PreemptionByScheduler"

_PARALLELISM = 16
"""The number of victims evicted at a time: kube-scheduler's default ``parallelism``."""
_BINDING_SECONDS = 1.0
"""The longest wait for the end of a victim's binding, which a webhook may hold up."""
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 10.0
"""kube-scheduler's default back-off of pods."""


class Preemptor(Struct, frozen=True):
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
        uid, keys = uid_of_group(group), tuple(pod.key for pod in pods)
        kind, name = group.key.type, key_of(group)
        return cls(group, kind, uid, name, group.priority, scheduler_name, keys)


def uid_of_group(group: PodGroup | CompositePodGroup) -> str:
    """Return the identity of a group: its UID, or the key of a group that a plugin provides."""
    return group.metadata.uid or str(group.key)


class Evictor:
    """Evicts the victims of preemptions. ``running``: those in the background."""

    def __init__(self, handle: Handle, pods: Mapping[str, Pod], plugin_name: str) -> None:
        self._handle = handle
        self._pods = pods
        self._plugin_name = plugin_name
        gates = handle.feature_gates
        self._counts_groups = gates.enabled("GenericWorkload") and gates.includes(
            Change.POD_GROUP_ENTITIES
        )
        """Whether preemptions by groups have metrics, and by kind of preemptor."""
        self._async = gates.enabled("SchedulerAsyncPreemption")
        self._as_of_1_37 = gates.includes(Change.PREEMPTION_EXECUTOR_OF_1_37)
        self.running = RunningPreemptions(pods)
        self._turns = EvictionTurns()
        self._failures: FailureBackoff[str] = FailureBackoff(
            _FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS, handle.clock.monotonic
        )
        """By UID of the preemptor: its evictions that failed in a row."""
        self._deletions: dict[str, asyncio.Future[bool]] = {}
        """By UID the deletions by the preemptions under way; the result: whether the pod is gone.

        The watch reports a deletion later than the response, so that they are kept for a while."""
        self.pods_leaving_other_nodes: Counter[str] = Counter()
        """By name of a node, how many of its pods are being evicted for pods on other nodes: they
        are of groups that are evicted as a whole."""

    async def prepare_candidate(self, candidate: Candidate, preemptor: Preemptor) -> None:
        """Evict all victims, or begin to (gate SchedulerAsyncPreemption).

        Without the gate, raises ``ApiError`` for the first victim that cannot be evicted.
        """
        if self._async:
            self.evict_in_background(candidate, preemptor)
        else:
            await self.evict(candidate, preemptor)

    async def evict(self, candidate: Candidate, preemptor: Preemptor) -> None:
        """Evict all victims. Raises ``ApiError`` for the first that cannot be evicted."""
        self._count_victims(candidate, preemptor)
        started, result = perf_counter(), "success"
        victims = _not_terminating(candidate)
        try:
            preemption = self._turns.next_preemption()
            await self._evict_many(victims, preemptor, candidate.node_name, preemption)
            await self._clear_nominations(candidate, preemptor)
        except ApiError:
            result = "error"
            raise
        finally:
            self._forget_deletions(victims)
            self._observe_execution(preemptor, result, perf_counter() - started)

    def _count_victims(self, candidate: Candidate, preemptor: Preemptor) -> None:
        metrics, count = self._handle.metrics, len(candidate.victims)
        if not self._counts_groups:
            metrics.preemption_victims.observe(count)
            return
        victims = (
            metrics.preemption_victims
            if preemptor.group is None
            else metrics.workload_preemption_victims.labels(preemptor.kind)
        )
        victims.observe(count)
        for kind, units in candidate.disruptions:
            disruptions = metrics.preemption_workload_disruptions.labels(preemptor.kind, kind)
            disruptions.observe(units)
        if candidate.pdb_violations:
            violations = metrics.preemption_pdb_violations_total.labels(preemptor.kind)
            violations.inc(candidate.pdb_violations)

    def _observe_execution(self, preemptor: Preemptor, result: str, seconds: float) -> None:
        if self._counts_groups:
            labels = (preemptor.kind, result)
            metric = self._handle.metrics.preemption_execution_duration_seconds
            metric.labels(*labels).observe(seconds)

    def evict_in_background(self, candidate: Candidate, preemptor: Preemptor) -> None:
        """Start a task that evicts the victims that are not terminating already."""
        victims = _not_terminating(candidate)
        if victims or self._as_of_1_37:
            self._count_victims(candidate, preemptor)
        # As kube-scheduler: then nominations stay as well, and the preemptor is not gated.
        if not victims:
            return
        running = self.running.begin(preemptor.uid)
        elsewhere: Counter[str] = Counter()
        if preemptor.group is None:
            elsewhere.update(victim.spec.node_name for victim in victims)
            # An assumed victim names no node yet.
            del elsewhere[candidate.node_name], elsewhere[""]
            self.pods_leaving_other_nodes += elsewhere
        self._handle.spawn(self._evict_all(candidate, preemptor, victims, elsewhere, running))

    async def _evict_all(
        self,
        candidate: Candidate,
        preemptor: Preemptor,
        victims: list[Pod],
        elsewhere: Counter[str],
        running: RunningPreemption,
    ) -> None:
        started = perf_counter()
        metrics, node_name = self._handle.metrics, candidate.node_name
        *others, last = victims
        preemption = self._turns.next_preemption()
        failure: Exception | None = None
        cleared, deleted, in_memory = False, False, False
        try:
            cleared = await self._clear_nominations(candidate, preemptor)
            # The last one only after all others: when its watch event comes, all are terminating.
            await self._evict_many(others, preemptor, node_name, preemption)
            await self._wait_until_forgotten(others)
            self.running.set_last_victim(running, last)
            deleted = await self._evict_one(last, preemptor, node_name, preemption)
            if in_memory := not deleted:
                await self._wait_until_forgotten([last])
        except Exception as error:
            failure = error
            if not isinstance(error, ApiError):
                raise
        finally:
            self.pods_leaving_other_nodes -= elsewhere
            self._forget_deletions(victims)
            # Some victims may stay, or the last one has no event: then none requeues the preemptor.
            if failure is not None:
                self._retry_later(running, preemptor, failure)
            else:
                (self.running.last_victim_deleted if deleted else self.running.end)(running)
                no_event = not cleared or (in_memory and self._as_of_1_37)
                keys = preemptor.pods if no_event else self.running.missed_by(running)
                self._handle.activate(keys)
        result = "success" if cleared and failure is None else "error"
        if result == "success":
            self._failures.succeeded(preemptor.uid)
        metrics.preemption_goroutines_execution_total.labels(result).inc()
        seconds = perf_counter() - started
        metrics.preemption_goroutines_duration_seconds.labels(result).observe(seconds)
        self._observe_execution(preemptor, result, seconds)

    def _retry_later(
        self, running: RunningPreemption, preemptor: Preemptor, error: Exception
    ) -> None:
        """Try the preemptor again after a back-off, for which the running preemption gates it.

        kube-scheduler activates it at once. What refuses one attempt may refuse hundreds a second.
        """
        count, seconds = self._failures.failed(preemptor.uid)
        if count == 1:
            log.error("Error occurred during async preemption", err=error, preemptor=preemptor.name)

        def retry() -> None:
            self.running.end(running)
            self._handle.activate(preemptor.pods)

        asyncio.get_running_loop().call_later(seconds, retry)

    async def _evict_many(
        self, victims: list[Pod], preemptor: Preemptor, node_name: str, preemption: int
    ) -> None:
        """Evict victims, some at a time; the first ``ApiError`` ends it and is raised.

        Victims after it are left alone: without that one, evicting them may be in vain.
        """
        waiting = iter(victims)
        errors: list[BaseException] = []

        async def work() -> None:
            for victim in waiting:
                if errors:
                    return
                try:
                    await self._evict_one(victim, preemptor, node_name, preemption)
                except BaseException as error:
                    errors.append(error)
                    raise

        workers = (work() for _ in range(min(_PARALLELISM, len(victims))))
        # All are awaited, so that no eviction is under way any more when this one is over.
        await asyncio.gather(*workers, return_exceptions=True)
        if errors:
            raise errors[0]

    async def _wait_until_forgotten(self, victims: Iterable[Pod]) -> None:
        """Wait until victims whose bindings were cancelled leave their nodes to the preemptor."""
        # Tried before, it would find them there, and evict them once more. Up to 1.36 it is not
        # tried before: the event that they leave requeues it.
        if self._as_of_1_37:
            for victim in victims:
                await self._handle.wait_for_binding(victim.metadata.uid)

    def _cancel_binding(self, victim: Pod) -> bool:
        """Keep a victim from being bound; return whether it is not too late for that."""
        # A pod that waits on permit or is in PreBind runs nowhere yet: its binding cycle fails, and
        # the apiserver does not hear of it.
        uid = victim.metadata.uid
        waiting = self._handle.get_waiting_pod(uid)
        if waiting is not None and waiting.preempt(self._plugin_name, "preempted"):
            return True
        return self._handle.cancel_binding(uid, f"preempted by {self._plugin_name}")

    async def _evict_one(
        self, victim: Pod, preemptor: Preemptor, node_name: str, preemption: int
    ) -> bool:
        """Evict a victim; return whether the watch is to report it as terminating, or deleted.

        Otherwise it is kept from being bound, or has left its node already.
        """
        handle = self._handle
        in_memory = self._cancel_binding(victim)
        if not in_memory:
            # Its binding may fail at this very moment. Without a node it takes no room, and its
            # deletion would wake nobody.
            if not await self._is_on_its_node(victim):
                return False
            # If somebody else was faster, kube-scheduler sends no Event either.
            if not await self._delete(victim, preemptor, preemption):
                return True
            log.v(2).info(
                "Preemptor Pod preempted victim Pod",
                preemptor=preemptor.name,
                victim=key_of(victim),
                node=node_name,
            )
        note = f"Preempted by {preemptor.kind} {preemptor.uid} on node {node_name}"
        if in_memory:
            note += " (in kube-scheduler memory)."
        handle.event_recorder.event(
            victim, "Normal", "Preempted", "Preempting", note, handle.profile_name, preemptor.group
        )
        return not in_memory

    async def _is_on_its_node(self, victim: Pod) -> bool:
        """Return whether a victim takes room, once its binding has ended, or lasts too long."""
        # A webhook may hold it up: kube-scheduler deletes the victim at once. A binding that
        # then fails wakes the preemptor.
        try:
            async with asyncio.timeout(_BINDING_SECONDS):
                return await self._handle.wait_for_binding(victim.metadata.uid)
        except TimeoutError:
            return True

    async def _delete(self, victim: Pod, preemptor: Preemptor, preemption: int) -> bool:
        """Delete a victim and return True, or False if it was deleted otherwise.

        A victim that another preemption is deleting is waited for: groups that are evicted as a
        whole have pods on the nodes of several preemptors.
        """
        uid = victim.metadata.uid
        while (by_another := self._deletions.get(uid)) is not None:
            if await asyncio.shield(by_another):
                return False
        deletion = self._deletions[uid] = asyncio.get_running_loop().create_future()
        gone = False
        try:
            async with self._turns.turn(preemption):
                if gone := self._is_gone(victim):
                    return False
                await self._set_disruption_target(victim, preemptor)
                await self._handle.api.delete_pod(victim)
                gone = True
                return True
        except NotFound:
            gone = True
            return False
        finally:
            if not gone:
                del self._deletions[uid]
            deletion.set_result(gone)

    def _forget_deletions(self, victims: Iterable[Pod]) -> None:
        """Forget which victims were deleted, at the end of a preemption: the informer tells now."""
        for victim in victims:
            deletion = self._deletions.get(victim.metadata.uid)
            if deletion is not None and deletion.done():
                del self._deletions[victim.metadata.uid]

    def _is_gone(self, victim: Pod) -> bool:
        """Return whether the informer has seen that the victim was deleted."""
        live = self._pods.get(key_of(victim))
        return live is None or live.metadata.uid != victim.metadata.uid

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
        condition: dict[str, Any] = {
            "type": DISRUPTION_TARGET,
            "status": "True",
            "reason": PREEMPTION_BY_SCHEDULER,
            "message": message,
            "lastProbeTime": None,
            "lastTransitionTime": rfc3339(self._handle.clock.now()),
        }
        if victim.metadata.generation:
            condition["observedGeneration"] = victim.metadata.generation
        await self._handle.api.patch_pod_status(victim, {"status": {"conditions": [condition]}})

    async def _clear_nominations(self, candidate: Candidate, preemptor: Preemptor) -> bool:
        """Clear the nominations of lower-priority pods to the nodes of a candidate.

        Return whether the apiserver has accepted all. They would find the preemptor there, so that
        they had better be scheduled elsewhere.
        """
        nominator, accepted = self._handle.nominator, True
        names = candidate.nodes_of_group or (candidate.node_name,)
        for other in [one for name in names for one in nominator.nominated_pods(name)]:
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
                accepted = False
        return accepted


def is_being_preempted(pod: Pod) -> bool:
    """Return whether a pod is terminating because a scheduler has preempted it."""
    condition = true_condition_of(pod, DISRUPTION_TARGET)
    return (
        pod.metadata.deletion_timestamp is not None
        and condition is not None
        and condition.reason == PREEMPTION_BY_SCHEDULER
    )


def _not_terminating(candidate: Candidate) -> list[Pod]:
    """Return the victims without a deletion timestamp."""
    pods = (victim.pod for victim in candidate.victims)
    return [pod for pod in pods if pod.metadata.deletion_timestamp is None]
