"""The default plugins of a profile, and how a profile's own plugin sets change them.

This is the first of two steps; the second, which expands MultiPoint to extension points, is
``engine.runtime.expansion``.
"""

from __future__ import annotations

from collections.abc import Set

from msgspec import Struct

from proreus.base.feature_gates import FeatureGates
from proreus.base.kubernetes_version import Change
from proreus.config.types import PluginRef, Plugins, PluginSet


class _DefaultPlugin(Struct, frozen=True):
    """``weight`` 0 is unset; a plugin with a ``gate`` is a default only while that is enabled."""

    name: str
    weight: int = 0
    gate: str = ""


_DEFAULT_PLUGINS = (
    _DefaultPlugin("SchedulingGates"),
    _DefaultPlugin("PrioritySort"),
    _DefaultPlugin("NodeName"),
    _DefaultPlugin("NodeUnschedulable"),
    _DefaultPlugin("TaintToleration", weight=3),
    _DefaultPlugin("NodeAffinity", weight=2),
    _DefaultPlugin("NodePorts"),
    _DefaultPlugin("DeferredPodScheduling", gate="InPlacePodVerticalScalingSchedulerPreemption"),
    _DefaultPlugin("NodeResourcesFit", weight=1),
    _DefaultPlugin("VolumeRestrictions"),
    _DefaultPlugin("NodeVolumeLimits"),
    _DefaultPlugin("VolumeBinding"),
    _DefaultPlugin("VolumeZone"),
    _DefaultPlugin("PodTopologySpread", weight=2),
    _DefaultPlugin("InterPodAffinity", weight=2),
    _DefaultPlugin("DynamicResources", weight=2, gate="DynamicResourceAllocation"),
    _DefaultPlugin("DefaultPreemption"),
    _DefaultPlugin("NodeResourcesBalancedAllocation", weight=1),
    _DefaultPlugin("ImageLocality", weight=1),
    _DefaultPlugin("DefaultBinder"),
    _DefaultPlugin("NodeDeclaredFeatures", gate="NodeDeclaredFeatures"),
    _DefaultPlugin("GangScheduling", gate="GangScheduling"),
    _DefaultPlugin("TopologyPlacementGenerator", gate="TopologyAwareWorkloadScheduling"),
    _DefaultPlugin("PodGroupPodsCount", weight=1, gate="TopologyAwareWorkloadScheduling"),
)
"""kube-scheduler's plugins in the order in which each extension point calls them."""


_CHANGED_POINTS = {
    "DefaultPreemption": ("reserve", Change.DEFAULT_PREEMPTION_RESERVES, True),
    "GangScheduling": ("permit", Change.GANGS_WITHOUT_PERMIT, False),
    "NodeName": ("preFilter", Change.NODE_CHECKS_IN_PRE_FILTER, True),
    "NodeUnschedulable": ("preFilter", Change.NODE_CHECKS_IN_PRE_FILTER, True),
    "TaintToleration": ("preFilter", Change.NODE_CHECKS_IN_PRE_FILTER, True),
}
"""Extension points that a plugin has only in versions with a change, or without it."""


def points_in_version(plugin: str, points: Set[str], gates: FeatureGates) -> Set[str]:
    """Return a plugin's extension points in the emulated version."""
    point, change, added = _CHANGED_POINTS.get(plugin, ("", None, True))
    return points if change is None or gates.includes(change) == added else points - {point}


def _in_order(gates: FeatureGates) -> tuple[_DefaultPlugin, ...]:
    if gates.includes(Change.NODE_NAME_BEFORE_UNSCHEDULABLE):
        return _DEFAULT_PLUGINS
    by_name = {plugin.name: plugin for plugin in _DEFAULT_PLUGINS}
    swapped = {"NodeName": "NodeUnschedulable", "NodeUnschedulable": "NodeName"}
    return tuple(by_name[swapped.get(plugin.name, plugin.name)] for plugin in _DEFAULT_PLUGINS)


def default_plugins(gates: FeatureGates) -> Plugins:
    """Return the default sets: ``multi_point``, in order, with weights, and its exceptions."""
    enabled = tuple(
        PluginRef(name=plugin.name, weight=plugin.weight)
        for plugin in _in_order(gates)
        if not plugin.gate or gates.enabled(plugin.gate)
    )
    reserve = PluginSet()
    # It reserves for PodGroups only.
    if gates.includes(Change.DEFAULT_PREEMPTION_RESERVES) and not gates.enabled("GenericWorkload"):
        reserve = PluginSet(disabled=(PluginRef(name="DefaultPreemption"),))
    return Plugins(multi_point=PluginSet(enabled=enabled), reserve=reserve)


def merge(defaults: Plugins, own: Plugins) -> Plugins:
    """Return a profile's own sets merged over the default ones."""
    merged = {
        name: _merge_set(getattr(defaults, name), getattr(own, name))
        for name in Plugins.model_fields
    }
    return Plugins(**merged)


def _merge_set(defaults: PluginSet, own: PluginSet) -> PluginSet:
    """Replace defaults in place, drop disabled ones, append new ones.

    Of several own entries of one name the last replaces the default; the others are appended, and
    the expansion then reports the plugin as registered twice.
    """
    last = {ref.name: index for index, ref in enumerate(own.enabled)}
    enabled: list[PluginRef] = []
    replaced: set[int] = set()
    for ref in defaults.enabled:
        if own.disables(ref.name):
            continue
        if ref.name in last:
            index = last[ref.name]
            replaced.add(index)
            ref = own.enabled[index]
        enabled.append(ref)
    enabled += [ref for index, ref in enumerate(own.enabled) if index not in replaced]
    disabled = [PluginRef(name=ref.name) for ref in own.disabled]
    # Once, unlike kube-scheduler: what is written loads to the same configuration.
    disabled += [ref for ref in defaults.disabled if ref not in disabled]
    return PluginSet(enabled=tuple(enabled), disabled=tuple(disabled))
