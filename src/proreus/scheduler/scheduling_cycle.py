"""The scheduling cycle: from a popped pod to an assumed node.

One flow, read downwards. Everything here sees one consistent state: nothing but an HTTP extender
may wait between pop and assume. The order of steps and every status's consequence are
kube-scheduler's ``schedulingCycle`` and ``schedulePod``.
"""

from __future__ import annotations

from time import perf_counter

import numpy as np

from proreus.cache.cache import Cache, CacheError
from proreus.errors import PluginError
from proreus.framework.cycle_state import CycleState
from proreus.framework.diagnosis import Diagnosis, NoFit
from proreus.framework.handle import Nominator
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Code, Status, code_of
from proreus.framework.verdicts import IntArray, Verdicts
from proreus.metrics import SchedulerMetrics
from proreus.runtime.asking import raise_error
from proreus.runtime.profile import Profile
from proreus.runtime.ranking import rank, run_pre_score
from proreus.runtime.scheduling_points import (
    PermitOutcome,
    PreFilterOutcome,
    run_permit,
    run_post_filter,
    run_pre_filter,
    run_reserve,
    run_unreserve,
)
from proreus.runtime.search import Found, NodeSearch
from proreus.runtime.waiting_pods import WaitingPods
from proreus.scheduler.attempt import Attempt, Decision, Failure, error_failure
from proreus.scheduler.select_host import SelectHost

