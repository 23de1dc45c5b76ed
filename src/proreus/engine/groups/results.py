"""The results of the dry run of a pod group, for the group and for each of its pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field, structs

from proreus.engine.cycles.attempt import Attempt, Failure
from proreus.framework.cycle_state import CycleState
from proreus.framework.pod_group import (
    Placement,
    PodGroupInfo,
    ProposedAssignment,
    reasons_of_placements,
)
from proreus.framework.pod_info import QueuedPodInfo
from proreus.framework.post_filter_result import CLEAR_NOMINATION, NominatingInfo
from proreus.framework.status import Code, Status
from proreus.objects.scheduling import EntityKey

UNSCHEDULABLE = "pod group is unschedulable"


class PodResult(Struct):
    """The result of one pod of a group.

    ``node_name``: where it fits. ``failure``: why it does not. ``seconds``: how long it took.
    """

    queued: QueuedPodInfo
    attempt: Attempt
    node_name: str = ""
    failure: Failure | None = None
    seconds: float = 0.0


class PodGroupResult(Struct):
    """The result of one group.

    ``status``: None if it can be scheduled; ``verbatim``: its pods are told it as it is, since no
    placement was generated. ``pods``: of the pods that were tried, in their order.
    ``any_scheduled``: whether one of its pods fits, those of all groups below included.
    ``waiting_on_preemption``: whether it may fit once victims are gone; then ``nominating`` has
    their pods' new nominations, by ``namespace/name``. ``state``: what plugins keep about the try
    in one placement. ``lacking``: how many more of its pods need a node than found one, if it does
    not fit: at least so many as are known to, and 1. ``next_placement``: the place of the first
    placement that was not tried, since others took long; 0 if all were, or it fits. ``rejectors``:
    the plugins that rejected pods in all placements that were tried. ``in_the_way``: see
    ``QueuedPodGroupInfo``.
    """

    group: PodGroupInfo
    status: Status | None = None
    pods: list[PodResult] = field(default_factory=list)
    verbatim: bool = False
    any_scheduled: bool = False
    waiting_on_preemption: bool = False
    nominating: Mapping[str, NominatingInfo] = field(default_factory=dict)
    state: CycleState = field(default_factory=CycleState)
    lacking: int = 1
    next_placement: int = 0
    rejectors: frozenset[str] = frozenset()
    in_the_way: Mapping[bytes, QueuedPodInfo] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Whether an error ended the attempt, rather than a rejection."""
        return self.status is not None and self.status.code == Code.ERROR

    @property
    def assignments(self) -> list[ProposedAssignment]:
        """The pods that fit, with their nodes."""
        return [
            ProposedAssignment(pod.queued.info, pod.node_name, pod.attempt.state)
            for pod in self.pods
            if pod.node_name
        ]

    def nomination_of(self, queued: QueuedPodInfo) -> NominatingInfo | None:
        """Return the new nomination of a pod that goes back; None if its nomination stays."""
        gives_up = self.status is not None and not self.waiting_on_preemption
        if gives_up and self.group.group is not None and self.group.entity_key.is_provided:
            # kube-scheduler leaves it. But nobody else is to be kept from a place that the group
            # does not take: another group, by its nominations, would keep this one from its own.
            return CLEAR_NOMINATION
        return self.nominating.get(queued.key)


Results = dict[EntityKey, PodGroupResult]
"""The results of a root group and of the groups below it that were tried."""


def pods_lacking(result: PodGroupResult, pods: Sequence[QueuedPodInfo], scheduled: int) -> int:
    """Return the number of pods of a PodGroup that lack a node after a try that did not fit.

    ``pods``: all that wait; ``scheduled``: how many have a node, or found one.
    """
    rejected = next((pod for pod in result.pods if pod.failure is not None), None)
    if rejected is None or result.group.group is None:
        return 1
    # Pods that were not tried lack a node as well if they need what the rejected one needs.
    needed = rejected.queued.info.requests.amounts
    untried = pods[len(result.pods) :]
    alike = sum(pod.info.requests.amounts == needed for pod in untried)
    return max(1, result.group.group.min_count - scheduled - (len(untried) - alike))


def naming_rejected_pod(status: Status, pods: Sequence[PodResult]) -> Status:
    """Return the status of a group that does not fit with the last pod that did not, and why."""
    pod = next((pod for pod in reversed(pods) if pod.failure is not None), None)
    if pod is None or pod.failure is None or not status.rejected:
        return status
    return structs.replace(
        status, reasons=(*status.reasons, f"pod {pod.queued.key}: {pod.failure.message}")
    )


def naming_placements(
    status: Status, placements: Sequence[Placement], reasons: Sequence[str]
) -> Status:
    """Return the status of a group that fits in no placement, with the reasons of each.

    ``reasons``: of each placement; those that have none were not tried.
    """
    if len(placements) == 1:
        return status
    known = [
        structs.replace(one, lacking=why) for one, why in zip(placements, reasons, strict=True)
    ]
    texts = reasons_of_placements(one for one in known if one.lacking)
    text = f"0/{len(placements)} placements are available, {'; '.join(texts)}"
    untried = sum(not one.lacking for one in known)
    if untried:
        text += f"; {untried} are tried next"
    return Status.unschedulable(UNSCHEDULABLE, text)


def reason_of(status: Status) -> str:
    """Return why a group does not fit, without the words that all such groups have in common."""
    return ", ".join(reason for reason in status.reasons if reason != UNSCHEDULABLE)


def say_of_rejected_pods(results: Iterable[PodGroupResult], status: Status | None) -> None:
    """Give rejected pods the message of the whole group; a node of one placement says little."""
    for pod in (pod for result in results for pod in result.pods):
        if pod.failure is not None and pod.failure.status.rejected and status is not None:
            pod.failure.text = status.message


def add_rejectors(results: Iterable[PodGroupResult], plugins: Iterable[str]) -> None:
    """Add plugins to the rejectors of the last pod that did not fit."""
    failed = [pod.failure for result in results for pod in result.pods if pod.failure is not None]
    if failed and failed[-1].fit_error is not None:
        diagnosis = failed[-1].fit_error.diagnosis
        diagnosis.unschedulable_plugins = diagnosis.unschedulable_plugins.union(plugins)


def all_assignments(root: PodGroupInfo, results: Results) -> list[ProposedAssignment]:
    """Return the pods that have a node in a root group that fits, also those of groups below it
    that do not."""
    return [assignment for result in results.values() for assignment in result.assignments]


def fitting_assignments(root: PodGroupInfo, results: Results) -> list[ProposedAssignment]:
    """Return the pods that have a node in the groups that fit."""
    leaves = successful_leaves(root, results)
    return [assignment for leaf in leaves for assignment in leaf.assignments]


def successful_leaves(group: PodGroupInfo, results: Results) -> Iterable[PodGroupResult]:
    """Yield the results of the PodGroups that fit, below groups that fit as well."""
    result = results.get(group.entity_key)
    if result is None or result.status is not None:
        return
    for child in group.children:
        yield from successful_leaves(child, results)
    if result.pods:
        yield result
