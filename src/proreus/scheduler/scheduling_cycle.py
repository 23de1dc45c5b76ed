"""The scheduling cycle: from a popped pod to an assumed node.

One flow, read downwards. Everything here sees one consistent state: nothing waits between pop and
assume but for HTTP extenders and plugins that fetch their answers, while the world is paused. The
order of steps and every status's consequence are kube-scheduler's ``schedulingCycle`` and
``schedulePod``.
"""

from __future__ import annotations

from time import perf_counter

import numpy as np

from proreus.cache.cache import Cache, CacheError
from proreus.errors import BudgetExceeded, ExtenderError, PluginError
from proreus.framework.cycle_state import CycleState
from proreus.framework.diagnosis import Diagnosis, FitError
from proreus.framework.nominated_pods import Nominator
from proreus.framework.pod_info import ASSUMED_AS, PodInfo
from proreus.framework.status import ERROR, SUCCESS, Code, Status, code_of
from proreus.framework.verdicts import IntArray, Verdicts
from proreus.logs import logger
from proreus.runtime.fetching import (
    fetch_filter,
    fetch_permit,
    fetch_pre_filter,
    fetch_reserve,
    fetch_score,
)
from proreus.runtime.find_nodes import FeasibleNodes, NodeSearch
from proreus.runtime.node_points import raise_filter_error
from proreus.runtime.prioritize_nodes import prioritize_nodes, run_pre_score
from proreus.runtime.profile import Profile
from proreus.runtime.scheduling_points import (
    PermitOutcome,
    PostFilterOutcome,
    PreFilterOutcome,
    run_permit,
    run_post_filter,
    run_pre_filter,
    run_reserve,
    run_unreserve,
)
from proreus.runtime.select_host import NodeScores, SelectHost
from proreus.runtime.waiting_pods import WaitingPods
from proreus.scheduler.attempt import (
    Attempt,
    AttemptObserver,
    Failure,
    ScheduleResult,
    Trace,
    error_failure,
)
from proreus.scheduler.environment import Environment
from proreus.scheduler.extender_chain import EXTENDER, ExtenderChain

log = logger(__name__)

_SHARE_OF_POST_FILTER = 2
"""PostFilter may compute for so many times the budget of all that comes before it."""

NO_NODES = "no nodes available to schedule pods"


