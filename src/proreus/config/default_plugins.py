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


_PRE_FILTER_SINCE_1_37 = frozenset({"NodeName", "NodeUnschedulable", "TaintToleration"})


def points_in_version(plugin: str, points: Set[str], gates: FeatureGates) -> Set[str]:
    """Return a plugin's extension points in the emulated version."""
    if plugin not in _PRE_FILTER_SINCE_1_37 or gates.includes(Change.NODE_CHECKS_IN_PRE_FILTER):
        return points
    return points - {"preFilter"}


def _in_order(gates: FeatureGates) -> tuple[_DefaultPlugin, ...]:
    if gates.includes(Change.NODE_NAME_BEFORE_UNSCHEDULABLE):
        return _DEFAULT_PLUGINS
    by_name = {plugin.name: plugin for plugin in _DEFAULT_PLUGINS}
    swapped = {"NodeName": "NodeUnschedulable", "NodeUnschedulable": "NodeName"}
    return tuple(by_name[swapped.get(plugin.name, plugin.name)] for plugin in _DEFAULT_PLUGINS)


def default_plugins(gates: FeatureGates) -> tuple[PluginRef, ...]:
    """Return the default ``multiPoint.enabled``, in order, with weights."""
    return tuple(
        PluginRef(name=plugin.name, weight=plugin.weight)
        for plugin in _in_order(gates)
        if not plugin.gate or gates.enabled(plugin.gate)
    )


def merge(defaults: tuple[PluginRef, ...], own: Plugins) -> Plugins:
    """Return a profile's own sets, ``multi_point`` merged over ``defaults``."""
    merged = {
        name: _merge_set(defaults if name == "multi_point" else (), getattr(own, name))
        for name in Plugins.model_fields
    }
    return Plugins(**merged)


def _merge_set(defaults: tuple[PluginRef, ...], own: PluginSet) -> PluginSet:
    """Replace defaults in place, drop disabled ones, append new ones.

    Of several own entries of one name the last replaces the default; the others are appended, and
    the expansion then reports the plugin as registered twice.
    """
    last = {ref.name: index for index, ref in enumerate(own.enabled)}
    enabled: list[PluginRef] = []
    replaced: set[int] = set()
    for ref in defaults:
        if own.disables(ref.name):
            continue
        if ref.name in last:
            index = last[ref.name]
            replaced.add(index)
            ref = own.enabled[index]
        enabled.append(ref)
    enabled += [ref for index, ref in enumerate(own.enabled) if index not in replaced]
    return PluginSet(
        enabled=tuple(enabled), disabled=tuple(PluginRef(name=ref.name) for ref in own.disabled)
    )
