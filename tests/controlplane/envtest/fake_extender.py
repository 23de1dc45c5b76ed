"""An HTTP extender whose rules depend on the names of nodes, so that scenarios need no scripts.

It rejects nodes named ``lost…``, scores nodes named ``…-best`` highest, and binds pods itself. It
manages only pods that request ``RESOURCE``.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from envtest import objects
from envtest.kube_client import ApiFailure, KubeClient

Json = dict[str, Any]

RESOURCE = "example.com/asks-the-extender"

VERBS = ("filter", "prioritize", "preempt", "bind")


class FakeExtender:
    """Serves on loopback until ``close``; binds pods through ``client``."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self.asked: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def configuration(self) -> Json:
        """Return its entry for a KubeSchedulerConfiguration."""
        return {
            "urlPrefix": f"http://127.0.0.1:{self._server.server_port}",
            "managedResources": [{"name": RESOURCE, "ignoredByScheduler": True}],
            "nodeCacheCapable": True,
            "weight": 5,
            **{f"{verb}Verb": verb for verb in VERBS},
        }

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def handle(self, verb: str, question: Json) -> Any:
        """Return the response to one of its verbs."""
        self.asked.append(verb)
        return getattr(self, f"_{verb}")(question)

    @staticmethod
    def _filter(question: Json) -> Json:
        names = question["NodeNames"]
        lost = {name: "it is a lost one" for name in names if name.startswith("lost")}
        return {"NodeNames": [name for name in names if name not in lost], "FailedNodes": lost}

    @staticmethod
    def _prioritize(question: Json) -> list[Json]:
        return [
            {"Host": name, "Score": 10 if name.endswith("-best") else 1}
            for name in question["NodeNames"]
        ]

    @staticmethod
    def _preempt(question: Json) -> Json:
        victims = question["NodeNameToMetaVictims"]
        kept = {name: one for name, one in victims.items() if not name.startswith("lost")}
        return {"NodeNameToMetaVictims": kept}

    def _bind(self, question: Json) -> Json:
        name, namespace = question["PodName"], question["PodNamespace"]
        target = {"kind": "Node", "name": question["Node"]}
        path = f"{objects.PODS.format(namespace)}/{name}/binding"
        try:
            self._client.create(path, {"metadata": {"name": name}, "target": target})
        except ApiFailure as failure:
            return {"Error": str(failure)}
        return {}


def _handler_of(extender: FakeExtender) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            data = json.dumps(extender.handle(self.path.strip("/"), question)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler
