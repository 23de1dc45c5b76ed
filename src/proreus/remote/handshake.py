"""Connects to a process: reads its descriptor and checks its health.

Containers of one pod start in any order, so that a process that does not respond yet is retried
for a while.
"""

from __future__ import annotations

import asyncio

from proreus.base.errors import ConfigError
from proreus.base.logs import logger
from proreus.base.metrics import SchedulerMetrics
from proreus.remote.connection import Connection, NoResponse, OutOfSync
from proreus.remote.descriptor import Descriptor, read_descriptor
from proreus.remote.endpoint import Endpoint
from proreus.remote.wire import BadResponse

log = logger(__name__)

CONNECT_TIMEOUT_SECONDS = 30.0
_ANSWER_SECONDS = 5.0
_PAUSE_SECONDS = 0.25


async def connect(
    address: str,
    metrics: SchedulerMetrics,
    connect_timeout_seconds: float = CONNECT_TIMEOUT_SECONDS,
) -> Endpoint:
    """Return the endpoint at an address; raises ``ConfigError`` if it does not respond in time."""
    connection = Connection(address)
    try:
        descriptor = await fetch_descriptor(connection, connect_timeout_seconds)
        endpoint = Endpoint(connection, descriptor, metrics)
        problem = await endpoint.health_error()
        if problem is not None:
            raise ConfigError(f"plugin endpoint {address}{problem}")
    except BaseException:
        await connection.close()
        raise
    log.info(
        "Connected to a plugin", plugin=descriptor.name, endpoint=address, points=descriptor.points
    )
    return endpoint


async def fetch_descriptor(
    connection: Connection, connect_timeout_seconds: float = 0.0
) -> Descriptor:
    """Return the descriptor of the process; raises ``ConfigError``."""
    body = await _descriptor_of(connection, connect_timeout_seconds)
    return read_descriptor(body, connection.address)


async def _descriptor_of(connection: Connection, connect_timeout_seconds: float) -> bytes:
    end = asyncio.get_running_loop().time() + connect_timeout_seconds
    logged = False
    while True:
        try:
            return await connection.get("/v1/descriptor", _ANSWER_SECONDS)
        except (BadResponse, OutOfSync) as error:
            raise ConfigError(f"plugin endpoint {connection.address}{error}") from error
        except NoResponse as error:
            if asyncio.get_running_loop().time() >= end:
                raise ConfigError(f"plugin endpoint {connection.address}{error}") from error
            if not logged:
                logged = True
                log.warning("Waiting for a plugin", endpoint=connection.address, err=error)
        await asyncio.sleep(_PAUSE_SECONDS)
