"""The arguments of kube-scheduler's own plugins, with their checks in kube-scheduler's words.

Each plugin refers to its model: ``Args = NodeResourcesFitArgs``. They live here rather than beside
the plugins because a configuration must be checked also where a plugin is not loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Self

from proreus.config.durations import format_duration
from proreus.config.field_errors import (
    child,
    duplicate,
    forbidden,
    invalid,
    item,
    required,
    unsupported,
)
from proreus.config.fields import Boolean, ConfigModel, Int32, Int64, Seconds, Text, with_alias
from proreus.config.names import label_key_errors
from proreus.config.node_affinity import NodeAffinityConfig, NodeSelectorRequirementConfig
from proreus.config.scoring import (
    MAX_CUSTOM_SCORE,
    MAX_UTILIZATION,
    ResourceSpec,
    UtilizationShapePoint,
    shape_problems,
    weighted,
)
from proreus.config.types import PluginArgs
from proreus.feature_gates import FeatureGates


class DefaultPreemptionArgs(PluginArgs):
    """How many candidate nodes preemption tries."""

    go_type = "v1.DefaultPreemptionArgs"

    min_candidate_nodes_percentage: Int32 = 10
    min_candidate_nodes_absolute: Int32 = 100

    def problems(self, path: str, gates: FeatureGates) -> Iterator[str]:
        """Check both ranges, and that not both are zero."""
        percentage, absolute = "minCandidateNodesPercentage", "minCandidateNodesAbsolute"
        if not 0 <= self.min_candidate_nodes_percentage <= 100:
            value = self.min_candidate_nodes_percentage
            yield invalid(child(path, percentage), value, "not in valid range [0, 100]")
        if self.min_candidate_nodes_absolute < 0:
            value = self.min_candidate_nodes_absolute
            yield invalid(child(path, absolute), value, "not in valid range [0, inf)")
        if self.min_candidate_nodes_percentage == self.min_candidate_nodes_absolute == 0:
            for name, other in ((percentage, absolute), (absolute, percentage)):
                yield invalid(child(path, name), 0, f"cannot be zero at the same time as {other}")


class InterPodAffinityArgs(PluginArgs):
    """What the affinity of running pods is worth to a new one."""

    go_type = "v1.InterPodAffinityArgs"

    hard_pod_affinity_weight: Int32 = 1
    ignore_preferred_terms_of_existing_pods: Boolean = False

    def problems(self, path: str, gates: FeatureGates) -> Iterator[str]:
        """Check the range of the weight."""
        if not 0 <= self.hard_pod_affinity_weight <= 100:
            yield invalid(
                child(path, "hardPodAffinityWeight"),
                self.hard_pod_affinity_weight,
                "not in valid range [0, 100]",
            )


class NodeAffinityArgs(PluginArgs):
    """Node affinity that the profile adds to every pod's own."""

    go_type = "v1.NodeAffinityArgs"

    added_affinity: NodeAffinityConfig | None = None

    def problems(self, path: str, gates: FeatureGates) -> Iterable[str]:
        """Check every term, as for the node affinity of a pod."""
        if self.added_affinity is None:
            return ()
        return self.added_affinity.problems(child(path, "addedAffinity"))


class RequestedToCapacityRatioParam(ConfigModel):
    """The score as a function of utilization, linear between points."""

    go_type = "v1.RequestedToCapacityRatioParam"

    shape: tuple[UtilizationShapePoint, ...] = ()


class ScoringStrategy(ConfigModel):
    """How NodeResourcesFit scores: LeastAllocated, MostAllocated or RequestedToCapacityRatio."""

    go_type = "v1.ScoringStrategy"

    type: Text = ""
    resources: tuple[ResourceSpec, ...] = ()
    requested_to_capacity_ratio: RequestedToCapacityRatioParam | None = None


