"""Configurations with all there is, and something wrong with them: accepted, or refused?"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from conformance.oracle.grammar import objects
from conformance.oracle.grammar.draw import Draw, JsonObject

_PROCESS: JsonObject = {
    "parallelism": 8,
    "percentageOfNodesToScore": 50,
    "podInitialBackoffSeconds": 2,
    "podMaxBackoffSeconds": 20,
    "enableProfiling": True,
    "enableContentionProfiling": False,
    "delayCacheUntilActive": True,
    "clientConnection": {"qps": 10, "burst": 20, "kubeconfig": "x", "contentType": "a/b"},
    "leaderElection": {
        "leaderElect": True,
        "leaseDuration": "15s",
        "renewDeadline": "10s",
        "retryPeriod": "2s",
        "resourceLock": "leases",
        "resourceName": "x",
        "resourceNamespace": "y",
    },
}
_EXTENDER: JsonObject = {
    "urlPrefix": "http://x",
    "filterVerb": "filter",
    "prioritizeVerb": "prioritize",
    "weight": 1,
    "enableHTTPS": True,
    "httpTimeout": "1s",
    "nodeCacheCapable": True,
    "ignorable": True,
    "managedResources": [{"name": "example.com/foo", "ignoredByScheduler": True}],
    "tlsConfig": {"insecure": True, "serverName": "s"},
}
_SPREAD = {"maxSkew": 1, "topologyKey": objects.ZONE, "whenUnsatisfiable": "ScheduleAnyway"}
_TERM = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
_ARGS: dict[str, JsonObject] = {
    "DefaultPreemption": {"minCandidateNodesPercentage": 10, "minCandidateNodesAbsolute": 100},
    "InterPodAffinity": {
        "hardPodAffinityWeight": 5,
        "ignorePreferredTermsOfExistingPods": True,
    },
    "NodeAffinity": {
        "addedAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_TERM]},
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": _TERM}],
        }
    },
    "NodeResourcesFit": {
        "ignoredResources": ["example.com/foo"],
        "ignoredResourceGroups": ["example.com"],
        "scoringStrategy": {
            "type": "RequestedToCapacityRatio",
            "resources": [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 3}],
            "requestedToCapacityRatio": {
                "shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]
            },
        },
    },
    "NodeResourcesBalancedAllocation": {"resources": [{"name": "cpu", "weight": 1}]},
    "PodTopologySpread": {"defaultConstraints": [_SPREAD], "defaultingType": "List"},
    "VolumeBinding": {"bindTimeoutSeconds": 30},
    "DynamicResources": {"filterTimeout": "1s", "bindingTimeout": "10s"},
}
_PLUGINS: JsonObject = {
    "queueSort": {"enabled": [{"name": "PrioritySort"}]},
    "preEnqueue": {"enabled": [{"name": "SchedulingGates"}]},
    "score": {
        "enabled": [{"name": "NodeResourcesFit", "weight": 3}],
        "disabled": [{"name": "ImageLocality"}],
    },
    "filter": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeName"}]},
    "postFilter": {"disabled": [{"name": "DefaultPreemption"}]},
    "bind": {"enabled": [{"name": "DefaultBinder"}]},
    "multiPoint": {
        "enabled": [{"name": "NodeAffinity", "weight": 9}],
        "disabled": [{"name": "TaintToleration"}],
    },
}
_WRONG: tuple[Any, ...] = (
    None, 0, 1, -1, 2, 11, 100, 101, 1.5, 2**31 - 1, 2**31, 2**63,
    "", "x", "*", "1", "1s", "-1s", "1h2m", "Honor", "a b", "example.com/x", "kubernetes.io/x",
    True, False, [], {}, ["x"], [{}], {"x": 1}, [{"name": "x"}], [{"name": "NodeName"}],
)  # fmt: skip


def flawed(draw: Draw) -> JsonObject:
    """Return a case that has a configuration with some flaws, or none that matter."""
    config: JsonObject = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [_profile(draw, name) for name in draw.choice((("a",), ("a", "b")))],
        **draw.fields(0.3, **_PROCESS),
        **draw.fields(0.2, extenders=[_EXTENDER]),
    }
    config = copy.deepcopy(config)
    for _ in range(draw.choice((0, 1, 1, 1, 2))):
        _spoil(draw, config)
    cluster = [*objects.namespaces(draw), objects.node(draw, "n0"), objects.node(draw, "n1")]
    pod = objects.pending(draw, **objects.containers(draw))
    return {"config": config, "objects": cluster, "pod": pod}


def _profile(draw: Draw, name: str) -> JsonObject:
    args = [{"name": plugin, "args": _ARGS[plugin]} for plugin in draw.sample([*_ARGS], 3)]
    profile: JsonObject = {"schedulerName": name, "pluginConfig": args}
    if draw.chance(0.5):
        profile["plugins"] = draw.fields(0.3, **_PLUGINS)
    return profile | draw.fields(0.2, percentageOfNodesToScore=draw.choice((0, 50, 100, 101)))


def _spoil(draw: Draw, config: JsonObject) -> None:
    """Change, add, repeat or leave out something."""
    holder, key = draw.choice(list(_places(config)))
    kind = draw.weighted({"other": 5, "gone": 2, "unknown": 1, "twice": 2})
    if kind == "gone":
        del holder[key]
    elif kind == "unknown" and isinstance(holder[key], dict):
        holder[key][draw.choice(("x", "name", "weight", "Name"))] = draw.choice(_WRONG)
    elif kind == "twice" and isinstance(holder, list):
        holder.append(copy.deepcopy(holder[key]))
    else:
        holder[key] = draw.choice(_WRONG)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield holder and key of everything in a value."""
    for key, part in value.items() if isinstance(value, dict) else enumerate(value):
        yield value, key
        if isinstance(part, dict | list):
            yield from _places(part)
