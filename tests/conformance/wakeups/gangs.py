"""Groups of add-ons: PodGroups of scheduler-plugins and Volcano, gangs of Koordinator.

Nobody else binds the members of a gang: pods that others have bound are of none.
"""

from __future__ import annotations

from collections.abc import Mapping

from conformance.oracle.grammar.draw import Draw, JsonObject
from conformance.oracle.grammar.objects import thing
from conformance.wakeups.addons import annotate, cpu, world_of
from conformance.wakeups.preemption import BUDGET, important
from conformance.wakeups.world import Kind

_NAMES = ("g0", "g1")
_PLAN: Mapping[str, str] = {"mode": "plan"}
_PLANNED = {"Coscheduling": _PLAN}

# ---- PodGroups of scheduler-plugins --------------------------------------------------------------


def _minimum(draw: Draw, name: str) -> JsonObject:
    return {"spec": {"minMember": draw.choice((1, 2, 3))}}


def _pod_group(draw: Draw, name: str) -> JsonObject:
    version = "scheduling.x-k8s.io/v1alpha1"
    return {**thing("PodGroup", name, version, namespace="default"), **_minimum(draw, name)}


def _in_gang(draw: Draw, pod: JsonObject) -> None:
    pod["metadata"]["namespace"] = "default"
    pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = draw.choice(_NAMES)
    if draw.chance(0.5):
        cpu(draw, pod)


_GROUPS = Kind(_NAMES, _pod_group, (_minimum,), often=2)
_IN_GANG = (_in_gang,) * 3
PLANNED_GANGS = world_of("Coscheduling", [_GROUPS], _IN_GANG, _PLAN, (cpu,))

# ---- PodGroups of Volcano ------------------------------------------------------------------------

_TASKS = ("ps", "worker")


def _needs(draw: Draw, name: str) -> JsonObject:
    spec: JsonObject = {"minMember": draw.choice((1, 2, 3))}
    spec["minResources"] = draw.choice((None, None, {"cpu": "3"}))
    spec["minTaskMember"] = draw.choice((None, {"ps": 1}, {"ps": 1, "worker": 2}))
    return {"spec": spec}


def _volcano_group(draw: Draw, name: str) -> JsonObject:
    made = thing("PodGroup", name, "scheduling.volcano.sh/v1beta1", namespace="default")
    spec = {key: value for key, value in _needs(draw, name)["spec"].items() if value}
    return {**made, "spec": spec}


def _in_volcano_group(draw: Draw, pod: JsonObject) -> None:
    pod["metadata"]["namespace"] = "default"
    annotate(pod, **{"scheduling.k8s.io/group-name": draw.choice(_NAMES)})
    if draw.chance(0.6):
        annotate(pod, **{"volcano.sh/task-spec": draw.choice(_TASKS)})
    if draw.chance(0.5):
        cpu(draw, pod)


_VOLCANO_GROUPS = Kind(_NAMES, _volcano_group, (_needs,), often=2)
_IN_VOLCANO_GROUP = (_in_volcano_group,) * 3
VOLCANO = world_of("Coscheduling", [_VOLCANO_GROUPS], _IN_VOLCANO_GROUP, _PLAN, (cpu,))
HELD_VOLCANO = world_of("Coscheduling", [_VOLCANO_GROUPS], _IN_VOLCANO_GROUP, {}, (cpu,))

# ---- gangs of Koordinator ------------------------------------------------------------------------

_KOORDINATOR = "gang.scheduling.koordinator.sh"
_GANGS: Mapping[str, JsonObject] = {
    "once": {"min-available": "2"},
    "running": {"min-available": "2", "total-number": "3", "match-policy": "waiting-and-running"},
    "waiting": {"min-available": "2", "match-policy": "only-waiting"},
    "loose": {"min-available": "2", "mode": "NonStrict"},
    "pair0": {"min-available": "1", "groups": '["default/pair0", "default/pair1"]'},
    "pair1": {"min-available": "2", "groups": '["default/pair0", "default/pair1"]'},
}
"""By name, what all pods of a gang say."""


def _in_koordinator_gang(draw: Draw, pod: JsonObject) -> None:
    name = draw.choice(("once", "running", "waiting", "loose", "pair0", "pair1", "pair1"))
    said = {"name": name, **_GANGS[name]}
    annotations = {f"{_KOORDINATOR}/{key}": value for key, value in said.items()}
    pod["metadata"] |= {"namespace": "default", "annotations": annotations}
    if draw.chance(0.4):
        cpu(draw, pod)


_IN_KOORDINATOR_GANG = (_in_koordinator_gang,) * 3
KOORDINATOR = world_of(
    "Coscheduling", [Kind(("once",), _pod_group, (_minimum,))], _IN_KOORDINATOR_GANG, _PLAN, (cpu,)
)
HELD_KOORDINATOR = world_of("Coscheduling", [], _IN_KOORDINATOR_GANG, {}, (cpu,))

# ---- GangPreemption ------------------------------------------------------------------------------


def _important_in_gang(draw: Draw, pod: JsonObject) -> None:
    _in_gang(draw, pod)
    important(draw, pod)


GANG_PREEMPTION = world_of(
    "GangPreemption",
    [_GROUPS, BUDGET],
    (_in_gang, _in_gang, _important_in_gang, important),
    wishes_on_nodes=(cpu, important),
    beside=_PLANNED,
)
