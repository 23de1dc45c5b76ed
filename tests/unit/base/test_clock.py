"""Intervals do not depend on the wall clock: somebody sets it, and nothing is early or late."""

from __future__ import annotations

import time

import pytest

from proreus.base.clock import FakeClock, RealClock
from proreus.base.metrics import SchedulerMetrics
from proreus.client.writing.event_recorder import FINISH_SECONDS, EventRecorder
from proreus.engine.cache.cache import Cache
from proreus.engine.extenders.extender import CircuitBreakers
from proreus.engine.queue import SchedulingQueue
from proreus.engine.queue.sub_queues import QueueOptions
from proreus.engine.runtime.waiting_pods import WaitingPods
from proreus.framework.pod_info import PodInfo
from proreus.server.zpages import ZPages
from proreus.testing.builders import make_node, make_pod

DAY = 86400.0


class SetClock(FakeClock):
    """A clock whose wall time is set by somebody: ``off`` seconds from the truth."""

    off = 0.0

    def now(self) -> float:
        return super().now() + self.off


@pytest.fixture
def clock() -> SetClock:
    return SetClock(100 * DAY)


pytestmark = pytest.mark.parametrize("off", [-DAY, DAY])


def test_back_off_and_the_flush_of_left_over_pods(clock, off) -> None:
    queue = SchedulingQueue(
        clock=clock,
        sort_key=lambda queued: (-queued.info.priority, queued.timestamp),
        profiles={},
        pod_lister=lambda key: None,
        options=QueueOptions(),
        metrics=SchedulerMetrics(),
    )

    def attempt(pod: PodInfo, *plugins: str) -> None:
        queue.add(pod)
        queued = queue.pop()
        assert queued is not None
        queued.unschedulable_plugins = set(plugins)
        queue.add_unschedulable(queued)

    attempt(make_pod("error"))
    attempt(make_pod("rejected"), "A")
    clock.off = off
    queue.flush()
    assert queue.pending_counts() == {"active": 0, "backoff": 1, "unschedulable": 1, "gated": 0}
    clock.advance(3)
    queue.flush()
    assert [queued.info.name for queued in queue.active_pods()] == ["error"]
    clock.advance(600)
    queue.flush()
    assert queue.pending_counts()["unschedulable"] == 0


def test_assumed_pods_expire(clock, off) -> None:
    cache = Cache(clock, 30.0)
    cache.add_node(make_node("n0"))
    pod = make_pod("p")
    cache.assume(pod, "n0")
    cache.finish_binding(pod.uid)
    clock.off = off
    clock.advance(29)
    assert cache.expire_assumed() == []
    clock.advance(2)
    assert len(cache.expire_assumed()) == 1


def test_the_limit_of_permit(clock, off) -> None:
    waiting_pods = WaitingPods(clock)
    waiting = waiting_pods.add(make_pod("p"), {"A": 60.0})
    clock.off = off
    clock.advance(59)
    waiting_pods.expire()
    assert waiting.pending_plugins() == ["A"]
    assert waiting.reject("A", "nobody has decided yet")


def test_the_pause_of_an_extender(clock, off) -> None:
    circuits = CircuitBreakers(["filter"], clock, timeout_seconds=5.0)
    seconds = circuits.failed("filter", timed_out=True)
    clock.off = off
    clock.advance(seconds - 1)
    assert not circuits.allows("filter")
    clock.advance(1)
    assert circuits.allows("filter")


def test_a_series_of_events_ends(clock, off) -> None:
    recorder = EventRecorder(None, clock=clock, hostname="h")
    recorder.event(make_pod("p").pod, "Warning", "FailedScheduling", "Scheduling", "no", "me")
    clock.off = off
    clock.advance(FINISH_SECONDS - 1)
    recorder.finish_series()
    assert recorder._event_cache
    clock.advance(2)
    recorder.finish_series()
    assert not recorder._event_cache


def test_the_uptime(clock, off) -> None:
    pages = ZPages("c", {}, "1", "1", (), clock=clock, delimiter="=")
    clock.off = off
    clock.advance(90)
    assert "Up=0 hr 01 min 30 sec" in str(pages.statusz("").text)


def test_the_real_clock(monkeypatch, off) -> None:
    before, real = RealClock().monotonic(), time.time()
    assert before == pytest.approx(real, abs=3600), "comparable with the wall clock"
    monkeypatch.setattr(time, "time", lambda: real + off)
    assert RealClock().now() == real + off
    assert 0 <= RealClock().monotonic() - before < 60
