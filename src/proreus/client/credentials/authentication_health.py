"""Records whether the apiserver accepts our credentials, and since when it has refused them.

One refusal that nothing follows, on a cluster where nothing happens, proves no lasting fault: how
long it lasts is the time from the first refusal to the last.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable

_CERTIFICATE_ALERTS = ("CERTIFICATE", "UNKNOWN_CA")
"""In names of TLS alerts by which a server refuses the certificate of its client."""


class AuthenticationHealth:
    """Told of each response by the clients that share it; may be asked from any thread.

    ``now`` returns seconds on a clock that does not go back.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._first_refusal: float | None = None
        self._last_refusal = 0.0

    def responded(self, code: int) -> None:
        """Record the status of a response."""
        if code == 401:
            self._refuse()
        else:
            self._first_refusal = None

    def failed(self, error: BaseException | None) -> None:
        """Record that there was no response; the error may be a TLS handshake's."""
        while error is not None:
            if isinstance(error, ssl.SSLCertVerificationError) or (
                isinstance(error, ssl.SSLError)
                and any(alert in (error.reason or "") for alert in _CERTIFICATE_ALERTS)
            ):
                self._refuse()
                return
            error = error.__cause__

    def _refuse(self) -> None:
        self._last_refusal = self._now()
        if self._first_refusal is None:
            self._first_refusal = self._last_refusal

    def problem(self, at_most_seconds: float) -> str | None:
        """Return a sentence if requests have been refused, and none accepted, for longer."""
        since = self._first_refusal
        if since is None or (seconds := self._last_refusal - since) <= at_most_seconds:
            return None
        return f"the apiserver has not accepted our credentials for {seconds:.0f} s"
