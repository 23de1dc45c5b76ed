"""/explain/pod, /explain/node and /explain/queue: why pods are where they are, and why they wait.

Paths of their own, so that RBAC can allow them without /metrics. The parameters are in the query:
``namespace``, ``name``; for a pod ``names``, how many nodes of each group are named, and
``changes=false`` to leave out what would have to change. Instants are RFC 3339 texts.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from aiohttp import web

from proreus.base import logs
from proreus.insight.explain import Explainer
from proreus.insight.explain.documents import to_document
from proreus.insight.explain.explanation import Explanation
from proreus.server.responses import json_body, method_not_allowed, status_body
from proreus.server.server import Server

log = logs.logger(__name__)

POD, NODE, QUEUE = "/explain/pod", "/explain/node", "/explain/queue"
_LONG_SECONDS = 0.2


def add_explain_pages(server: Server, explainer: Explainer, standby: Callable[[], str]) -> None:
    """Serve explanations; ``standby`` returns why this instance does not, "" if it does."""

    def serve(path: str, explain: Callable[[web.BaseRequest], Explanation]) -> None:
        def respond(request: web.BaseRequest) -> web.Response:
            if request.method != "GET":
                return method_not_allowed("GET")
            if text := standby():
                return status_body(503, "ServiceUnavailable", text)
            started = perf_counter()
            try:
                response = json_body(to_document(explain(request)))
            except BadQuery as error:
                return status_body(400, "BadRequest", str(error))
            seconds = perf_counter() - started
            if seconds >= _LONG_SECONDS:
                log.info("An explanation took long", path=path, seconds=round(seconds, 3))
            return response

        server.add_page(path, respond)

    serve(POD, lambda request: _explain_pod(explainer, request))
    serve(NODE, lambda request: explainer.node(_required(request, "name")))
    serve(QUEUE, lambda _: explainer.queue())


class BadQuery(ValueError):
    """A parameter of a request is missing or wrong."""


def _explain_pod(explainer: Explainer, request: web.BaseRequest) -> Explanation:
    names = request.query.get("names", "10")
    if not names.isdecimal():
        raise BadQuery(f"names={names} is not a whole number")
    return explainer.pod(
        request.query.get("namespace", "default"),
        _required(request, "name"),
        names=int(names),
        changes=request.query.get("changes", "true") != "false",
    )


def _required(request: web.BaseRequest, name: str) -> str:
    value = request.query.get(name, "")
    if not value:
        raise BadQuery(f"the parameter {name} is missing")
    return value
