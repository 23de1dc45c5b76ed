"""The scheduling cycle: from a popped pod to an assumed node, in kube-scheduler's order of steps.

    scheduler.schedule_one ─► run                                  kube-scheduler: schedulingCycle
      schedule_pod ─► _schedule_pod                                                schedulePod
        _pre_filter       runtime/scheduling_points                PreFilter
        _find             the nominated node first, then:
                          runtime/find_nodes                       Filter, with nominated pods
                          ├► runtime/equivalence_cache             shared by equivalent pods
                          └► runtime/nominated_pods_filter         a pass with nominated pods
                          extenders/extender_chain                 extenders' filter
                          runtime/feasible_filter                  ours: plugins that choose
        _prioritize_nodes runtime/prioritize_nodes                 PreScore, Score
        _select           runtime/select_host                      one of the best nodes
        no node           cycles/no_feasible_node                  FitError, PostFilter
      prepare_for_binding_cycle                                    prepareForBindingCycle
        assume, Reserve,  cache/cache, runtime/scheduling_points
        Permit
    then cycles/binding_cycle, as a task; any ``Failure`` goes to cycles/failure

Nothing can change between pop and assume, so there is no snapshot and no lock: the cycle awaits
only extenders, plugins that fetch their results, and PostFilter, and the informers are paused
meanwhile. ``Cache.assume`` records the changed row; that record invalidates the shared results of
this row.
"""

from __future__ import annotations

from time import perf_counter

import numpy as np

from proreus.base.errors import BudgetExceeded, ExtenderError, PluginError
from proreus.base.logs import logger
from proreus.engine.cache.cache import Cache, CacheError
from proreus.engine.cycles.attempt import (
    Attempt,
    AttemptObserver,
    AttemptRecorder,
    Failure,
    OutcomeRecorder,
    ScheduleResult,
    error_failure,
    rejected_on_node,
)
from proreus.engine.cycles.no_feasible_node import diagnose, fail_with_post_filter, no_fit
from proreus.engine.environment import Environment
from proreus.engine.extenders.extender_chain import ExtenderAnswers, ExtenderChain
from proreus.engine.runtime import score_log
from proreus.engine.runtime.feasible_filter import run_feasible_filter
from proreus.engine.runtime.find_nodes import FeasibleNodes, NodeSearch
from proreus.engine.runtime.node_points import raise_filter_error
from proreus.engine.runtime.pod_group_points import run_rank_nodes
from proreus.engine.runtime.prioritize_nodes import ComputedScores, prioritize_nodes, run_pre_score
from proreus.engine.runtime.profile import Profile
from proreus.engine.runtime.scheduling_points import (
    PermitOutcome,
    PreFilterOutcome,
    fetch,
    run_permit,
    run_pre_filter,
    run_reserve,
    run_unreserve,
)
from proreus.engine.runtime.select_host import NodeScores, SelectHost
from proreus.engine.runtime.waiting_pods import WaitingPods
from proreus.framework.nominated_pods import Nominator
from proreus.framework.pod_info import ASSUMED_AS
from proreus.framework.status import ERROR, SUCCESS, Status
from proreus.framework.verdicts import IntArray

log = logger(__name__)

NO_NODES = "no nodes available to schedule pods"
_REJECTED = "Pod rejected by plugin"
_LONG_SECONDS = 0.1
"""Attempts that take at least so long are logged, as by kube-scheduler's utiltrace."""


class timed_point:
    """Observes duration and status (``code``) of an extension point, an exception as Error."""

    # A class: it is entered six times a pod, and contextlib's generator form costs 0.7 us more.
    __slots__ = ("_observed", "_point", "_profile", "_started", "code")

    def __init__(self, profile: Profile, point: str, observed: bool = True) -> None:
        self._profile = profile
        self._point = point
        self._observed = observed
        self.code = SUCCESS

    def __enter__(self) -> timed_point:
        self._started = perf_counter()
        return self

    def __exit__(self, error: object, *_: object) -> None:
        if self._observed:
            code = self.code if error is None else ERROR
            self._profile.point_seconds[self._point, code].observe(perf_counter() - self._started)


