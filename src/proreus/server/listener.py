"""The port and the certificate of the secure port, without the HTTP server.

They are checked before the election: a replica that cannot be reached must not lead.
"""

from __future__ import annotations

import socket
import ssl

from proreus.base.addresses import authority
from proreus.base.errors import ConfigError
from proreus.server.options import ServingOptions


def open_listener(options: ServingOptions) -> socket.socket | None:
    """Return the socket of --secure-port, None for port 0; raises ``ConfigError``.

    Also if the files of --tls-cert-file and --tls-private-key-file cannot be used.
    """
    if options.secure_port == 0:
        return None
    if options.tls_cert_file:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        load_files(context, options.tls_cert_file, options.tls_private_key_file)
    return listen(options)


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
    raise ConfigError(
        f"failed to listen on {authority(host, options.secure_port)}: {problem}"
    ) from problem


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


def load_files(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Load a certificate and its key; raises ``ConfigError``."""
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"cannot serve with certificate {certificate} and key {key}: {error}"
        ) from error
