"""The arguments of PodTopologySpread."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

from proreus.base.feature_gates import FeatureGates
from proreus.config.field_errors import (
    child,
    duplicate,
    forbidden,
    invalid,
    item,
    required,
    unsupported,
)
from proreus.config.fields import ConfigModel, Int32, PluginArgs, Text
from proreus.config.names import label_key_problems
from proreus.plugins.node_affinity_args import NodeSelectorRequirementConfig


class LabelSelectorConfig(ConfigModel):
    """metav1.LabelSelector, decoded so that ``DefaultConstraint`` can report it as forbidden."""

    go_type = "v1.LabelSelector"

    match_labels: dict[str, Text] = {}
    match_expressions: tuple[NodeSelectorRequirementConfig, ...] = ()


class DefaultConstraint(ConfigModel):
    """A TopologySpreadConstraint for pods that have none of their own.

    Its selector is derived from services and controllers, so that ``label_selector`` is an error.
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
    """Constraints for pods without any: kube-scheduler's own (System), or those given (List)."""

    go_type = "v1.PodTopologySpreadArgs"

    default_constraints: tuple[DefaultConstraint, ...] = ()
    defaulting_type: Text = ""

    def with_defaults(self, gates: FeatureGates) -> Self:
        """Use System if no type is given."""
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


def _constraint_problems(constraint: DefaultConstraint, path: str) -> Iterator[str]:
    if constraint.max_skew <= 0:
        yield invalid(child(path, "maxSkew"), constraint.max_skew, "not in valid range (0, inf)")
    if constraint.topology_key:
        yield from label_key_problems(child(path, "topologyKey"), constraint.topology_key)
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