class NodeResourcesFitArgs(PluginArgs):
    """Resources that Filter does not look at, and how Score looks at the others."""

    go_type = "v1.NodeResourcesFitArgs"
    checked_at_construction = True

    ignored_resources: tuple[Text, ...] = ()
    ignored_resource_groups: tuple[Text, ...] = ()
    scoring_strategy: ScoringStrategy = ScoringStrategy(type="LeastAllocated")

    def with_defaults(self, gates: FeatureGates) -> Self:
        """Score cpu and memory where nothing is said; weight 0 means 1."""
        resources = weighted(self.scoring_strategy.resources)
        strategy = self.scoring_strategy.model_copy(update={"resources": resources})
        return self.model_copy(update={"scoring_strategy": strategy})

    def problems(self, path: str, gates: FeatureGates) -> Iterator[str]:
        """Check names, then the strategy."""
        for index, name in enumerate(self.ignored_resources):
            where = item(child(path, "ignoredResources"), index)
            yield from _label_key_problems(where, name)
        for index, group in enumerate(self.ignored_resource_groups):
            where = item(child(path, "ignoredResourceGroups"), index)
            if "/" in group:
                yield invalid(where, group, "resource group name can't contain '/'")
            yield from _label_key_problems(where, group)
        yield from self._strategy_problems(child(path, "scoringStrategy"))

    def _strategy_problems(self, path: str) -> Iterator[str]:
        strategy = self.scoring_strategy
        types = ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")
        if strategy.type not in types:
            yield unsupported(child(path, "type"), strategy.type, types)
        for index, resource in enumerate(strategy.resources):
            if not 0 < resource.weight <= 100:
                where = child(item(child(path, "resources"), index), "weight")
                detail = f"resource weight of {resource.name} not in valid range (0, 100]"
                yield invalid(where, resource.weight, detail)
        ratio = strategy.requested_to_capacity_ratio
        where = child(path, "requestedToCapacityRatio")
        if strategy.type == "RequestedToCapacityRatio":
            if ratio is None:
                yield required(where, "must be specified when type is RequestedToCapacityRatio")
            else:
                yield from shape_problems(ratio.shape, child(where, "shape"))
        elif ratio is not None:
            yield forbidden(where, "must be nil when type is not RequestedToCapacityRatio")


class NodeResourcesBalancedAllocationArgs(PluginArgs):
    """The resources whose fractions should be alike; all count the same."""

    go_type = "v1.NodeResourcesBalancedAllocationArgs"

    resources: tuple[ResourceSpec, ...] = ()

    def with_defaults(self, gates: FeatureGates) -> Self:
        """Take cpu and memory where nothing is said; weight 0 means 1."""
        return self.model_copy(update={"resources": weighted(self.resources)})

    def problems(self, path: str, gates: FeatureGates) -> Iterator[str]:
        """Check that no resource is named twice and that all weigh 1."""
        seen: set[str] = set()
        for index, resource in enumerate(self.resources):
            where = item(child(path, "resources"), index)
            if resource.name in seen:
                yield duplicate(child(where, "name"), resource.name)
            seen.add(resource.name)
            if resource.weight != 1:
                yield invalid(child(where, "weight"), resource.weight, "must be 1")


class LabelSelectorConfig(ConfigModel):
    """The shape of metav1.LabelSelector, of which only the absence is allowed here."""

    go_type = "v1.LabelSelector"

    match_labels: dict[str, Text] = {}
    match_expressions: tuple[NodeSelectorRequirementConfig, ...] = ()


class DefaultConstraint(ConfigModel):
    """A TopologySpreadConstraint for pods that bring none of their own.

    The selector is deduced from services and controllers; ``label_selector`` is here only to be
    refused.
    """

    go_type = "v1.TopologySpreadConstraint"

    max_skew: Int32 = 0
    topology_key: Text = ""
    when_unsatisfiable: Text = ""
    label_selector: LabelSelectorConfig | None = None
    min_domains: Int32 | None = None
    node_affinity_policy: Text | None = None
    node_taints_policy: Text | None = None
    match_label_keys: tuple[Text, ...] = ()


class PodTopologySpreadArgs(PluginArgs):
    """Constraints for pods without any: kube-scheduler's own (System), or a List."""

    go_type = "v1.PodTopologySpreadArgs"

    default_constraints: tuple[DefaultConstraint, ...] = ()
    defaulting_type: Text = ""

    def with_defaults(self, gates: FeatureGates) -> Self:
        """Take the system's constraints where nothing is said."""
        return self.model_copy(update={"defaulting_type": self.defaulting_type or "System"})

    def problems(self, path: str, gates: FeatureGates) -> Iterator[str]:
        """Check the type, then each constraint."""
        where = child(path, "defaultingType")
        if self.defaulting_type not in ("System", "List"):
            yield unsupported(where, self.defaulting_type, ("System", "List"))
        elif self.defaulting_type == "System" and self.default_constraints:
            yield invalid(where, "System", "when .defaultConstraints are not empty")
        seen: set[tuple[str, str]] = set()
        for index, constraint in enumerate(self.default_constraints):
            where = item(child(path, "defaultConstraints"), index)
            yield from _constraint_problems(constraint, where)
            pair = (constraint.topology_key, constraint.when_unsatisfiable)
            if pair in seen:
                yield duplicate(where, "{" + ", ".join(pair) + "}")
            seen.add(pair)


