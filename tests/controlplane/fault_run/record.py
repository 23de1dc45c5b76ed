"""What the schedulers sent and what became of it, and whether the fence held."""

from __future__ import annotations

import json
import math
import threading
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

from fault_run import steps

Json = dict[str, Any]


@dataclass(frozen=True)
class SentBinding:
    """A binding that reached the proxy at ``time``, when ``holder`` held the Lease."""

    time: float
    instance: str
    pod: str
    holder: str | None
    seconds_since_renewal: float


class RequestRecord:
    """Filled by the proxy's thread; each method may be called from any.

    ``lease_seconds``: the duration of the Lease.
    """

    def __init__(self, lease_seconds: float) -> None:
        self.requests: dict[str, Counter[str]] = defaultdict(Counter)
        self.bindings: list[SentBinding] = []
        self.unfenced: list[str] = []
        self._lease_seconds = lease_seconds
        self._lock = threading.Lock()
        self._instance_of: dict[str, str] = {}
        self._holder: str | None = None  # an instance, "" for nobody, None if it cannot be known
        self._renewed = -math.inf

    @property
    def holder(self) -> str | None:
        """The instance whose Lease was last stored, "" for nobody, None if not known."""
        return self._holder

    @property
    def renewed(self) -> float:
        """When the Lease was last written, on the monotonic clock."""
        return self._renewed

    def arrived(self, instance: str, step: str, path: str, now: float) -> None:
        """Note a request; a binding is checked against the Lease."""
        with self._lock:
            self.requests[instance][step] += 1
            if step != steps.BIND:
                return
            since = now - self._renewed
            pod = path.rsplit("/", 2)[-2]
            self.bindings.append(SentBinding(now, instance, pod, self._holder, since))
            if self._holder is not None and self._holder != instance:
                self.unfenced.append(f"{instance} binds {pod}, the Lease is of {self._holder!r}")
            elif self._holder == instance and since > self._lease_seconds:
                self.unfenced.append(
                    f"{instance} binds {pod} {since:.2f} s after it renewed the Lease"
                )

    def lease_stored(self, instance: str, body: bytes, arrived: float) -> None:
        """Note a Lease that the apiserver stored, by the time at which its request arrived."""
        identity = (json.loads(body).get("spec") or {}).get("holderIdentity") or ""
        with self._lock:
            # only the holder itself writes its identity, and "" when it releases the Lease
            self._holder = instance if identity else ""
            self._renewed = arrived

    def lease_unknown(self) -> None:
        """Note that a write of the Lease may have been stored or not."""
        with self._lock:
            self._holder = None
