"""The pages and parts of pages, by name: each a function of a request and the rest of its path.

They read the scheduler's own state. Those about all pods let other work have turns in between, so
that tens of thousands do not hold up the event loop; the others are of one moment.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web

from proreus.insight.dashboard.node_cells import ZONE, label_keys, node_cells, node_rows, resources
from proreus.insight.dashboard.pod_list import list_pods
from proreus.insight.dashboard.rendering import HEADERS, Renderer
from proreus.insight.dashboard.what_if import WhatIf
from proreus.insight.explain.explanation import NodeChoice
from proreus.insight.page_sources import PageSources

PageFunction = Callable[[web.BaseRequest, list[str]], web.Response | Awaitable[web.Response]]

_MAX_TEXT = 300
_COLUMNS = ("cpu", "memory", "pods")


class Pages:
    """All pages of a scheduler. ``by_name`` has them by the first segment of the path after
    /dashboard/.

    ``with_forms``: those that take a POST.
    """

    with_forms = frozenset({"what-if"})

    def __init__(self, sources: PageSources, renderer: Renderer) -> None:
        self._sources = sources
        self._render = renderer.page
        self.by_name: dict[str, PageFunction] = {
            "": self.overview,
            "state": self.state,
            "nodes": self.nodes,
            "node-cells": self.node_cells,
            "node-table": self.node_table,
            "node": self.node,
            "pods": self.pods,
            "pod-table": self.pod_table,
            "pod": self.pod,
            "pod-help": self.pod_help,
            "what-if": WhatIf(sources, renderer).respond,
        }

    # ---- overview ------------------------------------------------------------------------------

    def overview(self, _: web.BaseRequest, rest: list[str]) -> web.Response:
        """Return the charts, and the state next to them."""
        return self._render("overview.html", here="overview", **self._state())

    def state(self, _: web.BaseRequest, rest: list[str]) -> web.Response:
        """Return the part of the overview that is fetched again every few seconds."""
        return self._render("state.html", **self._state())

    def _state(self) -> dict[str, Any]:
        sources = self._sources
        return {
            "queue": sources.explainer.queue(),
            "synced": sources.synced(),
            "reload": sources.last_reload(),
            "plugins": sources.plugin_health().get("plugins", []),
            "profiles": list(sources.scheduler.profiles),
            "nodes": len(sources.scheduler.cache.table),
            "pods": len(sources.pods),
        }

    # ---- nodes ---------------------------------------------------------------------------------

    def nodes(self, request: web.BaseRequest, rest: list[str]) -> web.Response:
        """Return the heat map and the table of nodes."""
        table = self._sources.scheduler.cache.table
        return self._render(
            "nodes.html",
            here="nodes",
            resources=resources(table),
            labels=label_keys(table),
            **self._node_rows(request),
        )

    def node_table(self, request: web.BaseRequest, rest: list[str]) -> web.Response:
        """Return the table alone."""
        return self._render("node_table.html", **self._node_rows(request))

    def node_cells(self, request: web.BaseRequest, rest: list[str]) -> web.Response:
        """Return all nodes as columns, in JSON, for the heat map."""
        table = self._sources.scheduler.cache.table
        cells = node_cells(table, self._resource(request), self._label(request))
        return web.Response(
            body=msgspec.json.encode(cells), content_type="application/json", headers=HEADERS
        )

    def _node_rows(self, request: web.BaseRequest) -> dict[str, Any]:
        resource, label = self._resource(request), self._label(request)
        columns = list(dict.fromkeys((*_COLUMNS, resource)))
        text = _text(request, "q")
        table = self._sources.scheduler.cache.table
        rows, count = node_rows(table, resource, label, text, columns)
        return {
            "rows": rows,
            "count": count,
            "columns": columns,
            "resource": resource,
            "label": label,
            "text": text,
        }

    def _resource(self, request: web.BaseRequest) -> str:
        asked = request.query.get("resource", "cpu")
        return asked if asked in resources(self._sources.scheduler.cache.table) else "cpu"

    def _label(self, request: web.BaseRequest) -> str:
        # A column is made for each key, so only the offered keys are accepted.
        asked = request.query.get("label", ZONE)
        return asked if asked in label_keys(self._sources.scheduler.cache.table) else ZONE

    def node(self, _: web.BaseRequest, rest: list[str]) -> web.Response:
        """Return a node's pods, and the pods that it rejects."""
        if len(rest) != 1:
            return self._not_found("node")
        explanation = self._sources.explainer.node(rest[0])
        status = 200 if explanation.known else 404
        return self._render("node.html", status=status, here="nodes", node=explanation)

    # ---- pods ----------------------------------------------------------------------------------

    def pods(self, request: web.BaseRequest, rest: list[str]) -> web.Response:
        """Return the pods that wait, by reason, with a search."""
        return self._render("pods.html", here="pods", **self._pod_list(request))

    def pod_table(self, request: web.BaseRequest, rest: list[str]) -> web.Response:
        """Return the table alone."""
        return self._render("pod_table.html", **self._pod_list(request))

    def _pod_list(self, request: web.BaseRequest) -> dict[str, Any]:
        sources = self._sources
        text, reason = _text(request, "q"), _text(request, "reason")
        found = list_pods(sources.scheduler.queue, sources.pods, sources.clock, text, reason)
        return {"found": found, "text": text, "reason": reason}

    def pod(self, _: web.BaseRequest, rest: list[str]) -> web.Response:
        """Return the explanation of a pod; the page fetches proposed changes itself."""
        if len(rest) != 2:
            return self._not_found("pod")
        namespace, name = rest
        explanation = self._sources.explainer.pod(namespace, name, changes=False)
        attempt = explanation.attempt
        placement = None if attempt is None else attempt.placement
        return self._render(
            "pod.html",
            status=404 if explanation.state == "unknown" and attempt is None else 200,
            here="pods",
            pod=explanation,
            namespace=namespace,
            name=name,
            attempt=attempt,
            bars=None if placement is None else score_bars(placement),
            history=self._sources.explainer.history(namespace, name),
        )

    def pod_help(self, _: web.BaseRequest, rest: list[str]) -> web.Response:
        """Return changes with which a pod would fit; asks the engine for up to 0.1 s."""
        if len(rest) != 2:
            return self._not_found("pod")
        explanation = self._sources.explainer.pod(*rest, names=0)
        return self._render("pod_help.html", help=explanation.help)

    def _not_found(self, what: str) -> web.Response:
        return self._render("not_found.html", status=404, what=f"such {what}")


def _text(request: web.BaseRequest, name: str) -> str:
    return request.query.get(name, "").strip()[:_MAX_TEXT]


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
