"""The arguments of NodeAffinity, with the checks that the API makes of node selectors.

The fields of ``NodeAffinityConfig`` and its parts have the names of ``objects.pod.NodeAffinity``,
so that ``msgspec.convert(added, NodeAffinity, from_attributes=True)`` converts one to the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Annotated

from pydantic import Field

from proreus.base.feature_gates import FeatureGates
from proreus.config.field_errors import child, invalid, item, unsupported
from proreus.config.fields import ConfigModel, Int32, PluginArgs, Text
from proreus.config.names import label_key_errors, label_value_errors

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


class NodeSelectorRequirementConfig(ConfigModel):
    """One expression over a label or a field of the node."""

    go_type = "v1.NodeSelectorRequirement"

    key: Text = ""
    operator: Text = ""
    values: tuple[Text, ...] = ()


class NodeSelectorTermConfig(ConfigModel):
    """Expressions that must all match; a term without any matches no node."""

    go_type = "v1.NodeSelectorTerm"

    match_expressions: tuple[NodeSelectorRequirementConfig, ...] = ()
    match_fields: tuple[NodeSelectorRequirementConfig, ...] = ()

    def problems(self, path: str) -> Iterator[str]:
        """Yield the errors that the API's own parser reports."""
        checks: tuple[tuple[str, tuple[NodeSelectorRequirementConfig, ...], _Check], ...] = (
            ("matchExpressions", self.match_expressions, _label_problems),
            ("matchFields", self.match_fields, _field_problems),
        )
        for name, requirements, check in checks:
            for index, requirement in enumerate(requirements):
                yield from check(requirement, item(child(path, name), index))


class NodeSelectorConfig(ConfigModel):
    """Terms, at least one of which must match."""

    go_type = "v1.NodeSelector"

    node_selector_terms: tuple[NodeSelectorTermConfig, ...] = ()


class PreferredSchedulingTermConfig(ConfigModel):
    """A term that adds ``weight`` to the score of matching nodes; weight 0 disables it."""

    go_type = "v1.PreferredSchedulingTerm"

    weight: Int32 = 0
    preference: NodeSelectorTermConfig = NodeSelectorTermConfig()


class NodeAffinityConfig(ConfigModel):
    """Required and preferred node selector terms."""

    go_type = "v1.NodeAffinity"

    required: Annotated[NodeSelectorConfig | None, Field(alias=_REQUIRED)] = None
    preferred: Annotated[tuple[PreferredSchedulingTermConfig, ...], Field(alias=_PREFERRED)] = ()

    def problems(self, path: str) -> Iterator[str]:
        """Check required terms, then preferred ones with a weight."""
        if self.required is not None:
            where = child(path, _REQUIRED)
            for index, term in enumerate(self.required.node_selector_terms):
                yield from term.problems(item(child(where, "nodeSelectorTerms"), index))
        where = child(path, _PREFERRED)
        for index, preferred in enumerate(self.preferred):
            if preferred.weight != 0:
                yield from preferred.preference.problems(item(where, index))


class NodeAffinityArgs(PluginArgs):
    """Node affinity that a profile adds to that of every pod."""

    go_type = "v1.NodeAffinityArgs"

    added_affinity: NodeAffinityConfig | None = None

    def problems(self, path: str, gates: FeatureGates) -> Iterable[str]:
        """Check every term as the API does that of a pod."""
        if self.added_affinity is None:
            return ()
        return self.added_affinity.problems(child(path, "addedAffinity"))


_Check = Callable[[NodeSelectorRequirementConfig, str], Iterator[str]]

_LABEL_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_FIELD_OPERATORS = ("In", "NotIn")


def _label_problems(requirement: NodeSelectorRequirementConfig, path: str) -> Iterator[str]:
    operator, values = requirement.operator, requirement.values
    if operator not in _LABEL_OPERATORS:
        yield unsupported(child(path, "operator"), operator, _LABEL_OPERATORS)
        return
    faults = "; ".join(label_key_errors(requirement.key))
    if faults:
        yield invalid(child(path, "key"), requirement.key, faults)
    where = child(path, "values")
    match operator:
        case "In" | "NotIn" if not values:
            detail = "for 'in', 'notin' operators, values set can't be empty"
            yield invalid(where, [], detail)
        case "Exists" | "DoesNotExist" if values:
            detail = "values set must be empty for exists and does not exist"
            yield invalid(where, list(values), detail)
        case "Gt" | "Lt":
            if len(values) != 1:
                detail = "for 'Gt', 'Lt' operators, exactly one value is required"
                yield invalid(where, list(values), detail)
            for index, value in enumerate(values):
                if not _is_int64(value):
                    detail = "for 'Gt', 'Lt' operators, the value must be an integer"
                    yield invalid(item(where, index), value, detail)
    for index, value in enumerate(values):
        faults = "; ".join(label_value_errors(value))
        if faults:
            yield invalid(f"{item(where, index)}[{requirement.key}]", value, faults)


def _field_problems(requirement: NodeSelectorRequirementConfig, path: str) -> Iterator[str]:
    if requirement.operator not in _FIELD_OPERATORS:
        yield unsupported(child(path, "operator"), requirement.operator, _FIELD_OPERATORS)
    elif len(requirement.values) != 1:
        yield invalid(child(path, "values"), list(requirement.values), "must have one element")


def _is_int64(text: str) -> bool:
    """Return whether Go's ``strconv.ParseInt(text, 10, 64)`` accepts a text."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    return digits.isascii() and digits.isdigit() and -(2**63) <= int(text) < 2**63
