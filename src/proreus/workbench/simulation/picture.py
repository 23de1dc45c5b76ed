"""A comparison as a picture. Needs matplotlib (the extra ``bench``), which only this imports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from proreus.base.errors import ConfigError
from proreus.workbench.simulation.comparison import ComparisonResult, compared_resources

_MOST_RESOURCES = 4
_BARS = (
    ("pods placed", "pods placed"),
    ("pods moved", "pods moved"),
    ("nodes without a pod", "nodes without\na pod"),
    ("skew of workloads, mean", "mean skew of\nworkloads"),
)
_COLOURS = ("C0", "C1")


def draw_comparison(path: Path, comparison: ComparisonResult) -> None:
    """Draw how full the nodes are under both configurations; equal results give equal files."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    resources = compared_resources(comparison.first.after, comparison.second.after)
    resources = resources[:_MOST_RESOURCES]
    # Text as text: smaller files, and searchable. A salt: identifiers are random otherwise.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "proreus"}):
        figure: Any = Figure(figsize=(4 * max(len(resources), 2), 6.5), layout="constrained")
        above, below = figure.subfigures(2, 1, height_ratios=[2, 1])
        figure.suptitle(" and ".join(comparison.names))
        for axes, resource in zip(_row(above, len(resources)), resources, strict=True):
            _draw_histogram(axes, comparison, resource)
        for axes, (name, title) in zip(_row(below, len(_BARS)), _BARS, strict=True):
            _draw_bars(axes, comparison, name, title)
        metadata = {"Date": None} if path.suffix == ".svg" else {"Software": None}
        try:
            figure.savefig(path, metadata=metadata)
        except OSError as error:
            raise ConfigError(f"cannot write {path}: {error.strerror or error}") from error


def _row(figure: Any, count: int) -> list[Any]:
    return list(figure.subplots(1, count, squeeze=False)[0]) if count else []


def _draw_histogram(axes: Any, comparison: ComparisonResult, resource: str) -> None:
    for name, result, colour in zip(
        comparison.names, (comparison.first, comparison.second), _COLOURS, strict=True
    ):
        counts = result.after.resources[resource].histogram
        edges = [100 * number / len(counts) for number in range(len(counts) + 1)]
        axes.stairs(counts, edges, fill=True, alpha=0.45, color=colour, label=name)
    axes.set_xlabel(f"{resource} requested, % of the node")
    axes.set_ylabel("nodes")
    axes.set_xlim(0, 100)
    axes.legend(fontsize=8)


def _draw_bars(axes: Any, comparison: ComparisonResult, name: str, title: str) -> None:
    figure = next(one for one in comparison.figures if one.name == name)
    drawn = axes.bar([0, 1], [figure.first, figure.second], color=_COLOURS)
    axes.bar_label(drawn, labels=[f"{figure.first:,g}", f"{figure.second:,g}"], fontsize=8)
    axes.set_title(title, fontsize=8)
    axes.set_xticks([])
    axes.margins(y=0.2)
    axes.tick_params(labelsize=7)
