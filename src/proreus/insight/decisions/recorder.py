"""Keeps a record of every attempt to schedule a pod, within a budget of bytes.

    SchedulingCycle ─► chosen   a node was found: before it is assumed, so that nothing has changed
                    ─► waits    Permit holds the pod
    BindingCycle    ─► permitted, bound
    FailureHandler  ─► failed   no node was found, or Reserve, Permit, PreBind or Bind failed

They are called in the scheduling cycle, so they keep what exists and compose nothing, and an error
in them leaves the attempt out of the record rather than failing it. ``retention`` decides what is
kept.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Self

from proreus.base.clock import Clock
from proreus.base.logs import logger, shortened
from proreus.engine.cycles.attempt import Attempt, Failure
from proreus.engine.runtime.find_nodes import FeasibleNodes
from proreus.engine.runtime.prioritize_nodes import ComputedScores
from proreus.engine.runtime.profile import Profile
from proreus.engine.runtime.select_host import NodeScores
from proreus.engine.runtime.waiting_pods import WaitingPod
from proreus.framework.node_table import NodeTable
from proreus.insight.decisions.outcomes import PermitWait, extender_answers
from proreus.insight.decisions.record import DecisionRecord, FailureRecord, NodeNames, Victim
from proreus.insight.decisions.results import LiveResults, Results, own_results
from proreus.insight.decisions.retention import DEFAULT_BUDGET_BYTES, KeptRecords
from proreus.insight.decisions.verdicts import VerdictColumn, recorded_status

if TYPE_CHECKING:
    from proreus.engine.scheduler import Scheduler

log = logger(__name__)


class DecisionRecorder:
    """Records attempts, in ``records``. ``waits(key)``: whether a pod waits to be scheduled.

    ``budget_bytes``: what the records may take, roughly. Implements ``scheduler.OutcomeRecorder``.
    """

    def __init__(
        self,
        clock: Clock,
        waits: Callable[[str], bool],
        budget_bytes: int = DEFAULT_BUDGET_BYTES,
    ) -> None:
        self.records = KeptRecords(waits, budget_bytes)
        self._now = clock.now
        self._names = NodeNames([])
        self._names_generation = -1
        self._profile: Profile | None = None
        self._configurations: dict[str, Profile] = {}
        self._configuration = 0
        self._logged: set[type[Exception]] = set()

    @classmethod
    def of(
        cls, scheduler: Scheduler, clock: Clock, budget_bytes: int = DEFAULT_BUDGET_BYTES
    ) -> Self:
        """Record the attempts of a scheduler from now on; return the recorder."""
        queue = scheduler.queue
        recorder = cls(clock, lambda key: queue.get(key) is not None, budget_bytes)
        scheduler.record(recorder)
        return recorder

    def chosen(
        self,
        attempt: Attempt,
        found: FeasibleNodes,
        row: int,
        totals: NodeScores | None = None,
        computed: ComputedScores | None = None,
    ) -> None:
        """Record that a pod's node was chosen, before it is assumed there.

        ``totals``: None where a single node was feasible and nothing was scored. ``computed``:
        the scores that were computed for this pod alone.
        """
        try:
            record = self._begin(attempt, attempt.profile.table.infos[row].name)
            results = record.results = _results(attempt, found, totals, computed)
            record.end = results.end
            _keep_extender_answers(record, attempt)
            self.records.add(record)
        except Exception as error:
            self._leave_out(attempt, error)

    def failed(self, attempt: Attempt, failure: Failure, message: str) -> None:
        """Record how an attempt ended without a bound pod; it is not requeued yet."""
        try:
            self._record_failure(attempt, failure, message)
        except Exception as error:
            self._leave_out(attempt, error)

    def waits(self, attempt: Attempt, waiting: WaitingPod) -> None:
        """Record that Permit holds the pod."""
        record = attempt.record
        if isinstance(record, DecisionRecord):
            record.permit = PermitWait(self._now(), dict(waiting.timeouts))

    def permitted(self, attempt: Attempt, seconds: float) -> None:
        """Record that Permit holds the pod no more, allowed or rejected, after so long."""
        record = attempt.record
        if isinstance(record, DecisionRecord) and record.permit is not None:
            record.permit.seconds = seconds

    def bound(self, attempt: Attempt) -> None:
        """Record that the pod is bound to the chosen node."""
        record = attempt.record
        if isinstance(record, DecisionRecord):
            record.bound_at = self._now()

    def _leave_out(self, attempt: Attempt, error: Exception) -> None:
        attempt.record = None
        # One line for each kind: it may come back with every pod.
        if type(error) not in self._logged:
            self._logged.add(type(error))
            log.error("Cannot record a decision", err=error, pod=attempt.pod.key)

    def _record_failure(self, attempt: Attempt, failure: Failure, message: str) -> None:
        record = attempt.record
        if isinstance(record, DecisionRecord):
            # It had a node: Reserve, Permit, PreBind or Bind failed there.
            record.failure = _failure_record(failure, message)
            return
        record = self._begin(attempt)
        record.failure = _failure_record(failure, message)
        record.size_bytes += len(record.failure.message)
        _keep_extender_answers(record, attempt)
        diagnosis = None if failure.fit_error is None else failure.fit_error.diagnosis
        # Results in a placement of a pod group have other rows than the table.
        if (
            diagnosis is not None
            and not diagnosis.pre_filter_message
            and diagnosis.verdicts.size == attempt.profile.table.size
        ):
            record.results = Results(VerdictColumn.of_diagnosis(diagnosis))
        self.records.add_failure(record)

    def _begin(self, attempt: Attempt, node: str = "") -> DecisionRecord:
        profile, pod = attempt.profile, attempt.pod
        if profile is not self._profile:
            self._note_profile(profile)
        if profile.table.nodes_generation != self._names_generation:
            self._note_names(profile.table)
        at = self._now()
        record = attempt.record = DecisionRecord(
            pod.key,
            pod.uid,
            profile.name,
            self._configuration,
            at,
            at,
            perf_counter() - attempt.started,
            self._names,
            node,
        )
        return record

    def _note_profile(self, profile: Profile) -> None:
        """Count configurations: each makes profiles of its own."""
        self._profile = profile
        if self._configurations.get(profile.name) is not profile:
            if not self._configurations or profile.name in self._configurations:
                self._configurations.clear()
                self._configuration += 1
            self._configurations[profile.name] = profile

    def _note_names(self, table: NodeTable) -> None:
        self._names_generation = table.nodes_generation
        self._names = self._names.followed_by([info.name for info in table.infos])


def _results(
    attempt: Attempt,
    found: FeasibleNodes,
    totals: NodeScores | None,
    computed: ComputedScores | None,
) -> Results:
    profile, shared = attempt.profile, found.equivalence_class
    if shared is None or totals is not shared.scores.totals:
        scores = None if totals is None else computed or ComputedScores()
        return own_results(profile, found, scores, attempt.extender_answers)
    live: LiveResults | None = shared.scores.history
    if live is None or not live.advance(shared, profile.table):
        live = shared.scores.history = LiveResults(profile, found)
    return live.results


def _keep_extender_answers(record: DecisionRecord, attempt: Attempt) -> None:
    if attempt.extender_answers is not None:
        record.extenders = tuple(extender.url for extender in attempt.extenders)
        record.extender_answers = extender_answers(attempt.extender_answers)
        record.size_bytes += sum(one.size_bytes for one in record.extender_answers)


def _failure_record(failure: Failure, message: str) -> FailureRecord:
    status, message = recorded_status(failure.status), shortened(message)
    record = FailureRecord(status, message, point=failure.point)
    if failure.fit_error is not None:
        diagnosis = failure.fit_error.diagnosis
        record.plugins = tuple(sorted(diagnosis.unschedulable_plugins))
        record.pending_plugins = tuple(sorted(diagnosis.pending_plugins))
    if failure.nominating is not None:
        record.nominated_node = failure.nominating.node_name
    if failure.victims is not None:
        record.victims = tuple(
            Victim(pod.key, pod.uid, pod.priority) for pod in failure.victims.pods
        )
        record.pdb_violations = failure.victims.pdb_violations
    return record
