"""The certificates by which TLS handshakes verified their clients."""

from __future__ import annotations

import ssl
from collections import OrderedDict
from typing import Any

_DER = 2  # _ssl.ENCODING_DER
_MOST_CHAINS = 256


class ClientChains:
    """Verified chains by the client's own certificate; the least recently used are dropped.

    They are kept for resumed sessions: such a session was begun with a whole handshake in this
    process, but has only the client's own certificate.
    """

    def __init__(self) -> None:
        self._chains: OrderedDict[bytes, tuple[bytes, ...]] = OrderedDict()

    def of(self, connection: ssl.SSLObject | None) -> tuple[bytes, ...]:
        """Return the chain (DER) from the client's own certificate to a trusted one.

        Empty if the client sent no certificate. ``getpeercert`` does not return intermediates; that
        they lead from the certificate to a CA was checked in the handshake.
        """
        certificate = None if connection is None else connection.getpeercert(binary_form=True)
        if certificate is None:
            return ()
        chain = _verified_chain(connection)
        if chain:
            self._chains[certificate] = chain
            self._chains.move_to_end(certificate)
            if len(self._chains) > _MOST_CHAINS:
                self._chains.popitem(last=False)
        elif certificate in self._chains:
            self._chains.move_to_end(certificate)
        return self._chains.get(certificate, (certificate,))


def _verified_chain(connection: Any) -> tuple[bytes, ...]:
    if hasattr(connection, "get_verified_chain"):  # Python 3.13
        return tuple(connection.get_verified_chain())
    # Until then the same method is there, but not public.
    chain = connection._sslobj.get_verified_chain() or ()
    return tuple(one.public_bytes(_DER) for one in chain)
