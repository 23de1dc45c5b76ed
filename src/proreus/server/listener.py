"""The listening socket, with the options that Go's net.Listen sets."""

from __future__ import annotations

import socket

from proreus.base.errors import ConfigError
from proreus.server.options import ServingOptions


def listen(options: ServingOptions) -> socket.socket:
    """Return a socket that listens on --bind-address and --secure-port; raises ``ConfigError``."""
    host = options.bind_address
    candidates = [(socket.AF_INET6 if ":" in host else socket.AF_INET, host)]
    if host in ("", "0.0.0.0", "::"):
        # As in Go: the unspecified address of either family means all addresses of both.
        candidates = [(socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")]
    problem: Exception | None = None
    for family, address in candidates:
        try:
            return _bound(family, address, options)
        except (OSError, ValueError) as error:
            problem = error
    raise ConfigError(f"failed to listen on {host}:{options.secure_port}: {problem}") from problem


def _bound(family: int, address: str, options: ServingOptions) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        # Go's listeners always have it: a restart must not wait for old connections to time out.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if options.permit_port_sharing:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(address != "::"))
        listener.bind((address, options.secure_port))
        listener.listen(128)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener
