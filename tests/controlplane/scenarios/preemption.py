"""DefaultPreemption: the choice of victims, their conditions, and nominated pods.

There is no kubelet: victims remain until the scenario removes them.
"""

from __future__ import annotations

from typing import Any

from envtest.scenario_cluster import HOST, ZONE, ScenarioCluster

from scenarios.affinity import away, term
from scenarios.spread import spread
from scenarios.volumes import storage_class

Json = dict[str, Any]

BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


def _budget(cluster: ScenarioCluster, name: str, labels: Json, allowed: int) -> None:
    spec = {"minAvailable": 1, "selector": {"matchLabels": labels}}
    cluster.add(BUDGETS, {"metadata": {"name": name}, "spec": spec})
    status = {
        "disruptionsAllowed": allowed,
        "currentHealthy": 1,
        "desiredHealthy": 1,
        "expectedPods": 1,
    }
    cluster.change(f"{BUDGETS}/{name}/status", {"status": status})


def _evicts(cluster: ScenarioCluster, preemptor: str, node: str, *victims: str) -> None:
    """Check the victims, then remove them; no other pod may be deleted.

    Each removal wakes the preemptor. It is waited for, since otherwise chance would decide whether
    there is an attempt between two removals.
    """
    cluster.leaving(*victims)
    cluster.refused(preemptor, "0/")
    cluster.settle()
    cluster.note(f"{preemptor} preempts")
    for index, victim in enumerate(victims, 1):
        cluster.end(victim)
        if index < len(victims):
            cluster.refused(preemptor, "a terminating pod on the nominated node")
    cluster.bound(**{preemptor: node})


def the_least_important_victims_leave(cluster: ScenarioCluster) -> None:
    """The node with the lowest maximum victim priority is chosen; then the fewest victims."""
    for index, name in enumerate(("one", "two", "three")):
        cluster.node(name, 4 + index)
    cluster.pod("one-middle", "3", on="one", priority="middle")
    cluster.pod("two-low", "2", on="two", priority="low")
    cluster.pod("two-low-2", "2", on="two", priority="low")
    cluster.pod("three-low", "5", on="three", priority="low")
    cluster.settle()
    cluster.place("first", "4", priority="high")
    _evicts(cluster, "first", "three", "three-low")
    cluster.place("second", "4", priority="high")
    _evicts(cluster, "second", "two", "two-low", "two-low-2")
    cluster.place("third", "4", priority="high")
    _evicts(cluster, "third", "one", "one-middle")
    cluster.place("fourth", "4", priority="high")
    cluster.refused("fourth", "preemption: 0/3 nodes are available")
    cluster.place("polite", "4", priority="polite")
    cluster.refused("polite", "preemptionPolicy=Never")


def only_as_many_leave_as_needed(cluster: ScenarioCluster) -> None:
    """More important pods are reprieved first; of equal ones those that started earlier."""
    cluster.node("only", 8)
    for name, cpu, priority, started in (
        ("a", "2", "middle", "01"),
        ("b", "2", "low", "03"),
        ("c", "1", "low", "02"),
        ("d", "3", "low", "01"),
    ):
        cluster.pod(name, cpu, on="only", priority=priority)
        body = {"status": {"startTime": f"2026-01-01T00:00:{started}Z"}}
        cluster.change(f"/api/v1/namespaces/default/pods/{name}/status", body)
    cluster.settle()
    cluster.place("preemptor", "3", priority="high")
    _evicts(cluster, "preemptor", "only", "b", "c")


def disruption_budgets_are_spared(cluster: ScenarioCluster) -> None:
    """A node without PDB violations is chosen even with more important victims; then the fewest."""
    cluster.node("guarded", 5)
    cluster.node("free", 6)
    cluster.node("allowed", 4)
    _budget(cluster, "none", {"app": "guarded"}, 0)
    _budget(cluster, "one", {"app": "allowed"}, 1)
    cluster.pod("guarded-1", "3", on="guarded", priority="low", labels={"app": "guarded"})
    cluster.pod("guarded-2", "2", on="guarded", priority="low", labels={"app": "guarded"})
    cluster.pod("free", "4", on="free", priority="middle")
    cluster.pod("allowed-1", "2", on="allowed", priority="low", labels={"app": "allowed"})
    cluster.pod("allowed-2", "2", on="allowed", priority="low", labels={"app": "allowed"})
    cluster.settle()
    cluster.place("first", "4", priority="high")
    _evicts(cluster, "first", "free", "free")
    cluster.place("second", "4", priority="high")
    _evicts(cluster, "second", "allowed", "allowed-1", "allowed-2")
    cluster.place("third", "4", priority="high")
    _evicts(cluster, "third", "guarded", "guarded-1", "guarded-2")


