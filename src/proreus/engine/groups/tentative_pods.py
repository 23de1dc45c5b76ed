"""The pods of a group that are assumed on nodes only while the group is tried."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from time import perf_counter

from msgspec import structs

from proreus.engine.cycles.attempt import Attempt, Failure, NodeSubset
from proreus.engine.cycles.scheduling_cycle import SchedulingCycle
from proreus.engine.groups.results import PodResult
from proreus.engine.queue.nominator import Nominator
from proreus.framework.pod_group import (
    FILTER_VERDICTS,
    POD_GROUP_SCHEDULING_CYCLE,
    PodGroupSchedulingCycle,
)
from proreus.framework.pod_info import QueuedPodInfo
from proreus.framework.post_filter_result import CLEAR_NOMINATION, NominatingInfo


@dataclass(eq=False)
class TentativePods:
    """Tries pods, and undoes it. ``begin``: makes a pod's attempt.

    ``assumed``: the pods that are assumed now, in the order in which they were. ``tries``: how many
    have been tried. ``rejectors``: the plugins that rejected pods, in whatever order and placement.
    """

    cycle: SchedulingCycle
    nominator: Nominator
    begin: Callable[[QueuedPodInfo], Attempt]
    assumed: list[PodResult] = field(default_factory=list)
    tries: int = 0
    rejectors: set[str] = field(default_factory=set)

    async def schedule(
        self, queued: QueuedPodInfo, cycle: PodGroupSchedulingCycle, nodes: NodeSubset | None
    ) -> PodResult:
        """Find a node for a pod and assume it there."""
        attempt = self.begin(queued)
        attempt.state.write(POD_GROUP_SCHEDULING_CYCLE, cycle)
        self.cycle.set_interested_extenders(attempt)
        # Preemption is for the group as a whole, once it does not fit.
        attempt.node_subset, attempt.may_preempt, attempt.in_group = nodes, False, True
        result = PodResult(queued, attempt)
        self.tries += 1
        found = await self.cycle.schedule_pod(attempt)
        if isinstance(found, Failure):
            result.failure = found
            if found.fit_error is not None:
                # The verdicts may be shared, and the pods assumed next change them.
                diagnosis = found.fit_error.diagnosis.with_copied_verdicts()
                self.rejectors |= diagnosis.unschedulable_plugins
                found.fit_error = structs.replace(found.fit_error, diagnosis=diagnosis)
                found.nominating = None
                attempt.state.write(FILTER_VERDICTS, diagnosis.verdicts)
        else:
            failure = await self.cycle.assume_and_reserve(attempt, found)
            if failure is None:
                result.node_name = found
                self.assumed.append(result)
            else:
                failure.nominating = CLEAR_NOMINATION
                result.failure = failure
                self._restore_nomination(queued)
        result.seconds = perf_counter() - attempt.started
        return result

    async def assume_again(self, pods: Iterable[PodResult]) -> Failure | None:
        """Assume pods again where they fitted; return why one could not be."""
        for pod in pods:
            if not pod.node_name:
                continue
            failure = await self.cycle.assume_and_reserve(pod.attempt, pod.node_name)
            if failure is not None:
                return failure
            self.assumed.append(pod)
        return None

    def revert_to(self, count: int) -> None:
        """Undo all but the first ``count`` pods that are assumed."""
        # In reverse: what a later pod reserved may build on an earlier pod's reservation.
        while len(self.assumed) > count:
            pod = self.assumed.pop()
            self.cycle.unreserve_and_forget(pod.attempt, pod.node_name)
            self._restore_nomination(pod.queued)

    def _restore_nomination(self, queued: QueuedPodInfo) -> None:
        """Nominate a pod again that lost its nomination when it was assumed."""
        node_name = queued.pod.status.nominated_node_name
        if node_name:
            self.nominator.add_nominated_pod(queued.info, NominatingInfo(node_name))
