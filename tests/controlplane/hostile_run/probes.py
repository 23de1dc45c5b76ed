"""Creates plain pods while a run goes on, and measures how long each waits for its node."""

from __future__ import annotations

import threading
import time

from envtest import objects
from envtest.kube_client import KubeClient

_PODS = objects.PODS.format("default")
_PAUSE_SECONDS = 0.25
_POLL_SECONDS = 0.01
_LOST_SECONDS = 60.0


class Probes(threading.Thread):
    """A thread that creates one plain pod of a scheduler after the other.

    Each is deleted once it is bound.
    """

    def __init__(self, client: KubeClient, scheduler: str) -> None:
        super().__init__(name=f"probes of {scheduler}", daemon=True)
        self.waits: list[float] = []
        """Seconds from the apiserver's answer to the creation until the pod had a node."""
        self.lost: list[str] = []
        """Those that had none after a minute."""
        self._client = client
        self._scheduler = scheduler
        self._ended = threading.Event()

    def run(self) -> None:
        """Go on until ``stop``."""
        number = 0
        while not self._ended.wait(_PAUSE_SECONDS):
            number += 1
            self._try(f"{self._scheduler}-{number}")

    def stop(self) -> None:
        """End with the pod that is being scheduled."""
        self._ended.set()
        self.join()

    def _try(self, name: str) -> None:
        self._client.create(_PODS, objects.pod(name, self._scheduler))
        created = time.monotonic()
        while not self._client.get(f"{_PODS}/{name}")["spec"].get("nodeName"):
            if time.monotonic() > created + _LOST_SECONDS:
                self.lost.append(name)
                return
            time.sleep(_POLL_SECONDS)
        self.waits.append(time.monotonic() - created)
        self._client.delete(f"{_PODS}/{name}", gracePeriodSeconds="0")
