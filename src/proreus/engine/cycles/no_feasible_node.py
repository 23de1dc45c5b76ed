"""A pod that fits no node: why, and whether PostFilter (preemption) can help it."""

from __future__ import annotations

from time import perf_counter

import numpy as np

from proreus.base.errors import BudgetExceeded
from proreus.base.logs import logger
from proreus.engine.cycles.attempt import Attempt, Failure
from proreus.engine.extenders.extender_chain import EXTENDER
from proreus.engine.runtime.find_nodes import FeasibleNodes
from proreus.engine.runtime.scheduling_points import (
    PostFilterOutcome,
    PreFilterOutcome,
    run_post_filter,
)
from proreus.framework.diagnosis import Diagnosis, FitError
from proreus.framework.node_table import NodeTable
from proreus.framework.status import Code, Status
from proreus.framework.verdicts import Verdicts

log = logger(__name__)

_SHARE_OF_POST_FILTER = 2
"""PostFilter's time budget, as a multiple of that of all steps before it."""


def diagnose(table: NodeTable, outcome: PreFilterOutcome, found: FeasibleNodes | None) -> Diagnosis:
    """Return the plugins that rejected the pod, and their nodes."""
    size = table.size
    if found is None:
        assert outcome.status is not None
        nowhere = np.empty(0, dtype=np.intp)
        diagnosis = Diagnosis(Verdicts(size), nowhere, outcome.status)
        diagnosis.pre_filter_message = outcome.status.message
        diagnosis.add_plugin_status(outcome.status)
    else:
        diagnosis = Diagnosis(found.verdicts, found.evaluated)
        if outcome.names is not None:
            plugins_with_names = " ".join(sorted({*outcome.plugins_with_names}))
            # Nodes that PreFilter excluded have no verdict of their own.
            text = f"node(s) didn't satisfy plugin(s) [{plugins_with_names}]"
            diagnosis.absent_nodes_status = Status.unresolvable(text)
        diagnosis.note_rejectors()
        if found.held_back_by:
            # The others left nodes: what helps against their rejections changes nothing.
            diagnosis.unschedulable_plugins = set(found.held_back_by)
            return diagnosis
        if found.rejected_by_extender:
            diagnosis.unschedulable_plugins.add(EXTENDER)
    # A PreFilter plugin that named nodes may name others after an event: its hints count.
    diagnosis.unschedulable_plugins.update(outcome.plugins_with_names)
    return diagnosis


def no_fit(table: NodeTable, attempt: Attempt, diagnosis: Diagnosis) -> Failure:
    """Return why no node can take the pod."""
    fit_error = FitError(table.size, diagnosis)
    if attempt.node_subset is not None:
        rows = attempt.node_subset.rows
        fit_error = FitError(len(rows), diagnosis.of_rows(rows))
    return Failure(Status(Code.UNSCHEDULABLE), fit_error)


async def fail_with_post_filter(
    table: NodeTable, attempt: Attempt, diagnosis: Diagnosis
) -> Failure:
    """Run PostFilter; return why no node can take the pod, and the new nomination if any."""
    failure, profile = no_fit(table, attempt, diagnosis), attempt.profile
    fit_error = failure.fit_error
    assert fit_error is not None
    if not profile.post_filter or not attempt.may_preempt:
        if not profile.post_filter:
            log.v(3).info(
                "No PostFilter plugins are registered, so no preemption will be performed"
            )
        return failure
    started = perf_counter()
    if (budget := attempt.state.budget) is not None:
        # Dry runs on thousands of nodes with hundreds of thousands of pods are normal work.
        budget.allow(_SHARE_OF_POST_FILTER * budget.seconds)
    try:
        verdicts = diagnosis.complete()
        outcome = await run_post_filter(profile, attempt.state, attempt.pod, verdicts)
    except BudgetExceeded as error:
        # Only preemption was cut short: the rejectors are known, so events can help the pod.
        outcome = PostFilterOutcome(message=str(error))
    # The attempt fails all the same: the pod is retried once its victims are gone. The
    # nomination keeps their resources for it until then.
    profile.point_seconds["PostFilter", outcome.code].observe(perf_counter() - started)
    log.v(5).info(
        "Status after running PostFilter plugins for pod",
        pod=attempt.pod.key,
        status=outcome.message,
    )
    fit_error.diagnosis.post_filter_message = outcome.message
    failure.nominating, failure.victims = outcome.nominating, outcome.victims
    return failure
