"""Pauses grow over repeated openings, up to a share of the time that may be lost."""

from __future__ import annotations

import asyncio

import pytest

from proreus.base.metrics import SchedulerMetrics
from proreus.remote.circuit import Circuit
from proreus.remote.remote_metrics import RemoteMetrics

pytestmark = pytest.mark.looptime


def make_circuit() -> Circuit:
    return Circuit("P", RemoteMetrics(SchedulerMetrics(), "P"), None)


async def pauses(circuit: Circuit, times: int, timeout_seconds: float, closed_for: float):
    """Open and close a circuit, as where a pod finds that the process hangs again."""
    seen = []
    for _ in range(times):
        circuit.open("no answer", "http://here", timeout_seconds)
        seen.append(circuit.pause)
        await asyncio.sleep(circuit.pause)
        circuit.close()
        await asyncio.sleep(closed_for)
    return seen


async def test_pauses_double_up_to_thirty_timeouts() -> None:
    seen = await pauses(make_circuit(), 10, timeout_seconds=1.0, closed_for=2.0)
    assert seen == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30])


async def test_a_process_that_hangs_again_and_again_costs_a_thirtieth_of_the_time() -> None:
    circuit, loop = make_circuit(), asyncio.get_running_loop()
    began = loop.time()
    for _ in range(1000):
        await asyncio.sleep(1.0)  # the time-out that a pod waits for
        circuit.open("no answer", "http://here", 1.0)
        await asyncio.sleep(circuit.pause)
        circuit.close()
    assert 1000 / (loop.time() - began) == pytest.approx(1 / 31, rel=0.01)


async def test_they_begin_anew_after_a_while_without_an_opening() -> None:
    circuit = make_circuit()
    await pauses(circuit, 5, timeout_seconds=1.0, closed_for=2.0)
    assert await pauses(circuit, 2, 1.0, closed_for=31.0) == pytest.approx([6.4, 0.2])


async def test_an_error_while_it_is_open_does_not_make_the_pause_longer() -> None:
    circuit = make_circuit()
    circuit.open("no answer", "http://here", 1.0)
    circuit.open("unhealthy", "http://here", 1.0)
    assert circuit.pause == 0.2
    assert circuit.open_reason == "unhealthy"


async def test_another_process_begins_anew() -> None:
    circuit = make_circuit()
    await pauses(circuit, 5, timeout_seconds=1.0, closed_for=2.0)
    circuit.close(reset_pauses=True)
    assert await pauses(circuit, 1, 1.0, closed_for=0.0) == [0.2]
