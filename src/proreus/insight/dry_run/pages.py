"""The dry-run API: POST of a ``DryRunReview``, and its OpenAPI document.

A dry run is admitted before its body is read: those that wait to be answered are limited, and so is
the memory that their bodies take.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
from aiohttp import web

from proreus.base.errors import ConfigError
from proreus.insight.dry_run.api import DryRunReview
from proreus.insight.dry_run.objects import InvalidDryRun
from proreus.insight.dry_run.openapi import DOCUMENT_PATH, PATH, openapi_document
from proreus.insight.dry_run.replica import ClusterChanged
from proreus.insight.dry_run.service import RETRY_AFTER_SECONDS, Busy, DryRunService
from proreus.objects.codec import DecodeError, decode_strictly
from proreus.server.responses import json_body, method_not_allowed, status_body
from proreus.server.server import Server

READ_SECONDS = 10.0
"""Time limit for the arrival of a body, which occupies the place of another dry run."""


def add_dry_run_pages(
    server: Server,
    service: DryRunService,
    standby: Callable[[], str],
    read_seconds: float = READ_SECONDS,
) -> None:
    """Serve dry runs; ``standby`` returns why this instance does not, "" if it does."""

    async def respond(request: web.BaseRequest) -> web.Response:
        if request.method != "POST":
            return method_not_allowed("POST")
        if text := standby():
            return status_body(503, "ServiceUnavailable", text)
        try:
            with service.admit():
                async with asyncio.timeout(read_seconds):
                    body = await request.read()
                asked = decode_strictly(body, DryRunReview)
                status = await service.answer(asked.spec)
        except Busy as error:
            return _again(status_body(429, "TooManyRequests", f"{error}: ask again later"))
        except ClusterChanged as error:
            return _again(status_body(409, "Conflict", str(error)))
        except DecodeError as error:
            return status_body(400, "BadRequest", f"the body is no DryRunReview: {error}")
        except InvalidDryRun as error:
            return status_body(422, "Invalid", str(error))
        except ConfigError as error:
            return status_body(500, "InternalError", f"no plugins for dry runs: {error}")
        except TimeoutError:
            return status_body(504, "Timeout", "the dry run took longer than it may")
        return json_body(msgspec.structs.replace(asked, status=status), status=201)

    def document(request: web.BaseRequest) -> web.Response:
        if request.method != "GET":
            return method_not_allowed("GET")
        return json_body(openapi_document())

    server.add_page(PATH, respond)
    server.add_page(DOCUMENT_PATH, document)


def _again(response: web.Response) -> web.Response:
    response.headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return response