class VolumeBindingArgs(PluginArgs):
    """How long PreBind waits for volumes, and how storage capacity is scored."""

    go_type = "v1.VolumeBindingArgs"

    bind_timeout_seconds: Int64 = 600
    shape: tuple[UtilizationShapePoint, ...] | None = None

    def with_defaults(self, gates: FeatureGates) -> Self:
        """Prefer the fullest storage that does, where capacity is scored at all."""
        if self.shape or not gates.enabled("StorageCapacityScoring"):
            return self
        shape = (
            UtilizationShapePoint(utilization=0, score=MAX_CUSTOM_SCORE),
            UtilizationShapePoint(utilization=MAX_UTILIZATION, score=0),
        )
        return self.model_copy(update={"shape": shape})

    def problems(self, path: str, gates: FeatureGates) -> Iterator[str]:
        """Check the timeout, and the shape if its gate is on."""
        if self.bind_timeout_seconds < 0:
            yield invalid(
                child(path, "bindTimeoutSeconds"),
                self.bind_timeout_seconds,
                "invalid BindTimeoutSeconds, should not be a negative value",
            )
        where = child(path, "shape")
        if gates.enabled("StorageCapacityScoring"):
            yield from shape_problems(self.shape or (), where)
        elif self.shape is not None:
            points = [{"Utilization": p.utilization, "Score": p.score} for p in self.shape]
            yield invalid(
                where,
                points,
                "unexpected field `shape`, remove it or turn on the feature gate "
                "StorageCapacityScoring",
            )


class DynamicResourcesArgs(PluginArgs):
    """How long DRA may filter one node, and how long it waits for devices to be ready."""

    go_type = "v1.DynamicResourcesArgs"

    filter_timeout_seconds: Seconds | None = with_alias("filterTimeout", None)
    binding_timeout_seconds: Seconds | None = with_alias("bindingTimeout", None)

    def with_defaults(self, gates: FeatureGates) -> Self:
        """10 s and 10 min, where the gates are on."""
        update: dict[str, float] = {}
        if self.filter_timeout_seconds is None and gates.enabled("DRASchedulerFilterTimeout"):
            update["filter_timeout_seconds"] = 10.0
        if self.binding_timeout_seconds is None and _waits_for_devices(gates):
            update["binding_timeout_seconds"] = 600.0
        return self.model_copy(update=update)

    def problems(self, path: str, gates: FeatureGates) -> Iterator[str]:
        """Check the ranges; a field whose gate is off must not be set."""
        timeout, where = self.filter_timeout_seconds, child(path, "filterTimeout")
        if timeout is not None and not gates.enabled("DRASchedulerFilterTimeout"):
            yield forbidden(where, "DRASchedulingFilterTimeout feature gate is disabled")
        elif timeout is not None and timeout < 0:
            yield invalid(where, format_duration(timeout), "must be zero or positive")
        timeout, where = self.binding_timeout_seconds, child(path, "bindingTimeout")
        if timeout is not None and not _waits_for_devices(gates):
            yield forbidden(
                where,
                "DRADeviceBindingConditions or DRAResourceClaimDeviceStatus feature gate "
                "is disabled",
            )
        elif timeout is not None and timeout < 1:
            yield invalid(where, format_duration(timeout), "must be at least 1 second")


IN_TREE_ARGS: dict[str, type[PluginArgs]] = {
    "DefaultPreemption": DefaultPreemptionArgs,
    "DynamicResources": DynamicResourcesArgs,
    "InterPodAffinity": InterPodAffinityArgs,
    "NodeAffinity": NodeAffinityArgs,
    "NodeResourcesBalancedAllocation": NodeResourcesBalancedAllocationArgs,
    "NodeResourcesFit": NodeResourcesFitArgs,
    "PodTopologySpread": PodTopologySpreadArgs,
    "VolumeBinding": VolumeBindingArgs,
}
"""The kinds of arguments that group kubescheduler.config.k8s.io knows, by plugin."""


def _waits_for_devices(gates: FeatureGates) -> bool:
    return gates.enabled("DRADeviceBindingConditions") and gates.enabled(
        "DRAResourceClaimDeviceStatus"
    )


def _label_key_problems(path: str, name: str) -> Iterator[str]:
    for problem in label_key_errors(name):
        yield invalid(path, name, problem)


def _constraint_problems(constraint: DefaultConstraint, path: str) -> Iterator[str]:
    if constraint.max_skew <= 0:
        yield invalid(child(path, "maxSkew"), constraint.max_skew, "not in valid range (0, inf)")
    if constraint.topology_key:
        yield from _label_key_problems(child(path, "topologyKey"), constraint.topology_key)
    else:
        yield required(child(path, "topologyKey"), "can not be empty")
    action, actions = constraint.when_unsatisfiable, ("DoNotSchedule", "ScheduleAnyway")
    if not action:
        yield required(child(path, "whenUnsatisfiable"), "can not be empty")
    elif action not in actions:
        yield unsupported(child(path, "whenUnsatisfiable"), action, actions)
    if constraint.label_selector is not None:
        yield forbidden(
            child(path, "labelSelector"),
            "constraint must not define a selector, as they deduced for each pod",
        )
