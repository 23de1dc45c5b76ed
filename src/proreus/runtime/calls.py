"""The one place where plugins are called.

A verdict is a value, a bug is an exception: what a plugin raises, or answers against the rules of
its extension point, becomes ``PluginError`` in kube-scheduler's words here, and the plugin's
``health`` is told. In one cycle out of ten every call is timed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from time import perf_counter
from typing import NoReturn, TypeVar, TypeVarTuple

from proreus.errors import BudgetExceeded, PluginError
from proreus.framework.attempt_budget import ROWS_BETWEEN_LOOKS
from proreus.framework.cycle_state import CycleState
from proreus.framework.node_info import NodeInfo
from proreus.framework.plugin import Plugin
from proreus.framework.plugin_health import Reason
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import ERROR, SUCCESS, Status
from proreus.logs import error_text
from proreus.metrics import SchedulerMetrics

Ts = TypeVarTuple("Ts")
R = TypeVar("R")

_ERROR_FORMATS = {
    "PreFilter": 'running PreFilter plugin "{name}": {error}',
    "PreFilterExtensionAddPod": 'running AddPod on PreFilter plugin "{name}": {error}',
    "PreFilterExtensionRemovePod": 'running RemovePod on PreFilter plugin "{name}": {error}',
    "Filter": 'running "{name}" filter plugin: {error}',
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
    "PlacementGenerate": 'running PlacementGenerate plugin "{name}": {error}',
    "PlacementScore": 'running PlacementScore plugin "{name}": {error}',
    "PlacementScoreExtensionNormalize": (
        'running Normalize on PlacementScore plugins: plugin "{name}" failed with: {error}'
    ),
}


class PluginTimer:
    """Times single plugin calls; a cycle that is sampled carries one in its state."""

    def __init__(self, metrics: SchedulerMetrics) -> None:
        self._seconds = metrics.plugin_execution_duration_seconds

    def observe(self, plugin: Plugin, point: str, answer: object, started: float) -> None:
        """Record one call that began at ``started`` (of ``perf_counter``)."""
        code = answer.code if isinstance(answer, Status) else SUCCESS
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
        # What was fetched has been timed while it was.
        if timer is None or plugin.fetches:
            return method(*args)
        started = perf_counter()
        answer = method(*args)
    except BaseException as error:
        raise plugin_error(plugin, point, error) from error
    timer.observe(plugin, point, answer, started)
    return answer


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
            if number % ROWS_BETWEEN_LOOKS == 0:
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
    """Call a method that may wait; raises ``PluginError`` for whatever it raises."""
    timer = state.timer
    started = perf_counter()
    try:
        answer = await method(*args)
    except BaseException as error:
        raise plugin_error(plugin, point, error) from error
    if timer is not None:
        timer.observe(plugin, point, answer, started)
    return answer


def as_status(
    plugin: Plugin, point: str, answer: object, wanted: str = "a Status or None"
) -> Status | None:
    """Return what a plugin answered, None for success; raises ``PluginError`` for anything else.

    Nothing makes an author return a ``Status``: ``True`` must not end the process.
    """
    if answer is None:
        return None
    if isinstance(answer, Status):
        return None if answer.code == SUCCESS else answer
    raise invalid_answer_error(plugin, point, wanted, answer)


def invalid_answer_error(plugin: Plugin, point: str, wanted: str, answer: object) -> PluginError:
    """Return the error for an answer of the wrong kind."""
    return recorded_error(
        plugin, point, "invalid_answer", f"{point} must return {wanted}, not {_short(answer)}"
    )


def recorded_error(plugin: Plugin, point: str, reason: Reason, text: str) -> PluginError:
    """Return the error for an answer that counts as a failure of the plugin."""
    plugin.health.note(point, reason)
    return PluginError(plugin.name, point, with_plugin_context(plugin, point, text))


def _short(answer: object) -> str:
    text = repr(answer)
    return text if len(text) <= 60 else f"{text[:57]}..."


def raise_status(plugin: Plugin, point: str, status: Status) -> NoReturn:
    """Raise ``PluginError`` for an Error status, or one that the point does not allow."""
    text = status.message
    if status.code == ERROR:
        raise recorded_error(plugin, point, "error", text)
    text = f"{point} does not allow the status {status.code.label}" + (text and f": {text}")
    raise recorded_error(plugin, point, "invalid_answer", text)


def with_plugin_context(plugin: Plugin, point: str, text: str) -> str:
    """Put kube-scheduler's words around an error text."""
    return _ERROR_FORMATS.get(point, "{error}").format(name=plugin.name, error=text)


def plugin_error(plugin: Plugin, point: str, error: BaseException) -> PluginError:
    """Return the error for what a plugin raised; raises what ``is_cancellation``."""
    if is_cancellation(error):
        raise error
    plugin.health.note(point, "raised", error)
    message = with_plugin_context(plugin, point, error_text(error))
    return PluginError(plugin.name, point, message)


def is_cancellation(error: BaseException) -> bool:
    """Tell whether an exception came from outside: whoever was called has not failed, but must end.

    ``sys.exit()`` in a plugin, or a future of its own that was cancelled under it, must not end the
    scheduler or strand the pod: they are failures like any other exception. A budget that is used
    up ends the attempt, whoever happened to look at the clock.
    """
    if isinstance(error, asyncio.CancelledError):
        return _is_being_cancelled()
    return isinstance(error, (BudgetExceeded, KeyboardInterrupt, GeneratorExit))


def _is_being_cancelled() -> bool:
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no loop
        return False
    return task is not None and task.cancelling() > 0
