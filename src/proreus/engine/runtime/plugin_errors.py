"""What a plugin raises, or returns against the rules of its extension point, as ``PluginError``.

A status is a value, a bug is an exception. Errors have kube-scheduler's text, and are counted in
the plugin's ``health``.

Example: ``filter`` of a plugin Fit raises ``KeyError("gpu")``. ``plugin_error`` logs and counts it
and returns ``PluginError('running "Fit" filter plugin: …')``: this attempt fails, the pod goes to
the back-off queue, and the scheduler goes on with the next pod.
"""

from __future__ import annotations

import asyncio
from collections.abc import Set
from typing import NoReturn

from proreus.base.errors import (
    BudgetExceeded,
    DeadlineExceeded,
    PluginError,
    TimeBudgetExceeded,
)
from proreus.base.logs import error_text, short_repr, shortened
from proreus.framework.plugin import Plugin
from proreus.framework.plugin_health import Reason
from proreus.framework.status import ERROR, MOST_CHARACTERS, SKIP, SUCCESS, Code, Status, checked

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

_REJECTIONS = frozenset({Code.UNSCHEDULABLE, Code.UNRESOLVABLE, Code.PENDING})

_ALLOWED = {
    "PreFilter": frozenset({Code.UNSCHEDULABLE, Code.UNRESOLVABLE}),
    "PreScore": frozenset[Code](),
    "Permit": _REJECTIONS | {Code.WAIT},
    "Bind": _REJECTIONS | {SKIP},
}
"""The codes of statuses that a point allows, where these are not all rejections."""

_REASONS: dict[type[BaseException], Reason] = {
    DeadlineExceeded: "timeout",
    TimeBudgetExceeded: "slow",
}
"""How the errors of ``instrumentation`` count; whatever else a plugin raises is its own."""


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
        plugin.health.note(point, "invalid_answer", error)
        text = with_plugin_context(plugin, point, error_text(error))
        raise PluginError(plugin.name, point, text) from error
    return None if status.code == SUCCESS else status


def allowed_status(
    plugin: Plugin, point: str, result: object, wanted: str = "a Status or None"
) -> Status | None:
    """Return a plugin's result with its name, None for success.

    Raises ``PluginError`` for an Error, and for what the point does not allow.
    """
    status = as_status(plugin, point, result, wanted)
    if status is None:
        return None
    check_allowed(plugin, point, status)
    return status.with_plugin(plugin.name)


def names_or_status(plugin: Plugin, point: str, result: object) -> frozenset[str] | Status | None:
    """Check a result of PreFilter: names of nodes, a rejection, or None."""
    names = _as_node_names(plugin, point, result)
    if names is not None:
        return names
    return allowed_status(plugin, point, result, "a Status, a set of node names or None")


def _as_node_names(plugin: Plugin, point: str, result: object) -> frozenset[str] | None:
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


def check_allowed(plugin: Plugin, point: str, status: Status) -> None:
    """Raise ``PluginError`` for a status that the point does not allow."""
    if status.code not in _ALLOWED.get(point, _REJECTIONS):
        raise_status(plugin, point, status)


def refuse_status(plugin: Plugin, point: str, result: object) -> None:
    """Raise ``PluginError`` if a plugin returned a status where the point wants something else."""
    if isinstance(result, Status):
        raise_status(plugin, point, as_status(plugin, point, result) or result)


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
