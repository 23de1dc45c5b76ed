"""The one place where plugins are called.

A status is a value, a bug is an exception. What a plugin raises, or returns against the rules of
its extension point, becomes ``PluginError`` with kube-scheduler's text, and is counted in the
plugin's ``health``. In one cycle out of ten every call is timed.

Example: ``filter`` of a plugin Fit raises ``KeyError("gpu")``. ``call_plugin`` logs and counts it
and raises ``PluginError('running "Fit" filter plugin: …')``: this pod's attempt fails, the pod goes
to the back-off queue, and the scheduler goes on with the next pod.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from time import perf_counter
from typing import NoReturn, TypeVar, TypeVarTuple

from proreus.base.errors import (
    BudgetExceeded,
    DeadlineExceeded,
    PluginError,
    TimeBudgetExceeded,
)
from proreus.base.logs import error_text, short_repr, shortened
from proreus.base.metrics import SchedulerMetrics
from proreus.framework.attempt_budget import ROWS_BETWEEN_CHECKS
from proreus.framework.cycle_state import CycleState
from proreus.framework.node_info import NodeInfo
from proreus.framework.plugin import Plugin
from proreus.framework.plugin_health import Reason
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import ERROR, MOST_CHARACTERS, SUCCESS, Status, checked

Ts = TypeVarTuple("Ts")
R = TypeVar("R")

POINT_OF_METHOD = {
    "pre_enqueue": "PreEnqueue",
    "sort_key": "QueueSort",
    "pre_filter": "PreFilter",
    "add_pod": "PreFilterExtensionAddPod",
    "remove_pod": "PreFilterExtensionRemovePod",
    "filter": "Filter",
    "filter_all": "Filter",
    "filter_feasible": "FilterFeasible",
    "post_filter": "PostFilter",
    "pod_group_post_filter": "PodGroupPostFilter",
    "placement_feasible": "PlacementFeasible",
    "pre_score": "PreScore",
    "score": "Score",
    "score_all": "Score",
    "normalize": "ScoreExtensionNormalize",
    "reserve": "Reserve",
    "unreserve": "Unreserve",
    "permit": "Permit",
    "pre_bind_pre_flight": "PreBindPreFlight",
    "pre_bind": "PreBind",
    "bind": "Bind",
    "post_bind": "PostBind",
    "generate_placements": "PlacementGenerate",
    "score_placement": "PlacementScore",
    "normalize_placements": "PlacementScoreExtensionNormalize",
    "sign": "Sign",
    "invalidation_key": "InvalidationKey",
}
"""The methods of plugins, and the extension point of each in metrics and logs."""

_ERROR_FORMATS = {
    "PreFilter": 'running PreFilter plugin "{name}": {error}',
    "PreFilterExtensionAddPod": 'running AddPod on PreFilter plugin "{name}": {error}',
    "PreFilterExtensionRemovePod": 'running RemovePod on PreFilter plugin "{name}": {error}',
    "Filter": 'running "{name}" filter plugin: {error}',
    "FilterFeasible": 'running FilterFeasible plugin "{name}": {error}',
    "Sign": 'running Sign on plugin "{name}": {error}',
    "InvalidationKey": 'running InvalidationKey on plugin "{name}": {error}',
    "PreScore": 'running PreScore plugin "{name}": {error}',
    "Score": 'running Score plugins: plugin "{name}" failed with: {error}',
    "ScoreExtensionNormalize": (
        'running Normalize on Score plugins: plugin "{name}" failed with: {error}'
    ),
    "Reserve": 'running Reserve plugin "{name}": {error}',
    "Permit": 'running Permit plugin "{name}": {error}',
    "PreBindPreFlight": 'running PreBindPreFlight "{name}": {error}',
    "PreBind": 'running PreBind plugin "{name}": {error}',
    "Bind": 'running Bind plugin "{name}": {error}',
    "PlacementScore": 'running PlacementScore plugins: plugin "{name}" failed with: {error}',
    "PlacementScoreExtensionNormalize": (
        "running NormalizePlacementScore on PlacementScore plugins: "
        'plugin "{name}" failed with: {error}'
    ),
}

_REASONS: dict[type[BaseException], Reason] = {
    DeadlineExceeded: "timeout",
    TimeBudgetExceeded: "slow",
}
"""How the errors of ``instrumentation`` count; whatever else a plugin raises is its own."""


class PluginTimer:
    """Times single plugin calls; a cycle that is sampled carries one in its state."""

    def __init__(self, metrics: SchedulerMetrics) -> None:
        self._seconds = metrics.plugin_execution_duration_seconds

    def observe(self, plugin: Plugin, point: str, result: object, started: float) -> None:
        """Record one call that began at ``started`` (of ``perf_counter``)."""
        code = result.code if type(result) is Status else SUCCESS
        self._seconds.labels(plugin.name, point, code.label).observe(perf_counter() - started)


def call_plugin(
    plugin: Plugin,
    point: str,
    state: CycleState,
    method: Callable[[*Ts], R],
    *args: *Ts,
) -> R:
    """Call a plugin's method; raises ``PluginError`` for whatever it raises."""
    timer = state.timer
    try:
        # A fetching plugin's time is that of its fetch, which has been observed already; the call
        # itself only hands over what was fetched.
        if timer is None or plugin.fetches:
            return method(*args)
        started = perf_counter()
        result = method(*args)
    except BaseException as error:
        raise plugin_error(plugin, point, error) from error
    timer.observe(plugin, point, result, started)
    return result


