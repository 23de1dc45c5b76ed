"""Watches the apiserver directly, without the proxy, and tells the judge."""

from __future__ import annotations

import json
import threading
import time

import urllib3
from envtest.kube_client import ApiFailure, KubeClient

from fault_run.judge import CLAIMS, NODES, PODS, VOLUME_CLAIMS, VOLUMES, Judge

PATHS = {
    NODES: "/api/v1/nodes",
    PODS: "/api/v1/pods",
    CLAIMS: "/apis/resource.k8s.io/v1/resourceclaims",
    VOLUMES: "/api/v1/persistentvolumes",
    VOLUME_CLAIMS: "/api/v1/persistentvolumeclaims",
}


class Observer:
    """A thread for each kind; survives the apiserver, and lists anew when history is gone."""

    def __init__(self, client: KubeClient, judge: Judge) -> None:
        self.relists = 0
        self._client = client
        self._judge = judge
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._follow, args=(kind, path), daemon=True)
            for kind, path in PATHS.items()
        ]

    def start(self) -> None:
        """Start to watch."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop; each watch ends within seconds."""
        self._over.set()
        for thread in self._threads:
            thread.join(10)

    def _follow(self, kind: str, path: str) -> None:
        version = ""
        while not self._over.is_set():
            try:
                version = version or self._list(kind, path)
                # each of a few seconds
                for line in self._client.watch_lines(
                    path, resourceVersion=version, timeoutSeconds="5", allowWatchBookmarks="true"
                ):
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        version = ""
                        break
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        now = time.monotonic()
                        self._judge.observe(kind, event["type"], event["object"], now)
            except ApiFailure as failure:
                if failure.status in (404, 410):
                    version = ""
                self._over.wait(0.2)
            except (OSError, ValueError, urllib3.exceptions.HTTPError):
                self._over.wait(0.2)

    def _list(self, kind: str, path: str) -> str:
        # consistent reads: a list from a watch cache that lags would show bound pods as unbound
        page = self._client.get(path)
        self.relists += 1
        found = {
            f"{meta.get('namespace', '')}/{meta['name']}": one
            for one in page["items"]
            for meta in [one["metadata"]]
        }
        self._judge.replace(kind, found, time.monotonic())
        return str(page["metadata"]["resourceVersion"])
