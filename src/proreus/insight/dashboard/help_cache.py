"""Keeps changes that would help waiting pods: the engine takes up to 0.1 s to find them."""

from __future__ import annotations

from proreus.base.clock import Clock
from proreus.insight.explain import Explainer, PodExplanation
from proreus.insight.explain.explanation import GroupState, WhatWouldHelp
from proreus.insight.explain.summaries import waiting_summary

Asked = tuple[WhatWouldHelp | None, GroupState | None]

KEPT_SECONDS = 30.0
_INCOMPLETE_SECONDS = 5.0
"""An answer for which there was no time is kept until the next pages are made."""
_KEPT = 256


class HelpCache:
    """Changes that would help pods, found again after an attempt or half a minute.

    A live page then costs the scheduler no more than one that is opened once. ``clock``: the
    machine's, since the machine's time is saved.
    """

    def __init__(self, explainer: Explainer, clock: Clock) -> None:
        self._explainer = explainer
        self._clock = clock
        self._found: dict[str, tuple[str, int, float, Asked]] = {}

    def explanation(self, namespace: str, name: str) -> PodExplanation:
        """Explain a pod, with changes that would help it if it waits."""
        explained = self._explainer.pod(namespace, name, changes=False)
        if explained.waiting is None or explained.waiting.queue == "gated":
            return explained
        found, group = self._asked(explained, namespace, name)
        explained.help = found
        if group is not None:
            explained.group = group
            explained.summary = waiting_summary(explained)
        return explained

    def _asked(self, now: PodExplanation, namespace: str, name: str) -> Asked:
        """Return changes that would help a pod or its group, and the state of the group."""
        assert now.waiting is not None
        at = self._clock.monotonic()
        known = self._found.get(now.pod)
        if known is not None:
            uid, attempts, until, asked = known
            if (uid, attempts) == (now.uid, now.waiting.attempts) and at < until:
                return asked
        explained = self._explainer.pod(namespace, name, names=0)
        found = explained.help
        while len(self._found) >= _KEPT:
            del self._found[next(iter(self._found))]
        seconds = _INCOMPLETE_SECONDS if found is not None and found.incomplete else KEPT_SECONDS
        asked = found, explained.group
        self._found[now.pod] = now.uid, now.waiting.attempts, at + seconds, asked
        return asked
