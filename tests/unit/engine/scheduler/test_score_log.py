"""At -v 10 scores are logged as kube-scheduler logs them; below, they cost nothing."""

from __future__ import annotations

import logging
import random
from typing import Any

import numpy as np
import pytest

from proreus.base.clock import FakeClock
from proreus.base.metrics import SchedulerMetrics
from proreus.config.types import Extender
from proreus.engine.extenders.extender import HTTPExtender
from proreus.engine.extenders.extender_chain import ExtenderChain
from proreus.engine.runtime import score_log
from proreus.testing import Harness, make_node, make_pod, make_table

PLUGIN = "Plugin scored node for pod"
TOTAL = "Calculated node's final score for pod"


@pytest.fixture
def at_level(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Any:
    caplog.set_level(logging.INFO, score_log.log.name)

    def set_level(level: int) -> None:
        monkeypatch.setattr(score_log.log, "threshold", level)

    return set_level


def lines(caplog: pytest.LogCaptureFixture, text: str) -> list[dict[str, Any]]:
    return [r.__dict__["pairs"] for r in caplog.records if r.getMessage() == text]


def cluster() -> Harness:
    nodes = [make_node("a", images={"web:1": 10**9}), make_node("b", labels={"disk": "ssd"})]
    return Harness((), nodes, [make_pod("old", cpu="1", node_name="a")])


def prefers_ssd(name: str):
    term = {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}
    preferred["preferredDuringSchedulingIgnoredDuringExecution"][0]["preference"] = term
    return make_pod(name, cpu="100m", image="web:1", affinity={"nodeAffinity": preferred})


@pytest.mark.parametrize("pod", [make_pod("p", cpu="100m"), prefers_ssd("p")])
def test_each_plugins_weighted_score_and_the_sum(caplog, at_level, pod) -> None:
    at_level(9)
    expected = cluster().schedule(pod)
    assert not lines(caplog, PLUGIN)
    at_level(10)
    made = cluster()
    outcome = made.schedule(pod)

    assert outcome.scores == expected.scores
    logged = lines(caplog, PLUGIN)
    assert {tuple(one) for one in logged} == {("pod", "plugin", "node", "score")}
    assert {one["pod"] for one in logged} == {"default/p"}
    for node in "ab":
        of_node = {one["plugin"]: one["score"] for one in logged if one["node"] == node}
        assert of_node == outcome.scores[node]
    profile = next(iter(made.scheduler.profiles.values()))
    in_order = [plugin.name for plugin in profile.score if plugin.name in outcome.scores["a"]]
    assert [one["plugin"] for one in logged] == in_order * 2, "node after node, in their order"
    totals = [{"pod": "default/p", "node": n, "score": outcome.score(n)} for n in "ab"]
    assert lines(caplog, TOTAL) == totals


def test_where_scores_are_shared_they_are_logged_for_each_pod(caplog, at_level) -> None:
    at_level(10)
    made = cluster()
    made.scheduler.scheduling_cycle.observer = None  # as in a process: totals come from the cache
    for name in "pq":
        made.add(make_pod(name, cpu="100m"))
        assert made.run(made._cluster.schedule_next()) == (f"default/{name}", "b")
    assert {one["pod"] for one in lines(caplog, TOTAL)} == {"default/p", "default/q"}


def test_a_single_feasible_node_is_not_scored(caplog, at_level) -> None:
    at_level(10)
    assert Harness((), ["a"]).schedule(make_pod("p")).bound
    assert not lines(caplog, PLUGIN) + lines(caplog, TOTAL)


async def test_extenders_scores_and_the_sum_with_them(caplog, at_level, monkeypatch) -> None:
    at_level(10)
    config = Extender(url_prefix="http://x", prioritize_verb="prioritize", weight=2)
    pod, table = make_pod("p"), make_table([make_node("a"), make_node("b")])
    extender = HTTPExtender(config, clock=FakeClock())

    async def send(*_: object, **__: object) -> bytes:
        return b'[{"Host": "b", "Score": 3}]'

    monkeypatch.setattr(extender, "_send", send)
    chain = ExtenderChain((), table, SchedulerMetrics(), random.Random(0))
    await chain.prioritize([extender], pod.pod, np.arange(2), np.array([70, 20]))

    assert lines(caplog, "Extender scored node for pod") == [
        {"pod": "default/p", "extender": "http://x", "node": "b", "score": 3}
    ]
    totals = [{"pod": "default/p", "node": n, "score": s} for n, s in (("a", 70), ("b", 80))]
    assert lines(caplog, TOTAL) == totals
