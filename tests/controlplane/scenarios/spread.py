"""PodTopologySpread: hard and soft constraints with all fields, and default constraints."""

from __future__ import annotations

from typing import Any

from envtest.scenario_cluster import HOST, ZONE, ScenarioCluster

Json = dict[str, Any]

WEB = {"app": "web"}
SERVICES = "/api/v1/namespaces/default/services"
REPLICA_SETS = "/apis/apps/v1/namespaces/default/replicasets"
TAINTS = [{"key": "full", "effect": "NoSchedule"}]


def spread(skew: int = 1, key: str = ZONE, *, hard: bool = True, **more: Any) -> Json:
    return {
        "maxSkew": skew,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule" if hard else "ScheduleAnyway",
        "labelSelector": {"matchLabels": WEB},
        **more,
    }


def web(*constraints: Json, **more: Any) -> Json:
    return {"labels": WEB, "topologySpreadConstraints": list(constraints), **more}


def hard_constraints_bound_the_skew(cluster: ScenarioCluster) -> None:
    """By zone, then by host too; a full zone makes pods unschedulable, until one is deleted."""
    cluster.node("a-1", 30, "a")
    cluster.node("a-2", 15, "a")
    cluster.node("b-1", 12, "b")
    cluster.node("c-1", 3, "c")
    cluster.pod("old", on="a-2", labels=WEB)
    cluster.settle()
    for number in range(5):
        cluster.place(f"zone-{number}", **web(spread()))
    cluster.place("both", **web(spread(), spread(2, HOST)))
    cluster.place("wide", "2", **web(spread()))
    cluster.place("wider", "2", **web(spread()))
    cluster.place("widest", "2", **web(spread()))
    cluster.note("the small zone is full")
    cluster.end("zone-1")
    cluster.bound(wider="c-1")
    cluster.place("no-zone", **web(spread(key="rack")))
    cluster.refused("no-zone", "(missing required label)")


def domains_are_those_that_count(cluster: ScenarioCluster) -> None:
    """minDomains, the inclusion policies and matchLabelKeys, on the same nodes."""
    cluster.node("a-1", 36, "a", labels={"pool": "x"})
    cluster.node("b-1", 20, "b", labels={"pool": "x"})
    cluster.node("c-1", 25, "c", taints=TAINTS, labels={"pool": "x"})
    cluster.node("d-1", 10, "d", labels={"pool": "y"})
    cluster.settle()
    pool = {"nodeSelector": {"pool": "x"}}
    cluster.place("first", **web(spread(minDomains=5)))
    cluster.place("second", **web(spread(minDomains=5)))
    cluster.place("third", **web(spread(minDomains=5)))
    cluster.place("fourth", **web(spread(minDomains=5)))
    cluster.place("pool-1", **web(spread(), **pool))
    cluster.place("pool-2", **web(spread(nodeAffinityPolicy="Ignore"), **pool))
    cluster.place("taints", **web(spread(nodeTaintsPolicy="Honor")))
    cluster.place("taints-count", **web(spread()))
    for number, version in enumerate(("1", "1", "2", "2", "1")):
        constraint = spread(matchLabelKeys=["version"], nodeTaintsPolicy="Honor")
        one = web(constraint)
        one["labels"] = WEB | {"version": version}
        cluster.place(f"version-{number}", **one)
    cluster.note("one zone is tainted")
    cluster.change_node("c-1", {"spec": {"taints": None}})
    cluster.settle()
    cluster.place("last", **web(spread(2)))


def soft_constraints_weigh(cluster: ScenarioCluster) -> None:
    """Domains with more pods score lower; free capacity can outweigh that."""
    cluster.node("a-1", 40, "a")
    cluster.node("a-2", 22, "a")
    cluster.node("b-1", 16, "b")
    cluster.node("b-2", 13, "b")
    cluster.node("c-1", 8, "c")
    for number, node in enumerate(("a-1", "a-2", "a-2", "b-1")):
        cluster.pod(f"old-{number}", on=node, labels=WEB)
    cluster.settle()
    soft, hosts = spread(hard=False), spread(hard=False, key=HOST)
    for number in range(3):
        cluster.place(f"zone-{number}", **web(soft))
    for number in range(3):
        cluster.place(f"host-{number}", **web(hosts))
    for number in range(3):
        cluster.place(f"both-{number}", **web(soft, spread(3, HOST, hard=False)))
    cluster.place("hard-and-soft", **web(spread(2), hosts))
    cluster.place("unlabelled", topologySpreadConstraints=[soft])


def services_bring_default_constraints(cluster: ScenarioCluster) -> None:
    """Pods without constraints are spread if a Service or a ReplicaSet selects them."""
    cluster.node("a-1", 40, "a")
    cluster.node("a-2", 30, "a")
    cluster.node("b-1", 21, "b")
    for number in range(4):
        cluster.pod(f"old-{number}", "100m", on="a-1", labels=WEB)
    for number in range(2):
        cluster.pod(f"job-{number}", "100m", on="a-1", labels={"app": "set"})
    ports = [{"port": 80}]
    service = {"selector": WEB, "ports": ports, "clusterIP": "None"}
    cluster.add(SERVICES, {"metadata": {"name": "web"}, "spec": service})
    template = {
        "metadata": {"labels": {"app": "set"}},
        "spec": {"containers": [{"name": "main", "image": "pause"}]},
    }
    replica_set = {"replicas": 0, "selector": {"matchLabels": {"app": "set"}}, "template": template}
    cluster.add(REPLICA_SETS, {"metadata": {"name": "set"}, "spec": replica_set})
    cluster.settle()
    cluster.place("alone", labels={"app": "alone"})
    for number in range(3):
        cluster.place(f"web-{number}", labels=WEB)
    cluster.place("own", **web(spread(5, HOST, hard=False)))
    cluster.bound(alone="a-2")
    cluster.bound(**{"web-0": "b-1"})


SCENARIOS = (
    hard_constraints_bound_the_skew,
    domains_are_those_that_count,
    soft_constraints_weigh,
    services_bring_default_constraints,
)
