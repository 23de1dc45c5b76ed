"""An extender that now and then breaks off, hangs or reports an error."""

from __future__ import annotations

import threading
import time
from typing import Any

from envtest.fake_extender import FakeExtender
from envtest.kube_client import KubeClient

Json = dict[str, Any]

UP, BREAKS_OFF, HANGS, FAILS = "up", "breaks off", "hangs", "fails"
MODES = (BREAKS_OFF, HANGS, FAILS)
TIMEOUT_SECONDS = 1


class UnsteadyExtender(FakeExtender):
    """``mode`` says what it does with requests; set it from any thread."""

    def __init__(self, client: KubeClient) -> None:
        self.mode = UP
        self._changed = threading.Event()
        super().__init__(client)
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]

    def configuration(self) -> Json:
        """Return its entry for a KubeSchedulerConfiguration."""
        return super().configuration() | {"httpTimeout": f"{TIMEOUT_SECONDS}s"}

    def handle(self, verb: str, question: Json) -> Any:
        """Return the response to one of its verbs, or break off by raising."""
        if self.mode == BREAKS_OFF:
            raise ConnectionAbortedError
        if self.mode == HANGS:
            time.sleep(TIMEOUT_SECONDS + 0.5)
            raise ConnectionAbortedError
        if self.mode == FAILS and verb in ("filter", "bind"):
            return {"Error": "injected fault"}
        try:
            return super().handle(verb, question)
        except OSError as error:
            return {"Error": f"the apiserver is away: {error}"}
