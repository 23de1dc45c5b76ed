"""Asks the engine whether the pods of a group fit together, without leaving a trace.

    GroupTrial.run ─► engine/groups/algorithm, on the live table ─► all of it undone ─► TrialOutcome

It runs in one piece, so that nothing else sees the pods that it assumes. Results, metrics and the
record of decisions are kept apart from those of real attempts. Extenders are not asked.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any, TypeVar

from msgspec import structs

from proreus.base.errors import PluginError
from proreus.base.metrics import SchedulerMetrics
from proreus.engine.cycles.attempt import Attempt
from proreus.engine.cycles.scheduling_cycle import SchedulingCycle
from proreus.engine.groups.algorithm import PodGroupAlgorithm
from proreus.engine.groups.failures import failures_of
from proreus.engine.groups.placement_search import every_placement
from proreus.engine.groups.results import PodResult
from proreus.engine.groups.tentative_pods import TentativePods
from proreus.engine.runtime.find_nodes import NodeSearch
from proreus.engine.runtime.profile import Profile
from proreus.engine.runtime.select_host import in_order
from proreus.engine.runtime.waiting_pods import WaitingPods
from proreus.engine.scheduler import Scheduler
from proreus.framework.cycle_state import CycleState
from proreus.framework.pod_group import PodGroupInfo
from proreus.framework.pod_info import PodInfo, QueuedPodInfo
from proreus.framework.post_filter_result import NominatingInfo
from proreus.framework.queued_pod_group import PodsByGroup
from proreus.insight.explain.explanation import BlockingPods, GroupState, RejectedNodes
from proreus.insight.explain.groups import PodsOfGroup

T = TypeVar("T")

NAMES_SHOWN = 10


class NoTime(Exception):
    """The time for questions is over."""


@dataclass(frozen=True)
class TrialOutcome:
    """The result of one trial. ``message``: why the group does not fit, in the engine's words."""

    fits: bool
    placed: Sequence[PodResult]
    rejected: Sequence[PodResult]
    message: str = ""


class GroupTrial:
    """Trials of one group. ``out_of_time``: whether to give up with ``NoTime``.

    A trial raises ``PluginError``, also if a plugin would have to wait for something.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        profile: Profile,
        group: PodsOfGroup,
        out_of_time: Callable[[], bool],
    ) -> None:
        assert group.root is not None
        self._group, self._root = group, group.root
        self._cache, self._nominator = scheduler.cache, scheduler.queue.nominator
        self._out_of_time = out_of_time
        metrics = SchedulerMetrics()
        metrics.describe_placements()
        environment = structs.replace(scheduler.environment, metrics=metrics, informers=None)
        self._metrics, self._gates = metrics, environment.feature_gates
        self._profile = profile.for_questions(metrics)
        self._rng = random.Random(0)
        select = in_order(self._rng)
        self._cycle = SchedulingCycle(
            cache=self._cache,
            nominator=self._nominator,
            search=NodeSearch(self._nominator, self._cache.node_order),
            waiting_pods=WaitingPods(environment.clock),
            select_host=select,
            environment=environment,
        )

    def run(self, changed: Mapping[str, PodInfo] | None = None) -> TrialOutcome:
        """Return whether the group fits. ``changed``: other versions of its pods, by UID.

        All pods are tried, also after the group cannot fit any more.
        """
        pods = self._pods(changed or {})
        results = self._results(pods, self._profile)
        status = results[self._root.entity_key].status
        if status is not None:
            # Which pods fit beside each other, if nobody gives up.
            patient = self._profile.for_questions(self._metrics)
            patient.placement_feasible = ()
            results = self._results(pods, patient)
        tried = [pod for result in results.values() for pod in result.pods]
        placed = [pod for pod in tried if pod.node_name]
        enough = self._group.scheduled + len(placed) >= self._group.min_count
        return TrialOutcome(
            status is None and (enough or self._group.is_whole),
            placed,
            [pod for pod in tried if not pod.node_name],
            "" if status is None else status.message,
        )

    def _pods(self, changed: Mapping[str, PodInfo]) -> PodsByGroup:
        """Return the pods as they are tried: copies, so that the queue's are not touched."""
        return {
            key: [
                structs.replace(queued, info=changed.get(queued.uid, queued.info))
                for queued in pods
            ]
            for key, pods in self._group.pods.items()
        }

    def _results(self, pods: PodsByGroup, profile: Profile) -> Mapping[Any, Any]:
        provided = self._root.entity_key.is_provided
        whole = self._group.is_whole
        algorithm = PodGroupAlgorithm(
            profile=profile,
            pods=TentativePods(self._cycle, self._nominator, self._begin(profile)),
            states=self._cache.pod_group_states,
            failures=failures_of(self._root, self._gates),
            search=every_placement,
            topology_aware=whole
            and (provided or self._gates.enabled("TopologyAwareWorkloadScheduling")),
            rng=self._rng,
            metrics=self._metrics,
        )
        root = _with_pods(self._root, pods)
        with self._unchanged():
            return at_once(algorithm.run(root, pods, CycleState()))

    def _begin(self, profile: Profile) -> Callable[[QueuedPodInfo], Attempt]:
        def begin(queued: QueuedPodInfo) -> Attempt:
            if self._out_of_time():
                raise NoTime
            return Attempt(queued, queued.info, profile, CycleState(), perf_counter())

        return begin

    @contextmanager
    def _unchanged(self) -> Iterator[None]:
        """Put back what the pods are for the scheduler, where other versions were tried."""
        try:
            yield
        finally:
            for queued in self._group.waiting:
                self._cache.pod_group_states.add(queued.info)
                if node_name := queued.pod.status.nominated_node_name:
                    self._nominator.add_nominated_pod(queued.info, NominatingInfo(node_name))

    @contextmanager
    def holding(self, placed: Sequence[PodResult]) -> Iterator[None]:
        """Let pods count on the nodes where they were placed, for the length of a ``with``."""
        held: list[PodResult] = []
        with self._unchanged():
            try:
                for pod in placed:
                    self._cache.assume(pod.queued.info, pod.node_name)
                    held.append(pod)
                yield
            finally:
                for pod in reversed(held):
                    self._cache.forget(pod.queued.info, pod.node_name)


