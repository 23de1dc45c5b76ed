"""DefaultPreemption: who must leave, what is said of it, and who gets the place.

There is no kubelet: victims stay until the scenario ends them.
"""

from __future__ import annotations

from typing import Any

from testground.stage import HOST, ZONE, Stage

from scenarios.affinity import away, term
from scenarios.spread import spread

Json = dict[str, Any]

BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


def _budget(stage: Stage, name: str, labels: Json, allowed: int) -> None:
    spec = {"minAvailable": 1, "selector": {"matchLabels": labels}}
    stage.add(BUDGETS, {"metadata": {"name": name}, "spec": spec})
    status = {
        "disruptionsAllowed": allowed,
        "currentHealthy": 1,
        "desiredHealthy": 1,
        "expectedPods": 1,
    }
    stage.change(f"{BUDGETS}/{name}/status", {"status": status})


def _evicts(stage: Stage, preemptor: str, node: str, *victims: str) -> None:
    """Check the choice, then let the victims go; others must not be harmed.

    Each end wakes the preemptor. It is waited for: whether it is tried between two ends that follow
    on each other would be chance.
    """
    stage.leaving(*victims)
    stage.refused(preemptor, "0/")
    stage.settle()
    stage.note(f"{preemptor} preempts")
    for index, victim in enumerate(victims, 1):
        stage.end(victim)
        if index < len(victims):
            stage.refused(preemptor, "a terminating pod on the nominated node")
    stage.bound(**{preemptor: node})


def the_least_important_victims_leave(stage: Stage) -> None:
    """Of three nodes the one whose most important victim matters least; then the fewest."""
    for index, name in enumerate(("one", "two", "three")):
        stage.node(name, 4 + index)
    stage.pod("one-middle", "3", on="one", priority="middle")
    stage.pod("two-low", "2", on="two", priority="low")
    stage.pod("two-low-2", "2", on="two", priority="low")
    stage.pod("three-low", "5", on="three", priority="low")
    stage.settle()
    stage.place("first", "4", priority="high")
    _evicts(stage, "first", "three", "three-low")
    stage.place("second", "4", priority="high")
    _evicts(stage, "second", "two", "two-low", "two-low-2")
    stage.place("third", "4", priority="high")
    _evicts(stage, "third", "one", "one-middle")
    stage.place("fourth", "4", priority="high")
    stage.refused("fourth", "preemption: 0/3 nodes are available")
    stage.place("polite", "4", priority="polite")
    stage.refused("polite", "preemptionPolicy=Never")


def only_as_many_leave_as_needed(stage: Stage) -> None:
    """The more important are kept first; of equals those that started earlier."""
    stage.node("only", 8)
    for name, cpu, priority, started in (
        ("a", "2", "middle", "01"),
        ("b", "2", "low", "03"),
        ("c", "1", "low", "02"),
        ("d", "3", "low", "01"),
    ):
        stage.pod(name, cpu, on="only", priority=priority)
        body = {"status": {"startTime": f"2026-01-01T00:00:{started}Z"}}
        stage.change(f"/api/v1/namespaces/default/pods/{name}/status", body)
    stage.settle()
    stage.place("preemptor", "3", priority="high")
    _evicts(stage, "preemptor", "only", "b", "c")


def disruption_budgets_are_spared(stage: Stage) -> None:
    """A node without violations wins though its victims matter more; then the fewest of them."""
    stage.node("guarded", 5)
    stage.node("free", 6)
    stage.node("allowed", 4)
    _budget(stage, "guard", {"app": "guarded"}, 0)
    _budget(stage, "one", {"app": "allowed"}, 1)
    stage.pod("guarded-1", "3", on="guarded", priority="low", labels={"app": "guarded"})
    stage.pod("guarded-2", "2", on="guarded", priority="low", labels={"app": "guarded"})
    stage.pod("free", "4", on="free", priority="middle")
    stage.pod("allowed-1", "2", on="allowed", priority="low", labels={"app": "allowed"})
    stage.pod("allowed-2", "2", on="allowed", priority="low", labels={"app": "allowed"})
    stage.settle()
    stage.place("first", "4", priority="high")
    _evicts(stage, "first", "free", "free")
    stage.place("second", "4", priority="high")
    _evicts(stage, "second", "allowed", "allowed-1", "allowed-2")
    stage.place("third", "4", priority="high")
    _evicts(stage, "third", "guarded", "guarded-1", "guarded-2")


def rules_between_pods_need_victims_too(stage: Stage) -> None:
    """A port, anti-affinity and hard spread are worth an eviction, if that helps at all."""
    stage.node("a-1", 9, "a")
    stage.node("b-1", 8, "b", taints=[{"key": "b", "effect": "NoSchedule"}])
    stage.node("c-1", 7, "c", labels={"disk": "ssd"})
    alone = away(term({"app": "x"}, ZONE))
    stage.pod("x-low", on="a-1", priority="low", labels={"app": "x"})
    stage.pod("x-high", on="c-1", priority="top", labels={"app": "x"})
    stage.pod("port", on="c-1", priority="low", host_port=80)
    stage.pod("web-1", on="c-1", priority="low", labels={"app": "web"})
    stage.settle()
    stage.place("lonely", priority="high", affinity=alone)
    _evicts(stage, "lonely", "a-1", "x-low")
    stage.place("port-2", priority="high", host_port=80, nodeSelector={"disk": "ssd"})
    _evicts(stage, "port-2", "c-1", "port")
    here = {"nodeSelector": {HOST: "c-1"}, "labels": {"app": "web"}}
    constraint = spread(nodeAffinityPolicy="Ignore")
    stage.place("spread", priority="high", topologySpreadConstraints=[constraint], **here)
    stage.leaving("web-1")
    stage.note("spread preempts")


def a_nominated_pod_keeps_its_place(stage: Stage) -> None:
    """Less important pods cannot take the room; a more important one can, and clears the name."""
    stage.node("only", 4)
    stage.node("other", 1)
    stage.pod("victim", "4", on="only", priority="low")
    stage.settle()
    stage.place("middle", "3", priority="middle")
    stage.leaving("victim")
    stage.settle()
    stage.note("one is nominated")
    stage.place("small", "2", priority="low")
    stage.place("tiny", "1", priority="low")
    stage.bound(tiny="other")
    stage.place("high", "2", priority="high")
    stage.settle()
    stage.note("another one comes")
    stage.end("victim")
    stage.bound(high="only")
    stage.refused("middle", "Insufficient cpu")
    stage.settle()
    stage.note("the victim is gone")


def nominations_of_less_important_pods_are_cleared(stage: Stage) -> None:
    """Who evicts somebody takes the place of less important pods that were promised it."""
    stage.node("only", 6)
    stage.pod("victim", "4", on="only", priority="low")
    stage.pod("neighbour", "2", on="only", priority="middle")
    stage.settle()
    stage.place("first", "3", priority="middle")
    stage.leaving("victim")
    stage.note("the first one is nominated")
    stage.place("second", "6", priority="top")
    stage.leaving("neighbour")
    stage.settle()
    stage.note("the second one is nominated")
    stage.end("victim")
    stage.settle()
    stage.note("one of two is gone")
    stage.end("neighbour")
    stage.bound(second="only")
    stage.settle()


SCENARIOS = (
    the_least_important_victims_leave,
    only_as_many_leave_as_needed,
    disruption_budgets_are_spared,
    rules_between_pods_need_victims_too,
    a_nominated_pod_keeps_its_place,
    nominations_of_less_important_pods_are_cleared,
)
