"""Plugins that a configuration names and that do not exist, with what takes their place.

kube-scheduler ends at the first of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from proreus.config.types import ProfileConfiguration

_SUCCESSORS = {
    # of Koordinator
    "NodeNUMAResource": "NodeResourceTopologyMatch",
    "ElasticQuota": "CapacityScheduling",
    "SchedulingHint": "",
    "NodeResourcesFitPlus": "NodeResourcesFit",
    "ScarceResourceAvoidance": "DeviceShare",
    "CompatibleDefaultPreemption": "DefaultPreemption",
    # of kube-scheduler before configuration v1
    "NodeLabel": "NodeAffinity",
    "NodePreferAvoidPods": "NodeAffinity",
    "NodeResourcesLeastAllocated": "NodeResourcesFit",
    "NodeResourcesMostAllocated": "NodeResourcesFit",
    "RequestedToCapacityRatio": "NodeResourcesFit",
    "SelectorSpread": "PodTopologySpread",
    "DefaultPodTopologySpread": "PodTopologySpread",
    "ServiceAffinity": "InterPodAffinity",
    "AzureDiskLimits": "NodeVolumeLimits",
    "CinderLimits": "NodeVolumeLimits",
    "EBSLimits": "NodeVolumeLimits",
    "GCEPDLimits": "NodeVolumeLimits",
}
"""What takes the place of a plugin that somebody else has or had; "" for nothing."""


def unknown_plugins(profiles: Iterable[ProfileConfiguration], known: Set[str]) -> str:
    """Return a clause about all plugins that do not exist; "" if there is nothing to add.

    That is so for one unknown plugin that nothing replaces: the error names it already.
    """
    enabled = (
        ref.name
        for profile in profiles
        for set_ in (*profile.plugins.sets().values(), profile.plugins.multi_point)
        for ref in set_.enabled
    )
    names = [name for name in dict.fromkeys(enabled) if name not in known]
    if len(names) < 2 and not any(name in _SUCCESSORS for name in names):
        return ""
    return "of the plugins that are enabled these do not exist: " + ", ".join(
        map(_described, names)
    )


def _described(name: str) -> str:
    if name not in _SUCCESSORS:
        return name
    successor = _SUCCESSORS[name]
    return f"{name} (write {successor})" if successor else f"{name} (leave it out)"
