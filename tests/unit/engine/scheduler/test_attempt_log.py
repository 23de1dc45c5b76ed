"""At -v 5 the log says of an attempt what kube-scheduler's says, in its words."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from proreus.base import logs
from proreus.testing import Harness, make_node, make_pod


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Any:
    caplog.set_level(logging.INFO)

    def at(level: int) -> None:
        for one in logs._Settings.loggers.values():
            monkeypatch.setattr(one, "threshold", level)

    def messages() -> list[str]:
        return [record.getMessage() for record in caplog.records]

    def pairs(message: str) -> dict[str, Any]:
        found = [one.__dict__["pairs"] for one in caplog.records if one.getMessage() == message]
        return found[0]

    at.messages, at.pairs = messages, pairs  # type: ignore[attr-defined]
    return at


def test_a_placed_pod_is_followed_from_its_event_to_its_binding(logged: Any) -> None:
    cluster = Harness((), [make_node("a"), make_node("b", cpu="100m")])
    logged(5)
    assert cluster.schedule(make_pod("p", cpu="1")).bound
    messages = logged.messages()
    expected = [
        "Add event for unscheduled pod",
        "Entity moved to an internal scheduling queue",
        "About to try and schedule pod",
        "Attempting to schedule pod",
        "Filtered nodes for pod",
        "Attempting to bind pod to node",
        "Successfully bound pod to node",
    ]
    assert [one for one in messages if one in expected][: len(expected)] == expected
    assert "Delete event for unscheduled pod" in messages
    assert "Add event for scheduled pod" in messages
    filtered = logged.pairs("Filtered nodes for pod")
    assert (filtered["evaluatedNodes"], filtered["feasibleNodes"]) == (2, 1)
    assert filtered["rejected"] == {"NodeResourcesFit: Insufficient cpu": 1}
    moved = logged.pairs("Entity moved to an internal scheduling queue")
    assert (moved["entity"], moved["queue"], moved["type"]) == ("default/p", "Active", "pod")


def test_a_rejected_pod_is_followed_into_the_queue(logged: Any) -> None:
    taken = make_pod("old", cpu="1500m", node_name="a")
    cluster = Harness((), [make_node("a", cpu="2")], [taken])
    logged(5)
    assert not cluster.schedule(make_pod("p", cpu="1")).bound
    messages = logged.messages()
    for text in (
        "Attempting to schedule pod",
        "Filtered nodes for pod",
        "Dry run the preemption",
        "No preemption candidate is found; preemption is not helpful for scheduling",
        "Status after running PostFilter plugins for pod",
        "Unable to schedule pod; no fit; waiting",
        "Pod moved to an internal scheduling queue",
        "Updating pod condition and nominated node name",
    ):
        assert text in messages, text
    moved = logged.pairs("Pod moved to an internal scheduling queue")
    assert moved["unschedulablePlugins"] == ["NodeResourcesFit"]


def test_at_2_only_decisions_are_logged(logged: Any) -> None:
    cluster = Harness((), [make_node("a")])
    logged(2)
    assert cluster.schedule(make_pod("p", cpu="1")).bound
    of_pod = [text for text in logged.messages() if "pod" in text]
    assert of_pod == ["Successfully bound pod to node"]