class _Trace:
    """The times of one operation's steps, as kube-scheduler's utiltrace keeps them."""

    # Made for each pod: it keeps tuples and writes no text unless the operation was long.
    __slots__ = ("_began", "_steps")

    def __init__(self) -> None:
        self._began = perf_counter()
        self._steps: list[tuple[str, float]] = []

    def step(self, name: str) -> None:
        """Record the end of a step."""
        self._steps.append((name, perf_counter()))

    def log_if_long(self, name: str, pod: str) -> None:
        """Log the operation if it took 0.1 s or longer, with -v 2 or more."""
        seconds = perf_counter() - self._began
        if seconds < _LONG_SECONDS or not log.v(2):
            return
        share = _LONG_SECONDS / (len(self._steps) + 1)
        slow, last = [], self._began
        # utiltrace's rule: only steps that took their share of the threshold are worth a line.
        for step, at in self._steps:
            if at - last >= share or log.v(4):
                slow.append(f"{step}: {_milliseconds(at - last)}")
            last = at
        log.v(2).info(
            "Trace", name=name, pod=pod, totalTime=_milliseconds(seconds), steps=", ".join(slow)
        )


def _log_filter(attempt: Attempt, outcome: PreFilterOutcome, found: FeasibleNodes | None) -> None:
    """Log how many nodes PreFilter and Filter have left, and why not the others."""
    pod = attempt.pod.key
    if found is None:
        assert outcome.status is not None
        text = "Status after running PreFilter plugins for pod"
        log.v(5).info(text, pod=pod, status=outcome.status.message)
        return
    size = attempt.profile.table.size
    evaluated = size if found.evaluated is None else len(found.evaluated)
    rejected = {
        f"{status.plugin}: {status.message}": count
        for status, count in found.evaluated_verdicts.counts().items()
        if count
    }
    log.v(5).info(
        "Filtered nodes for pod",
        pod=pod,
        evaluatedNodes=evaluated,
        feasibleNodes=found.count,
        rejected=rejected,
    )


def _milliseconds(seconds: float) -> str:
    return f"{int(seconds * 1000)}ms"


class SchedulingCycle:
    """Chooses a node for a pod and assumes it there."""

    def __init__(
        self,
        *,
        cache: Cache,
        nominator: Nominator,
        search: NodeSearch,
        waiting_pods: WaitingPods,
        select_host: SelectHost,
        environment: Environment,
        select_host_in_group: SelectHost | None = None,
    ) -> None:
        self.extenders: ExtenderChain | None = None
        self._paused = environment.paused
        self._cache = cache
        self._nominator = nominator
        self.node_search = search
        self._waiting_pods = waiting_pods
        self._select = select_host
        self._select_in_group = select_host_in_group or select_host
        self._metrics = environment.metrics
        self.observer: AttemptObserver | None = None
        self.recorder: AttemptRecorder | None = None
        self.outcome_recorder: OutcomeRecorder | None = None

    def set_interested_extenders(self, attempt: Attempt) -> None:
        """Set the extenders that are interested in the pod."""
        if self.extenders is not None:
            attempt.extenders = self.extenders.interested_in(attempt.pod.pod)
            if attempt.extenders and self.recorder is not None:
                attempt.extender_answers = ExtenderAnswers()

    async def run(self, attempt: Attempt) -> ScheduleResult | Failure:
        """Choose a node and assume the pod there, or return why there is none."""
        self.set_interested_extenders(attempt)
        # Only these cycles await anything before PostFilter, or assume. An event that was handled
        # meanwhile would change rows between the verdicts of two plugins, and the pod might be
        # assumed on a full node.
        if attempt.extenders or attempt.profile.fetching:
            with self._paused():
                return await self._run(attempt)
        return await self._run(attempt)

    async def _run(self, attempt: Attempt) -> ScheduleResult | Failure:
        found = await self.schedule_pod(attempt)
        # Before assume: a candidate has decided on the nodes as they still are.
        if attempt.shadow is not None:
            attempt.shadow.complete(attempt, found, perf_counter() - attempt.started)
        if isinstance(found, Failure):
            return found
        return await self.prepare_for_binding_cycle(attempt, found)

    # ---- choose --------------------------------------------------------------------------------

    async def schedule_pod(self, attempt: Attempt) -> str | Failure:
        """Return the name of the best node; the pod is not assumed there yet."""
        budget = attempt.state.budget
        try:
            if budget is None:
                return await self._schedule_pod(attempt)
            return await budget.measure(self._schedule_pod(attempt))
        except BudgetExceeded as error:
            return error_failure(str(error), error)
        finally:
            seconds = perf_counter() - attempt.started
            self._metrics.scheduling_algorithm_duration_seconds.observe(seconds)

    async def _schedule_pod(self, attempt: Attempt) -> str | Failure:
        within = attempt.node_subset
        if not (self._cache.table.size if within is None else len(within.rows)):
            return Failure(Status.unresolvable(NO_NODES))
        trace = _Trace()
        try:
            outcome = await self._pre_filter(attempt)
            # PreFilter rejected the pod as a whole: Filter does not run, as in kube-scheduler.
            found = await self._find(attempt, outcome) if outcome.status is None else None
            if log.threshold >= 5:
                _log_filter(attempt, outcome, found)
            trace.step("Computing predicates done")
            if self.observer is not None:
                rows = np.empty(0, dtype=np.intp) if found is None else found.rows
                self.observer.after_filter(
                    attempt, diagnose(self._cache.table, outcome, found), rows
                )
            # A single node needs no scores, and kube-scheduler computes none.
            if found is not None and found.count == 1:
                row = int(found.rows[0])
                if self.recorder is not None:
                    self.recorder.chosen(attempt, found, row)
                return self._cache.table.infos[row].name
            if found is not None and found.count:
                computed = None if self.recorder is None else ComputedScores()
                totals = await self._prioritize_nodes(attempt, found, computed)
                if attempt.extenders:
                    totals = await self._prioritize_by_extenders(attempt, found, totals)
                select = self._select_in_group if attempt.in_group else self._select
                row = select(totals, self.node_search.order)
                if self.recorder is not None:
                    self.recorder.chosen(attempt, found, row, totals, computed)
                trace.step("Prioritizing done")
                return self._cache.table.infos[row].name
        except (PluginError, ExtenderError) as error:
            # Not a rejection, so no PostFilter: preemption cannot help after an error.
            return error_failure(str(error), error)
        finally:
            trace.log_if_long("Scheduling", attempt.pod.key)
        diagnosis = diagnose(self._cache.table, outcome, found)
        if found is not None and found.held_back_by:
            # It fits, so preemption has nothing to make room for.
            return no_fit(self._cache.table, attempt, diagnosis)
        # Verdicts are by row, and cycle state is of the nodes that PreFilter saw: both would be
        # wrong for the next plugin if nodes came or went while one awaits the apiserver.
        with self._paused():
            return await fail_with_post_filter(self._cache.table, attempt, diagnosis)

    async def _pre_filter(self, attempt: Attempt) -> PreFilterOutcome:
        profile, state, pod = attempt.profile, attempt.state, attempt.pod
        with timed_point(profile, "PreFilter") as timed:
            if profile.fetching:
                await fetch(profile, "PreFilter", state, pod)
            outcome = run_pre_filter(profile, state, pod)
            if outcome.status is not None:
                timed.code = outcome.status.code
        return outcome

    async def _find(self, attempt: Attempt, outcome: PreFilterOutcome) -> FeasibleNodes:
        """Return the feasible nodes: the nominated one alone, or all that pass Filter."""
        profile, state, pod = attempt.profile, attempt.state, attempt.pod
        # The nominated node first: it has been cleared for this pod, and any other choice would
        # have evicted the victims for nothing. kube-scheduler's ``evaluateNominatedNode``.
        row = self._cache.table.rows.get(pod.pod.status.nominated_node_name)
        names, node_subset = outcome.names, attempt.node_subset
        # A pod of a group that is tried in one placement keeps to the nodes of that placement.
        placement = None
        if node_subset is not None:
            placement = node_subset.rows
            names = None if names is None else names & node_subset.names
            row = row if pod.pod.status.nominated_node_name in node_subset.names else None
        nominated = None if row is None else await self._evaluate_nominated_node(attempt, row)
        if isinstance(nominated, FeasibleNodes):
            nominated = await self._filter_nominated_by_extenders(attempt, nominated)
            if nominated is not None:
                return nominated
        elif nominated is not None:
            # kube-scheduler adds the plugin to the set of those that named nodes: it is named in
            # the message about all other nodes.
            outcome.plugins_with_names += (nominated.plugin,)
        ranks = None
        if attempt.in_group and profile.rank_nodes:
            ranks = run_rank_nodes(profile, state)
        with timed_point(profile, "Filter", bool(profile.filter)):
            if profile.fetching:
                rows = placement if names is None else self._cache.table.rows_of(names)
                await fetch(profile, "Filter", state, pod, rows)
            found = self.node_search.find(profile, state, pod, names, placement, ranks)
            # A plugin's Error on any row fails the whole attempt. Shared results hold none.
            if not found.shares_verdicts:
                raise_filter_error(found.evaluated_verdicts)
        # A walk that stops early may not have reached the nominated node: its rejection counts too.
        if row is not None and nominated is not None and not found.count:
            found.add_rejection(row, nominated)
        # Extenders come last: each costs a request, which grows with the number of nodes.
        found = await self._filter_by_extenders(attempt, found)
        if profile.feasible_filter and found.count:
            found = run_feasible_filter(profile, state, pod, found)
        return found if ranks is None else found.of_lowest_rank(ranks)

    async def _evaluate_nominated_node(
        self, attempt: Attempt, row: int
    ) -> FeasibleNodes | Status | None:
        """Filter the nominated node alone; return it, its rejection, or None after an error."""
        profile, state, pod = attempt.profile, attempt.state, attempt.pod
        try:
            with timed_point(profile, "Filter", bool(profile.filter)):
                if profile.fetching:
                    await fetch(profile, "Filter", state, pod, np.array([row], dtype=np.intp))
                status = self.node_search.check_node(profile, state, pod, row)
        except PluginError as error:
            # Logged only, as in kube-scheduler: if the plugin is broken, the full search fails too.
            log.error("Evaluation failed on nominated node", err=error, pod=pod.key)
            return None
        if status is not None:
            return status
        return FeasibleNodes.single(self._cache.table, row, pod)

    async def _filter_nominated_by_extenders(
        self, attempt: Attempt, found: FeasibleNodes
    ) -> FeasibleNodes | None:
        """Run extenders on the nominated node; None when all nodes have to be searched."""
        try:
            found = await self._filter_by_extenders(attempt, found)
        except ExtenderError as error:
            log.error("Evaluation failed on nominated node", err=error, pod=attempt.pod.key)
            return None
        return found if found.count else None

    async def _filter_by_extenders(self, attempt: Attempt, found: FeasibleNodes) -> FeasibleNodes:
        if self.extenders is None or not attempt.extenders:
            return found
        return await self.extenders.filter(
            attempt.extenders, attempt.pod.pod, found, attempt.extender_answers
        )

    async def _prioritize_by_extenders(
        self, attempt: Attempt, found: FeasibleNodes, totals: NodeScores
    ) -> NodeScores:
        assert self.extenders is not None
        interested, pod = attempt.extenders, attempt.pod.pod
        return await self.extenders.prioritize(
            interested, pod, found.rows, totals.scores, attempt.extender_answers
        )

    async def _prioritize_nodes(
        self, attempt: Attempt, found: FeasibleNodes, computed: ComputedScores | None
    ) -> NodeScores:
        profile, state, pod = attempt.profile, attempt.state, attempt.pod
        with timed_point(profile, "PreScore"):
            run_pre_score(profile, state, pod, found)
        # Only an observer (``proreus evaluate``) and -v 10 see each plugin's scores.
        logged = score_log.log.threshold >= score_log.LEVEL
        scores: dict[str, IntArray] | None = {} if logged or self.observer is not None else None
        with timed_point(profile, "Score"):
            if profile.fetching:
                await fetch(profile, "Score", state, pod, found.rows)
            totals = prioritize_nodes(profile, state, pod, found, scores, computed)
        if self.observer is not None and scores is not None:
            self.observer.after_score(attempt, found.rows, scores)
        if logged and scores is not None:
            in_total = bool(profile.score) and not attempt.extenders
            table, rows = self._cache.table, found.rows
            score_log.log_plugin_scores(pod.key, table, rows, scores, in_total=in_total)
        return totals

    # ---- assume, reserve, permit ---------------------------------------------------------------

    async def prepare_for_binding_cycle(
        self, attempt: Attempt, node_name: str
    ) -> ScheduleResult | Failure:
        """Assume the pod on its node; register it as waiting where Permit holds it."""
        permit = await self.assume_reserve_and_permit(attempt, node_name)
        if isinstance(permit, Failure):
            return permit
        # The time-outs run from here, not from the start of the binding cycle.
        waiting = None
        if permit.timeouts:
            waiting = self._waiting_pods.add(attempt.pod, permit.timeouts)
            if self.outcome_recorder is not None:
                self.outcome_recorder.waits(attempt, waiting)
        return ScheduleResult(attempt, node_name, waiting)

    async def assume_reserve_and_permit(
        self, attempt: Attempt, node_name: str
    ) -> PermitOutcome | Failure:
        """Assume the pod on its node, then run Reserve and Permit; undo all of it if rejected."""
        failure = await self.assume_and_reserve(attempt, node_name)
        if failure is not None:
            if attempt.profile.is_deferred_resize(attempt.pod.pod):
                return await self._permit_resize(attempt, node_name, failure)
            return failure
        try:
            permit = await self._permit(attempt, node_name)
        except PluginError as error:
            self.unreserve_and_forget(attempt, node_name)
            return error_failure(str(error), error, "Permit")
        pod = attempt.pod.key
        if (status := permit.status) is not None:
            log.v(4).info(_REJECTED, pod=pod, plugin=status.plugin, status=status.message)
            self.unreserve_and_forget(attempt, node_name)
            return rejected_on_node(status, "Permit")
        if permit.timeouts:
            log.v(4).info("One or more plugins asked to wait and no plugin rejected pod", pod=pod)
        return permit

    async def _permit_resize(self, attempt: Attempt, node_name: str, failure: Failure) -> Failure:
        """Run Permit for a pod that could not be assumed, because it is on its node already."""
        # DeferredPodScheduling rejects it, so that it waits for its kubelet. Where that plugin is
        # disabled, the error remains: nothing must be bound.
        try:
            permit = await self._permit(attempt, node_name)
        except PluginError as error:
            return error_failure(str(error), error)
        return failure if permit.status is None else rejected_on_node(permit.status)

    async def assume_and_reserve(self, attempt: Attempt, node_name: str) -> Failure | None:
        """Assume the pod on its node and run Reserve; undo both if it is rejected."""
        pod = attempt.pod
        try:
            self._cache.assume(pod, node_name)
        except CacheError as error:
            return error_failure(str(error))
        # From here on the cache counts the pod; as a nominated pod too, it would count twice.
        self._nominator.delete_nominated_pod(pod.uid)
        try:
            rejected = await self._reserve(attempt, node_name)
            if rejected is None:
                # Reserve may have found that the pod takes more of the node than its requests.
                as_assumed = attempt.state.get(ASSUMED_AS)
                if as_assumed is not None:
                    self._cache.update_assumed(as_assumed)
        except PluginError as error:
            self.unreserve_and_forget(attempt, node_name)
            return error_failure(str(error), error, "Reserve")
        if rejected is not None:
            log.v(4).info(_REJECTED, pod=pod.key, plugin=rejected.plugin, status=rejected.message)
            self.unreserve_and_forget(attempt, node_name)
            return rejected_on_node(rejected, "Reserve")
        return None

    async def _reserve(self, attempt: Attempt, node_name: str) -> Status | None:
        profile, state, pod = attempt.profile, attempt.state, attempt.pod
        with timed_point(profile, "Reserve") as timed:
            if profile.fetching:
                await fetch(profile, "Reserve", state, pod, node_name)
            status = run_reserve(profile, state, pod, node_name)
            if status is not None:
                timed.code = status.code
        return status

    async def _permit(self, attempt: Attempt, node_name: str) -> PermitOutcome:
        profile, state, pod = attempt.profile, attempt.state, attempt.pod
        with timed_point(profile, "Permit") as timed:
            if profile.fetching:
                await fetch(profile, "Permit", state, pod, node_name)
            outcome = run_permit(profile, state, pod, node_name)
            timed.code = outcome.code
        return outcome

    def unreserve_and_forget(self, attempt: Attempt, node_name: str) -> None:
        """Undo Reserve and the assumption."""
        # In this order, as in kube-scheduler: Unreserve may look the pod up in the cache. It runs
        # for all Reserve plugins, in reverse, also for those behind the one that rejected.
        run_unreserve(attempt.profile, attempt.state, attempt.pod, node_name)
        self._cache.forget(attempt.pod, node_name)
