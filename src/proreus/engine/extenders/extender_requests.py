"""How requests to an HTTP extender are sent, and how they fail, whatever carries them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from proreus.base.errors import ExtenderError
from proreus.config.types import Extender


class ExtenderUnreachable(ExtenderError):
    """The extender was not reached or did not respond. ``timed_out``: by a time-out."""

    def __init__(self, text: str, timed_out: bool) -> None:
        super().__init__(text)
        self.timed_out = timed_out


def status_error(verb: str, url: str, status: int) -> ExtenderError:
    """Return the error of a response that is no 200."""
    return ExtenderError(f"failed {verb} with extender at URL {url}, code {status}")


class ExtenderTransport(Protocol):
    """What carries requests to one extender: ``extender_transport.Transport``, or a fake of it."""

    async def post(self, verb: str, body: bytes, *, repeatable: bool = True) -> bytes:
        """Return the body of a response; raises ``ExtenderError``."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


TransportFactory = Callable[[Extender], ExtenderTransport]


def new_transport(config: Extender) -> ExtenderTransport:
    """Return the connections to one extender; raises ``ConfigError``."""
    # Here, since a start does without aiohttp, and most processes have no extender.
    from proreus.engine.extenders.extender_transport import Transport

    return Transport(config)