NO_NODES = "no nodes available to schedule pods"


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
        metrics: SchedulerMetrics,
    ) -> None:
        self._cache = cache
        self._nominator = nominator
        self._search = search
        self._waiting_pods = waiting_pods
        self._select = select_host
        self._metrics = metrics

    async def run(self, attempt: Attempt) -> Decision | Failure:
        """Decide where the pod goes, or why it cannot."""
        found = await self._choose(attempt)
        self._metrics.scheduling_algorithm_duration_seconds.observe(
            perf_counter() - attempt.started
        )
        if isinstance(found, Failure):
            return found
        return self._commit(attempt, found)

    # ---- choose --------------------------------------------------------------------------------

    async def _choose(self, attempt: Attempt) -> str | Failure:
        """Return the name of the best node."""
        if not self._cache.table.size:
            return Failure(Status.unresolvable(NO_NODES))
        try:
            outcome = self._pre_filter(attempt)
            found = self._find(attempt, outcome) if outcome.status is None else None
            if found is not None and found.count == 1:
                return self._cache.table[int(found.rows[0])].name
            if found is not None and found.count:
                return self._select_host(self._rank(attempt, found))
        except PluginError as error:
            return error_failure(str(error))
        return await self._make_room(attempt, self.diagnose(outcome, found))

    def _pre_filter(self, attempt: Attempt) -> PreFilterOutcome:
        started = perf_counter()
        code = Code.ERROR
        try:
            outcome = run_pre_filter(attempt.profile, attempt.state, attempt.pod)
            code = code_of(outcome.status)
            return outcome
        finally:
            attempt.profile.observe_point("PreFilter", code, perf_counter() - started)

    def _find(self, attempt: Attempt, outcome: PreFilterOutcome) -> Found:
        """Look for nodes: on the nominated one first, then on all that PreFilter left."""
        profile, state, pod = attempt.profile, attempt.state, attempt.pod
        started = perf_counter()
        code = Code.ERROR
        try:
            row = self._cache.table.rows.get(pod.pod.status.nominated_node_name)
            if row is not None and self._search.check_node(profile, state, pod, row) is None:
                alone = np.array([row], dtype=np.intp)
                found = Found(Verdicts(self._cache.table.size), alone, None, {})
            else:
                found = self.search(profile, state, pod, outcome.names)
                if found.face is None:
                    raise_error(found.verdicts)
            code = Code.SUCCESS
            return found
        finally:
            if profile.filter:
                profile.observe_point("Filter", code, perf_counter() - started)

    def search(
        self, profile: Profile, state: CycleState, pod: PodInfo, names: frozenset[str] | None
    ) -> Found:
        """Judge all nodes, or the named ones."""
        return self._search.find(profile, state, pod, names)

    def _rank(self, attempt: Attempt, found: Found) -> IntArray:
        profile, state, pod = attempt.profile, attempt.state, attempt.pod
        started = perf_counter()
        run_pre_score(profile, state, pod, found)
        scoring = perf_counter()
        profile.observe_point("PreScore", Code.SUCCESS, scoring - started)
        ranking = rank(profile, state, pod, found)
        profile.observe_point("Score", Code.SUCCESS, perf_counter() - scoring)
        return ranking

    def _select_host(self, ranking: IntArray) -> str:
        """Return the best node."""
        return self._cache.table[self._select(ranking, self._search.order)].name

    # ---- no node -------------------------------------------------------------------------------

    def diagnose(self, outcome: PreFilterOutcome, found: Found | None) -> Diagnosis:
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
                diagnosis.absent = Status.unresolvable(text)
            diagnosis.note_rejectors()
        diagnosis.unschedulable_plugins.update(outcome.narrowing)
        return diagnosis

    async def _make_room(self, attempt: Attempt, diagnosis: Diagnosis) -> Failure:
        """Ask PostFilter, and tell why no node can take the pod."""
        no_fit = NoFit(self._cache.table.size, diagnosis)
        failure = Failure(Status(Code.UNSCHEDULABLE), no_fit)
        profile = attempt.profile
        if not profile.post_filter:
            return failure
        started = perf_counter()
        outcome = await run_post_filter(profile, attempt.state, attempt.pod, diagnosis.complete())
        profile.observe_point("PostFilter", outcome.code, perf_counter() - started)
        diagnosis.post_filter_message = outcome.message
        failure.nominating = outcome.nominating
        return failure

    # ---- assume, reserve, permit ---------------------------------------------------------------

    def _commit(self, attempt: Attempt, node_name: str) -> Decision | Failure:
        """Assume the pod on its node, reserve, and ask for permission."""
        pod = attempt.pod
        try:
            self._cache.assume(pod, node_name)
        except CacheError as error:
            return error_failure(str(error))
        self._nominator.delete_nominated_pod(pod.uid)
        try:
            rejected = self._reserve(attempt, node_name)
            if rejected is None:
                permit = self._permit(attempt, node_name)
                rejected = permit.status
        except PluginError as error:
            self.take_back(attempt, node_name)
            return error_failure(str(error))
        if rejected is not None:
            self.take_back(attempt, node_name)
            return rejected_on_node(rejected)
        waiting = None
        if permit.timeouts:
            waiting = self._waiting_pods.add(pod, permit.timeouts)
        return Decision(attempt, node_name, waiting)

    def _reserve(self, attempt: Attempt, node_name: str) -> Status | None:
        profile = attempt.profile
        started = perf_counter()
        code = Code.ERROR
        try:
            status = run_reserve(profile, attempt.state, attempt.pod, node_name)
            code = code_of(status)
            return status
        finally:
            profile.observe_point("Reserve", code, perf_counter() - started)

    def _permit(self, attempt: Attempt, node_name: str) -> PermitOutcome:
        profile = attempt.profile
        started = perf_counter()
        code = Code.ERROR
        try:
            outcome = run_permit(profile, attempt.state, attempt.pod, node_name)
            code = outcome.code
            return outcome
        finally:
            profile.observe_point("Permit", code, perf_counter() - started)

    def take_back(self, attempt: Attempt, node_name: str) -> None:
        """Undo reservations and the assumption."""
        run_unreserve(attempt.profile, attempt.state, attempt.pod, node_name)
        self._cache.forget(attempt.pod, node_name)


def rejected_on_node(status: Status) -> Failure:
    """Return the failure for a pod that was turned down after its node was chosen."""
    verdicts = Verdicts(1)
    verdicts.reject_row(0, status)
    diagnosis = Diagnosis(verdicts)
    diagnosis.add_plugin_status(status)
    return Failure(status, NoFit(1, diagnosis))
