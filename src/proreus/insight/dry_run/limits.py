"""Checks the limits of a dry run before anything is built.

A body of a megabyte may ask for gigabytes: 2,000 nodes with 50,000 labels each. So the values of a
pod or node count as often as there are to be pods or nodes like it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from proreus.insight.dry_run.api import (
    MAX_NODE_NAMES,
    MAX_NODES,
    MAX_PODS,
    MAX_RESOURCES,
    MAX_TEMPLATE_PODS,
    MAX_VALUES,
    DryRunSpec,
)
from proreus.insight.dry_run.objects import DecodedTemplate, InvalidDryRun


def check_spec(spec: DryRunSpec) -> None:
    """Raise ``InvalidDryRun`` if a spec asks for too much, or names a template twice."""
    pods = sum(item.count for item in spec.pods)
    templates = spec.node_templates
    for place, what, number, most in (
        ("pods", "pods", pods, MAX_PODS),
        ("nodeTemplates", "nodes", sum(one.count for one in templates), MAX_NODES),
        (
            "nodeTemplates",
            "pods on nodes",
            sum(one.count * len(one.pods) for one in templates),
            MAX_TEMPLATE_PODS,
        ),
        ("nodeNames", "names in all", spec.node_names * pods, MAX_NODE_NAMES),
        ("bestNodes", "names in all", spec.best_nodes * pods, MAX_NODE_NAMES),
    ):
        if number > most:
            raise InvalidDryRun(f"spec.{place}: {number} {what} are more than {most}")
    names = [one.name for one in templates]
    if len(set(names)) < len(names):
        raise InvalidDryRun("spec.nodeTemplates: each name may be there once only")
    left = MAX_VALUES
    for place, what, count, values in _values(spec):
        left -= count * values
        if left < 0:
            raise InvalidDryRun(
                f"{place}: with {count} {what} of {values} values each (labels, taints, amounts, "
                f"images and others) the dry run has more than {MAX_VALUES} of them"
            )


def check_resources(templates: Iterable[DecodedTemplate]) -> None:
    """Raise ``InvalidDryRun`` if added nodes have too many different resources."""
    names: set[str] = set()
    for template in templates:
        names |= template.resource_names()
        if len(names) > MAX_RESOURCES:
            raise InvalidDryRun(
                f"{template.place}: {len(names)} different resources are more than {MAX_RESOURCES}"
            )


def _values(spec: DryRunSpec) -> Iterator[tuple[str, str, int, int]]:
    """Yield place, noun, count and number of values of all that is asked for."""
    for number, item in enumerate(spec.pods):
        yield f"spec.pods[{number}]", "pods", item.count, _number_of_values(item.pod)
    for number, template in enumerate(spec.node_templates):
        place = f"spec.nodeTemplates[{number}]"
        yield place, "nodes", template.count, _number_of_values(template.node)
        for index, pod in enumerate(template.pods):
            yield f"{place}.pods[{index}]", "pods", template.count, _number_of_values(pod)


def _number_of_values(text: msgspec.Raw) -> int:
    """Return a bound for the number of values in a JSON text: there is a comma between two."""
    return bytes(text).count(b",") + 1
