"""The least that a pod can wait: a scheduler that decides nothing."""

from __future__ import annotations

import json
import threading

import urllib3
from envtest import objects
from envtest.kube_client import ApiFailure, KubeClient

SCHEDULER = "bind-at-once"

_PODS = objects.PODS.format("default")
_OURS = f'"schedulerName":"{SCHEDULER}"'.encode()
_WATCH_SECONDS = 5


class BindAtOnce(threading.Thread):
    """Binds each of its pods to one node as soon as a watch of all pods shows it.

    How long its pods wait is what apiserver and etcd take, which store and send megabytes
    meanwhile. What the pods of another scheduler wait longer is that scheduler's share.
    """

    def __init__(self, client: KubeClient, node: str) -> None:
        super().__init__(name=SCHEDULER, daemon=True)
        self._client = client
        self._node = node
        self._ended = threading.Event()

    def run(self) -> None:
        """Go on until ``stop``."""
        while not self._ended.is_set():
            try:
                # without a version: first all pods as they are, so that none is missed
                for line in self._client.watch_lines(_PODS, timeoutSeconds=str(_WATCH_SECONDS)):
                    if _OURS in line:
                        self._bind(json.loads(line)["object"])
            except (OSError, ApiFailure, urllib3.exceptions.HTTPError):
                self._ended.wait(0.2)

    def stop(self) -> None:
        """End within the seconds of a watch."""
        self._ended.set()
        self.join()

    def _bind(self, pod: objects.Json) -> None:
        if pod["spec"].get("nodeName"):
            return
        name = pod["metadata"]["name"]
        binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": self._node}}
        # a pod that has been bound or deleted since is no failure of the run
        self._client.request("POST", f"{_PODS}/{name}/binding", binding)
