"""The extension points of the scheduling cycle that run once a pod: PreFilter to Permit.

Filter and Score, which run on nodes, are in ``find_nodes`` and ``prioritize_nodes``. What a plugin
returns against the rules of its point becomes ``PluginError``. A cycle never waits inside a point;
plugins that get their results over the network are awaited right before it (``fetch_…``).

Example: NodeAffinity's PreFilter returns the names {a, b} and a plugin of one's own {b, c}; both
are in ``plugins_with_names`` and Filter runs on b alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence, Set
from contextlib import suppress
from time import perf_counter
from typing import Any

from msgspec import Struct, field

from proreus.base.errors import PluginError
from proreus.engine.runtime.calls import (
    as_status,
    await_plugin,
    call_plugin,
    invalid_result_error,
    plugin_error,
    raise_status,
)
from proreus.engine.runtime.profile import Profile
from proreus.framework.columns import read_only
from proreus.framework.cycle_state import CycleState
from proreus.framework.plugin import MAX_PERMIT_WAIT_SECONDS, FetchingPlugin, PreFilterPlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.post_filter_result import NominatingInfo, PostFilterResult, Victims
from proreus.framework.status import SKIP, SUCCESS, Code, Status, code_of
from proreus.framework.verdicts import Rows, Verdicts

SKIPPED_FOR_DEFERRED_RESIZES = frozenset(
    {
        "DynamicResources",
        "InterPodAffinity",
        "NodeAffinity",
        "NodeDeclaredFeatures",
        "NodePorts",
        "NodeUnschedulable",
        "NodeVolumeLimits",
        "PodTopologySpread",
        "TaintToleration",
        "VolumeBinding",
        "VolumeRestrictions",
        "VolumeZone",
    }
)
"""Plugins that have no say about a deferred resize: what they check was settled when the pod was
bound. kube-scheduler asks each, which returns Skip in PreFilter and nothing in PostFilter."""


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
    nodes = profile.table
    outcome = PreFilterOutcome()
    skipped: list[str] = []
    plugins_with_names: list[str] = []
    rejection: Status | None = None
    point, timed, budget = "PreFilter", state.timer is not None, state.budget
    plugins = profile.pre_filter
    if pod.pod.spec.node_name:
        if profile.is_deferred_resize(pod.pod):
            plugins = tuple(p for p in plugins if p.name not in SKIPPED_FOR_DEFERRED_RESIZES)
            skipped.extend(SKIPPED_FOR_DEFERRED_RESIZES)
    elif not timed:
        plugins = profile.other_pre_filter
        for passing in profile.passing_pre_filter:
            passing.evaluations.pre_filter.value += 1
    for plugin in plugins:
        if timed:
            result = call_plugin(plugin, point, state, plugin.pre_filter, state, pod, nodes)
        else:  # inlined ``call_plugin``: it would cost more than most of these dozen plugins do
            try:
                result = plugin.pre_filter(state, pod, nodes)
            except BaseException as error:
                raise plugin_error(plugin, point, error) from error
        if type(result) is Status and result.code is SKIP:
            skipped.append(plugin.name)
            continue
        plugin.evaluations.pre_filter.value += 1
        if budget is not None:
            budget.check(plugin.name, point)
        if result is None:
            continue
        names = _as_node_names(plugin, point, result)
        if names is None:
            status = as_status(plugin, point, result, "a Status, a set of node names or None")
            if status is None:
                continue
            # Unschedulable does not end the point: preemption may help such a pod, and its dry run
            # needs the data that the later plugins write to the state.
            if status.code == Code.UNSCHEDULABLE:
                rejection = status.with_plugin(plugin.name)
            elif status.code == Code.UNRESOLVABLE:
                rejection, plugins_with_names = status.with_plugin(plugin.name), []
                break
            else:
                raise_status(plugin, point, status)
            continue
        plugins_with_names.append(plugin.name)
        outcome.names = names if outcome.names is None else outcome.names & names
        if not outcome.names:
            # No node is in all plugins' sets. Preemption cannot change that, so it ends here.
            rejection = Status.unresolvable(_nothing_left(plugins_with_names))
            break
    state.skip_filter = frozenset(skipped)
    outcome.status = rejection
    outcome.plugins_with_names = tuple(plugins_with_names)
    return outcome


def _as_node_names(plugin: PreFilterPlugin, point: str, result: object) -> frozenset[str] | None:
    """Return the names in a set, None for what is no set; raises ``PluginError``."""
    # A set may have methods of the plugin's that make its names only now, and so may its names.
    try:
        if not isinstance(result, Set):
            return None
        names = frozenset(result)
        if set(map(type, names)) <= {str}:
            return names
        if all(issubclass(type(name), str) for name in names):
            return frozenset(map(str.__str__, names))
    except BaseException as error:
        raise plugin_error(plugin, point, error) from error
    raise invalid_result_error(plugin, point, "a set of texts, where it returns a set,", result)


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
    for plugin in profile.reserve:
        result = call_plugin(plugin, "Reserve", state, plugin.reserve, state, pod, node_name)
        if (status := as_status(plugin, "Reserve", result)) is None:
            continue
        if status.rejected:
            return status.with_plugin(plugin.name)
        raise_status(plugin, "Reserve", status)
    return None


def run_unreserve(profile: Profile, state: CycleState, pod: PodInfo, node_name: str) -> None:
    """Run Unreserve of all plugins, the last one first; what one raises is logged."""
    started = perf_counter()
    # All of them, also those that Reserve had not reached, as kube-scheduler does. An exception
    # must not keep the others from giving back what they hold.
    for plugin in reversed(profile.reserve):
        with suppress(PluginError):
            call_plugin(plugin, "Unreserve", state, plugin.unreserve, state, pod, node_name)
    profile.observe_point("Unreserve", SUCCESS, perf_counter() - started)


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
    for plugin in profile.permit:
        result = call_plugin(plugin, "Permit", state, plugin.permit, state, pod, node_name)
        if (status := as_status(plugin, "Permit", result)) is None:
            continue
        if status.rejected:
            # Nobody waits for a pod that is rejected: the earlier plugins' holds are dropped.
            outcome.status, outcome.timeouts = status.with_plugin(plugin.name), {}
            return outcome
        if status.code == Code.WAIT:
            seconds = float(min(max(status.timeout_seconds, 0), MAX_PERMIT_WAIT_SECONDS))
            outcome.timeouts[plugin.name] = seconds
            outcome.reasons += status.reasons
        else:
            raise_status(plugin, "Permit", status)
    return outcome


# ---- fetching plugins --------------------------------------------------------------------------

Fetch = Callable[[FetchingPlugin], Coroutine[Any, Any, Status | None]]


async def fetch_pre_filter(profile: Profile, state: CycleState, pod: PodInfo) -> None:
    """Await ``fetch_pre_filter`` of all plugins together; raises ``PluginError``."""
    await _fetch(profile, "PreFilter", state, lambda plugin: plugin.fetch_pre_filter(state, pod))


async def fetch_filter(
    profile: Profile, state: CycleState, pod: PodInfo, rows: Rows | None
) -> None:
    """Await ``fetch_filter`` of all plugins for some rows, None = all; raises ``PluginError``."""
    # The rows are those that are filtered next.
    rows = None if rows is None else read_only(rows[:])
    await _fetch(profile, "Filter", state, lambda plugin: plugin.fetch_filter(state, pod, rows))


async def fetch_score(profile: Profile, state: CycleState, pod: PodInfo, rows: Rows) -> None:
    """Await ``fetch_score`` of all plugins for the feasible rows; raises ``PluginError``."""
    rows = read_only(rows[:])
    await _fetch(profile, "Score", state, lambda plugin: plugin.fetch_score(state, pod, rows))


async def fetch_reserve(profile: Profile, state: CycleState, pod: PodInfo, node_name: str) -> None:
    """Await ``fetch_reserve`` of all plugins together; raises ``PluginError``."""
    await _fetch(profile, "Reserve", state, lambda p: p.fetch_reserve(state, pod, node_name))


async def fetch_permit(profile: Profile, state: CycleState, pod: PodInfo, node_name: str) -> None:
    """Await ``fetch_permit`` of all plugins together; raises ``PluginError``."""
    await _fetch(profile, "Permit", state, lambda p: p.fetch_permit(state, pod, node_name))


async def _fetch(profile: Profile, point: str, state: CycleState, fetch: Fetch) -> None:
    skipped = state.skip_filter if point == "Filter" else ()
    if point == "Score":
        skipped = state.skip_score
    plugins = [
        plugin
        for plugin in profile.fetching.get(point, ())
        if plugin.name not in skipped and not plugin.health.disabled
    ]
    if len(plugins) == 1:
        await _fetch_one(plugins[0], point, state, fetch)
    elif plugins:
        # All are awaited, also if one fails: a fetch that goes on after its cycle has ended would
        # write to a state that is no longer in use.
        fetched = (_fetch_one(plugin, point, state, fetch) for plugin in plugins)
        for outcome in await asyncio.gather(*fetched, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome


async def _fetch_one(plugin: FetchingPlugin, point: str, state: CycleState, fetch: Fetch) -> None:
    result = await await_plugin(plugin, point, state, fetch, plugin)
    if (status := as_status(plugin, point, result)) is not None:
        raise_status(plugin, point, status)
