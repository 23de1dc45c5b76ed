"""The extension points of the scheduling cycle that run once a pod: PreFilter to Permit.

Filter and Score, which run on nodes, are in ``find_nodes`` and ``prioritize_nodes``. What a plugin
returns against the rules of its point becomes ``PluginError``. A cycle never waits inside a point;
plugins that get their results over the network are awaited right before it (``fetch``).

Example: NodeAffinity's PreFilter returns the names {a, b} and a plugin of one's own {b, c}; both
are in ``plugins_with_names`` and Filter runs on b alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from time import perf_counter
from typing import Any

import numpy as np
from msgspec import Struct, field

from proreus.base.errors import PluginError
from proreus.base.logs import logger
from proreus.base.repeated_failures import LineLimit
from proreus.engine.runtime.plugin_errors import (
    as_status,
    invalid_result_error,
    raise_status,
)
from proreus.engine.runtime.points import FETCH_METHODS, await_plugin, call_plugin
from proreus.engine.runtime.profile import SKIPPED_FOR_DEFERRED_RESIZES, Profile
from proreus.framework.columns import read_only
from proreus.framework.cycle_state import CycleState
from proreus.framework.plugin import MAX_PERMIT_WAIT_SECONDS, FetchingPlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.post_filter_result import NominatingInfo, PostFilterResult, Victims
from proreus.framework.status import SUCCESS, Code, Status, code_of
from proreus.framework.verdicts import Verdicts

log = logger(__name__)

_cut_waits = LineLimit(lines=1, period_seconds=600.0)


class PreFilterOutcome(Struct):
    """The result of PreFilter.

    ``status``: a rejection, or None. ``names``: the nodes to filter, None = all.
    ``plugins_with_names``: the plugins that returned names; they count as rejectors if no node can
    take the pod.
    """

    status: Status | None = None
    names: frozenset[str] | None = None
    plugins_with_names: tuple[str, ...] = ()


def run_pre_filter(profile: Profile, state: CycleState, pod: PodInfo) -> PreFilterOutcome:
    """Run every PreFilter plugin (``RunPreFilterPlugins``); raises ``PluginError``.

    With all nodes, also for a pod of a group that is tried in one placement.
    """
    outcome = PreFilterOutcome()
    skipped: list[str] = []
    plugins_with_names: list[str] = []
    plugins = profile.pre_filter
    if pod.pod.spec.node_name:
        if profile.is_deferred_resize(pod.pod):
            plugins = profile.resize_pre_filter
            skipped.extend(SKIPPED_FOR_DEFERRED_RESIZES)
    elif state.timer is None:
        plugins = profile.other_pre_filter
        for passing in profile.passing_pre_filter:
            passing.evaluations.pre_filter.value += 1
    for plugin, answer in plugins.run(state, pod, profile.table, skipped):
        if isinstance(answer, Status):
            # Unschedulable does not end the point: preemption may help such a pod, and its dry run
            # needs the data that the later plugins write to the state.
            outcome.status = answer
            if answer.code == Code.UNRESOLVABLE:
                plugins_with_names.clear()
                break
            continue
        plugins_with_names.append(plugin.name)
        outcome.names = answer if outcome.names is None else outcome.names & answer
        if not outcome.names:
            # No node is in all plugins' sets. Preemption cannot change that, so it ends here.
            outcome.status = Status.unresolvable(_nothing_left(plugins_with_names))
            break
    state.skip_filter = frozenset(skipped)
    outcome.plugins_with_names = tuple(plugins_with_names)
    return outcome


def _nothing_left(plugins_with_names: Sequence[str]) -> str:
    if len(plugins_with_names) == 1:
        return f"node(s) didn't satisfy plugin {plugins_with_names[0]}"
    return (
        f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(plugins_with_names))}] simultaneously"
    )


class PostFilterOutcome(Struct):
    """``message`` ends the pod's failure message; Success: victims are being evicted for it."""

    code: Code = Code.UNSCHEDULABLE
    message: str = ""
    nominating: NominatingInfo | None = None
    victims: Victims | None = None