def call_plugin_for_pods(
    plugin: Plugin,
    point: str,
    state: CycleState,
    method: Callable[[CycleState, PodInfo, PodInfo, NodeInfo], R],
    pod: PodInfo,
    others: Iterable[PodInfo],
    node: NodeInfo,
) -> list[R]:
    """Call a method about many pods of a node, one by one; raises ``PluginError``."""
    # One ``try`` for all calls: entering ``call_plugin`` for each of hundreds of victims would cost
    # more than many a RemovePod.
    if state.timer is not None:
        return [
            call_plugin(plugin, point, state, method, state, pod, other, node) for other in others
        ]
    try:
        return [method(state, pod, other, node) for other in others]
    except BaseException as error:
        raise plugin_error(plugin, point, error) from error


def call_plugin_for_nodes(
    plugin: Plugin,
    point: str,
    state: CycleState,
    method: Callable[[CycleState, PodInfo, NodeInfo], R],
    pod: PodInfo,
    nodes: Iterable[NodeInfo],
) -> list[R]:
    """Call a method about many nodes, one by one; raises ``PluginError``."""
    if state.timer is not None:
        return [call_plugin(plugin, point, state, method, state, pod, node) for node in nodes]
    results: list[R] = []
    try:
        for number, node in enumerate(nodes):
            # A pod's spec decides how long one call takes: the budget is checked between calls, and
            # not at each, since reading the clock costs as much as a cheap plugin.
            if number % ROWS_BETWEEN_CHECKS == 0:
                state.check_budget(plugin.name, point)
            results.append(method(state, pod, node))
    except BaseException as error:
        raise plugin_error(plugin, point, error) from error
    return results


async def await_plugin(
    plugin: Plugin,
    point: str,
    state: CycleState,
    method: Callable[[*Ts], Awaitable[R]],
    *args: *Ts,
) -> R:
    """Await a method of a plugin; raises ``PluginError`` for whatever it raises."""
    timer = state.timer
    started = perf_counter()
    try:
        result = await method(*args)
    except BaseException as error:
        raise plugin_error(plugin, point, error) from error
    if timer is not None:
        timer.observe(plugin, point, result, started)
    return result


def as_status(
    plugin: Plugin, point: str, result: object, wanted: str = "a Status or None"
) -> Status | None:
    """Return a plugin's result, None for success; raises ``PluginError`` if it is no ``Status``.

    Python does not enforce the return type: a plugin that returns ``True`` fails the attempt only.
    """
    if result is None:
        return None
    if not isinstance(result, Status):
        raise invalid_result_error(plugin, point, wanted, result)
    try:
        status = checked(result)
    except TypeError as error:
        raise recorded_error(plugin, point, "invalid_answer", error_text(error)) from error
    return None if status.code == SUCCESS else status


def invalid_result_error(plugin: Plugin, point: str, wanted: str, result: object) -> PluginError:
    """Return the error for a result of the wrong type, and count it in the plugin's health."""
    return recorded_error(
        plugin, point, "invalid_answer", f"{point} must return {wanted}, not {short_repr(result)}"
    )


def recorded_error(plugin: Plugin, point: str, reason: Reason, text: str) -> PluginError:
    """Return the error for a failed call, and count it in the plugin's health."""
    plugin.health.note(point, reason)
    return PluginError(plugin.name, point, with_plugin_context(plugin, point, text))


def raise_status(plugin: Plugin, point: str, status: Status) -> NoReturn:
    """Raise ``PluginError`` for an Error status, or one that the point does not allow."""
    text = status.message
    if status.code == ERROR:
        raise recorded_error(plugin, point, "error", text)
    text = f"{point} does not allow the status {status.code.label}" + (text and f": {text}")
    raise recorded_error(plugin, point, "invalid_answer", text)


def with_plugin_context(plugin: Plugin, point: str, text: str) -> str:
    """Return an error text as kube-scheduler wraps it at this point."""
    return _ERROR_FORMATS.get(point, "{error}").format(name=plugin.name, error=text)


def plugin_error(plugin: Plugin, point: str, error: BaseException) -> PluginError:
    """Return the error for an exception of a plugin; re-raises it if it ``is_cancellation``."""
    if is_cancellation(error):
        raise error
    plugin.health.note(point, failure_reason(error), error)
    text = shortened(error_text(error), MOST_CHARACTERS)
    message = with_plugin_context(plugin, point, text)
    return PluginError(plugin.name, point, message)


def failure_reason(error: BaseException) -> Reason:
    """Return how an exception of a plugin counts."""
    return _REASONS.get(type(error), "raised")


def is_cancellation(error: BaseException) -> bool:
    """Return whether an exception must pass through: the plugin did not fail, its caller ends it.

    ``SystemExit`` from a plugin, or the cancellation of a future that it awaits, is a failure of
    the plugin like any other exception.
    """
    # An ``except Exception`` around plugin calls would let ``sys.exit()`` in a plugin end the
    # scheduler; a plain ``except BaseException`` would swallow the cancellation of a binding cycle
    # and the end of the attempt's budget. So callers catch everything and decide by this function.
    if isinstance(error, asyncio.CancelledError):
        return _is_being_cancelled()
    return isinstance(error, BudgetExceeded | KeyboardInterrupt | GeneratorExit)


def _is_being_cancelled() -> bool:
    # A plugin's own future raises CancelledError too when somebody else cancels it. Only a pending
    # ``cancel()`` of the current task says that this call itself is to end.
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no loop
        return False
    return task is not None and task.cancelling() > 0
