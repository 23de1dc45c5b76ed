"""The scores of nodes as bars, a colour for each plugin."""

from __future__ import annotations

import msgspec

from proreus.insight.explain.explanation import NodeChoice

WIDTH = 400
COLORS = 12
"""The number of plugins that have a colour of their own; the table has the figures of all."""


class BarPart(msgspec.Struct):
    """A plugin's part of a bar, in units of which the longest bar has ``WIDTH``."""

    plugin: str
    weighted: int
    x: float
    width: float
    color: int


class ScoreBars(msgspec.Struct):
    """Bars by node. ``legend``: plugins with their colours. ``truncated``: a score is below zero.

    A negative score has no length; its figure is in the table.
    """

    legend: list[tuple[str, int]]
    bars: dict[str, list[BarPart]]
    truncated: bool


def score_bars(placement: NodeChoice) -> ScoreBars | None:
    """Return bars for the nodes with recorded scores, or None if there are none."""
    nodes = [node for node in placement.nodes if node.plugins]
    if not nodes:
        return None
    lengths = [sum(max(one.weighted, 0) for one in node.plugins) for node in nodes]
    scale = WIDTH / max(*lengths, 1)
    plugins = [one.plugin for one in nodes[0].plugins]
    colors = {plugin: number % COLORS for number, plugin in enumerate(plugins)}
    bars: dict[str, list[BarPart]] = {}
    for node in nodes:
        x, parts = 0.0, []
        for one in node.plugins:
            width = max(one.weighted, 0) * scale
            color = colors.setdefault(one.plugin, len(colors) % COLORS)
            parts.append(BarPart(one.plugin, one.weighted, round(x, 2), round(width, 2), color))
            x += width
        bars[node.name] = parts
    negative = any(one.weighted < 0 for node in nodes for one in node.plugins)
    return ScoreBars(list(colors.items()), bars, negative)
