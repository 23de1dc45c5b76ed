"""Keeps for a while what would help a waiting pod, which takes the engine up to 0.1 s to find."""

from __future__ import annotations

from proreus.base.clock import Clock
from proreus.insight.explain import Explainer, PodExplanation
from proreus.insight.explain.explanation import WhatWouldHelp

KEPT_SECONDS = 30.0
_INCOMPLETE_SECONDS = 5.0
"""An answer for which there was no time is kept until the next pages are made."""
_KEPT = 256


class HelpCache:
    """What would help pods, asked again after an attempt or half a minute.

    So a page that is followed live costs the scheduler no more than one that is opened. ``clock``:
    of the machine, since it is its time that is spared.
    """

    def __init__(self, explainer: Explainer, clock: Clock) -> None:
        self._explainer = explainer
        self._clock = clock
        self._found: dict[str, tuple[str, int, float, WhatWouldHelp | None]] = {}

    def explanation(self, namespace: str, name: str) -> PodExplanation:
        """Explain a pod, with changes that would help it if it waits."""
        explained = self._explainer.pod(namespace, name, changes=False)
        if explained.waiting is None or explained.waiting.queue == "gated":
            return explained
        explained.help = self._help(explained, namespace, name)
        return explained

    def _help(self, now: PodExplanation, namespace: str, name: str) -> WhatWouldHelp | None:
        assert now.waiting is not None
        at = self._clock.monotonic()
        known = self._found.get(now.pod)
        if known is not None:
            uid, attempts, until, found = known
            if (uid, attempts) == (now.uid, now.waiting.attempts) and at < until:
                return found
        found = self._explainer.pod(namespace, name, names=0).help
        while len(self._found) >= _KEPT:
            del self._found[next(iter(self._found))]
        seconds = _INCOMPLETE_SECONDS if found is not None and found.incomplete else KEPT_SECONDS
        self._found[now.pod] = now.uid, now.waiting.attempts, at + seconds, found
        return found
