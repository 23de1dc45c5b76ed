"""Tracks pods by a watch: when each was created, attempted and bound.

``PodTracker`` decodes only the fields that it needs, so that observing costs the machine under test
little. Times are this process's: a pod is created when its POST is sent, and bound when the watch
event arrives; latencies are therefore upper bounds, by the same amount for every scheduler.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from proreus.base.errors import ProreusError
from proreus.client.http.session import ApiClient
from proreus.client.watching.informer import Informer
from proreus.objects.meta import ApiStruct, ObjectMeta, Resource, key_of

Stage = Literal["Scheduled", "Attempted"]


class PodsTimedOut(ProreusError):
    """Pods were not bound, attempted or deleted in time."""


class _Condition(ApiStruct, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class _Spec(ApiStruct, frozen=True):
    node_name: str = ""


class _Status(ApiStruct, frozen=True):
    conditions: tuple[_Condition, ...] = ()


class TrackedPod(ApiStruct, frozen=True):
    """The fields of a pod that are tracked."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def bound(self) -> bool:
        """Whether the pod has a node."""
        return bool(self.spec.node_name)

    @property
    def attempted(self) -> bool:
        """Whether a scheduler has bound the pod, or set its condition PodScheduled."""
        return self.bound or any(each.type == "PodScheduled" for each in self.status.conditions)

    @property
    def reason(self) -> str:
        """The message of the condition PodScheduled."""
        messages = [each.message for each in self.status.conditions if each.type == "PodScheduled"]
        return messages[0] if messages else "no scheduler has attempted it"


TRACKED_PODS = Resource("", "v1", "pods", "Pod", True, TrackedPod)


@dataclass(frozen=True, slots=True)
class ObservedBinding:
    """The binding of one pod; times are of ``time.perf_counter``, in seconds."""

    key: str
    labels: Mapping[str, str]
    created: float | None
    bound: float

    @property
    def namespace(self) -> str:
        """The pod's namespace."""
        return self.key.partition("/")[0]


class PodTracker:
    """The pods of a cluster, and their bindings since ``run`` began."""

    def __init__(self, client: ApiClient) -> None:
        self.bindings: list[ObservedBinding] = []
        self.created: dict[str, float] = {}
        """When the bench sent each pod (``time.perf_counter``), by namespace/name."""
        self.bound: Counter[str] = Counter()
        """The number of pods of each namespace that have a node."""
        self.attempted: Counter[str] = Counter()
        """The number of pods of each namespace that have been attempted or bound."""
        self._informer = Informer(client, TRACKED_PODS)
        self._informer.add_handler(self)
        self._informer.add_batch_hook(self._on_batch)
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Watch until cancelled."""
        await self._informer.run()

    async def synced(self) -> None:
        """Wait for the initial list of pods."""
        await self._informer.synced.wait()

    def on_add(self, pod: TrackedPod) -> None:
        """Count a new pod."""
        self._count(pod, 1)
        if pod.bound:
            self._note_bound(pod)

    def on_update(self, old: TrackedPod, new: TrackedPod) -> None:
        """Record the time of a binding."""
        self._count(old, -1)
        self._count(new, 1)
        if new.bound and not old.bound:
            self._note_bound(new)

    def on_delete(self, pod: TrackedPod, final_state_unknown: bool) -> None:
        """Drop a pod's creation time: another pod may get the same name."""
        self._count(pod, -1)
        self.created.pop(key_of(pod), None)

    def _count(self, pod: TrackedPod, by: int) -> None:
        namespace = pod.metadata.namespace
        if pod.bound:
            self.bound[namespace] += by
        if pod.attempted:
            self.attempted[namespace] += by

    def matching(
        self, namespaces: Iterable[str] = (), labels: Mapping[str, str] | None = None
    ) -> list[TrackedPod]:
        """Return the present pods of these namespaces (none: of all) with these labels."""
        wanted, asked = frozenset(namespaces), (labels or {}).items()
        return [
            pod
            for pod in self._informer.store.values()
            if (not wanted or pod.metadata.namespace in wanted)
            and asked <= pod.metadata.labels.items()
        ]

    async def wait_for(
        self,
        stage: Stage,
        count: int,
        namespace: str,
        *,
        labels: Mapping[str, str] | None = None,
        timeout_seconds: float,
    ) -> None:
        """Wait until ``count`` pods of a namespace (with these labels) have reached a stage.

        Raises ``PodsTimedOut``, with an example, when no further pod reached it for
        ``timeout_seconds``.
        """
        most, since = -1, time.perf_counter()
        while True:
            now = self._how_many(stage, namespace, labels)
            if now >= count:
                return
            if now > most:
                most, since = now, time.perf_counter()
            left = since + timeout_seconds - time.perf_counter()
            if left <= 0:
                raise PodsTimedOut(
                    f"{count - now} of {count} pods in {namespace} were not {stage.lower()}, and "
                    f"none for {timeout_seconds:.0f} s{self._example(stage, namespace, labels)}"
                )
            await self._next_change(min(left, 1.0))

    def _how_many(self, stage: Stage, namespace: str, labels: Mapping[str, str] | None) -> int:
        if labels:
            return sum(_is_at(stage, pod) for pod in self.matching([namespace], labels))
        return (self.bound if stage == "Scheduled" else self.attempted)[namespace]

    def _example(self, stage: Stage, namespace: str, labels: Mapping[str, str] | None) -> str:
        for pod in self.matching([namespace], labels):
            if not _is_at(stage, pod):
                return f", as {key_of(pod)}: {pod.reason}"
        return "; there are no more pods"

    async def wait_until_gone(self, namespaces: Iterable[str], timeout_seconds: float) -> None:
        """Wait until these namespaces have no pods left; raises ``PodsTimedOut``."""
        deadline = time.perf_counter() + timeout_seconds
        while left := len(self.matching(namespaces)):
            if time.perf_counter() > deadline:
                raise PodsTimedOut(f"{left} pods are still there after {timeout_seconds:.0f} s")
            await self._next_change(1.0)

    async def _next_change(self, timeout_seconds: float) -> None:
        """Wait for changes, then pause, so that counting does not compete with the scheduler."""
        self._changed.clear()
        try:
            # Not asyncio.wait_for: up to Python 3.11 it loses a cancellation (the signal that is to
            # end the bench) where a pod changes in the same turn of the loop.
            async with asyncio.timeout(timeout_seconds):
                await self._changed.wait()
        except TimeoutError:
            return
        await asyncio.sleep(0.05)

    def _note_bound(self, pod: TrackedPod) -> None:
        key = key_of(pod)
        created = self.created.get(key)
        self.bindings.append(
            ObservedBinding(key, pod.metadata.labels, created, time.perf_counter())
        )

    def _on_batch(self) -> None:
        self._changed.set()


def _is_at(stage: Stage, pod: TrackedPod) -> bool:
    return pod.bound if stage == "Scheduled" else pod.attempted
