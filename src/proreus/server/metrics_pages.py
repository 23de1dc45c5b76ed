"""/metrics, /metrics/slis and /metrics/resources, as Prometheus scrapes them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from aiohttp import web

from proreus.base.metrics import SchedulerMetrics
from proreus.base.metrics.exposition import expose
from proreus.objects.pod import Pod
from proreus.server.health import HealthMetrics
from proreus.server.pod_resources import write_pod_resources
from proreus.server.responses import CACHE_CONTROL, Page, plain

_NOTHING = HealthMetrics()


def metrics_pages(
    metrics: SchedulerMetrics,
    slis: HealthMetrics,
    leader_pods: Callable[[], Iterable[Pod] | None],
) -> dict[str, Page]:
    """Return the pages by path. ``leader_pods`` returns all pods, or None while this instance
    follows.
    """
    return {
        "/metrics": lambda request: _resettable(request, metrics.reset, metrics.expose),
        "/metrics/slis": lambda request: _resettable(
            request, slis.reset, lambda accept: expose(slis, accept)
        ),
        "/metrics/resources": lambda request: _resources(request, leader_pods()),
    }


def _resettable(
    request: web.BaseRequest,
    reset: Callable[[], None],
    expose_as: Callable[[str], tuple[bytes, str]],
) -> web.Response:
    """Answer GET with the metrics; DELETE resets them, as in kube-scheduler."""
    if request.method == "DELETE":
        reset()
        return plain("metrics reset\n")
    body, content_type = expose_as(request.headers.get("Accept", ""))
    response = web.Response(body=body, headers={"Content-Type": content_type})
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        response.enable_compression(web.ContentCoding.gzip)
    return response


async def _resources(request: web.BaseRequest, pods: Iterable[Pod] | None) -> web.StreamResponse:
    content_type = expose(_NOTHING, request.headers.get("Accept", ""))[1]
    response = web.StreamResponse(headers={**CACHE_CONTROL, "Content-Type": content_type})
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        response.enable_compression(web.ContentCoding.gzip)
    await response.prepare(request)
    openmetrics = content_type.startswith("application/openmetrics-text")
    async for part in write_pod_resources(() if pods is None else pods, openmetrics=openmetrics):
        await response.write(part)
        await asyncio.sleep(0)
    await response.write_eof()
    return response
