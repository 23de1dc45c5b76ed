"""A candidate configuration decides in parallel with the one in force, and is compared with it.

    Scheduler.schedule_one ─► ShadowTrial.evaluate     PreEnqueue, PreFilter to Score, on a copy of
                                                       the pod, before the pod's own attempt
    SchedulingCycle._run   ─► ShadowDecision.complete  the decision in force, before assume

Both decide on the same nodes, since nothing is awaited in between that could change them. The
candidate has plugins, caches, CycleState, metrics and random numbers of its own, and what it is
given cannot be changed (``handle``). PostFilter, Reserve, Permit, PreBind and Bind are not
called: they have effects. Nor are PodGroups compared, which are scheduled as a whole, and pods that
HTTP extenders decide about, whose answers would be waited for. The report counts all these.

Example: the best nodes are {a, b} in force and b is taken. The candidate's best are {b, c}: the
same decision, since it could have taken b. If they are {a}, the pod has moved.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from time import perf_counter
from typing import Any, TypeVar

import msgspec
import numpy as np
from msgspec import Struct

from proreus.base.logs import error_text, logger
from proreus.engine.cycles.attempt import Attempt, Failure, error_failure
from proreus.engine.cycles.scheduling_cycle import SchedulingCycle
from proreus.engine.environment import Environment
from proreus.engine.profile_handle import Core
from proreus.engine.profile_set import ProfileSet
from proreus.engine.runtime.find_nodes import NodeSearch
from proreus.engine.runtime.plugin_errors import as_status, is_cancellation
from proreus.engine.runtime.points import PluginTimer
from proreus.engine.runtime.profile import Profile
from proreus.engine.runtime.select_host import NodeScores
from proreus.framework.attempt_budget import AttemptBudget
from proreus.framework.cycle_state import CycleState
from proreus.framework.pod_info import PodInfo, QueuedPodInfo
from proreus.framework.status import Code, Status
from proreus.framework.verdicts import Rows
from proreus.insight.shadow.handle import ShadowTasks
from proreus.insight.shadow.report import Example, Outcome, ShadowReport, shortened
from proreus.objects.codec import UNDECODABLE

log = logger(__name__)

T = TypeVar("T")

_TIMED = 10
"""Plugin calls are timed for one pod in so many, as in force."""
_CREDIT_SECONDS = 0.1
"""How long a trial may compute at once after a pause."""
_MAX_FAILED = 10
"""A trial ends after so many failures: it cannot succeed any more."""


class ShadowLimits(Struct, frozen=True):
    """How much a trial compares. ``pods``: when it ends, 0 = never by itself.

    ``sample``: the share of pods. ``time_share``: the share of the time that it may compute.
    """

    pods: int = 0
    sample: float = 1.0
    time_share: float = 0.1


class _BestNodes:
    """A ``SelectHost`` that keeps the rows of all best nodes."""

    def __init__(self) -> None:
        self.rows: Rows | None = None

    def __call__(self, totals: NodeScores, order: Callable[[], Rows]) -> int:
        scores = totals.scores
        self.rows = np.flatnonzero(scores == scores.max())
        return int(self.rows[0])


class ShadowTrial:
    """A candidate that decides in parallel with the one in force, from the first pod to the last.

    ``core``: the scheduler's parts, with a search of the trial's own. ``in_force``: the environment
    of the scheduler. ``failing`` receives the reports about plugins of the candidate that keep
    failing. ``finished`` is set once no more pods are compared.
    """

    def __init__(
        self,
        profile_set: ProfileSet,
        core: Core,
        environment: Environment,
        in_force: Environment,
        tasks: ShadowTasks,
        limits: ShadowLimits,
        failing: list[str],
    ) -> None:
        self.profile_set = profile_set
        self.report = ShadowReport(environment.metrics, in_force.metrics)
        self.started = asyncio.Event()
        """Set at the first pod that is sampled."""
        self.finished = asyncio.Event()
        self._limits = limits
        self._tasks = tasks
        self._failing = failing
        self._table = core.cache.table
        self._search = core.search
        self._rng = environment.rng
        self._stopwatch = environment.stopwatch
        self._metrics = in_force.metrics
        self._timer = PluginTimer(environment.metrics)
        context = environment.health_context
        self._attempt_seconds = 0.0 if context is None else context.rules.attempt_seconds
        self._best = _BestNodes()
        self._cycle = SchedulingCycle(
            cache=core.cache,
            nominator=core.queue.nominator,
            search=core.search,
            waiting_pods=core.waiting_pods,
            select_host=self._best,
            environment=environment,
        )
        self._number = 0
        self._credit = _CREDIT_SECONDS
        self._credited_at = self._stopwatch()
        configuration, extenders = profile_set.configuration, profile_set.extenders
        self._search.percentage_of_nodes_to_score = configuration.percentage_of_nodes_to_score
        self._search.stop_at_first_feasible = (
            extenders is None or not extenders.filter_or_prioritize
        )

    def start_background_work(self) -> None:
        """Start the background work of the candidate's plugins, which scores may depend on."""
        self._tasks.background.sync(self.profile_set.plugins)

    def end(self, why: str = "") -> None:
        """Compare no more pods. ``why``: the fault of the candidate, if it has one."""
        if not self.finished.is_set():
            self.report.ended_early = why
            self.finished.set()

    def close(self) -> None:
        """End everything that belongs to the candidate, without waiting."""
        self.finished.set()
        self._tasks.cancel()
        self.profile_set.close()

    # ---- one pod -------------------------------------------------------------------------------

    def evaluate(self, queued: QueuedPodInfo, in_force: NodeSearch) -> ShadowDecision | None:
        """Return the candidate's decision about a pod; None if it is not compared.

        ``in_force``: the search of the configuration in force, to begin at the same node.
        """
        if self._failing:
            self.end(self._failing[0])
        if self.finished.is_set() or self._rng.random() >= self._limits.sample:
            return None
        self.started.set()
        if not self._has_time():
            self.report.skipped["time"] += 1
            return None
        began = self._stopwatch()
        if (copied := _copied(queued.info)) is None:
            self.report.skipped["not copied"] += 1
            return None
        self._search.next_start_node_index = in_force.next_start_node_index
        self._best.rows = None
        profile = self.profile_set.profiles.get(queued.pod.spec.scheduler_name)
        found = self._decide(QueuedPodInfo(copied, queued.timestamp), profile)
        seconds = self._stopwatch() - began
        self._credit -= seconds
        self.report.seconds += seconds
        self._metrics.shadow_seconds_total.inc(seconds)
        if profile is not None:
            for health in profile.health_monitors:
                health.begin_attempt()
        return ShadowDecision(self, queued.key, found, self._best_rows(found), seconds)

    def pass_over_group(self) -> None:
        """Count an attempt of a PodGroup, which is not compared."""
        if not self.finished.is_set() and self._rng.random() < self._limits.sample:
            self.report.skipped["pod group"] += 1

    def _has_time(self) -> bool:
        """Return whether the share of the time is not used up (a token bucket)."""
        now = self._stopwatch()
        gained = self._limits.time_share * (now - self._credited_at)
        self._credit = min(self._credit + gained, _CREDIT_SECONDS)
        self._credited_at = now
        return self._credit > 0

    def _decide(self, queued: QueuedPodInfo, profile: Profile | None) -> str | Failure:
        if profile is None:
            return Failure(Status.unresolvable("no profile for its schedulerName"))
        try:
            attempt = self._attempt(queued, profile)
            gated = _run_pre_enqueue(attempt)
            return gated or _result_of(self._cycle.schedule_pod(attempt))
        except BaseException as error:
            if is_cancellation(error):
                raise
            return error_failure(error_text(error))

    def _attempt(self, queued: QueuedPodInfo, profile: Profile) -> Attempt:
        state = CycleState()
        if self._number % _TIMED == 0:
            state.timer = self._timer
        self._number += 1
        if self._attempt_seconds:
            state.budget = AttemptBudget(self._attempt_seconds, self._stopwatch)
        # Preemption evicts: what PostFilter would do is not tried.
        return Attempt(queued, queued.info, profile, state, perf_counter(), may_preempt=False)

    def _best_rows(self, found: str | Failure) -> Rows:
        if isinstance(found, Failure):
            return np.empty(0, dtype=np.intp)
        # A single feasible node is taken without scores.
        return self._table.rows_of([found]) if self._best.rows is None else self._best.rows

    def not_compared(self, attempt: Attempt, found: str | Failure) -> bool:
        """Return whether the decision in force cannot be compared, and count it."""
        extenders = self.profile_set.extenders
        if attempt.extenders or (extenders and extenders.interested_in(attempt.pod.pod)):
            self.report.skipped["extenders"] += 1
            return True
        if isinstance(found, Failure) and found.status.code == Code.ERROR:
            self.report.skipped["error in force"] += 1
            return True
        return False

    def add(self, example: Example, seconds: tuple[float, float] | None) -> None:
        """Add a compared pod. ``seconds``: of both decisions; None if one found no node."""
        self._metrics.shadow_pods_total.labels(example.outcome).inc()
        if seconds is not None:
            self.report.times.add(*seconds)
        if self.report.add(example):
            log.info(
                "Shadow decides differently",
                pod=example.pod,
                outcome=example.outcome,
                inForce=example.in_force,
                shadow=example.candidate,
                reason=example.reason,
            )
        if self._failing:
            self.end(self._failing[0])
        elif self.report.outcomes["failed"] >= _MAX_FAILED:
            self.end(f"its plugins failed for {_MAX_FAILED} of {self.report.compared} pods")
        elif self.report.compared == self._limits.pods:
            self.end()