class _timed:
    """Observes how long an extension point took, and that it ended well or raised.

    ``code`` may say more about a good end. A class, since it is entered six times a pod.
    """

    __slots__ = ("_observed", "_point", "_profile", "_started", "code")

    def __init__(self, profile: Profile, point: str, observed: bool = True) -> None:
        self._profile = profile
        self._point = point
        self._observed = observed
        self.code = SUCCESS

    def __enter__(self) -> _timed:
        self._started = perf_counter()
        return self

    def __exit__(self, error: object, *_: object) -> None:
        if self._observed:
            code = self.code if error is None else ERROR
            self._profile.observe_point(self._point, code, perf_counter() - self._started)


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
    ) -> None:
        self.extenders: ExtenderChain | None = None
        self._paused = environment.paused
        self._cache = cache
        self._nominator = nominator
        self._search = search
        self._waiting_pods = waiting_pods
        self._select = select_host
        self._metrics = environment.metrics
        self.observer: AttemptObserver | None = None

    def note_extenders(self, attempt: Attempt) -> None:
        """Find out which extenders are to be asked."""
        if self.extenders is not None:
            attempt.extenders = self.extenders.interested_in(attempt.pod.pod)

    async def run(self, attempt: Attempt) -> ScheduleResult | Failure:
        """Decide where the pod goes, or why it cannot."""
        self.note_extenders(attempt)
        if attempt.extenders or attempt.profile.fetching:
            with self._paused():
                return await self._run(attempt)
        return await self._run(attempt)

    async def _run(self, attempt: Attempt) -> ScheduleResult | Failure:
        found = await self.schedule_pod(attempt)
        self._metrics.scheduling_algorithm_duration_seconds.observe(
            perf_counter() - attempt.started
        )
        if isinstance(found, Failure):
            return found
        return await self.commit(attempt, found)

    # ---- choose --------------------------------------------------------------------------------

    async def schedule_pod(self, attempt: Attempt) -> str | Failure:
        """Return the name of the best node; nothing is assumed yet."""
        budget = attempt.state.budget
        if budget is None:
            return await self._choose(attempt)
        try:
            return await budget.measure(self._choose(attempt))
        except BudgetExceeded as error:
            return error_failure(str(error), error)

    async def _choose(self, attempt: Attempt) -> str | Failure:
        if not self._cache.table.size:
            return Failure(Status.unresolvable(NO_NODES))
        trace = Trace()
        try:
            outcome = await self._pre_filter(attempt)
            found = await self._find(attempt, outcome) if outcome.status is None else None
            trace.step("Computing predicates done")
            if self.observer is not None:
                rows = np.empty(0, dtype=np.intp) if found is None else found.rows
                self.observer.after_filter(attempt, self.diagnose(outcome, found), rows)
            if found is not None and found.count == 1:
                return self._cache.table[int(found.rows[0])].name
            if found is not None and found.count:
                ranking = await self._rank(attempt, found)
                if attempt.extenders:
                    ranking = await self._prioritize(attempt, found, ranking)
                chosen = self._select_host(ranking)
                trace.step("Prioritizing done")
                return chosen
        except (PluginError, ExtenderError) as error:
            return error_failure(str(error), error)
        finally:
            trace.log_if_long("Scheduling", attempt.pod.key)
        return await self._run_post_filter(attempt, self.diagnose(outcome, found))

    async def _pre_filter(self, attempt: Attempt) -> PreFilterOutcome:
        profile, state, pod = attempt.profile, attempt.state, attempt.pod
        nodes = None if attempt.node_subset is None else attempt.node_subset.nodes
        with _timed(profile, "PreFilter") as timed:
            if profile.fetching:
                await fetch_pre_filter(profile, state, pod)
            outcome = run_pre_filter(profile, state, pod, nodes)
            timed.code = code_of(outcome.status)
        return outcome

    async def _find(self, attempt: Attempt, outcome: PreFilterOutcome) -> FeasibleNodes:
        """Look for nodes: on the nominated one first, then on all that PreFilter left."""
        profile, state, pod = attempt.profile, attempt.state, attempt.pod
        row = self._cache.table.rows.get(pod.pod.status.nominated_node_name)
        names, node_subset = outcome.names, attempt.node_subset
        if node_subset is not None:
            names = node_subset.names if names is None else names & node_subset.names
            row = row if pod.pod.status.nominated_node_name in node_subset.names else None
        nominated = None if row is None else await self._evaluate_nominated_node(attempt, row)
        if isinstance(nominated, FeasibleNodes):
            nominated = await self._filter_nominated_by_extenders(attempt, nominated)
            if nominated is not None:
                return nominated
        with _timed(profile, "Filter", bool(profile.filter)):
            if profile.fetching:
                rows = None if names is None else self._cache.table.rows_of(names)
                await fetch_filter(profile, state, pod, rows)
            found = self.search(profile, state, pod, names)
            if not found.all_from_cache:
                raise_filter_error(found.evaluated_verdicts)
        if row is not None and nominated is not None and not found.count:
            found.add_rejection(row, nominated)
        return await self._filter_by_extenders(attempt, found)

    async def _evaluate_nominated_node(
        self, attempt: Attempt, row: int
    ) -> FeasibleNodes | Status | None:
        """Judge the nominated node alone; an error there is only logged: the search goes on."""
        profile, state, pod = attempt.profile, attempt.state, attempt.pod
        try:
            with _timed(profile, "Filter", bool(profile.filter)):
                if profile.fetching:
                    await fetch_filter(profile, state, pod, np.array([row], dtype=np.intp))
                status = self._search.check_node(profile, state, pod, row)
        except PluginError as error:
            log.error("Evaluation failed on nominated node", err=error, pod=pod.key)
            return None
        if status is not None:
            return status
        return FeasibleNodes.single(self._cache.table, row, pod)

    async def _filter_nominated_by_extenders(
        self, attempt: Attempt, found: FeasibleNodes
    ) -> FeasibleNodes | None:
        """Ask extenders about the nominated node; None when the search has to go on."""
        try:
            found = await self._filter_by_extenders(attempt, found)
        except ExtenderError as error:
            log.error("Evaluation failed on nominated node", err=error, pod=attempt.pod.key)
            return None
        return found if found.count else None

    async def _filter_by_extenders(self, attempt: Attempt, found: FeasibleNodes) -> FeasibleNodes:
        if self.extenders is None or not attempt.extenders:
            return found
        return await self.extenders.filter(attempt.extenders, attempt.pod.pod, found)

    async def _prioritize(
        self, attempt: Attempt, found: FeasibleNodes, ranking: NodeScores
    ) -> NodeScores:
        assert self.extenders is not None
        pod = attempt.pod.pod
        asked, scores = attempt.extenders, ranking.scores
        return await self.extenders.prioritize(asked, pod, found.rows, scores)

    def search(
        self, profile: Profile, state: CycleState, pod: PodInfo, names: frozenset[str] | None
    ) -> FeasibleNodes:
        """Judge all nodes, or the named ones."""
        return self._search.find(profile, state, pod, names)

    async def _rank(self, attempt: Attempt, found: FeasibleNodes) -> NodeScores:
        profile, state, pod = attempt.profile, attempt.state, attempt.pod
        with _timed(profile, "PreScore"):
            run_pre_score(profile, state, pod, found)
        scores: dict[str, IntArray] | None = None if self.observer is None else {}
        with _timed(profile, "Score"):
            if profile.fetching:
                await fetch_score(profile, state, pod, found.rows)
            ranking = prioritize_nodes(profile, state, pod, found, scores)
        if self.observer is not None and scores is not None:
            self.observer.after_score(attempt, found.rows, scores)
        return ranking

    def _select_host(self, ranking: NodeScores) -> str:
        """Return the best node."""
        return self._cache.table[self._select(ranking, self._search.order)].name

    # ---- no node -------------------------------------------------------------------------------

    def diagnose(self, outcome: PreFilterOutcome, found: FeasibleNodes | None) -> Diagnosis:
        """Collect who rejected the pod, and where."""
        size = self._cache.table.size
        if found is None:
            assert outcome.status is not None
            nowhere = np.empty(0, dtype=np.intp)
            diagnosis = Diagnosis(Verdicts(size), nowhere, outcome.status)
            diagnosis.pre_filter_message = outcome.status.message
            diagnosis.add_plugin_status(outcome.status)
        else:
            diagnosis = Diagnosis(found.verdicts, found.evaluated)
            if outcome.names is not None:
                narrowing = " ".join(sorted(outcome.narrowing))
                text = f"node(s) didn't satisfy plugin(s) [{narrowing}]"
                diagnosis.absent_nodes_status = Status.unresolvable(text)
            diagnosis.note_rejectors()
            if found.rejected_by_extender:
                diagnosis.unschedulable_plugins.add(EXTENDER)
        diagnosis.unschedulable_plugins.update(outcome.narrowing)
        return diagnosis

    async def _run_post_filter(self, attempt: Attempt, diagnosis: Diagnosis) -> Failure:
        """Ask PostFilter, and tell why no node can take the pod."""
        fit_error = FitError(self._cache.table.size, diagnosis)
        if attempt.node_subset is not None:
            rows = self._cache.table.rows_of(attempt.node_subset.names)
            fit_error = FitError(len(rows), diagnosis.of_rows(rows))
        failure = Failure(Status(Code.UNSCHEDULABLE), fit_error)
        profile = attempt.profile
        if not profile.post_filter or not attempt.may_preempt:
            return failure
        started = perf_counter()
        if (budget := attempt.state.budget) is not None:
            # Trials on thousands of nodes with hundreds of thousands of pods are normal work.
            budget.allow(_SHARE_OF_POST_FILTER * budget.seconds)
        try:
            verdicts = diagnosis.complete()
            outcome = await run_post_filter(profile, attempt.state, attempt.pod, verdicts)
        except BudgetExceeded as error:
            # Why the pod fits nowhere is known, and what may help it.
            outcome = PostFilterOutcome(message=str(error))
        profile.observe_point("PostFilter", outcome.code, perf_counter() - started)
        fit_error.diagnosis.post_filter_message = outcome.message
        failure.nominating = outcome.nominating
        return failure

    # ---- assume, reserve, permit ---------------------------------------------------------------

    async def commit(self, attempt: Attempt, node_name: str) -> ScheduleResult | Failure:
        """Decide for a node; where Permit holds the pod, it waits from now on."""
        permit = await self.assume(attempt, node_name)
        if isinstance(permit, Failure):
            return permit
        waiting = None
        if permit.timeouts:
            waiting = self._waiting_pods.add(attempt.pod, permit.timeouts)
        return ScheduleResult(attempt, node_name, waiting)

    async def assume(self, attempt: Attempt, node_name: str) -> PermitOutcome | Failure:
        """Assume the pod on its node, reserve, and ask for permission; undo it if refused."""
        pod = attempt.pod
        try:
            self._cache.assume(pod, node_name)
        except CacheError as error:
            return error_failure(str(error))
        self._nominator.delete_nominated_pod(pod.uid)
        try:
            rejected = await self._reserve(attempt, node_name)
            if rejected is None:
                as_assumed = attempt.state.get(ASSUMED_AS)
                if as_assumed is not None:
                    self._cache.update_assumed(as_assumed)
                permit = await self._permit(attempt, node_name)
                rejected = permit.status
        except PluginError as error:
            self.unreserve_and_forget(attempt, node_name)
            return error_failure(str(error), error)
        if rejected is not None:
            self.unreserve_and_forget(attempt, node_name)
            return rejected_on_node(rejected)
        return permit

    async def _reserve(self, attempt: Attempt, node_name: str) -> Status | None:
        profile, state, pod = attempt.profile, attempt.state, attempt.pod
        with _timed(profile, "Reserve") as timed:
            if profile.fetching:
                await fetch_reserve(profile, state, pod, node_name)
            status = run_reserve(profile, state, pod, node_name)
            timed.code = code_of(status)
        return status

    async def _permit(self, attempt: Attempt, node_name: str) -> PermitOutcome:
        profile, state, pod = attempt.profile, attempt.state, attempt.pod
        with _timed(profile, "Permit") as timed:
            if profile.fetching:
                await fetch_permit(profile, state, pod, node_name)
            outcome = run_permit(profile, state, pod, node_name)
            timed.code = outcome.code
        return outcome

    def unreserve_and_forget(self, attempt: Attempt, node_name: str) -> None:
        """Undo reservations and the assumption."""
        run_unreserve(attempt.profile, attempt.state, attempt.pod, node_name)
        self._cache.forget(attempt.pod, node_name)


def rejected_on_node(status: Status) -> Failure:
    """Return the failure for a pod that was turned down after its node was chosen."""
    verdicts = Verdicts(1)
    verdicts.reject_row(0, status)
    diagnosis = Diagnosis(verdicts)
    diagnosis.add_plugin_status(status)
    return Failure(status, FitError(1, diagnosis))