def _with_pods(group: PodGroupInfo, pods: PodsByGroup) -> PodGroupInfo:
    """Return a group with other versions of its pods."""
    return structs.replace(
        group,
        pods=tuple(queued.info for queued in pods.get(group.entity_key, ())),
        children=tuple(_with_pods(child, pods) for child in group.children),
    )


def with_outcome(group: PodsOfGroup, outcome: TrialOutcome) -> GroupState:
    """Return the state of a group with the outcome of a trial."""
    return structs.replace(
        group.state,
        fits=outcome.fits,
        fit_together=group.scheduled + len(outcome.placed),
        blocking=() if outcome.fits else tuple(_blocking(outcome.rejected)),
        message=outcome.message,
    )


def _blocking(rejected: Sequence[PodResult]) -> Iterator[BlockingPods]:
    """Yield the pods that found no node beside the others, by the reasons."""
    found: dict[str, list[PodResult]] = {}
    for pod in rejected:
        text = "" if pod.failure is None else pod.failure.message
        found.setdefault(text, []).append(pod)
    for pods in found.values():
        names = tuple(pod.queued.key for pod in pods[:NAMES_SHOWN])
        yield BlockingPods(pods=names, count=len(pods), rejected=_reasons(pods[0]))


def _reasons(pod: PodResult) -> tuple[RejectedNodes, ...]:
    failure = pod.failure
    if failure is None:
        return ()
    if failure.fit_error is None:
        return (RejectedNodes(plugin="", code="Error", reasons=(failure.message,), count=0),)
    diagnosis = failure.fit_error.diagnosis
    reasons = [
        RejectedNodes(
            plugin=status.plugin, code=status.code.label, reasons=status.reasons, count=count
        )
        for status, count in diagnosis.complete().counts().items()
        if count
    ]
    return tuple(sorted(reasons, key=lambda one: (-one.count, one.plugin, one.reasons)))


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that has nothing to wait for; raises ``PluginError``."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    work.close()
    raise PluginError("", "", "a plugin waits for something")
