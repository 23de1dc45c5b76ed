"""Waiting pods: assumed on a node and held by Permit plugins, not bound yet.

A binding cycle awaits ``WaitingPods.outcome``, which rejects the pod at the moment its timeout
expires. ``expire`` does so for all pods, for tests and replays that move the clock themselves.

Example: Coscheduling returns Wait with 30 s and Quota with 10 s. The pod is bound once both have
called ``allow``; after 10 s it is rejected on Quota's behalf; ``reject`` by either ends it at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping

from proreus.base.clock import Clock
from proreus.config.durations import format_duration
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Code, Status, checked


class WaitingPod:
    """One waiting pod; the first signal decides, later ones are ignored."""

    def __init__(self, pod: PodInfo, timeouts: dict[str, float], now: float) -> None:
        self.pod = pod
        self.since = now
        self._timeouts = dict(timeouts)
        self._signal: Status | None = None
        self._decided = False
        self._on_decided: list[Callable[[], None]] = []

    def pending_plugins(self) -> list[str]:
        """Return the names of the plugins that have not allowed it yet."""
        return list(self._timeouts)

    @property
    def timeouts(self) -> Mapping[str, float]:
        """How long each plugin that has not allowed it yet lets it wait, from ``since`` on."""
        return self._timeouts

    def allow(self, plugin: str) -> None:
        """Allow the pod on behalf of a plugin; it goes on once no plugin is pending."""
        self._timeouts.pop(plugin, None)
        if not self._timeouts:
            self._decide(None)

    def reject(self, plugin: str, message: str) -> bool:
        """Reject the pod; return whether this was the first signal."""
        return self._decide(checked(Status(Code.UNSCHEDULABLE, (message,), plugin)))

    def preempt(self, plugin: str, message: str) -> bool:
        """Fail the pod with an error; return whether this was the first signal."""
        return self._decide(checked(Status(Code.ERROR, (message,), plugin)))

    @property
    def allowed(self) -> bool:
        """Whether all plugins have allowed it, and its binding cycle is about to go on."""
        return self._decided and self._signal is None

    @property
    def deadline(self) -> float:
        """When the shortest timeout expires, in seconds since the epoch."""
        # Computed from the plugins still pending: when the one with the shortest timeout allows the
        # pod, the others keep the full time of their own Wait.
        return self.since + min(self._timeouts.values(), default=0.0)

    def expire(self, now: float) -> None:
        """Reject the pod if its deadline has passed."""
        if self._decided or now < self.deadline:
            return
        plugin, seconds = min(self._timeouts.items(), key=lambda item: item[1])
        waited = format_duration(seconds)
        self.reject(plugin, f"rejected due to timeout after waiting {waited} at plugin {plugin}")

    async def outcome(self) -> Status | None:
        """Wait for the signal without a timeout; None is success."""
        if not self._decided:
            decided = asyncio.Event()
            self._on_decided.append(decided.set)
            await decided.wait()
        return self._signal

    def _decide(self, status: Status | None) -> bool:
        # Preemption, a deleted pod and a plugin may all signal in one tick. The binding cycle acts
        # on one outcome, so only the first counts, and callers learn whether it was theirs.
        if self._decided:
            return False
        self._decided, self._signal = True, status
        for notify in self._on_decided:
            notify()
        return True


class WaitingPods:
    """All waiting pods of all profiles, by UID."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pods: dict[str, WaitingPod] = {}

    def add(self, pod: PodInfo, timeouts: dict[str, float]) -> WaitingPod:
        """Add a waiting pod; ``timeouts`` are seconds by plugin."""
        waiting = self._pods[pod.uid] = WaitingPod(pod, timeouts, self._clock.monotonic())
        return waiting

    def remove(self, uid: str) -> None:
        """Forget a pod whose binding cycle has got its outcome."""
        self._pods.pop(uid, None)

    def get(self, uid: str) -> WaitingPod | None:
        """Return a waiting pod, or None."""
        return self._pods.get(uid)

    async def outcome(self, waiting: WaitingPod) -> Status | None:
        """Wait for a pod's signal until its deadline; None is success."""
        # A loop, because the deadline moves when a plugin allows the pod, and because the loop's
        # clock may fire a little before ``Clock`` says that the deadline has passed.
        while True:
            try:
                async with asyncio.timeout(waiting.deadline - self._clock.monotonic()):
                    return await waiting.outcome()
            except TimeoutError:
                waiting.expire(self._clock.monotonic())

    def __iter__(self) -> Iterator[WaitingPod]:
        return iter(list(self._pods.values()))

    def __len__(self) -> int:
        return len(self._pods)

    def expire(self) -> None:
        """Reject the pods whose deadline has passed."""
        now = self._clock.monotonic()
        for waiting in list(self._pods.values()):
            waiting.expire(now)
