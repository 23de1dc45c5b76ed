"""Groups of add-ons: PodGroups of scheduler-plugins and Volcano, gangs of Koordinator, HyperNodes.

Nobody else binds the members of a gang: pods that others have bound are of none.
"""

from __future__ import annotations

from collections.abc import Mapping

from conformance.oracle.grammar.draw import Draw, JsonObject
from conformance.oracle.grammar.objects import HOSTNAME, ZONE, thing
from conformance.wakeups import core
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

# ---- GroupTopology -------------------------------------------------------------------------------


def _members(draw: Draw, name: str) -> JsonObject:
    """Return the members of the leaf ``h0`` or ``h1``, or of the HyperNode above."""
    if name == "top":
        leaves = draw.sample(("h0", "h1"), draw.choice((1, 2)))
        named = [{"exactMatch": {"name": leaf}} for leaf in leaves]
        members = [{"type": "HyperNode", "selector": one} for one in named]
        return {"spec": {"tier": 2, "tierName": "spine", "members": members}}
    selector = draw.choice(
        (
            {"exactMatch": {"name": draw.choice(core.NODES)}},
            {"regexMatch": {"pattern": draw.choice(("n[01]", "n[12]"))}},
            {"labelMatch": {"matchLabels": {ZONE: draw.choice(("z0", "z1"))}}},
        )
    )
    return {"spec": {"tier": 1, "members": [{"type": "Node", "selector": selector}]}}


def _hyper_node(draw: Draw, name: str) -> JsonObject:
    return {**thing("HyperNode", name, "topology.volcano.sh/v1alpha1"), **_members(draw, name)}


def _topology(draw: Draw, name: str) -> JsonObject:
    tier = draw.choice(({"highestTierAllowed": 1}, {"highestTierName": "spine"}, {}))
    topology = draw.choice((None, {"mode": draw.choice(("hard", "hard", "soft")), **tier}))
    return {"spec": {**_minimum(draw, name)["spec"], "networkTopology": topology}}


def _placed_group(draw: Draw, name: str) -> JsonObject:
    version = "scheduling.volcano.sh/v1beta1"
    return {**thing("PodGroup", name, version, namespace="default"), **_topology(draw, name)}


def _in_hyper_node(draw: Draw, pod: JsonObject) -> None:
    pod["metadata"]["namespace"] = "default"
    annotate(pod, **{"scheduling.k8s.io/group-name": draw.choice(_NAMES)})
    cpu(draw, pod)


def _in_domain(draw: Draw, pod: JsonObject) -> None:
    _in_gang(draw, pod)
    # The pods of a gang agree.
    gang = pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"]
    key, asked = (ZONE, "required") if gang == "g0" else (HOSTNAME, "preferred")
    pod["metadata"]["annotations"] = {f"kueue.x-k8s.io/podset-{asked}-topology": key}


def _in_slices(draw: Draw, pod: JsonObject) -> None:
    # Alike: where the first pod of a slice may go is counted in pods of its own size.
    amounts = {"cpu": "1"}
    pod["spec"]["containers"][0]["resources"] = {"requests": amounts}
    asked = {"podset-slice-required-topology": ZONE, "podset-slice-size": "2"}
    annotations = {f"kueue.x-k8s.io/{key}": value for key, value in asked.items()}
    pod["metadata"] |= {"namespace": "default", "annotations": annotations}
    pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = "sliced"


_LEVELS = {"levels": [ZONE, HOSTNAME]}
DOMAINS = world_of(
    "GroupTopology",
    [Kind((*_NAMES, "sliced"), _pod_group, (_minimum,), often=2)],
    (_in_domain, _in_domain, _in_domain, _in_slices),
    _LEVELS,
    (cpu,),
    _PLANNED,
)
HYPER_NODES = world_of(
    "GroupTopology",
    [
        Kind(("h0", "h1", "top"), _hyper_node, (_members,), often=2),
        Kind(_NAMES, _placed_group, (_topology,), often=2),
    ],
    (_in_hyper_node,) * 3,
    _LEVELS,
    (cpu,),
    _PLANNED,
)
