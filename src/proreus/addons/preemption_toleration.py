"""PreemptionToleration: preemption that spares pods as long as their PriorityClass says.

Source: kubernetes-sigs/scheduler-plugins, ``pkg/preemptiontoleration`` and KEP 205.

It is DefaultPreemption, but for victims that tolerate preemption.

Worked example: class ``batch`` (value 10) has ``minimum-preemptable-priority: 1000`` and
``toleration-seconds: 3600``. A pod of priority 100 preempts a pod of it once that has run for an
hour; a pod of priority 1000 does so at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from math import inf
from typing import NamedTuple

from proreus.addons.preemption_texts import without_prefix
from proreus.addons.retries import Retries
from proreus.framework import (
    BackgroundPlugin,
    Code,
    CycleState,
    Handle,
    NodeInfo,
    PodInfo,
    PostFilterResult,
    Status,
    Verdicts,
)
from proreus.objects import POD_SCHEDULED, PRIORITY_CLASSES, PriorityClass, true_condition_of
from proreus.objects.selectors import parse_int64
from proreus.plugins.default_preemption import DefaultPreemption, DefaultPreemptionArgs

PREFIX = "preemption-toleration.scheduling.x-k8s.io/"
MINIMUM_PREEMPTABLE_PRIORITY = f"{PREFIX}minimum-preemptable-priority"
TOLERATION_SECONDS = f"{PREFIX}toleration-seconds"


class VictimToleration(NamedTuple):
    """The toleration of preemption by the pods of a PriorityClass.

    ``minimum``: from this priority on pods preempt at once. ``seconds``: how long others do not;
    negative: for ever.
    """

    minimum: int
    seconds: int

    @classmethod
    def of(cls, priority_class: PriorityClass) -> VictimToleration | None:
        """Return the toleration of a class; None if an annotation is no number of its range."""
        annotations = priority_class.metadata.annotations
        default = str(priority_class.value + 1)
        minimum = parse_int64(annotations.get(MINIMUM_PREEMPTABLE_PRIORITY, default))
        seconds = parse_int64(annotations.get(TOLERATION_SECONDS, "0"))
        if minimum is None or seconds is None or not -(2**31) <= minimum < 2**31:
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


class PreemptionTolerationArgs(DefaultPreemptionArgs):
    """The arguments of DefaultPreemption."""


class PreemptionToleration(DefaultPreemption, BackgroundPlugin):
    """Evicts lower-priority pods, unless their PriorityClass lets them tolerate it."""

    Args = PreemptionTolerationArgs

    def __init__(self, args: PreemptionTolerationArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._classes: Mapping[str, PriorityClass] = handle.store(PRIORITY_CLASSES)
        self._ends = inf
        """The end of the first toleration that the preemption in progress met."""
        self._retries = Retries(handle.clock.now, handle.activate)

    def potential_victims(self, pod: PodInfo, node: NodeInfo) -> Sequence[PodInfo] | Status:
        """Return the pods of lower priority that do not tolerate the preemption."""
        victims = []
        lower = super().potential_victims(pod, node)
        assert not isinstance(lower, Status)
        for victim in lower:
            name = victim.pod.spec.priority_class_name
            ends = -inf
            if name:
                priority_class = self._classes.get(name)
                if priority_class is None:
                    return Status.error(f'priorityclass.scheduling.k8s.io "{name}" not found')
                toleration = VictimToleration.of(priority_class)
                ends = -inf if toleration is None else toleration.ends(pod, victim)
            if ends > self.handle.clock.now():
                self._ends = min(self._ends, ends)
            else:
                victims.append(victim)
        if victims:
            return victims
        text = f"No victims found on node {node.name} for preemptor pod {pod.name}"
        return Status.unresolvable(text)

    async def post_filter(
        self, state: CycleState, pod: PodInfo, verdicts: Verdicts
    ) -> PostFilterResult:
        """Preempt; if that fails, remember when the next toleration ends."""
        self._ends = inf
        result = await super().post_filter(state, pod, verdicts)
        status = result.status
        if status is not None and status.code == Code.UNSCHEDULABLE and self._ends < inf:
            self._retries.put(pod.key, self._ends)
        return without_prefix(result)

    async def run_in_background(self) -> None:
        """Try pods again when a toleration has ended that kept them from preempting."""
        await self._retries.run()