class ShadowDecision(Struct, eq=False):
    """The candidate's decision about one pod, until that in force is known.

    ``found``: the first of its best nodes, or why there is none. ``best``: the rows of all of them.
    """

    trial: ShadowTrial
    pod: str
    found: str | Failure
    best: Rows
    seconds: float

    def complete(self, attempt: Attempt, found: str | Failure, seconds: float) -> None:
        """Compare with the decision in force, which took ``seconds``; before assume."""
        trial = self.trial
        if trial.finished.is_set() or trial.not_compared(attempt, found):
            return
        times, reason = None, ""
        if isinstance(self.found, str) and isinstance(found, str):
            times = (seconds, self.seconds)
        failures = [one for one in (self.found, found) if isinstance(one, Failure)]
        if any(failure.fit_error is not None for failure in failures):
            trial.report.preemption_not_compared += 1
        if failures:
            reason = shortened(failures[0].message)
        example = Example(
            self.pod,
            self._outcome(attempt, found),
            found if isinstance(found, str) else "",
            self.found if isinstance(self.found, str) else "",
            reason,
        )
        trial.add(example, times)

    def _outcome(self, attempt: Attempt, found: str | Failure) -> Outcome:
        if isinstance(self.found, Failure):
            if self.found.status.code == Code.ERROR:
                return "failed"
            return "same" if isinstance(found, Failure) else "rejected"
        if isinstance(found, Failure):
            return "accepted"
        # Any of the best nodes may be taken: another one of them is no difference.
        row = attempt.profile.table.rows[found]
        return "same" if row in self.best else "moved"


def _copied(info: PodInfo) -> PodInfo | None:
    """Return a copy of a pod; None if msgspec cannot write it, as with invalid text."""
    # Labels and the like are plain dicts inside, which a plugin might change for all others.
    try:
        pod = msgspec.msgpack.decode(msgspec.msgpack.encode(info.pod), type=type(info.pod))
    except UNDECODABLE:
        return None
    return PodInfo(pod, info.resources_options)


def _run_pre_enqueue(attempt: Attempt) -> Failure | None:
    """Return why the candidate would not let the pod into its queue; None if it would."""
    for plugin in attempt.profile.pre_enqueue:
        status = as_status(plugin, "PreEnqueue", plugin.pre_enqueue(attempt.pod))
        if status is not None:
            return Failure(status.with_plugin(plugin.name))
    return None


def _result_of(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that has nothing to wait for."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    # The nodes could change meanwhile, and the pod's own attempt would wait.
    work.close()
    raise RuntimeError("a cycle in the shadow must not wait for anything")
