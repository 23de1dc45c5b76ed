"""Ports for processes that must be told one, and for those who want to find nobody.

A port that is looked for and let go again may be somebody else's by the time it is used: any
connection on the machine may be given it. So it stays bound, and proreus listens on it too.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

SHARE_PORT_FLAG = "--permit-port-sharing=true"
"""The flag that lets proreus listen on a kept port."""


@contextmanager
def reserved_port() -> Iterator[int]:
    """Keep a port of 127.0.0.1, on which nobody listens who does not share it."""
    with socket.socket() as kept:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        kept.bind(("127.0.0.1", 0))
        yield kept.getsockname()[1]
