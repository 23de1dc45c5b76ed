"""PodGroups and groups of them, whose pods come, go and change in any order."""

from __future__ import annotations

from conformance.oracle.grammar.draw import Draw, JsonObject
from conformance.oracle.grammar.objects import HOSTNAME, ZONE, thing
from conformance.wakeups import core
from conformance.wakeups.world import Kind

_GROUPS = ("g0", "g1")


def _gang(draw: Draw) -> JsonObject:
    return {"gang": {"minCount": draw.choice((1, 2, 3))}}


def _group(draw: Draw, name: str) -> JsonObject:
    policy = _gang(draw) if draw.chance(0.8) else {"basic": {}}
    spec: JsonObject = {"schedulingPolicy": policy, "priority": draw.choice((0, 0, 10))}
    if draw.chance(0.3):
        key = draw.choice((ZONE, HOSTNAME))
        spec["schedulingConstraints"] = {"topology": [{"key": key}]}
    made = thing("PodGroup", name, "scheduling.k8s.io/v1beta1", namespace="default", spec=spec)
    made["metadata"] |= {"uid": f"{name}-{draw.randrange(10**9)}", "generation": 1}
    return made


def _tree(draw: Draw, name: str) -> JsonObject:
    """Return a group, often with a parent."""
    made = _group(draw, name)
    if draw.chance(0.7):
        made["spec"]["parentCompositePodGroupName"] = "t0"
    return made


def _root(draw: Draw, name: str) -> JsonObject:
    gang = {"gang": {"minGroupCount": draw.choice((1, 2))}}
    spec = {"schedulingPolicy": draw.choice((gang, {"basic": {}})), "priority": 0}
    version = "scheduling.k8s.io/v1alpha3"
    made = thing("CompositePodGroup", name, version, namespace="default", spec=spec)
    made["metadata"] |= {"uid": f"{name}-{draw.randrange(10**9)}", "generation": 1}
    return made


def _member(draw: Draw, pod: JsonObject) -> None:
    pod["metadata"]["namespace"] = "default"
    pod["spec"]["schedulingGroup"] = {"podGroupName": draw.choice(_GROUPS)}


def _cpu(draw: Draw, pod: JsonObject) -> None:
    amounts = {"cpu": draw.choice(("1", "2"))}
    pod["spec"]["containers"][0]["resources"] = {"requests": amounts}


def _always_a_member(draw: Draw, pod: JsonObject) -> None:
    _member(draw, pod)
    if draw.chance(0.4):
        _cpu(draw, pod)


_CHANGES = (lambda draw, name: {"spec": {"schedulingPolicy": _gang(draw)}},)
_WISHES = (_always_a_member,) * 3 + (core.WISHES[2], core.WISHES[5], _member, _cpu)

GROUPS = [
    core.NODE,
    Kind(_GROUPS, _group, _CHANGES, often=2),
    *core.pod_kinds(_WISHES),
]
TREES = [
    core.NODE,
    Kind(_GROUPS, _tree, _CHANGES, often=2),
    Kind(("t0",), _root, often=1),
    *core.pod_kinds(_WISHES),
]
