"""PodTopologySpread: hard and soft, with all its knobs, and the defaults that Services bring."""

from __future__ import annotations

from typing import Any

from testground.stage import HOST, ZONE, Stage

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


def hard_constraints_bound_the_skew(stage: Stage) -> None:
    """Zones first, then hosts too; a full zone ends it, and a deletion elsewhere helps."""
    stage.node("a-1", 30, "a")
    stage.node("a-2", 15, "a")
    stage.node("b-1", 12, "b")
    stage.node("c-1", 3, "c")
    stage.pod("old", on="a-2", labels=WEB)
    stage.settle()
    for number in range(5):
        stage.place(f"zone-{number}", **web(spread()))
    stage.place("both", **web(spread(), spread(2, HOST)))
    stage.place("wide", "2", **web(spread()))
    stage.place("wider", "2", **web(spread()))
    stage.place("widest", "2", **web(spread()))
    stage.note("the small zone is full")
    stage.end("zone-1")
    stage.bound(wider="c-1")
    stage.place("no-zone", **web(spread(key="rack")))
    stage.refused("no-zone", "(missing required label)")


def domains_are_those_that_count(stage: Stage) -> None:
    """What minDomains, the inclusion policies and matchLabelKeys make of the same nodes."""
    stage.node("a-1", 36, "a", labels={"pool": "x"})
    stage.node("b-1", 20, "b", labels={"pool": "x"})
    stage.node("c-1", 25, "c", taints=TAINTS, labels={"pool": "x"})
    stage.node("d-1", 10, "d", labels={"pool": "y"})
    stage.settle()
    pool = {"nodeSelector": {"pool": "x"}}
    stage.place("first", **web(spread(minDomains=5)))
    stage.place("second", **web(spread(minDomains=5)))
    stage.place("third", **web(spread(minDomains=5)))
    stage.place("fourth", **web(spread(minDomains=5)))
    stage.place("pool-1", **web(spread(), **pool))
    stage.place("pool-2", **web(spread(nodeAffinityPolicy="Ignore"), **pool))
    stage.place("taints", **web(spread(nodeTaintsPolicy="Honor")))
    stage.place("taints-count", **web(spread()))
    for number, version in enumerate(("1", "1", "2", "2", "1")):
        constraint = spread(matchLabelKeys=["version"], nodeTaintsPolicy="Honor")
        one = web(constraint)
        one["labels"] = WEB | {"version": version}
        stage.place(f"version-{number}", **one)
    stage.note("one zone is tainted")
    stage.change_node("c-1", {"spec": {"taints": None}})
    stage.settle()
    stage.place("last", **web(spread(2)))


def soft_constraints_weigh(stage: Stage) -> None:
    """The more pods a domain has, the less it is liked; room can win against it."""
    stage.node("a-1", 40, "a")
    stage.node("a-2", 22, "a")
    stage.node("b-1", 16, "b")
    stage.node("b-2", 13, "b")
    stage.node("c-1", 8, "c")
    for number, node in enumerate(("a-1", "a-2", "a-2", "b-1")):
        stage.pod(f"old-{number}", on=node, labels=WEB)
    stage.settle()
    soft, hosts = spread(hard=False), spread(hard=False, key=HOST)
    for number in range(3):
        stage.place(f"zone-{number}", **web(soft))
    for number in range(3):
        stage.place(f"host-{number}", **web(hosts))
    for number in range(3):
        stage.place(f"both-{number}", **web(soft, spread(3, HOST, hard=False)))
    stage.place("hard-and-soft", **web(spread(2), hosts))
    stage.place("unlabelled", topologySpreadConstraints=[soft])


def services_bring_default_constraints(stage: Stage) -> None:
    """Pods without constraints are spread when a Service or a ReplicaSet owns them."""
    stage.node("a-1", 40, "a")
    stage.node("a-2", 30, "a")
    stage.node("b-1", 21, "b")
    for number in range(4):
        stage.pod(f"old-{number}", "100m", on="a-1", labels=WEB)
    for number in range(2):
        stage.pod(f"job-{number}", "100m", on="a-1", labels={"app": "set"})
    ports = [{"port": 80}]
    service = {"selector": WEB, "ports": ports, "clusterIP": "None"}
    stage.add(SERVICES, {"metadata": {"name": "web"}, "spec": service})
    template = {
        "metadata": {"labels": {"app": "set"}},
        "spec": {"containers": [{"name": "main", "image": "pause"}]},
    }
    replica_set = {"replicas": 0, "selector": {"matchLabels": {"app": "set"}}, "template": template}
    stage.add(REPLICA_SETS, {"metadata": {"name": "set"}, "spec": replica_set})
    stage.settle()
    stage.place("alone", labels={"app": "alone"})
    for number in range(3):
        stage.place(f"web-{number}", labels=WEB)
    stage.place("own", **web(spread(5, HOST, hard=False)))
    stage.bound(alone="a-2")
    stage.bound(**{"web-0": "b-1"})


SCENARIOS = (
    hard_constraints_bound_the_skew,
    domains_are_those_that_count,
    soft_constraints_weigh,
    services_bring_default_constraints,
)