async def run_post_filter(
    profile: Profile, state: CycleState, pod: PodInfo, verdicts: Verdicts
) -> PostFilterOutcome:
    """Run PostFilter plugins until one succeeds or returns Unresolvable."""
    reasons: list[str] = []
    nominating: NominatingInfo | None = None
    skipped = SKIPPED_FOR_DEFERRED_RESIZES if profile.is_deferred_resize(pod.pod) else ()
    for plugin in profile.post_filter:
        if plugin.name in skipped:
            continue
        try:
            result = await await_plugin(
                plugin, "PostFilter", state, plugin.post_filter, state, pod, verdicts
            )
            if not isinstance(result, PostFilterResult):
                raise invalid_result_error(plugin, "PostFilter", "a PostFilterResult", result)
            status = as_status(plugin, "PostFilter", result.status)
        except PluginError as error:
            return PostFilterOutcome(Code.ERROR, str(error))
        if status is None:
            text = "" if result.status is None else result.status.message
            return PostFilterOutcome(SUCCESS, text, result.nominating, result.victims)
        if status.code == Code.UNRESOLVABLE:
            return PostFilterOutcome(status.code, status.message, result.nominating)
        if not status.rejected:
            plugin.health.note(
                "PostFilter", "error" if status.code == Code.ERROR else "invalid_answer"
            )
            text = status.message or f"PostFilter does not allow {status.code.label}"
            return PostFilterOutcome(Code.ERROR, text)
        # A later plugin that has no opinion must not undo an earlier one's nomination.
        reasons.extend(status.reasons)
        nominating = result.nominating if result.nominating is not None else nominating
    return PostFilterOutcome(Code.UNSCHEDULABLE, ", ".join(reasons), nominating)


def run_reserve(profile: Profile, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
    """Run Reserve plugins in order and return the first rejection; raises ``PluginError``."""
    return next((status for _, status in profile.reserve.run(state, pod, node_name)), None)


def run_unreserve(profile: Profile, state: CycleState, pod: PodInfo, node_name: str) -> None:
    """Run Unreserve of all plugins, the last one first; what one raises is logged."""
    started = perf_counter()
    # All of them, also those that Reserve had not reached, as kube-scheduler does. An exception
    # must not keep the others from giving back what they hold.
    for plugin in reversed(profile.reserve):
        with suppress(PluginError):
            call_plugin(plugin, "Unreserve", state, plugin.unreserve, state, pod, node_name)
    profile.point_seconds["Unreserve", SUCCESS].observe(perf_counter() - started)


class PermitOutcome(Struct):
    """``status``: a rejection, or None. ``timeouts``: seconds, by plugin that returned Wait;
    ``reasons``: theirs.
    """

    status: Status | None = None
    timeouts: dict[str, float] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()

    @property
    def code(self) -> Code:
        """The status code of the whole point, as its metric shows it."""
        return Code.WAIT if self.timeouts and self.status is None else code_of(self.status)


def run_permit(profile: Profile, state: CycleState, pod: PodInfo, node_name: str) -> PermitOutcome:
    """Run Permit plugins in order; the first rejection ends it, Wait does not."""
    outcome = PermitOutcome()
    for plugin, status in profile.permit.run(state, pod, node_name):
        if status.code != Code.WAIT:
            # Nobody waits for a pod that is rejected: the earlier plugins' holds are dropped.
            outcome.status, outcome.timeouts = status, {}
            return outcome
        seconds = float(min(status.timeout_seconds, MAX_PERMIT_WAIT_SECONDS))
        if seconds < status.timeout_seconds and _cut_waits.allows():
            log.warning(
                "Permit holds a pod for 15 minutes at most",
                plugin=plugin.name,
                pod=pod.key,
                asked_seconds=float(status.timeout_seconds),
            )
        outcome.timeouts[plugin.name] = seconds
        outcome.reasons += status.reasons
    return outcome


# ---- fetching plugins --------------------------------------------------------------------------


async def fetch(profile: Profile, point: str, state: CycleState, *args: Any) -> None:
    """Await ``fetch_…`` of a point's plugins together; raises ``PluginError``.

    ``args``: the pod, and what the method takes besides it, rows or the name of a node.
    """
    # Rows are those that the cycle itself goes on with.
    args = tuple(read_only(one[:]) if isinstance(one, np.ndarray) else one for one in args)
    skipped = state.skip_filter if point == "Filter" else ()
    if point == "Score":
        skipped = state.skip_score
    plugins = [
        plugin
        for plugin in profile.fetching.get(point, ())
        if plugin.name not in skipped and not plugin.health.disabled
    ]
    if len(plugins) == 1:
        await _fetch_one(plugins[0], point, state, *args)
    elif plugins:
        # All are awaited, also if one fails: a fetch that goes on after its cycle has ended would
        # write to a state that is no longer in use.
        fetched = (_fetch_one(plugin, point, state, *args) for plugin in plugins)
        for outcome in await asyncio.gather(*fetched, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome


async def _fetch_one(plugin: FetchingPlugin, point: str, state: CycleState, *args: Any) -> None:
    method = getattr(plugin, FETCH_METHODS[point])
    result = await await_plugin(plugin, point, state, method, state, *args)
    if (status := as_status(plugin, point, result)) is not None:
        raise_status(plugin, point, status)
