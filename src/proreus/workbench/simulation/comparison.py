"""Two configurations on the same arrivals, side by side."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from proreus.workbench.simulation.results import ScenarioResult, Utilisation


class ComparedFigure(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One figure of two results; ``unit``: "" for a number, ``%`` for a share from 0 to 1."""

    name: str
    first: float
    second: float
    unit: str = ""


class ComparisonResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Two results for the same arrivals. ``names``: of the configurations.

    ``differently_placed``: how many pods are on another node, or have one in one result only.
    """

    names: tuple[str, str]
    first: ScenarioResult
    second: ScenarioResult
    differently_placed: int
    figures: tuple[ComparedFigure, ...]


def compare_results(
    names: tuple[str, str], first: ScenarioResult, second: ScenarioResult
) -> ComparisonResult:
    """Return two results with the figures that they are compared by."""
    nodes = [{one.pod: one.node for one in result.placed} for result in (first, second)]
    pods = dict.fromkeys([*nodes[0], *nodes[1]])
    return ComparisonResult(
        names=names,
        first=first,
        second=second,
        differently_placed=sum(nodes[0].get(pod) != nodes[1].get(pod) for pod in pods),
        figures=tuple(_figures(first, second)),
    )


def _figures(first: ScenarioResult, second: ScenarioResult) -> Iterable[ComparedFigure]:
    both = (first, second)
    counts = {
        "pods placed": [len(one.placed) for one in both],
        "pods without a node": [len(one.unplaced) for one in both],
        "pods moved": [one.moved for one in both],
        "pods preempted": [len(one.victims) for one in both],
        "nodes without a pod": [one.after.empty_nodes for one in both],
        "skew of workloads, most": [max((s.after for s in one.spread), default=0) for one in both],
    }
    for name, (one, other) in counts.items():
        yield ComparedFigure(name=name, first=one, second=other)
    yield ComparedFigure(
        name="skew of workloads, mean", first=_mean_skew(first), second=_mean_skew(second)
    )
    for resource in compared_resources(first.after, second.after):
        uses = [result.after.resources[resource] for result in both]
        for name in ("share", "imbalance", "fragmentation"):
            text = {"share": "requested"}.get(name, name)
            yield ComparedFigure(
                name=f"{resource} {text}",
                first=getattr(uses[0], name),
                second=getattr(uses[1], name),
                unit="%",
            )
    seconds = [one.virtual_seconds for one in both]
    yield ComparedFigure(name="virtual seconds", first=seconds[0], second=seconds[1])


def compared_resources(*results: Utilisation) -> list[str]:
    """Return the resources that all have and that some pod requests, by name."""
    common = set.intersection(*(set(one.resources) for one in results))
    return sorted(name for name in common if any(one.resources[name].requested for one in results))


def _mean_skew(result: ScenarioResult) -> float:
    skews = [one.after for one in result.spread]
    return round(sum(skews) / len(skews), 6) if skews else 0.0
