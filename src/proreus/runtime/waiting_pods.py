"""Pods that Permit holds: decided, assumed, not bound yet.

A binding cycle awaits ``WaitingPods.outcome``, which turns a pod down at the instant at which its
time is over. ``expire`` does so for all, where time is moved by hand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from proreus.clock import Clock
from proreus.config.durations import format_duration
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Code, Status


class WaitingPod:
    """One pod that is held; the first signal decides, the others are ignored."""

    def __init__(self, pod: PodInfo, timeouts: dict[str, float], now: float) -> None:
        self.pod = pod
        self.since = now
        self._timeouts = dict(timeouts)
        self._signal: Status | None = None
        self._decided = False
        self._on_decided: list[Callable[[], None]] = []

    def pending_plugins(self) -> list[str]:
        """Return the plugins that still hold it."""
        return list(self._timeouts)

    def allow(self, plugin: str) -> None:
        """Withdraw one plugin's hold; with the last one the pod goes on."""
        self._timeouts.pop(plugin, None)
        if not self._timeouts:
            self._decide(None)

    def reject(self, plugin: str, message: str) -> bool:
        """Turn the pod down; tell whether this was the first signal."""
        return self._decide(Status(Code.UNSCHEDULABLE, (message,), plugin))

    def preempt(self, plugin: str, message: str) -> bool:
        """Fail the pod with an error; tell whether this was the first signal."""
        return self._decide(Status(Code.ERROR, (message,), plugin))

    @property
    def deadline(self) -> float:
        """When the most impatient plugin gives up, in seconds since the epoch."""
        return self.since + min(self._timeouts.values(), default=0.0)

    def expire(self, now: float) -> None:
        """Turn the pod down if its time is over."""
        if self._decided or now < self.deadline:
            return
        plugin, seconds = min(self._timeouts.items(), key=lambda item: item[1])
        waited = format_duration(seconds)
        self.reject(plugin, f"rejected due to timeout after waiting {waited} at plugin {plugin}")

    async def outcome(self) -> Status | None:
        """Wait for the signal, however long that takes: None is success."""
        if not self._decided:
            decided = asyncio.Event()
            self._on_decided.append(decided.set)
            await decided.wait()
        return self._signal

    def _decide(self, status: Status | None) -> bool:
        if self._decided:
            return False
        self._decided, self._signal = True, status
        for tell in self._on_decided:
            tell()
        return True


class WaitingPods:
    """All pods that Permit holds, of all profiles, by UID."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pods: dict[str, WaitingPod] = {}

    def add(self, pod: PodInfo, timeouts: dict[str, float]) -> WaitingPod:
        """Hold a pod; ``timeouts`` are seconds by plugin."""
        waiting = self._pods[pod.uid] = WaitingPod(pod, timeouts, self._clock.now())
        return waiting

    def remove(self, uid: str) -> None:
        """Forget a pod; its binding cycle has its outcome."""
        self._pods.pop(uid, None)

    def get(self, uid: str) -> WaitingPod | None:
        """Return a held pod."""
        return self._pods.get(uid)

    async def outcome(self, waiting: WaitingPod) -> Status | None:
        """Wait for a pod's signal, until its time is over: None is success."""
        while True:
            try:
                async with asyncio.timeout(waiting.deadline - self._clock.now()):
                    return await waiting.outcome()
            except TimeoutError:
                waiting.expire(self._clock.now())

    def __iter__(self) -> Iterator[WaitingPod]:
        return iter(list(self._pods.values()))

    def __len__(self) -> int:
        return len(self._pods)

    def expire(self) -> None:
        """Turn down the pods whose time is over."""
        now = self._clock.now()
        for waiting in list(self._pods.values()):
            waiting.expire(now)
