"""The coroutines behind ``Harness``: they schedule pods and advance the virtual clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from math import ceil, floor
from typing import Literal

from proreus.framework.pod_info import PodInfo
from proreus.objects.kinds import NODES, PODS
from proreus.objects.meta import key_of
from proreus.objects.node import Node
from proreus.objects.pod import Pod
from proreus.offline.api import JsonObject
from proreus.offline.cluster import OfflineCluster
from proreus.offline.virtual_time import VirtualTimeLoop
from proreus.testing.builders import AnyPod, as_pod, key_of_pod, with_defaults
from proreus.testing.outcome import AttemptLog, Outcome, State

QueueName = Literal["active", "backoff", "unschedulable", "gated", ""]

_MOST_ATTEMPTS = 10_000


class HarnessDriver:
    """Runs an offline cluster inside ``loop``; only one method may run at a time."""

    def __init__(self, cluster: OfflineCluster, loop: VirtualTimeLoop, raise_errors: bool) -> None:
        self._cluster = cluster
        self._loop = loop
        self._raised: list[BaseException] = []
        if raise_errors:
            cluster.tracebacks.on_error = self._on_error
        self._attempt_log = AttemptLog(cluster.scheduler.cache.table)
        self._pods = cluster.api.store(PODS)
        self._seen_pods: set[str] = set()
        cluster.api.on_change(PODS, self._on_pod)
        loop.use_clock(cluster.clock)

    async def begin(self) -> None:
        """Observe attempts from now on, and start the plugins' background work."""
        self._cluster.scheduler.observe(self._attempt_log)
        self._cluster.scheduler.start_background_work()

    async def add(self, objects: Iterable[Node | PodInfo | Pod | JsonObject]) -> None:
        """Create or replace objects."""
        api = self._cluster.api
        for obj in objects:
            if isinstance(obj, Node):
                api.put(NODES, obj)
            elif isinstance(obj, (PodInfo, Pod)):
                api.put(PODS, obj.pod if isinstance(obj, PodInfo) else obj)
            else:
                api.add(with_defaults(obj))

    async def schedule(self, pod: AnyPod) -> Outcome:
        """Schedule a pod once, after the pods ahead of it; see ``Harness.schedule``."""
        key = await self._ensure_added(pod)
        await self.settle()
        tried = len(self._attempt_log.attempts)
        for _ in range(_MOST_ATTEMPTS):
            if self.queue_of(key) == "gated":
                break
            if self.queue_of(key) not in ("active", "backoff"):
                reason = self.why_not_queued(key)
                raise LookupError(f"{key} would not be scheduled now: {reason}")
            await self._attempt()
            if key in self._attempt_log.attempts[tried:]:
                break
        return self.outcome(key)

    async def schedule_all(self) -> list[Outcome]:
        """Schedule pods until the active queue is empty."""
        tried = len(self._attempt_log.attempts)
        for _ in range(_MOST_ATTEMPTS):
            if not self._cluster.scheduler.queue.active_pods():
                break
            await self._attempt()
        return [self.outcome(key) for key in dict.fromkeys(self._attempt_log.attempts[tried:])]

    async def _attempt(self) -> None:
        scheduled = await self._cluster.schedule_next()
        await self.settle(f" while {scheduled[0]} was scheduled" if scheduled else "")

    async def advance(self, seconds: float) -> None:
        """Advance the clock from timer to timer, and through each whole second (queue flushes)."""
        end = self._cluster.clock.monotonic() + seconds
        while (now := self._cluster.clock.monotonic()) < end:
            due = self._loop.next_timer()
            target = min(end, floor(now) + 1, end if due is None else due)
            self._cluster.advance(max(ceil((target - now) * 1000 - 1e-3), 1) / 1000)
            await self.settle()

    async def settle(self, when: str = "") -> None:
        """Wait until all tasks are idle; raise the first exception of a plugin since the last time.

        ``when``: the end of the note about it.
        """
        await self._loop.run_until_idle()
        await self._cluster.settle()
        raised, self._raised = self._raised, []
        for error in raised:
            error.__notes__[-1] += when
            raise error

    def _on_error(self, error: BaseException, where: Iterable[str]) -> None:
        error.add_note(f"raised by a plugin ({', '.join(where)})")
        self._raised.append(error)

    async def wait_until(self, condition: Callable[[], object], seconds: float) -> None:
        """Wait for a condition in real time; raises ``TimeoutError``."""
        await self.settle()
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"it did not happen within {seconds} s; timers need advance()")
            await asyncio.to_thread(time.sleep, 0.001)
            await self.settle()

    async def _ensure_added(self, pod: AnyPod) -> str:
        """Add the pod if it does not exist; return its key."""
        key = key_of_pod(pod)
        existing = self._pods.get(key)
        if isinstance(pod, str):
            if existing is None:
                raise LookupError(f"there is no pod {key}; give the pod itself")
            return key
        typed = as_pod(pod)
        if existing is None:
            await self.add([typed])
        elif existing.metadata.uid != (typed.metadata.uid or existing.metadata.uid):
            raise ValueError(f"there is another pod {key}; give this one another name")
        return key

    # ---- results: pods are named by key (``namespace/name``) ------------------------------------

    def _on_pod(self, _: Pod | None, pod: Pod | None) -> None:
        if pod is not None:
            self._seen_pods.add(key_of(pod))

    def known_key(self, pod: AnyPod) -> str:
        """Return the key of a pod; raises ``LookupError`` for one that was never here."""
        key = key_of_pod(pod)
        if key not in self._seen_pods:
            there = ", ".join(sorted(self._seen_pods)) or "none"
            raise LookupError(f"there was never a pod {key!r}; there were: {there}")
        return key

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
        if self._cluster.scheduler.waiting_pods.get(pod.metadata.uid) is not None:
            return "waiting"
        if self._cluster.scheduler.cache.is_assumed(pod.metadata.uid):
            return "binding"
        if self._gating_plugin(key):
            return "gated"
        record = self._attempt_log.get(key)
        if record is None or record.failure is None:
            return "pending"
        return "unschedulable" if record.failure.status.rejected else "error"

    def queue_of(self, key: str) -> QueueName:
        """Return the queue that a pod is in, "" for none."""
        queue = self._cluster.scheduler.queue
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
        if pod is not None and pod.spec.scheduler_name not in self._cluster.scheduler.profiles:
            names = ", ".join(self._cluster.scheduler.profiles)
            return (
                f"its schedulerName is {pod.spec.scheduler_name!r}, the profiles are {names}; "
                "use make_pod(..., scheduler_name=...)"
            )
        queued = self._cluster.scheduler.queue.get(key)
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
        queued = self._cluster.scheduler.queue.get(key)
        return (queued.gating_plugin,) if queued is not None and queued.gated else ()

    def _node_of(self, pod: Pod | None) -> str:
        if pod is None:
            return ""
        assumed = self._cluster.scheduler.cache.is_assumed(pod.metadata.uid)
        node_of = self._cluster.scheduler.cache.node_of
        return node_of(pod.metadata.uid) if assumed else pod.spec.node_name
