"""When an extender that does not answer is asked again.

kube-scheduler asks a dead extender for every pod, and waits for its time-out every time, even where
nothing comes of a failure: an ignorable extender's errors are passed over, and so are everybody's
errors in Prioritize. Here such a question is left out for a while after an extender has not
answered. Where a failure fails the pod, every pod asks, as there.

The circuit of a plugin in a process of its own (``remote/circuit``) has other rules: such a process
can be asked in the background how it is, while of an extender only a pod's question tells.
"""

from __future__ import annotations

from collections.abc import Iterable

from proreus.clock import Clock

_REFUSED_SECONDS = (1.0, 30.0)
"""First and longest pause after a connection that could not be made: to find out costs nothing."""
_TIMEOUTS = 4
_HUNG_SECONDS = 300.0
"""After a time-out the first pause is four time-outs, the longest five minutes."""


class _Verb:
    """What is known of one verb. ``pause``: seconds of the last pause, 0 while it answers."""

    __slots__ = ("answered", "opened", "pause", "until")

    def __init__(self) -> None:
        self.pause = 0.0
        self.until = 0.0
        self.opened = 0.0
        self.answered = -1.0


class CircuitBreakers:
    """Which verbs of one extender are worth asking; pauses double until it answers again.

    An extender that did not answer one verb is not asked for the others either, so that a dead one
    costs one time-out; unless one of them has answered since then: only that verb hangs.
    """

    def __init__(self, verbs: Iterable[str], clock: Clock, timeout_seconds: float) -> None:
        self._verbs = {verb: _Verb() for verb in verbs}
        self._clock = clock
        self._timeout = timeout_seconds

    def allows(self, verb: str) -> bool:
        """Tell whether to ask; at the end of a pause one caller may, the others wait for it."""
        state, now = self._verbs[verb], self._clock.now()
        if not state.pause:
            return True
        if now < state.until:
            return False
        state.until = now + self._timeout
        return True

    def answered(self, verb: str) -> bool:
        """Note an answer; tell whether it ended a pause."""
        state = self._verbs[verb]
        paused, state.pause, state.answered = bool(state.pause), 0.0, self._clock.now()
        return paused

    def failed(self, verb: str, timed_out: bool) -> float:
        """Note that there was no answer; return for how many seconds not to ask."""
        first, longest = _REFUSED_SECONDS
        if timed_out:
            first, longest = _TIMEOUTS * self._timeout, max(_HUNG_SECONDS, self._timeout)
        state, now = self._verbs[verb], self._clock.now()
        if not state.pause:
            state.opened = now
        pause = min(max(first, 2 * state.pause), longest)
        alive = any(other.answered > state.opened for other in self._verbs.values())
        for other in (state,) if alive else self._verbs.values():
            if not other.pause:
                other.opened = now
            other.pause, other.until = pause, now + pause
        return pause
