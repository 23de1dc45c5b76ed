"""Lists the pods that Permit plugins hold back: they have a node, and wait for others."""

from __future__ import annotations

import msgspec

from proreus.base.clock import Clock
from proreus.engine.scheduler import Scheduler


class HeldPod(msgspec.Struct):
    """A pod at Permit. Times are in seconds since the epoch; ``until`` is the latest."""

    pod: str
    node: str
    plugins: tuple[str, ...]
    since: float
    until: float


def held_pods(scheduler: Scheduler, clock: Clock) -> list[HeldPod]:
    """Return the pods at Permit, the longest waiting first."""
    epoch = clock.now() - clock.monotonic()
    # Pods at Permit are not counted as bindings in flight.
    limit = scheduler.bindings_in_flight + len(scheduler.waiting_pods)
    bindings = scheduler.describe_bindings(limit)["oldest"]
    nodes = {binding["pod"]: binding["node"] for binding in bindings}
    found = [
        HeldPod(
            pod=waiting.pod.key,
            node=nodes.get(waiting.pod.key, ""),
            plugins=tuple(waiting.pending_plugins()),
            since=epoch + waiting.since,
            until=epoch + waiting.deadline,
        )
        for waiting in scheduler.waiting_pods
        if waiting.timeouts
    ]
    return sorted(found, key=lambda one: one.since)
