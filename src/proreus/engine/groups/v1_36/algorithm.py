"""Whether a whole PodGroup fits, and where each of its pods: the algorithm of a group's cycle.

    run ─► each pod in order: schedule_pod ─► assume, Reserve, Permit ─► the next pod sees it
        ─► all of it undone in reverse ─► GroupResult

It works on the live table, without a copy: the group's cycle has paused the informers, so nothing
else reads the table meanwhile. kube-scheduler's ``podGroupSchedulingDefaultAlgorithm``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

from msgspec import Struct, field
from msgspec.structs import replace

from proreus.engine.cycles.attempt import Attempt, Failure, NodeSubset
from proreus.engine.cycles.scheduling_cycle import SchedulingCycle
from proreus.engine.queue.nominator import Nominator
from proreus.engine.runtime.scheduling_points import PermitOutcome
from proreus.framework.pod_group import PlacedPod
from proreus.framework.pod_info import QueuedPodInfo
from proreus.framework.post_filter_result import NominatingInfo
from proreus.framework.status import Code, Status

UNSCHEDULABLE = "pod group is unschedulable"
WAITING = "pod group is waiting for preemption to complete"
HELD = "one or more plugins asked to wait and no plugin rejected pod"


class Member(Struct):
    """The result of one pod of the group.

    ``node_name``: where it fits, or will once its victims are gone; "" where it does not.
    ``failure``: why it does not fit now. ``seconds``: how long its attempt took.
    """

    attempt: Attempt
    node_name: str = ""
    failure: Failure | None = None
    permit: PermitOutcome = field(default_factory=PermitOutcome)
    nominated_before: str | None = None
    seconds: float = 0.0

    @property
    def needs_preemption(self) -> bool:
        """Whether it fits only once its victims are gone."""
        return self.failure is not None and bool(self.node_name)

    @property
    def not_permitted(self) -> Failure:
        """The failure of a pod that would fit, but not without the others."""
        reasons = (UNSCHEDULABLE, *self.permit.reasons, HELD) if self.permit.timeouts else ()
        return Failure(Status(Code.UNSCHEDULABLE, reasons or (UNSCHEDULABLE,)))


class GroupResult(Struct):
    """``status``: None if the group can be scheduled. ``members``: of the pods that were tried."""

    status: Status | None
    members: list[Member] = field(default_factory=list)
    waiting_on_preemption: bool = False

    @property
    def failed(self) -> bool:
        """Whether an error ended the attempt, rather than a rejection."""
        return self.status is not None and not self.status.rejected

    @property
    def placed(self) -> tuple[PlacedPod, ...]:
        """The pods that have a node, with its name."""
        return tuple(PlacedPod(m.attempt.pod, m.node_name) for m in self.members if m.node_name)

    def failure_of(self, member: Member) -> Failure | None:
        """Return why a pod goes back to the queue; None if it may be bound."""
        own = member.failure
        if self.failed:
            assert self.status is not None
            # An error of its own says more about this pod than the group's.
            return own if own is not None and not own.status.rejected else Failure(self.status)
        if own is not None:
            waits = self.waiting_on_preemption
            return member.not_permitted if member.needs_preemption and not waits else own
        if self.status is None:
            return None
        if self.waiting_on_preemption:
            # The node is kept for it while the victims of the other members go.
            return Failure(self.status, nominating=NominatingInfo(member.node_name))
        return member.not_permitted


class PodGroupAlgorithmV136(Struct, frozen=True):
    """Tries the pods of a group in their order.

    ``begin``: makes a pod's attempt. ``preempt``: whether PostFilter may preempt for single pods.
    """

    cycle: SchedulingCycle
    nominator: Nominator
    begin: Callable[[QueuedPodInfo], Attempt]
    preempt: bool = True

    async def run(
        self, pods: Sequence[QueuedPodInfo], node_subset: NodeSubset | None = None
    ) -> GroupResult:
        """Try the pods, on some nodes or on all; undo everything and return the result."""
        result = GroupResult(Status.unschedulable(UNSCHEDULABLE))
        try:
            await self._run(pods, node_subset, result)
        finally:
            # In reverse: what a later pod reserved may build on an earlier pod's reservation.
            for member in reversed(result.members):
                if member.node_name:
                    self._undo(member)
        return result

    async def _run(
        self, pods: Sequence[QueuedPodInfo], node_subset: NodeSubset | None, result: GroupResult
    ) -> None:
        preempting = False
        for queued in pods:
            member = await self._try(queued, node_subset)
            result.members.append(member)
            if member.node_name:
                preempting = preempting or member.needs_preemption
                if not member.permit.timeouts:
                    # Permit holds the members until there are enough of them; the one that it
                    # lets through therefore decides for the whole group.
                    waits = Status.unschedulable(UNSCHEDULABLE, WAITING)
                    result.status = waits if preempting else None
                    result.waiting_on_preemption = preempting
            elif member.failure is not None and not member.failure.status.rejected:
                text = "failed to schedule other pod from a pod group"
                result.status = Status.error(f"{text}: {member.failure.message}")
                result.waiting_on_preemption = False
                return

    async def _try(self, queued: QueuedPodInfo, node_subset: NodeSubset | None) -> Member:
        """Find a node for a pod and assume it there, even if its victims are still running."""
        attempt = self.begin(queued)
        attempt.node_subset, attempt.may_preempt = node_subset, self.preempt
        attempt.in_group = True
        member = Member(attempt, nominated_before=self.nominator.nominated_node_of(queued.uid))
        chosen = await self.cycle.schedule_pod(attempt)
        if isinstance(chosen, Failure):
            # The verdicts may be shared, and the members assumed next change them.
            if chosen.fit_error is not None:
                chosen.fit_error = replace(
                    chosen.fit_error, diagnosis=chosen.fit_error.diagnosis.with_copied_verdicts()
                )
            member.failure = chosen
            chosen = "" if chosen.nominating is None else chosen.nominating.node_name
        if chosen:
            permit = await self.cycle.assume_reserve_and_permit(attempt, chosen)
            if isinstance(permit, Failure):
                member.failure = permit
                self._restore_nomination(member)
            else:
                member.node_name, member.permit = chosen, permit
        member.seconds = perf_counter() - attempt.started
        return member

    def _undo(self, member: Member) -> None:
        self.cycle.unreserve_and_forget(member.attempt, member.node_name)
        self._restore_nomination(member)

    def _restore_nomination(self, member: Member) -> None:
        if member.nominated_before is not None:
            nominating = NominatingInfo(member.nominated_before)
            self.nominator.add_nominated_pod(member.attempt.pod, nominating)
