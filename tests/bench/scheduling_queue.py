"""The cost of the scheduling queue: microseconds an operation, with 10,000 pods in each queue.

Run it by hand: ``python tests/bench/scheduling_queue.py [PODS]``.
"""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from proreus.base.clock import RealClock
from proreus.engine.queue import SchedulingQueue
from proreus.framework import events as ev
from proreus.framework.event_registrations import EventRegistration, PreEnqueue, registrations_of
from proreus.framework.events import ASSIGNED_POD_ADD, ASSIGNED_POD_DELETE, NODE_ADD, ClusterEvent
from proreus.framework.pod_info import PodInfo, QueuedPodInfo
from proreus.framework.status import Status
from proreus.objects.meta import ObjectMeta
from proreus.objects.pod import Pod, PodSpec

PROFILE = "default-scheduler"
NODE_LABEL = ClusterEvent(ev.NODE, ev.UPDATE_NODE_LABEL)


@dataclass
class Profile:
    pre_enqueue: dict[str, PreEnqueue] = field(default_factory=dict)
    registrations: list[EventRegistration] = field(default_factory=list)
    group_wide: frozenset[str] = frozenset()


def default_like_profile() -> Profile:
    """Return registrations like those of the default plugins, with hints that skip."""

    def no(pod: PodInfo, old: Any, new: Any) -> bool:
        return False

    def gates(pod: PodInfo) -> Status | None:
        return Status.unresolvable("gated") if pod.pod.spec.scheduling_gates else None

    profile = Profile({"SchedulingGates": gates})
    for plugin, *events in (
        ("TaintToleration", (ev.NODE, ev.ADD | ev.UPDATE_NODE_TAINT)),
        ("NodeAffinity", (ev.NODE, ev.ADD | ev.UPDATE_NODE_LABEL)),
        ("NodePorts", (ev.POD, ev.DELETE), (ev.NODE, ev.ADD)),
        (
            "NodeResourcesFit",
            (ev.POD, ev.DELETE | ev.UPDATE_POD_SCALE_DOWN),
            (ev.NODE, ev.ADD | ev.UPDATE_NODE_ALLOCATABLE),
        ),
        ("InterPodAffinity", (ev.POD, ev.ADD | ev.DELETE), (ev.NODE, ev.ADD)),
    ):
        asked = [ClusterEvent(resource, action, no) for resource, action in events]
        profile.registrations += registrations_of(plugin, asked)
    return profile


def pods(count: int) -> list[PodInfo]:
    chance = random.Random(7)
    return [
        PodInfo(
            Pod(
                metadata=ObjectMeta(name=f"pod-{i}", namespace="default", uid=f"uid-{i}"),
                spec=PodSpec(scheduler_name=PROFILE, priority=chance.choice((0, 0, 100, 1000))),
            )
        )
        for i in range(count)
    ]


@contextmanager
def timed(what: str, operations: int) -> Iterator[None]:
    gc.collect()
    started = perf_counter()
    yield
    seconds = perf_counter() - started
    print(f"{what:48} {seconds / operations * 1e6:10.2f} us")


def sort_key(queued: QueuedPodInfo) -> tuple[int, float]:
    return (-queued.info.priority, queued.timestamp)


def make_queue(infos: list[PodInfo]) -> SchedulingQueue:
    listed = {info.key: info.pod for info in infos}
    return SchedulingQueue(
        clock=RealClock(),
        sort_key=sort_key,
        profiles={PROFILE: default_like_profile()},
        pod_lister=listed.get,
    )


def reject_all(queue: SchedulingQueue, popped: list[QueuedPodInfo], *plugins: str) -> None:
    for queued in popped:
        queued.unschedulable_plugins = set(plugins)
        queue.add_unschedulable(queued)


def pop_all(queue: SchedulingQueue) -> list[QueuedPodInfo]:
    return list(iter(queue.pop, None))


def move(queue: SchedulingQueue, what: str, event: ClusterEvent, times: int) -> None:
    with timed(f"move_all: {what}", times):
        for _ in range(times):
            queue.move_all_to_active_or_backoff(event, None, None)


def main(count: int) -> None:
    infos = pods(count)
    queue = make_queue(infos)
    each: Callable[[str], Any] = lambda what: timed(what, count)  # noqa: E731
    with each("add"):
        for info in infos:
            queue.add(info)
    with each("update of an active pod"):
        for info in infos:
            queue.update(info, info, [])
    with each("pop + done"):
        while (queued := queue.pop()) is not None:
            queue.done(queued.uid)
    for info in infos:
        queue.add(info)
    with each("pop, all in flight at once"):
        popped = pop_all(queue)
    with each("add_unschedulable"):
        reject_all(queue, popped, "NodeResourcesFit")
    move(queue, "nobody registered it", ev.NODE_DELETE, 10_000)
    move(queue, "registered, by no rejector", ASSIGNED_POD_ADD, 10_000)
    move(queue, "registered, by no rejector (node label)", NODE_LABEL, 10_000)
    move(queue, f"{count} hints that say no", ASSIGNED_POD_DELETE, 5)
    with timed("update of an unschedulable pod", count):
        for info in infos:
            queue.update(info, info, [ClusterEvent(ev.TARGET_POD, ev.UPDATE_POD_LABEL)])
    with each("activate"):
        queue.activate([info.key for info in infos])
    popped = pop_all(queue)
    for _ in range(100):
        queue.move_all_to_active_or_backoff(NODE_ADD, None, None)
    with timed("add_unschedulable with 100 events in flight", count):
        reject_all(queue, popped, "VolumeBinding")
    queue.activate([info.key for info in infos])
    popped = pop_all(queue)
    with each("add_unschedulable after an error"):
        reject_all(queue, popped)
    with each("delete"):
        for info in infos:
            queue.delete(info)
    queue.validate()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
