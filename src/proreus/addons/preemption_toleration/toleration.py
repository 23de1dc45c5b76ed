"""How long, and against whom, the pods of a PriorityClass tolerate preemption: its annotations."""

from __future__ import annotations

from datetime import datetime
from math import inf
from typing import NamedTuple

from proreus.framework import PodInfo
from proreus.objects import POD_SCHEDULED, PriorityClass, true_condition_of

PREFIX = "preemption-toleration.scheduling.x-k8s.io/"
MINIMUM_PREEMPTABLE_PRIORITY = f"{PREFIX}minimum-preemptable-priority"
TOLERATION_SECONDS = f"{PREFIX}toleration-seconds"

_INT32, _INT64 = 2**31, 2**63


class VictimToleration(NamedTuple):
    """``minimum``: from this priority on pods preempt at once. ``seconds``: how long others do not;
    negative: for ever."""

    minimum: int
    seconds: int

    @classmethod
    def of(cls, priority_class: PriorityClass) -> VictimToleration | None:
        """Return the toleration of a class; None if an annotation is no number of its range."""
        annotations = priority_class.metadata.annotations
        default = str(priority_class.value + 1)
        minimum = _number(annotations.get(MINIMUM_PREEMPTABLE_PRIORITY, default), _INT32)
        seconds = _number(annotations.get(TOLERATION_SECONDS, "0"), _INT64)
        if minimum is None or seconds is None:
            return None
        return cls(minimum, seconds)

    def ends(self, preemptor: PodInfo, victim: PodInfo) -> float:
        """Return until when a pod must not be preempted, in seconds since the epoch.

        ``-inf``: it may be at any time, ``inf``: never.
        """
        if preemptor.priority >= self.minimum:
            return -inf
        if self.seconds < 0:
            return inf
        scheduled = true_condition_of(victim.pod, POD_SCHEDULED)
        if scheduled is None:
            return inf
        since = scheduled.last_transition_time
        # Without a time it was scheduled at the beginning of time, as in the original.
        if since is None:
            return -inf
        return datetime.fromisoformat(since.replace("Z", "+00:00")).timestamp() + self.seconds


def _number(text: str, limit: int) -> int | None:
    # Go's ParseInt: a sign and ASCII digits, without spaces or underscores.
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdecimal()):
        return None
    number = int(text)
    return number if -limit <= number < limit else None
