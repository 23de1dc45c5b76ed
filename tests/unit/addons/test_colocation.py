"""Colocation: one rejection after the other, and random scripts of two profiles in one process."""

from __future__ import annotations

import random
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from proreus.addons.colocation import Colocation
from proreus.framework import ConfigError, PodInfo
from proreus.objects import NODES, PODS
from proreus.testing import Harness, make_node, make_pod

BATCH_CPU = "kubernetes.io/batch-cpu"
MEASURED_AT = "colocation.proreus.dev/measured-at"
PAGE = Path(__file__).resolve().parents[3] / "docs" / "addons" / "colocation.md"


def batch_node(name: str = "a", cpu: str = "10", batch: int = 7000):
    return make_node(name, cpu, "100Gi", resources={BATCH_CPU: batch})


def offline(name: str, milli: int, **given) -> PodInfo:
    return make_pod(name, resources={BATCH_CPU: milli}, **given)


def measure(harness: Harness, batch: int, name: str = "a") -> None:
    """Write what a controller writes."""
    stamp = datetime.fromtimestamp(harness.clock.now(), UTC).isoformat()
    patch = {
        "metadata": {"annotations": {MEASURED_AT: stamp}},
        "status": {"allocatable": {BATCH_CPU: batch}},
    }
    harness.patch("Node", name, patch, "")


def test_new_online_pods_leave_less_for_offline_ones() -> None:
    harness = Harness([Colocation], [batch_node()])
    assert harness.schedule(make_pod("online", "4")).node
    outcome = harness.schedule(offline("large", 4000))
    assert "Insufficient cpu beside online and offline pods" in outcome.message
    assert harness.schedule(offline("small", 3000)).node


@pytest.mark.parametrize("nodes", [2, 150], ids=["one by one", "over columns"])
def test_pods_that_request_more_than_an_int64_together_harm_no_other_node(nodes: int) -> None:
    harness = Harness([Colocation], [batch_node(f"n{number}") for number in range(nodes)])
    harness.add(*(make_pod(f"huge{n}", "9E", "9E", node_name="n0") for n in range(3)))
    outcome = harness.schedule(offline("p", 1000))
    assert outcome.bound
    assert outcome.node != "n0"


def test_a_measurement_shows_online_pods_that_had_some_time() -> None:
    harness = Harness([Colocation], [batch_node()])
    harness.schedule(make_pod("online", "4"))
    harness.schedule(offline("p", 6000))
    harness.advance(30)
    measure(harness, 8000)
    harness.advance(10)
    harness.schedule_all()
    assert not harness.pod("p").spec.node_name
    harness.advance(40)
    measure(harness, 8000)
    harness.advance(10)
    harness.schedule_all()
    assert harness.pod("p").spec.node_name == "a"
    assert [one.predicted for one in harness.plugin(Colocation).recent.on("a")] == [(0, 0)]


def test_online_pods_take_no_more_than_offline_ones_leave() -> None:
    harness = Harness([Colocation], [batch_node()])
    harness.schedule(offline("off", 5000))
    assert not harness.schedule(make_pod("large", "3")).node
    assert harness.schedule(make_pod("small", "2")).node
    harness.remove("Pod", "off")
    harness.advance(10)
    harness.schedule_all()
    assert harness.pod("large").spec.node_name == "a"


def test_online_pods_evict_offline_ones() -> None:
    harness = Harness([Colocation], [batch_node()])
    for number in range(2):
        harness.schedule(offline(f"off{number}", 3000))
    harness.schedule(make_pod("online", "4", priority=9000))
    assert len([key for key in harness.api.store(PODS) if "off" in key]) == 1
    harness.advance(2)
    harness.schedule_all()
    assert harness.pod("online").spec.node_name == "a"


def test_nodes_without_offline_pods_are_not_concerned() -> None:
    harness = Harness([Colocation], [make_node("plain", "10"), batch_node(batch=0)])
    for number in range(4):
        assert harness.schedule(make_pod(f"p{number}", "5")).node
    assert not harness.schedule(offline("off", 100)).node


def test_a_controller_that_does_not_say_when_it_measured() -> None:
    harness = Harness([Colocation], [batch_node()])
    harness.schedule(make_pod("online", "4"))
    harness.advance(100)
    harness.patch("Node", "a", {"status": {"allocatable": {BATCH_CPU: 6500}}}, "")
    assert harness.schedule(offline("off", 6500)).node == "a"


