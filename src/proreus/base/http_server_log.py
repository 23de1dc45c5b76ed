"""The logger of our HTTP servers, which does not log mistakes of clients.

aiohttp logs a traceback for each request that is no HTTP. Anybody who can connect could fill the
log with it, without a token. Go's server, kube-scheduler's, answers it with 400 and logs nothing.
"""

from __future__ import annotations

import logging

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError


class _NotOfClients(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        return not isinstance(error, (HttpProcessingError, web.RequestPayloadError))


HTTP_SERVER_LOGGER = logging.getLogger(__name__)
"""For an ``aiohttp.web.Server``."""
HTTP_SERVER_LOGGER.addFilter(_NotOfClients())
