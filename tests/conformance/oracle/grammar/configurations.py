"""Configurations: plugin args, weights, what is enabled and what is not, several profiles."""

from __future__ import annotations

from conformance.oracle.grammar import objects, placement
from conformance.oracle.grammar.draw import Draw, JsonObject

_RESOURCES = ("cpu", "memory", "ephemeral-storage", "example.com/foo")
_SCORERS = (
    "NodeResourcesFit",
    "NodeResourcesBalancedAllocation",
    "InterPodAffinity",
    "PodTopologySpread",
    "TaintToleration",
    "NodeAffinity",
    "ImageLocality",
)
_FILTERS = (*_SCORERS[:1], *_SCORERS[2:6], "NodeName", "NodePorts", "NodeUnschedulable")


def configuration(args: list[JsonObject], **profile: object) -> JsonObject:
    """Return a configuration of one profile with these plugin args."""
    one = {"schedulerName": "default-scheduler", "pluginConfig": args, **profile}
    return _of_profiles([one])


def _of_profiles(profiles: list[JsonObject]) -> JsonObject:
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": profiles,
    }


def configured(draw: Draw) -> JsonObject:
    """Return a case of placement under a configuration of its own."""
    case = placement.placement(draw)
    profiles = [_profile(draw, "default-scheduler")]
    if draw.chance(0.3):
        profiles.insert(draw.randint(0, 1), _profile(draw, "other"))
        case["pod"]["spec"]["schedulerName"] = draw.choice(("default-scheduler", "other", "third"))
    case["config"] = _of_profiles(profiles)
    if draw.chance(0.2):
        case["config"]["percentageOfNodesToScore"] = draw.choice((0, 5, 50, 100))
    return case


def _profile(draw: Draw, name: str) -> JsonObject:
    args = [
        {"name": plugin, "args": made}
        for plugin, made in {
            "NodeResourcesFit": _fit_args(draw),
            "NodeResourcesBalancedAllocation": {"resources": _resources(draw, (1,))},
            "InterPodAffinity": _inter_pod_args(draw),
            "NodeAffinity": {"addedAffinity": placement.node_affinity(draw)},
            "PodTopologySpread": _spread_args(draw),
        }.items()
        if draw.chance(0.4)
    ]
    profile: JsonObject = {"schedulerName": name, "pluginConfig": args}
    if draw.chance(0.5):
        profile["plugins"] = _plugins(draw)
    return profile


def _resources(draw: Draw, weights: tuple[int, ...] = (1, 2, 3, 100)) -> list[JsonObject]:
    return [
        {"name": name, "weight": draw.choice(weights)} for name in draw.some(_RESOURCES, least=1)
    ]


def _fit_args(draw: Draw) -> JsonObject:
    kind = draw.choice(("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"))
    strategy: JsonObject = {"type": kind, "resources": _resources(draw)}
    if kind == "RequestedToCapacityRatio":
        points = sorted(draw.sample(range(0, 101, 5), draw.randint(1, 4)))
        shape = [{"utilization": at, "score": draw.randint(0, 10)} for at in points]
        strategy["requestedToCapacityRatio"] = {"shape": shape}
    return {
        "scoringStrategy": strategy,
        **draw.fields(
            0.2, ignoredResources=["example.com/foo"], ignoredResourceGroups=["example.com"]
        ),
    }


def _inter_pod_args(draw: Draw) -> JsonObject:
    return draw.fields(
        0.7,
        hardPodAffinityWeight=draw.choice((0, 1, 50, 100)),
        ignorePreferredTermsOfExistingPods=draw.chance(0.5),
    )


def _spread_args(draw: Draw) -> JsonObject:
    if draw.chance(0.3):
        return {"defaultingType": "System"}
    constraints = []
    for (key, action), one in placement.spread_constraints(draw).items():
        plain = {"maxSkew": one["maxSkew"], "topologyKey": key, "whenUnsatisfiable": action}
        constraints.append(plain)
    return {"defaultingType": "List", "defaultConstraints": constraints}


def _plugins(draw: Draw) -> JsonObject:
    """Return what is enabled and disabled; plugins keep their PreFilter where they filter."""
    found: JsonObject = {}
    if draw.chance(0.6):
        found["score"] = {
            "enabled": [
                {"name": name, "weight": draw.choice((1, 2, 5, 100))}
                for name in draw.some(_SCORERS)
            ],
            "disabled": draw.choice(([], [{"name": "*"}], _named(draw.some(_SCORERS)))),
        }
    if draw.chance(0.25):
        found["filter"] = {"disabled": _named(draw.some(_FILTERS))}
    if draw.chance(0.3):
        # TaintToleration fails in Score without PreScore (docs/parity.md)
        off = [name for name in draw.some((*_SCORERS, *_FILTERS)) if name != "TaintToleration"]
        found["multiPoint"] = {
            "enabled": [{"name": name, "weight": 3} for name in draw.some(_SCORERS)],
            "disabled": draw.choice(([], _named([*dict.fromkeys(off)]))),
        }
    if draw.chance(0.1):
        found["postFilter"] = {"disabled": [{"name": "*"}]}
    return found


def _named(names: list[str]) -> list[JsonObject]:
    return [{"name": name} for name in names]


def overfull(draw: Draw) -> JsonObject:
    """Return a case of small, overcommitted nodes under any strategy of scoring."""
    case = configured(draw)
    names = [one["metadata"]["name"] for one in case["objects"] if one["kind"] == "Node"]
    case["objects"] = [
        objects.node(draw, one["metadata"]["name"], small=True) if one["kind"] == "Node" else one
        for one in case["objects"]
    ]
    for n in range(draw.randint(0, 6)):
        case["objects"].append(
            objects.running(draw, f"more{n}", draw.choice(names), **objects.containers(draw))
        )
    return case
