"""One profile: the plugins that serve one schedulerName, in their order, with their weights.

    profile_set ─► expansion.expand_all ─► Profile ─► instrument, ExtensionPoint
    scheduling_points, find_nodes, prioritize_nodes, binding_points ─► profile.<point>: the plugins
    nominated_pods_filter ─► Profile.add_pod: a fork's row and the PreFilter plugins together

Shared: the node table, between all profiles; the equivalence cache, within one profile (two
profiles may have different plugins, order and weights). Invalidated: nothing here. A profile does
not change once built, except that its optional filter comes and goes; a changed configuration
builds new profiles with empty caches.

Example: ``profile.filter`` is ``(NodeUnschedulable, NodeName, …)`` in the order of the
configuration, ``profile.weights["TaintToleration"]`` is 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from itertools import chain, takewhile
from typing import TypeVar

from proreus.base.metrics import Counter, Histogram, SchedulerMetrics
from proreus.engine.runtime.disabled_plugin import NeverCalled
from proreus.engine.runtime.equivalence_cache import EquivalenceCache
from proreus.engine.runtime.instrumentation import instrument
from proreus.engine.runtime.out_of_tree import is_out_of_tree
from proreus.engine.runtime.plugin_errors import allowed_status, names_or_status
from proreus.engine.runtime.plugin_health import HealthContext, PluginHealthMonitor
from proreus.engine.runtime.points import ExtensionPoint, call_plugin
from proreus.framework.cycle_state import CycleState
from proreus.framework.extension_points import POINTS
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import (
    BindPlugin,
    Evaluations,
    FeasibleFilterPlugin,
    FetchingPlugin,
    FilterPlugin,
    PermitPlugin,
    Plugin,
    PostBindPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreScorePlugin,
    QueueSortPlugin,
    ReservePlugin,
    ScorePlugin,
)
from proreus.framework.pod_group_plugin import (
    PlacementFeasiblePlugin,
    PlacementGeneratePlugin,
    PlacementScorePlugin,
    PodGroupPostFilterPlugin,
    PodGroupSourcePlugin,
    RankNodesPlugin,
)
from proreus.framework.pod_info import PodInfo
from proreus.framework.pod_source import PodSourcePlugin
from proreus.framework.status import Code, Status
from proreus.objects.pod import Pod
from proreus.objects.requests import is_pod_resize_deferred

P = TypeVar("P", bound=Plugin)

SKIPPED_FOR_DEFERRED_RESIZES = frozenset(
    {
        "DynamicResources",
        "InterPodAffinity",
        "NodeAffinity",
        "NodeDeclaredFeatures",
        "NodePorts",
        "NodeUnschedulable",
        "NodeVolumeLimits",
        "PodTopologySpread",
        "TaintToleration",
        "VolumeBinding",
        "VolumeRestrictions",
        "VolumeZone",
    }
)
"""Plugins that have no say about a deferred resize: what they check was settled when the pod was
bound. kube-scheduler asks each, which returns Skip in PreFilter and nothing in PostFilter."""


class _PointSeconds(dict[tuple[str, Code], Histogram]):
    """How long extension points take, by point and the code that they end with."""

    # Looking up a metric's child by labels costs more than observing.

    def __init__(self, metrics: SchedulerMetrics, profile: str) -> None:
        self._seconds, self._profile = metrics.framework_extension_point_duration_seconds, profile

    def __missing__(self, key: tuple[str, Code]) -> Histogram:
        point, code = key
        child = self[key] = self._seconds.labels(point, code.label, self._profile)
        return child


class Profile:
    """The plugins of one schedulerName by extension point.

    ``weights``: of score plugins; ``placement_weights``: of those that score placements.
    ``percentage_of_nodes_to_score``: None = the global setting.
    ``percentage_of_placements_to_score``: 0 = adaptive. ``optional_filter``: a Filter
    plugin that is in no configuration, and runs after the others while ``use_optional_filter`` says
    so; the rest of the time it costs nothing.
    """

    def __init__(
        self,
        name: str,
        plugins: Mapping[str, tuple[Plugin, ...]],
        weights: Mapping[str, int],
        *,
        table: NodeTable,
        metrics: SchedulerMetrics,
        percentage_of_nodes_to_score: int | None = None,
        percentage_of_placements_to_score: int = 0,
        placement_weights: Mapping[str, int] | None = None,
        optional_filter: FilterPlugin | None = None,
        deferred_resizes: bool = False,
        health_context: HealthContext | None = None,
    ) -> None:
        """``deferred_resizes``: gate InPlacePodVerticalScalingSchedulerPreemption.

        ``health_context``: what watches the plugins; None: they are called as they are.
        """
        self.name = name
        self._deferred_resizes = deferred_resizes
        self.weights = dict(weights)
        self.placement_weights = dict(placement_weights or {})
        self.table = table
        self.metrics = metrics
        self.percentage_of_nodes_to_score = percentage_of_nodes_to_score
        self.percentage_of_placements_to_score = percentage_of_placements_to_score
        optional = () if optional_filter is None else (optional_filter,)
        enabled = tuple(dict.fromkeys(chain(*(plugins.get(point, ()) for point in POINTS))))
        self.plugins = tuple(dict.fromkeys((*enabled, *optional)))
        """All plugin instances, each once."""
        for plugin in self.plugins:
            plugin.evaluations = self._evaluations_of(plugin, plugins)
        self.health_monitors = () if health_context is None else self._watch(health_context)
        """Of the out-of-tree plugins; ``begin_attempt`` is called on each for every pod."""
        self.pre_enqueue = _typed(plugins, "preEnqueue", PreEnqueuePlugin)
        self.queue_sort = _typed(plugins, "queueSort", QueueSortPlugin)[0]
        pre_filter = _typed(plugins, "preFilter", PreFilterPlugin)
        self.pre_filter: ExtensionPoint[PreFilterPlugin, frozenset[str] | Status] = ExtensionPoint(
            "pre_filter", pre_filter, names_or_status, counted=True
        )
        self.passing_pre_filter = tuple(
            takewhile(lambda plugin: plugin.passes_without_node_name, self.pre_filter)
        )
        """The first PreFilter plugins, as far as they just pass a pod without ``spec.nodeName``."""
        self.other_pre_filter = self.pre_filter.without(p.name for p in self.passing_pre_filter)
        self.resize_pre_filter = self.pre_filter.without(SKIPPED_FOR_DEFERRED_RESIZES)
        self.filter = _typed(plugins, "filter", FilterPlugin)
        self.post_filter = _typed(plugins, "postFilter", PostFilterPlugin)
        self.pre_score = ExtensionPoint(
            "pre_score", _typed(plugins, "preScore", PreScorePlugin), allowed_status, counted=True
        )
        self.score = _typed(plugins, "score", ScorePlugin)
        self.reserve = ExtensionPoint(
            "reserve", _typed(plugins, "reserve", ReservePlugin), allowed_status
        )
        self.permit = ExtensionPoint(
            "permit", _typed(plugins, "permit", PermitPlugin), allowed_status
        )
        self.pre_bind = _typed(plugins, "preBind", PreBindPlugin)
        self.bind = _typed(plugins, "bind", BindPlugin)
        self.post_bind = _typed(plugins, "postBind", PostBindPlugin)
        self.pod_group_post_filter = _typed(plugins, "podGroupPostFilter", PodGroupPostFilterPlugin)
        self.rank_nodes = tuple(
            plugin
            for plugin in self.pod_group_post_filter
            if isinstance(plugin, RankNodesPlugin) and plugin in plugins.get("reserve", ())
        )
        self.placement_generate = _typed(plugins, "placementGenerate", PlacementGeneratePlugin)
        self.placement_score = _typed(plugins, "placementScore", PlacementScorePlugin)
        self.placement_feasible = _typed(plugins, "placementFeasible", PlacementFeasiblePlugin)
        self.feasible_filter = _of_class(enabled, FeasibleFilterPlugin)
        self.pod_sources = frozenset(p.name for p in _of_class(enabled, PodSourcePlugin))
        """Names of the plugins that may provide pods, which hold room for others."""
        self.pod_group_source = next(iter(_of_class(enabled, PodGroupSourcePlugin)), None)
        """The plugin that names groups of pods."""
        self._pre_filter_extensions = tuple(
            plugin for plugin in self.pre_filter if plugin.has_pre_filter_extensions
        )
        self._optional_filter = optional_filter
        self._configured_filter = self.filter
        self.equivalence_cache = EquivalenceCache(table)
        self.order_of_filter = {plugin.name: i for i, plugin in enumerate(self.filter)}
        self.fetching = self._fetching()
        """``FetchingPlugin``s by extension point; empty in most profiles."""
        self.point_seconds = _PointSeconds(metrics, name)

    def for_questions(self, metrics: SchedulerMetrics) -> Profile:
        """Return a profile with the same plugins, whose results and times are kept apart.

        Reserve is left out of plugins that act outside of the scheduler, or on the whole group.
        """
        other = copy(self)
        other.equivalence_cache = EquivalenceCache(self.table)
        other.metrics, other.point_seconds = metrics, _PointSeconds(metrics, self.name)
        other.reserve = self.reserve.without(
            plugin.name
            for plugin in self.reserve
            if is_out_of_tree(type(plugin)) or isinstance(plugin, PodGroupSourcePlugin)
        )
        return other

    def _watch(self, health_context: HealthContext) -> tuple[PluginHealthMonitor, ...]:
        """Wrap the methods of out-of-tree plugins, before anything binds one of them."""
        # In-tree plugins get a monitor too, which counts their failures, but no wrappers: timing
        # them in every attempt would cost more than some of them do.
        watched = []
        for plugin in self.plugins:
            out_of_tree = is_out_of_tree(type(plugin))
            health = PluginHealthMonitor(plugin.name, self.name, out_of_tree, health_context)
            plugin.health = health
            if isinstance(plugin, NeverCalled):
                health.disable_for_good(plugin.disabled_because)
            elif out_of_tree:
                instrument(plugin, health)
            if out_of_tree:
                watched.append(health)
        return tuple(watched)

    def _fetching(self) -> dict[str, tuple[FetchingPlugin, ...]]:
        points: Mapping[str, tuple[Plugin, ...]] = {
            "PreFilter": self.pre_filter,
            "Filter": self.filter,
            "Score": self.score,
            "Reserve": self.reserve,
            "Permit": self.permit,
        }
        found = {
            point: tuple(plugin for plugin in plugins if isinstance(plugin, FetchingPlugin))
            for point, plugins in points.items()
        }
        return {point: plugins for point, plugins in found.items() if plugins}

    def _evaluations_of(
        self, plugin: Plugin, plugins: Mapping[str, tuple[Plugin, ...]]
    ) -> Evaluations:
        """Return the plugin's counters, which begin at 0 for all of its points."""
        total = self.metrics.plugin_evaluation_total
        return Evaluations(
            *(
                total.labels(plugin.name, point, self.name)
                if plugin in plugins.get(key, ())
                else Counter()
                for point, key in (
                    ("PreFilter", "preFilter"),
                    ("Filter", "filter"),
                    ("PreScore", "preScore"),
                    ("Score", "score"),
                )
            )
        )

    def use_optional_filter(self, enabled: bool) -> None:
        """Run the optional filter from now on, or no longer; to be called between cycles."""
        if self._optional_filter is not None:
            optional = (self._optional_filter,) if enabled else ()
            self.filter = (*self._configured_filter, *optional)
            self.order_of_filter = {plugin.name: i for i, plugin in enumerate(self.filter)}

    def is_deferred_resize(self, pod: Pod) -> bool:
        """Return whether a pod has a node, and preemption may make room to resize it there.

        Always False while gate InPlacePodVerticalScalingSchedulerPreemption is off.
        """
        return self._deferred_resizes and bool(pod.spec.node_name) and is_pod_resize_deferred(pod)

    def add_pod(
        self, state: CycleState, pod: PodInfo, added: PodInfo, nodes: NodeTable, row: int
    ) -> None:
        """Add a pod to a row of a fork and run AddPod (``RunPreFilterExtensionAddPod``)."""
        # The node first: plugins see it with the pod on it, as in kube-scheduler.
        nodes.add_pod(row, added)
        self.run_add_pod(state, pod, added, nodes[row])

    def run_add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> None:
        """Run AddPod for a pod that was added to a node."""
        for plugin in self._pre_filter_extensions:
            if plugin.name not in state.skip_filter:
                point = "PreFilterExtensionAddPod"
                call_plugin(plugin, point, state, plugin.add_pod, state, pod, added, node)

    def remove_pod(
        self, state: CycleState, pod: PodInfo, removed: PodInfo, nodes: NodeTable, row: int
    ) -> None:
        """Remove a pod from a row of a fork and run RemovePod."""
        nodes.remove_pod(row, removed.uid)
        self.run_remove_pod(state, pod, removed, nodes[row])

    def run_remove_pod(
        self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo
    ) -> None:
        """Run RemovePod for a pod that was removed from a node."""
        for plugin in self._pre_filter_extensions:
            if plugin.name not in state.skip_filter:
                point = "PreFilterExtensionRemovePod"
                call_plugin(plugin, point, state, plugin.remove_pod, state, pod, removed, node)


def _of_class(plugins: Iterable[Plugin], base: type[P]) -> tuple[P, ...]:
    return tuple(plugin for plugin in plugins if isinstance(plugin, base))


def _typed(plugins: Mapping[str, tuple[Plugin, ...]], point: str, base: type[P]) -> tuple[P, ...]:
    """Return the plugins of a point; expansion has checked that they extend its base class."""
    return _of_class(plugins.get(point, ()), base)
