"""Full clusters: who must go, with budgets, nominated pods and pods that are going already."""

from __future__ import annotations

from conformance.oracle.grammar import objects, placement
from conformance.oracle.grammar.configurations import configuration
from conformance.oracle.grammar.draw import Draw, JsonObject
from conformance.oracle.grammar.objects import thing

_PRIORITIES = (-10, 0, 0, 5, 10, 50, 100, 1000)


def preemption(draw: Draw) -> JsonObject:
    """Return a case whose pod hardly fits without others going."""
    names = [f"n{i}" for i in range(draw.randint(1, 6))]
    everything = objects.namespaces(draw)
    everything += [objects.node(draw, name, small=True) for name in names]
    for n in range(draw.randint(3, 25)):
        everything.append(_victim(draw, f"e{n}", draw.choice(names)))
    everything += [_nominated(draw, n, names) for n in range(draw.choice((0, 0, 1, 2, 3)))]
    everything += [budget(draw, n) for n in range(draw.choice((0, 1, 1, 2, 3)))]
    asked = {"cpu": draw.choice(("1", "2", "3")), "memory": draw.choice(("1Gi", "3Gi"))}
    pod = objects.pending(draw, containers=[{"name": "c", "resources": {"requests": asked}}])
    placement.wish(draw, pod, 0.12)
    pod["spec"]["priority"] = draw.choice((0, 10, 100, 1000, 5000))
    if draw.chance(0.1):
        pod["spec"]["preemptionPolicy"] = draw.choice(("Never", "PreemptLowerPriority"))
    if draw.chance(0.25):
        pod["status"]["nominatedNodeName"] = draw.choice((*names, "gone"))
    config = None
    if draw.chance(0.2):
        args = {
            "minCandidateNodesPercentage": draw.choice((0, 10, 50, 100)),
            "minCandidateNodesAbsolute": draw.choice((1, 2, 100)),
        }
        config = configuration([{"name": "DefaultPreemption", "args": args}])
    return {"config": config, "objects": everything, "pod": pod}


def _victim(draw: Draw, name: str, node_name: str) -> JsonObject:
    asked = {"name": "c", "resources": objects.requests(draw, small=True)}
    one = objects.running(draw, name, node_name, containers=[asked])
    placement.wish(draw, one, 0.1)
    if draw.chance(0.85):
        one["spec"]["priority"] = draw.choice(_PRIORITIES)
    return one


def _nominated(draw: Draw, number: int, names: list[str]) -> JsonObject:
    asked = {"name": "c", "resources": objects.requests(draw, small=True)}
    one = objects.pod(draw, f"nominated{number}", containers=[asked])
    placement.wish(draw, one, 0.12)
    one["spec"]["priority"] = draw.choice((0, 50, 100, 2000))
    one["status"]["nominatedNodeName"] = draw.choice(names)
    if draw.chance(0.1):
        one["spec"]["schedulingGates"] = [{"name": "g"}]
    if draw.chance(0.1):
        one["spec"]["schedulerName"] = "other"
    return one


def budget(draw: Draw, number: int) -> JsonObject:
    """Return a budget for disruptions, its status as a controller would leave it, or would not."""
    some = {"matchLabels": {"app": draw.choice(objects.APPS)}}
    labelled = {"matchExpressions": [{"key": "app", "operator": "Exists"}]}
    status: JsonObject = {"disruptionsAllowed": draw.choice((-1, 0, 0, 1, 2))}
    if draw.chance(0.3):
        status["disruptedPods"] = {f"e{draw.randrange(8)}": objects.LONG_AGO}
    return thing(
        "PodDisruptionBudget",
        f"pdb{number}",
        "policy/v1",
        namespace=draw.choice(("default", "default", "team-a")),
        spec=draw.fields(0.95, selector=draw.choice((some, some, labelled, {}))),
        status=status,
    )
