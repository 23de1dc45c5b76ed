"""Names of plugins, fields and flags that kube-scheduler had, or that other schedulers have.

A configuration that uses one is refused with the name that took its place. docs/words.md lists all
of them, and the words of the field that have another name here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from proreus.base.similar_names import similar

PAGE = "docs/words.md"

_FIT = "NodeResourcesFit with args scoringStrategy.type: "
_LEAVE_OUT = "leave it out"


def _write(successor: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, f"write {successor}")


PLUGINS = {
    # of kube-scheduler before configuration v1
    **_write(f"{_FIT}LeastAllocated", "NodeResourcesLeastAllocated", "LeastRequestedPriority"),
    **_write(f"{_FIT}MostAllocated", "NodeResourcesMostAllocated", "MostRequestedPriority"),
    **_write(
        f"{_FIT}RequestedToCapacityRatio",
        *("RequestedToCapacityRatio", "RequestedToCapacityRatioPriority"),
    ),
    **_write("NodeResourcesBalancedAllocation", "BalancedResourceAllocation"),
    **_write("NodeResourcesFit", "PodFitsResources", "NodeResourceLimits"),
    **_write("NodeResourcesFit, NodeName, NodePorts and NodeAffinity", "GeneralPredicates"),
    **_write("NodePorts", "PodFitsHostPorts", "PodFitsPorts"),
    **_write("NodeName", "HostName"),
    **_write("NodeUnschedulable", "CheckNodeUnschedulable"),
    **_write("TaintToleration", "PodToleratesNodeTaints", "TaintTolerationPriority"),
    **_write(
        "NodeAffinity",
        *("NodeLabel", "NodePreferAvoidPods", "MatchNodeSelector", "NodeAffinityPriority"),
        *("CheckNodeLabelPresence", "NodePreferAvoidPodsPriority"),
    ),
    **_write(
        "PodTopologySpread",
        *("SelectorSpread", "SelectorSpreadPriority", "ServiceSpreadingPriority"),
        *("DefaultPodTopologySpread", "EvenPodsSpread", "EvenPodsSpreadPriority"),
    ),
    **_write(
        "InterPodAffinity",
        *("ServiceAffinity", "CheckServiceAffinity"),
        *("MatchInterPodAffinity", "InterPodAffinityPriority"),
    ),
    **_write("ImageLocality", "ImageLocalityPriority"),
    **_write("VolumeBinding", "CheckVolumeBinding"),
    **_write("VolumeRestrictions", "NoDiskConflict"),
    **_write("VolumeZone", "NoVolumeZoneConflict"),
    **_write(
        "NodeVolumeLimits",
        *("AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"),
        *("MaxAzureDiskVolumeCount", "MaxCinderVolumeCount", "MaxCSIVolumeCountPred"),
        *("MaxEBSVolumeCount", "MaxGCEPDVolumeCount"),
    ),
    "EqualPriority": _LEAVE_OUT,
    # of Koordinator and scheduler-plugins
    **_write("NodeResourceTopologyMatch", "NodeNUMAResource"),
    **_write("CapacityScheduling", "ElasticQuota"),
    **_write("NodeResourcesFit", "NodeResourcesFitPlus"),
    **_write("DeviceShare", "ScarceResourceAvoidance"),
    **_write("DefaultPreemption", "CompatibleDefaultPreemption", "CrossNodePreemption"),
    "SchedulingHint": _LEAVE_OUT,
}
"""Names of plugins, with what to do instead."""

FIELDS = {
    # of a profile's plugins
    **_write("preFilter, whose plugins bring add_pod and remove_pod", "preFilterExtensions"),
    **_write("score, whose plugins bring normalize", "normalizeScore", "scoreExtensions"),
    **_write("reserve, whose plugins bring unreserve", "unreserve"),
    **_write("filter", "predicates"),
    **_write("score", "priorities"),
    # of the whole file
    **_write("profiles[].schedulerName", "schedulerName"),
    **_write("profiles[].plugins", "algorithmSource", "plugins", "policy"),
    **_write("profiles[].pluginConfig", "pluginConfig"),
    **_write(
        "hardPodAffinityWeight in the args of InterPodAffinity", "hardPodAffinitySymmetricWeight"
    ),
    **_write("disabled: [{name: DefaultPreemption}] at postFilter", "disablePreemption"),
    **_write("bindTimeoutSeconds in the args of VolumeBinding", "bindTimeoutSeconds"),
    **_write(
        "the flags --bind-address and --secure-port", "healthzBindAddress", "metricsBindAddress"
    ),
}
"""Fields of the configuration, by the last part of their path, with what to do instead."""

FLAGS = {
    **_write("profiles[].schedulerName in the file of --config", "scheduler-name"),
    **_write(
        "profiles[].plugins in the file of --config",
        *("algorithm-provider", "policy-config-file", "policy-configmap"),
        *("policy-configmap-namespace", "use-legacy-policy-config"),
    ),
    **_write(
        "hardPodAffinityWeight in the args of InterPodAffinity",
        "hard-pod-affinity-symmetric-weight",
    ),
    **_write("--bind-address", "address"),
    **_write("--secure-port", "port"),
    **_write("--leader-elect-resource-name", "lock-object-name"),
    **_write("--leader-elect-resource-namespace", "lock-object-namespace"),
}
"""Flags without their dashes, with what to do instead."""


def remedy_for_field(path: str, known: Collection[str]) -> str:
    """Return a clause about an unknown field that has a former or a misspelt name; "" for none.

    ``path``: such as ``profiles[0].plugins.normalizeScore``; ``known``: the fields beside it, also
    those of newer versions.
    """
    name = path.rpartition(".")[2]
    if instead := FIELDS.get(name):
        return f"instead of {path} {instead} ({PAGE})"
    meant = "" if name in known else similar(name, known)
    return f"instead of {path} write {meant}" if meant else ""


def similar_plugin(name: str, known: Iterable[str]) -> str:
    """Return the plugin that a misspelt name is close to; "" for none, and for a former plugin.

    The successor of a former plugin may have another name.
    """
    return "" if name in PLUGINS else similar(name, known)


def remedy_for_another_file(fields: Mapping[str, Any]) -> str:
    """Return a clause about the configuration of another scheduler; "" if it is none."""
    if "tiers" in fields:
        return f"this is a configuration of Volcano; {PAGE} has what its plugins are called here"
    if "partitions" in fields:
        return f"this is a configuration of YuniKorn; {PAGE} has what its queues are called here"
    return ""
