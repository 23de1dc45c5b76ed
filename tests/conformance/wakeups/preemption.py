"""Full nodes, priorities and budgets; resizes in place, also such as wait for room."""

from __future__ import annotations

from conformance.oracle.grammar.draw import Draw, JsonObject
from conformance.oracle.grammar.objects import thing
from conformance.wakeups import core
from conformance.wakeups.world import Kind


def _amounts(draw: Draw) -> JsonObject:
    return {"requests": {"cpu": draw.choice(("1", "2"))}}


def _cpu(draw: Draw, pod: JsonObject) -> None:
    pod["spec"]["containers"][0]["resources"] = _amounts(draw)


def important(draw: Draw, pod: JsonObject) -> None:
    """Have a pod preempt others, mostly."""
    _cpu(draw, pod)
    pod["spec"] |= {"priority": draw.choice((10, 100))}
    if draw.chance(0.2):
        pod["spec"]["preemptionPolicy"] = "Never"


def _nominated(draw: Draw, pod: JsonObject) -> None:
    pod["status"]["nominatedNodeName"] = draw.choice((*core.NODES, "gone"))


def _budget(draw: Draw, name: str) -> JsonObject:
    selector = {"matchLabels": {"app": "web"}}
    made = thing("PodDisruptionBudget", name, "policy/v1", namespace="default")
    made["spec"] = {"selector": selector}
    return {**made, **_allowed(draw, name)}


def _allowed(draw: Draw, name: str) -> JsonObject:
    return {"status": {"disruptionsAllowed": draw.choice((0, 1))}}


BUDGET = Kind(("b0",), _budget, (_allowed,))


def _resize(draw: Draw, name: str) -> JsonObject:
    """Return a resize that the kubelet is yet to see, or defers."""
    deferred = {"type": "PodResizePending", "status": "True", "reason": "Deferred"}
    containers = [{"name": "c", "image": "pause", "resources": _amounts(draw)}]
    return {
        "spec": {"containers": containers},
        "status": {"conditions": draw.choice(([], [deferred], [deferred]))},
    }


def _resized(draw: Draw, name: str) -> JsonObject:
    """Return what the kubelet says once it has made room, or less of it."""
    amounts = _amounts(draw)
    given = {"name": "c", "allocatedResources": amounts["requests"], "resources": amounts}
    return {"status": {"containerStatuses": [given], "conditions": []}}


def _clear_nomination(draw: Draw, name: str) -> JsonObject:
    return {"status": {"nominatedNodeName": None}}


def _policy(draw: Draw, name: str) -> JsonObject:
    return {"spec": {"podPreemptionPolicy": {"disableResizePreemption": draw.choice(([], ["x"]))}}}


_WISHES = (_cpu, _cpu, important, important, _nominated, core.WISHES[2], core.WISHES[6])
_WAITING = (*core.POD_CHANGES, _clear_nomination)
_RUNNING = (*core.POD_CHANGES, _resize, _resize, _resized, _resized)

PREEMPTION = [
    Kind(core.NODES, core.node, (*core.NODE.changes, _policy), often=2),
    BUDGET,
    *core.pod_kinds(_WISHES, _WAITING, _RUNNING),
]
