"""The reasons of a group that does not fit: its own, its pods' and those of the groups below it.

    dry run ─► Results ─► complete: the groups below a failed one, too
        ─► append_reason: PodGroupPostFilter ─► of_pod: why a pod goes back to the queue

The reason stands in the condition of the group that failed; its pods, and groups below it that
would fit, name that group alone. Up to Kubernetes 1.37 all of them repeat the reason
(``ExplainingFailures``). Groups that plugins provide do so in any version: the API has no object of
such a group, so that its pods alone can tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import structs

from proreus.base.feature_gates import FeatureGates
from proreus.base.kubernetes_version import Change
from proreus.engine.cycles.attempt import Failure
from proreus.engine.groups.results import UNSCHEDULABLE, PodGroupResult, PodResult, Results
from proreus.framework.pod_group import PodGroupInfo
from proreus.framework.pod_info import QueuedPodInfo
from proreus.framework.post_filter_result import CLEAR_NOMINATION
from proreus.framework.status import Code, Status
from proreus.objects.scheduling import EntityKey


class GroupFailures:
    """Each failed group has its own reason; pods and groups below it name the group."""

    nothing_placed = Status.unschedulable("no pods were schedulable")
    """The status of a root group that has enough pods, none of which was placed now."""

    def rejection(self, status: Status) -> Status:
        """Return a status of PlacementFeasible before the first pod, or Wait after the last one, as
        the rejection of the group."""
        return structs.replace(status, code=Code.UNSCHEDULABLE)

    def in_no_placement(self, first: Status, count: int) -> Status:
        """Return the status of a group that fits in none of ``count`` placements."""
        text = f"0/{count} placements are available, first placement status: {first.message}"
        return Status(Code.UNSCHEDULABLE, (text,), first.plugin)

    def error_of_feasibility(self, group: PodGroupInfo, error: Status) -> Status:
        """Return the status of a group for which PlacementFeasible failed."""
        return Status.error(f"failed to evaluate placement feasibility: {error.message}")

    def error_of_child(self, group: PodGroupInfo, child: PodGroupInfo, error: Status) -> Status:
        """Return the status of a group of groups, one of which failed with an error."""
        names = f'composite pod group "{group.name}" evaluation failed due to child "{child.name}"'
        return Status.error(f"{names} error: {error.message}")

    def error_of_subtree(self, child: PodGroupInfo, failure: Failure) -> Status:
        """Return the status of a child whose pods could not be assumed for its siblings."""
        subtree = f"failed to assume child {child.key} subtree in snapshot"
        return Status.error(f"{subtree}: {failure.message}")

    def after_error(self, results: Results, group: EntityKey) -> Results:
        """Return the results that count where one placement of a group ended with an error."""
        return results

    def complete(
        self, group: PodGroupInfo, results: Results, failed: PodGroupResult | None = None
    ) -> None:
        """Give a status to the groups below a failed one that have none of their own.

        ``failed``: the nearest failed group above. An error above counts for more than a rejection.
        """
        result = results.get(group.entity_key)
        known = result is not None
        if result is None:
            result = results[group.entity_key] = PodGroupResult(group)
        if failed is not None and (
            not known or result.status is None or (failed.failed and not result.failed)
        ):
            result.status = _below(failed)
        elif result.status is not None:
            failed = result
        for child in group.children:
            self.complete(child, results, failed)

    def append_reason(self, results: Iterable[PodGroupResult], reason: str) -> None:
        """Append a reason, if there is one, to the status of each group."""
        for result in results:
            if result.status is not None and reason:
                reasons = (*result.status.reasons, reason)
                result.status = structs.replace(result.status, reasons=reasons)

    def of_pod(self, result: PodGroupResult, pod: PodResult) -> Failure | None:
        """Return why a pod goes back to the queue; None if it may be bound."""
        own = pod.failure
        if result.failed:
            # An error of its own says more about this pod than the group's.
            if own is not None and not own.status.rejected:
                return structs.replace(own, nominating=CLEAR_NOMINATION)
            return self._of_group(result)
        nominating = result.nomination_of(pod.queued)
        if own is not None:
            return structs.replace(own, nominating=nominating or own.nominating)
        if result.status is None:
            return None
        failure = self._of_group(result)
        if result.waiting_on_preemption:
            # The node is kept for it while the victims go.
            failure.nominating = nominating
        return failure

    def of_untried(
        self, result: PodGroupResult, pods: Sequence[QueuedPodInfo]
    ) -> Iterable[tuple[QueuedPodInfo, Failure]]:
        """Yield the pods of a group that were not tried; they fail with the group."""
        for queued in pods[len(result.pods) :]:
            failure = self._of_untried(result)
            failure.nominating = result.nominating.get(queued.key)
            yield queued, failure

    def _of_untried(self, result: PodGroupResult) -> Failure:
        return self._of_group(result)

    def _of_group(self, result: PodGroupResult) -> Failure:
        """Return the failure of a pod whose group failed."""
        status, name = result.status, result.group.name
        assert status is not None
        if result.failed:
            return Failure(Status.error(f'parent pod group "{name}" encountered an error'))
        if result.verbatim:
            return Failure(status)
        return Failure(
            Status.unschedulable(f'parent pod group "{name}" is unschedulable'),
            rejectors=frozenset({status.plugin} - {""}),
        )


def _below(failed: PodGroupResult) -> Status:
    """Return the status of a group below a failed one."""
    assert failed.status is not None
    name = f'ancestor composite pod group "{failed.group.name}"'
    if failed.failed:
        return Status.error(f"{name} encountered an error")
    return Status(failed.status.code, (f"{name} is unschedulable",), failed.status.plugin)


class ExplainingFailures(GroupFailures):
    """Pods and groups below a failed one repeat its reasons."""

    nothing_placed = Status.unschedulable(UNSCHEDULABLE)

    def rejection(self, status: Status) -> Status:
        """Return the rejection with the words that all such groups have in common."""
        return Status.unschedulable(UNSCHEDULABLE, *status.reasons)

    def in_no_placement(self, first: Status, count: int) -> Status:
        """Return the status of a group that fits in none of ``count`` placements.

        Of a rejection with the words that all have in common nothing else is told.
        """
        common = first.reasons[:1] == (UNSCHEDULABLE,)
        reason = UNSCHEDULABLE if common else first.message
        text = f"0/{count} placements are available, first placement status: {reason}"
        return Status.unschedulable(UNSCHEDULABLE, text)

    def error_of_feasibility(self, group: PodGroupInfo, error: Status) -> Status:
        """Return the status of a group for which PlacementFeasible failed."""
        return error if group.is_composite else super().error_of_feasibility(group, error)

    def error_of_child(self, group: PodGroupInfo, child: PodGroupInfo, error: Status) -> Status:
        """Return the status of a group of groups, one of which failed with an error."""
        text = "composite pod group evaluation failed due to child error"
        return Status.error(f"{text}: {error.message}")

    def error_of_subtree(self, child: PodGroupInfo, failure: Failure) -> Status:
        """Return the status of a child whose pods could not be assumed for its siblings."""
        return Status.error(f"failed to assume the subtree: {failure.message}")

    def after_error(self, results: Results, group: EntityKey) -> Results:
        """Return the result of the group alone, which is told to all below it."""
        return {group: results[group]}

    def complete(
        self, group: PodGroupInfo, results: Results, failed: PodGroupResult | None = None
    ) -> None:
        """Give each group below a failed one the status of its parent, unless it failed itself."""
        result = results.get(group.entity_key)
        if result is None or (failed is not None and result.status is None):
            result = PodGroupResult(group, None if failed is None else failed.status)
            results[group.entity_key] = result
        for child in group.children:
            self.complete(child, results, None if result.status is None else result)

    def append_reason(self, results: Iterable[PodGroupResult], reason: str) -> None:
        """Append a reason to the status of each group.

        kube-scheduler's groups share the status of their parent, so that the reason is appended to
        it once for each group that has it.
        """
        by_status: dict[int, list[PodGroupResult]] = {}
        for result in results:
            if result.status is not None:
                by_status.setdefault(id(result.status), []).append(result)
        for sharing in by_status.values():
            status = sharing[0].status
            assert status is not None
            reasons = (*status.reasons, *[reason] * len(sharing))
            for result in sharing:
                result.status = structs.replace(status, reasons=reasons)

    def _of_untried(self, result: PodGroupResult) -> Failure:
        return Failure(result.status or Status.error("some pods were not processed"))

    def _of_group(self, result: PodGroupResult) -> Failure:
        status = result.status
        assert status is not None
        if result.failed or result.waiting_on_preemption:
            return Failure(status)
        return Failure(Status.unschedulable(UNSCHEDULABLE, status.message))


def failures_of(root: PodGroupInfo, gates: FeatureGates) -> GroupFailures:
    """Return the texts for a root group that does not fit, and for all below it."""
    provided = root.group is not None and root.entity_key.is_provided
    if provided or not gates.includes(Change.FAILED_GROUPS_NAMED):
        return ExplainingFailures()
    return GroupFailures()