def rules_between_pods_need_victims_too(cluster: ScenarioCluster) -> None:
    """Pods preempt for a port, anti-affinity and hard spread constraints, if it helps."""
    cluster.node("a-1", 9, "a")
    cluster.node("b-1", 8, "b", taints=[{"key": "b", "effect": "NoSchedule"}])
    cluster.node("c-1", 7, "c", labels={"disk": "ssd"})
    alone = away(term({"app": "x"}, ZONE))
    cluster.pod("x-low", on="a-1", priority="low", labels={"app": "x"})
    cluster.pod("x-high", on="c-1", priority="top", labels={"app": "x"})
    cluster.pod("port", on="c-1", priority="low", host_port=80)
    cluster.pod("web-1", on="c-1", priority="low", labels={"app": "web"})
    cluster.settle()
    cluster.place("lonely", priority="high", affinity=alone)
    _evicts(cluster, "lonely", "a-1", "x-low")
    cluster.place("port-2", priority="high", host_port=80, nodeSelector={"disk": "ssd"})
    _evicts(cluster, "port-2", "c-1", "port")
    here = {"nodeSelector": {HOST: "c-1"}, "labels": {"app": "web"}}
    constraint = spread(nodeAffinityPolicy="Ignore")
    cluster.place("spread", priority="high", topologySpreadConstraints=[constraint], **here)
    cluster.leaving("web-1")
    # A pod that is being deleted does not count any more; kube-scheduler waits for its end all the
    # same (docs/parity.md).
    cluster.end("web-1")
    cluster.bound(spread="c-1")
    cluster.settle()


def a_nominated_pod_keeps_its_place(cluster: ScenarioCluster) -> None:
    """Less important pods cannot use the freed capacity; a more important one can, and clears the
    nomination."""
    cluster.node("only", 4)
    cluster.node("other", 1)
    cluster.pod("victim", "4", on="only", priority="low")
    cluster.settle()
    cluster.place("middle", "3", priority="middle")
    cluster.leaving("victim")
    cluster.settle()
    cluster.note("one is nominated")
    cluster.place("small", "2", priority="low")
    cluster.place("tiny", "1", priority="low")
    cluster.bound(tiny="other")
    cluster.place("high", "2", priority="high")
    cluster.settle()
    cluster.note("another one comes")
    cluster.end("victim")
    cluster.bound(high="only")
    cluster.refused("middle", "Insufficient cpu")
    cluster.settle()
    cluster.note("the victim is gone")


def nominations_of_less_important_pods_are_cleared(cluster: ScenarioCluster) -> None:
    """A preemptor clears the nominations of less important pods to its node."""
    cluster.node("only", 6)
    cluster.pod("victim", "4", on="only", priority="low")
    cluster.pod("neighbour", "2", on="only", priority="middle")
    cluster.settle()
    cluster.place("first", "3", priority="middle")
    cluster.leaving("victim")
    cluster.note("the first one is nominated")
    cluster.place("second", "6", priority="top")
    cluster.leaving("neighbour")
    cluster.settle()
    cluster.note("the second one is nominated")
    cluster.end("victim")
    cluster.settle()
    cluster.note("one of two is gone")
    cluster.end("neighbour")
    cluster.bound(second="only")
    cluster.settle()


def a_victim_that_waits_for_its_volume_stays(cluster: ScenarioCluster) -> None:
    """Nobody makes the volume: the victim is kept from being bound, and tried again itself."""
    cluster.node("only", 4)
    storage_class(cluster, "never-made")
    cluster.claim("never", "never-made")
    cluster.settle()
    cluster.pod("victim", "4", claims=("never",), priority="low")
    cluster.settle()
    cluster.place("high", "4", priority="high")
    cluster.bound(high="only")
    cluster.refused("victim", "0/1 nodes are available")
    cluster.note("the victim waits again")


SCENARIOS = (
    the_least_important_victims_leave,
    only_as_many_leave_as_needed,
    disruption_budgets_are_spared,
    rules_between_pods_need_victims_too,
    a_nominated_pod_keeps_its_place,
    nominations_of_less_important_pods_are_cleared,
    a_victim_that_waits_for_its_volume_stays,
)
