"""Mode ``permit``: the attempts of a group, which begin with one of its pods and end with another.

The first pod that gets a node has its siblings activated. When one of them fits nowhere, all that
wait are rejected, but siblings that were not tried yet stay in the active queue. The next of them
may get one of the nodes that just became free, and begin another attempt, which fails alike: of 50
pods on 30 nodes, the group would be tried without end, and no other group in its place.
"""

from __future__ import annotations

from collections.abc import Iterable

from proreus.objects import Pod

_REPEATED_ATTEMPTS = 3
"""How often pods left over by a failed attempt may begin another one. In the original always: it
ends there because most of the rejected pods still count while the next one is tried."""


class GroupAttempts:
    """The attempts of one group. Pods are given by UID."""

    def __init__(self) -> None:
        self._untried: set[str] = set()
        self._left_over: set[str] = set()
        self._repeated = 0

    def may_begin(self, uid: str) -> bool:
        """Return whether a pod may be the first one of another attempt.

        One that was activated for an earlier attempt is not, after a few of them: no event has said
        since that the group may fit now. It is no longer left over then.
        """
        if uid not in self._left_over or self._repeated < _REPEATED_ATTEMPTS:
            return True
        self._left_over.discard(uid)
        return False

    def begin(self, uid: str, siblings: Iterable[Pod]) -> None:
        """Begin an attempt with a pod, for which its siblings are activated."""
        self._repeated = self._repeated + 1 if uid in self._left_over else 0
        self._left_over = set()
        self._untried = {
            one.metadata.uid
            for one in siblings
            # A gated pod is not activated, and enters the queue by an event.
            if not one.spec.node_name and not one.spec.scheduling_gates
        }

    def tried(self, uid: str) -> None:
        """Record that a pod got a node, fitted nowhere, or is gone."""
        self._untried.discard(uid)
        self._left_over.discard(uid)

    def fail(self) -> None:
        """End the attempt: one of its pods fits nowhere."""
        self._left_over |= self._untried
        self._untried = set()