def test_a_released_pod_and_a_removed_node_are_forgotten() -> None:
    harness = Harness([Colocation], [batch_node()])
    harness.schedule(make_pod("online", "4"))
    harness.remove("Pod", "online")
    assert harness.schedule(offline("off", 7000)).node == "a"
    harness.api.remove("Node", "a")
    assert not harness.plugin(Colocation)._measured


def test_invalid_arguments_are_refused() -> None:
    with pytest.raises(ConfigError):
        Harness([Colocation], args={"Colocation": {"reportIntervalSeconds": -1}})


# ---- two profiles in one process -----------------------------------------------------------------

CPU = 10_000
MARGIN = 1000
STEPS = 40


def configuration(enabled: bool) -> dict:
    """Return the configuration of the page, perhaps without the plugin."""
    (text,) = (
        one
        for one in re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.S)
        if "KubeSchedulerConfiguration" in one
    )
    found = yaml.safe_load(text)
    if not enabled:
        for profile in found["profiles"]:
            profile["plugins"]["multiPoint"]["enabled"] = [
                one
                for one in profile["plugins"]["multiPoint"]["enabled"]
                if one["name"] != "Colocation"
            ]
    return found


class Script:
    """Arrivals, departures, and a controller; ``used``: what online pods use, as last measured."""

    def __init__(self, seed: int, enabled: bool = True) -> None:
        self.rng = random.Random(seed)
        nodes = [batch_node(name, batch=CPU - MARGIN) for name in "ab"]
        plugins = [Colocation] if enabled else []
        self.harness = Harness(plugins, nodes, config=configuration(enabled))
        self.used: dict[str, int] = {}
        self.count = 0

    def step(self) -> None:
        self.count += 1
        harness, rng = self.harness, self.rng
        name = f"p{self.count}"
        match rng.choice("nnnffffdm"):
            case "n":
                cpu = str(rng.randint(1, 5))
                harness.add(make_pod(name, cpu, priority=9000, scheduler_name="online"))
            case "f":
                milli = rng.randint(5, 40) * 100
                harness.add(offline(name, milli, priority=5000, scheduler_name="offline"))
            case "d":
                if pods := sorted(harness.api.store(PODS)):
                    harness.api.remove("Pod", rng.choice(pods))
            case "m":
                harness.advance(61)
                self.measure()
        harness.advance(rng.choice((0, 2, 12)))
        harness.schedule_all()

    def measure(self) -> None:
        """Do what the controller does: measure, evict, write."""
        for name in sorted(self.harness.api.store(NODES)):
            node = self.harness.node(name)
            total = 0
            for pod in node.pods.values():
                requested = pod.requests.amounts.get("cpu", 0)
                self.used[pod.uid] = self.rng.randint(0, requested)
                total += self.used[pod.uid]
            batch = max(CPU - MARGIN - total, 0)
            for pod in sorted(node.pods.values(), key=lambda one: one.name):
                if self.harness.node(name).requested[BATCH_CPU] <= batch:
                    break
                if BATCH_CPU in pod.requests.amounts:
                    self.harness.remove("Pod", pod.name)
            measure(self.harness, batch, name)

    def overcommitted(self) -> list[str]:
        """Return the nodes where online and offline pods together need more than there is."""
        return [
            node.name
            for node in self.harness.nodes
            if node.requested[BATCH_CPU]
            and node.requested[BATCH_CPU]
            + sum(
                self.used.get(pod.uid, pod.requests.amounts.get("cpu", 0))
                for pod in node.pods.values()
            )
            > CPU
        ]


@pytest.mark.parametrize("seed", range(20))
def test_two_profiles_never_over_commit_each_other(seed: int) -> None:
    script = Script(seed)
    placed: set[str] = set()
    for _ in range(STEPS):
        script.step()
        assert script.overcommitted() == []
        pods = script.harness.api.store(PODS).values()
        placed.update(pod.spec.scheduler_name for pod in pods if pod.spec.node_name)
    assert placed == {"online", "offline"}


def test_without_the_plugin_the_same_scripts_over_commit() -> None:
    def found(seed: int) -> bool:
        script = Script(seed, enabled=False)
        return any(script.step() or script.overcommitted() for _ in range(STEPS))

    assert sum(found(seed) for seed in range(4)) >= 2
