"""The plugins of a profile that says nothing else, and how a profile's own sets change them.

The order is precedence: Filter asks the cheap and decisive plugins first. The merge is step A of
two; step B, the expansion of MultiPoint to extension points, is ``runtime.expansion``.
"""

from __future__ import annotations

from proreus.config.types import PluginRef, Plugins, PluginSet
from proreus.feature_gates import FeatureGates

_ALWAYS = (
    PluginRef(name="SchedulingGates"),
    PluginRef(name="PrioritySort"),
    PluginRef(name="NodeUnschedulable"),
    PluginRef(name="NodeName"),
    PluginRef(name="TaintToleration", weight=3),
    PluginRef(name="NodeAffinity", weight=2),
    PluginRef(name="NodePorts"),
    PluginRef(name="NodeResourcesFit", weight=1),
    PluginRef(name="VolumeRestrictions"),
    PluginRef(name="NodeVolumeLimits"),
    PluginRef(name="VolumeBinding"),
    PluginRef(name="VolumeZone"),
    PluginRef(name="PodTopologySpread", weight=2),
    PluginRef(name="InterPodAffinity", weight=2),
    PluginRef(name="DefaultPreemption"),
    PluginRef(name="NodeResourcesBalancedAllocation", weight=1),
    PluginRef(name="ImageLocality", weight=1),
    PluginRef(name="DefaultBinder"),
)
_DYNAMIC_RESOURCES = PluginRef(name="DynamicResources", weight=2)
_APPENDED_BY_GATE = (
    ("NodeDeclaredFeatures", PluginRef(name="NodeDeclaredFeatures")),
    ("GangScheduling", PluginRef(name="GangScheduling")),
    ("TopologyAwareWorkloadScheduling", PluginRef(name="TopologyPlacementGenerator")),
    ("TopologyAwareWorkloadScheduling", PluginRef(name="PodGroupPodsCount", weight=1)),
)

IN_TREE_PLUGINS = frozenset(
    ref.name for ref in (*_ALWAYS, _DYNAMIC_RESOURCES, *(ref for _, ref in _APPENDED_BY_GATE))
)
"""The names of all plugins of kube-scheduler 1.36."""


def default_plugins(gates: FeatureGates) -> tuple[PluginRef, ...]:
    """Return the default ``multiPoint.enabled``, in order, with weights."""
    plugins: list[PluginRef] = []
    for ref in _ALWAYS:
        if ref.name == "DefaultPreemption" and gates.enabled("DynamicResourceAllocation"):
            plugins.append(_DYNAMIC_RESOURCES)
        plugins.append(ref)
    plugins.extend(ref for gate, ref in _APPENDED_BY_GATE if gates.enabled(gate))
    return tuple(plugins)


def merge(defaults: tuple[PluginRef, ...], own: Plugins) -> Plugins:
    """Put a profile's own sets over the default ``multiPoint.enabled``."""
    merged = {
        name: _merge_set(defaults if name == "multi_point" else (), getattr(own, name))
        for name in Plugins.model_fields
    }
    return Plugins(**merged)


def _merge_set(defaults: tuple[PluginRef, ...], own: PluginSet) -> PluginSet:
    """Replace defaults in place, drop disabled ones, append what is new.

    Of several own entries of one name the last replaces the default; the others are appended and
    will be found to be registered twice.
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
