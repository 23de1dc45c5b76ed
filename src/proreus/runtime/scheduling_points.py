"""The extension points of the scheduling cycle that are asked once a pod.

Filter and Score, which are asked about nodes, have modules of their own (``search``, ``ranking``).
Each function turns what a plugin must not do into ``PluginError``.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter

from proreus.errors import PluginError
from proreus.framework.cycle_state import CycleState
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import MAX_PERMIT_WAIT_SECONDS
from proreus.framework.pod_info import PodInfo
from proreus.framework.post_filter_result import NominatingInfo, PostFilterResult
from proreus.framework.status import SKIP, SUCCESS, Code, Status, code_of
from proreus.framework.verdicts import Verdicts
from proreus.runtime.calls import (
    as_status,
    await_plugin,
    call_plugin,
    invalid_answer_error,
    plugin_error,
    raise_status,
)
from proreus.runtime.profile import Profile


@dataclass(slots=True)
class PreFilterOutcome:
    """What PreFilter made of a pod.

    ``status``: a rejection, or None. ``names``: the nodes that are left to look at, None = all.
    ``narrowing``: plugins that named nodes; they count as rejectors should no node do.
    """

    status: Status | None = None
    names: frozenset[str] | None = None
    narrowing: tuple[str, ...] = ()


def run_pre_filter(
    profile: Profile, state: CycleState, pod: PodInfo, nodes: NodeTable | None = None
) -> PreFilterOutcome:
    """Ask every PreFilter plugin: Unschedulable is remembered, Unresolvable ends it.

    ``nodes``: None = the whole cluster.
    """
    if nodes is None:
        nodes = profile.table
    outcome = PreFilterOutcome()
    skipped: list[str] = []
    narrowing: list[str] = []
    rejection: Status | None = None
    point, timed, budget = "PreFilter", state.timer is not None, state.budget
    for plugin in profile.pre_filter:
        if timed:
            answer = call_plugin(plugin, point, state, plugin.pre_filter, state, pod, nodes)
        else:  # inlined ``call_plugin``: it would cost more than most of these dozen plugins do
            try:
                answer = plugin.pre_filter(state, pod, nodes)
            except BaseException as error:
                raise plugin_error(plugin, point, error) from error
        if isinstance(answer, Status) and answer.code == SKIP:
            skipped.append(plugin.name)
            continue
        plugin.evaluations.pre_filter.value += 1
        if budget is not None:
            budget.check(plugin.name, point)
        if answer is None:
            continue
        if not isinstance(answer, Set):
            status = as_status(plugin, point, answer, "a Status, a set of node names or None")
            if status is None:
                continue
            if status.code == Code.UNSCHEDULABLE:
                rejection = status.with_plugin(plugin.name)
            elif status.code == Code.UNRESOLVABLE:
                rejection, narrowing = status.with_plugin(plugin.name), []
                break
            else:
                raise_status(plugin, point, status)
            continue
        narrowing.append(plugin.name)
        names = frozenset(answer)
        outcome.names = names if outcome.names is None else outcome.names & names
        if not outcome.names:
            rejection = Status.unresolvable(_nothing_left(narrowing))
            break
    state.skip_filter = frozenset(skipped)
    outcome.status = rejection
    outcome.narrowing = tuple(narrowing)
    return outcome


def _nothing_left(narrowing: Sequence[str]) -> str:
    if len(narrowing) == 1:
        return f"node(s) didn't satisfy plugin {narrowing[0]}"
    return f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(narrowing))}] simultaneously"


@dataclass(slots=True)
class PostFilterOutcome:
    """``message`` goes to the end of the pod's failure text; Success: room will be made."""

    code: Code = Code.UNSCHEDULABLE
    message: str = ""
    nominating: NominatingInfo | None = None


async def run_post_filter(
    profile: Profile, state: CycleState, pod: PodInfo, verdicts: Verdicts
) -> PostFilterOutcome:
    """Ask PostFilter plugins until one makes room, or says that nothing helps."""
    reasons: list[str] = []
    nominating: NominatingInfo | None = None
    for plugin in profile.post_filter:
        try:
            result = await await_plugin(
                plugin, "PostFilter", state, plugin.post_filter, state, pod, verdicts
            )
            if not isinstance(result, PostFilterResult):
                raise invalid_answer_error(plugin, "PostFilter", "a PostFilterResult", result)
            status = as_status(plugin, "PostFilter", result.status)
        except PluginError as error:
            return PostFilterOutcome(Code.ERROR, str(error))
        if status is None:
            return PostFilterOutcome(SUCCESS, "", result.nominating)
        if status.code == Code.UNRESOLVABLE:
            return PostFilterOutcome(status.code, status.message, result.nominating)
        if not status.rejected:
            plugin.health.note(
                "PostFilter", "error" if status.code == Code.ERROR else "invalid_answer"
            )
            text = status.message or f"PostFilter does not allow {status.code.label}"
            return PostFilterOutcome(Code.ERROR, text)
        reasons.extend(status.reasons)
        nominating = result.nominating if result.nominating is not None else nominating
    return PostFilterOutcome(Code.UNSCHEDULABLE, ", ".join(reasons), nominating)


def run_reserve(profile: Profile, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
    """Ask Reserve plugins in order; the first rejection is returned."""
    for plugin in profile.reserve:
        answer = call_plugin(plugin, "Reserve", state, plugin.reserve, state, pod, node_name)
        if (status := as_status(plugin, "Reserve", answer)) is None:
            continue
        if status.rejected:
            return status.with_plugin(plugin.name)
        raise_status(plugin, "Reserve", status)
    return None


def run_unreserve(profile: Profile, state: CycleState, pod: PodInfo, node_name: str) -> None:
    """Undo all reservations, last plugin first. A plugin that fails here is logged and passed."""
    started = perf_counter()
    for plugin in reversed(profile.reserve):
        with suppress(PluginError):
            call_plugin(plugin, "Unreserve", state, plugin.unreserve, state, pod, node_name)
    profile.observe_point("Unreserve", SUCCESS, perf_counter() - started)


@dataclass(slots=True)
class PermitOutcome:
    """``status``: a rejection, or None; ``timeouts``: seconds by plugin that holds the pod, and
    ``reasons`` why they do.
    """

    status: Status | None = None
    timeouts: dict[str, float] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()

    @property
    def code(self) -> Code:
        """How the point ended."""
        return Code.WAIT if self.timeouts and self.status is None else code_of(self.status)


def run_permit(profile: Profile, state: CycleState, pod: PodInfo, node_name: str) -> PermitOutcome:
    """Ask Permit plugins in order; the first rejection ends it, holds are collected."""
    outcome = PermitOutcome()
    for plugin in profile.permit:
        answer = call_plugin(plugin, "Permit", state, plugin.permit, state, pod, node_name)
        if (status := as_status(plugin, "Permit", answer)) is None:
            continue
        if status.rejected:
            outcome.status, outcome.timeouts = status.with_plugin(plugin.name), {}
            return outcome
        if status.code == Code.WAIT:
            seconds = min(status.timeout_seconds, MAX_PERMIT_WAIT_SECONDS)
            outcome.timeouts[plugin.name] = seconds
            outcome.reasons += status.reasons
        else:
            raise_status(plugin, "Permit", status)
    return outcome
