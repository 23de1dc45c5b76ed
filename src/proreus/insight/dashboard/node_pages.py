"""The pages about nodes: the heat map, the table, and one node."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from proreus.insight.dashboard.listing import Listing
from proreus.insight.dashboard.node_cells import ZONE, label_keys, node_cells, node_rows, resources
from proreus.insight.dashboard.rendering import HEADERS, Renderer
from proreus.insight.page_sources import PageSources

if TYPE_CHECKING:
    from proreus.insight.dashboard.pages import PageFunction

_COLUMNS = ("cpu", "memory", "pods")


class NodePages:
    """The pages about the nodes of a scheduler, by the first segment of the path."""

    def __init__(self, sources: PageSources, renderer: Renderer) -> None:
        self._explainer = sources.explainer
        self._table = sources.scheduler.cache.table
        self._render = renderer.page
        self.by_name: dict[str, PageFunction] = {
            "nodes": partial(self._nodes, "nodes.html"),
            "node-cells": self._node_cells,
            "node-table": partial(self._nodes, "node_table.html"),
            "node": partial(self._node, "node.html"),
            "node-state": partial(self._node, "node_state.html"),
        }

    def _node_cells(self, request: web.BaseRequest, rest: list[str]) -> web.Response:
        """Return all nodes as columns, in JSON, for the heat map."""
        cells = node_cells(self._table, self._resource(request), self._label(request))
        return web.Response(
            body=msgspec.json.encode(cells), content_type="application/json", headers=HEADERS
        )

    def _nodes(self, template: str, request: web.BaseRequest, rest: list[str]) -> web.Response:
        """Return the heat map and the table of nodes."""
        resource, label = self._resource(request), self._label(request)
        columns = list(dict.fromkeys((*_COLUMNS, resource)))
        # ``node_rows`` sorts, by columns of the table of nodes; only the names are needed here.
        keys = dict.fromkeys((f"-{resource}", "name", *(f"-{one}" for one in columns)), str)
        listing = Listing(request, "nodes", keys, ("q", "resource", "label"))
        by, down = listing.sort.removeprefix("-"), listing.sort.startswith("-")
        rows, count = node_rows(self._table, by, down, label, listing["q"], columns)
        return self._render(
            template,
            here="nodes",
            resources=resources(self._table),
            labels=label_keys(self._table),
            rows=rows,
            count=count,
            columns=columns,
            resource=resource,
            label=label,
            listing=listing,
        )

    def _resource(self, request: web.BaseRequest) -> str:
        asked = request.query.get("resource", "cpu")
        return asked if asked in resources(self._table) else "cpu"

    def _label(self, request: web.BaseRequest) -> str:
        # A column is made for each key, so only the offered keys are accepted.
        asked = request.query.get("label", ZONE)
        return asked if asked in label_keys(self._table) else ZONE

    def _node(self, template: str, _: web.BaseRequest, rest: list[str]) -> web.Response:
        """Return a node's pods, and the pods that it rejects."""
        if len(rest) != 1:
            return self._render("not_found.html", status=404, what="such node")
        explanation = self._explainer.node(rest[0])
        status = 200 if explanation.known else 404
        return self._render(template, status=status, here="nodes", node=explanation)
