"""Wrappers around the methods of out-of-tree plugins: time, failures, and the disabled state.

Methods are wrapped on the instance, so in-tree plugins are called at no extra cost. A wrapped call
is timed, and is the ``CurrentCall`` meanwhile. While the plugin is disabled (``plugin_health``) the
method is not called, and a neutral result takes its place: Filter passes, Score is 0, PreFilter
skips. Unreserve is always called, so that what the plugin reserved before is released.

    _timed         points of the scheduling cycle: the time of all calls in one attempt
    _waiting       methods that wait, which have deadlines; ``_fetching``: those the cycle waits for
    _single_call   calls by the queue and by the cache: each succeeds or fails by itself
    _binding_call  the same in the binding cycle, with its time

Example: ``instrument(fit, health)`` sets ``fit.filter = call``; ``call`` adds the time of the
original ``filter`` to the Filter point. Once that exceeds the budget, the next call raises
``TimeBudgetExceeded``: 5,000 slow calls end after the first of them (``end_at_budget``).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import replace
from math import inf
from time import perf_counter
from typing import Any

from msgspec import Struct

from proreus.base.errors import PluginError, TimeBudgetExceeded
from proreus.engine.runtime.await_deadline import with_deadline
from proreus.engine.runtime.disabled_plugin import DISABLED_RESULTS
from proreus.engine.runtime.plugin_errors import as_status, plugin_error
from proreus.engine.runtime.plugin_health import PluginCall, PluginHealthMonitor, PointHealth
from proreus.engine.runtime.points import FETCH_METHODS, POINT_OF_METHOD
from proreus.framework.events import ClusterEvent
from proreus.framework.extension_points import POINTS, UNNAMED_POINTS
from proreus.framework.plugin import BackgroundPlugin, FetchingPlugin, Plugin
from proreus.framework.post_filter_result import PostFilterResult
from proreus.framework.status import Code, Status, checked, code_of

Method = Callable[..., Any]

_PER_NODE_METHODS = frozenset({"filter", "score"})
"""Methods that the cycle calls once a node."""


class _Wrapping(Struct, frozen=True):
    """The common parts of all wrappers of one method, ``name``, of one plugin."""

    plugin: Plugin
    name: str
    point: str
    health: PluginHealthMonitor

    @property
    def call(self) -> PluginCall:
        """The place where the method is called."""
        return PluginCall(self.plugin.name, self.point, type(self.plugin))

    def point_health(self, *, waits: bool = False) -> PointHealth:
        """Return the health of the method's point."""
        return self.health.point_health(self.point, waits)

    def watched(self, method: Method, health: PointHealth, most_seconds: float = inf) -> Method:
        """Return a method with its time, as the current call; not called while disabled.

        Beyond ``most_seconds`` in one attempt, calls raise ``TimeBudgetExceeded``.
        """
        monitor, this_call = self.health, self.call
        disabled_result = DISABLED_RESULTS.get(self.name)
        noting = monitor.current_call.noting(this_call, method, health)

        def call(*args: Any) -> Any:
            if monitor.disabled and disabled_result is not None:
                return disabled_result(*args)
            if health.seconds > most_seconds:
                health.cut_off = True
                raise TimeBudgetExceeded(
                    this_call.plugin, this_call.point, health.seconds, most_seconds
                )
            return noting(*args)

        return call

    def limited(self, method: Method) -> Method:
        """Return a method that waits, with its deadline."""
        seconds = self.health.deadline_seconds(self.point)
        return with_deadline(method, self.call, self.health.current_call, seconds)


def instrument(plugin: Plugin, health: PluginHealthMonitor) -> None:
    """Wrap the methods that a plugin defines itself, on this instance."""
    # Only overridden methods: the base class's ``filter`` calls ``filter_all``, and wrapping both
    # would count the time twice.
    for base in (*POINTS.values(), *UNNAMED_POINTS, Plugin):
        if not isinstance(plugin, base):
            continue
        for name, declared in vars(base).items():
            point = POINT_OF_METHOD.get(name)
            if point is None or getattr(type(plugin), name) is declared:
                continue
            # The declaration decides, not the plugin's override: a plugin may define a coroutine
            # method as a plain function that returns an awaitable.
            wrap = _waiting if inspect.iscoroutinefunction(declared) else _WRAPPERS.get(name)
            _replace(_Wrapping(plugin, name, point, health), wrap or _timed)
    if isinstance(plugin, FetchingPlugin):
        for point, name in FETCH_METHODS.items():
            _replace(_Wrapping(plugin, name, point, health), _fetching)
    _replace(_Wrapping(plugin, "events_to_register", "EventsToRegister", health), _noting)
    if isinstance(plugin, BackgroundPlugin):
        _replace(_Wrapping(plugin, "run_in_background", "Background", health), _background)


def _replace(wrapping: _Wrapping, wrap: Callable[[_Wrapping, Method], Method]) -> None:
    method = getattr(wrapping.plugin, wrapping.name)
    setattr(wrapping.plugin, wrapping.name, functools.wraps(method)(wrap(wrapping, method)))


# ---- the cycles --------------------------------------------------------------------------------


def _timed(wrapping: _Wrapping, method: Method) -> Method:
    """Time a method of the scheduling cycle; ``points`` counts its failures."""
    health = wrapping.health
    # What a plugin fetched over the network was waited for in one piece, before the first node.
    per_node = wrapping.name in _PER_NODE_METHODS and not wrapping.plugin.fetches
    most_seconds = health.budget_seconds if per_node and health.end_at_budget else inf
    return wrapping.watched(method, wrapping.point_health(), most_seconds)


def _fetching(wrapping: _Wrapping, method: Method) -> Method:
    """Time a ``fetch_…`` method: the cycle waits for it, so it counts as the point's time."""
    point_health, method = wrapping.point_health(), wrapping.limited(method)

    async def call(*args: Any) -> Any:
        started = perf_counter()
        try:
            return await method(*args)
        finally:
            point_health.seconds += perf_counter() - started

    return call


def _waiting(wrapping: _Wrapping, method: Method) -> Method:
    """Watch a method that may wait, without its time; ``points`` counts its failures."""
    health, point_health = wrapping.health, wrapping.point_health(waits=True)
    disabled_result, method = DISABLED_RESULTS[wrapping.name], wrapping.limited(method)

    async def call(*args: Any) -> Any:
        if health.disabled:
            return disabled_result(*args)
        result = await method(*args)
        if _is_success(result.status if isinstance(result, PostFilterResult) else result):
            health.succeeded(point_health)
        return result

    return call


def _noting(wrapping: _Wrapping, method: Method) -> Method:
    """Note a method as the current call, and nothing else."""
    return wrapping.health.current_call.noting(wrapping.call, method)


def _background(wrapping: _Wrapping, method: Method) -> Method:
    """Note the steps of a method that runs for as long as the profile."""
    return with_deadline(method, wrapping.call, wrapping.health.current_call)


def _binding_call(wrapping: _Wrapping, method: Method) -> Method:
    """Watch a method of the binding cycle, call by call: many pods are bound between attempts."""
    health, point_health = wrapping.health, wrapping.point_health(waits=True)
    method = wrapping.watched(method, point_health)

    def call(*args: Any) -> Any:
        before = point_health.seconds
        result = method(*args)
        if point_health.seconds - before > health.budget_seconds:
            health.note(point_health.point, "slow")
        elif _is_success(result):
            health.succeeded(point_health)
        return result

    return call


def _is_success(result: object) -> bool:
    """Return whether a result is None or a valid status other than Error."""
    if result is None:
        return True
    try:
        return isinstance(result, Status) and checked(result).code != Code.ERROR
    except TypeError:
        return False


# ---- calls of the queue and of the equivalence cache --------------------------------------------


def _single_call(
    convert: Callable[..., Any], on_error: Callable[..., Any] | None = None
) -> Callable[[_Wrapping, Method], Method]:
    """Return a wrapper for methods whose calls each succeed or fail by themselves.

    ``convert(result, *args)``: what the caller gets. ``on_error(error, *args)``: what it gets in
    the place of an exception, given as ``PluginError``; None: exceptions pass, the runtime
    counts them.
    """

    def wrap(wrapping: _Wrapping, method: Method) -> Method:
        health, point_health = wrapping.health, wrapping.point_health(waits=True)
        method = wrapping.watched(method, point_health)

        def call(*args: Any) -> Any:
            try:
                result = convert(method(*args), *args)
            except BaseException as error:
                if on_error is None:
                    raise
                return on_error(plugin_error(wrapping.plugin, wrapping.point, error), *args)
            health.succeeded(point_health)
            return result

        return call

    return wrap


def _pre_enqueue(wrapping: _Wrapping, method: Method) -> Method:
    """Watch PreEnqueue; an exception gates the pod, as an Error status does."""
    # The queue is no caller that could catch ``PluginError``: it works on watch events, and must go
    # on with the other pods.
    health, point_health = wrapping.health, wrapping.point_health(waits=True)
    point, method = wrapping.point, wrapping.watched(method, point_health)

    def call(pod: Any) -> Any:
        try:
            result = method(pod)
        except BaseException as error:
            return Status.error(str(plugin_error(wrapping.plugin, point, error)))
        try:
            status = as_status(wrapping.plugin, point, result)
        except PluginError as error:
            return Status.error(str(error))
        if code_of(status) == Code.ERROR:
            health.note(point, "error")
        else:
            health.succeeded(point_health)
        return status

    return call


class _Last:
    """Sorts after the sort keys of all other pods."""

    def __lt__(self, other: object) -> bool:
        return False

    def __gt__(self, other: object) -> bool:
        return other is not self


_LAST = _Last()


def instrument_hint(event: ClusterEvent, plugin: Plugin) -> ClusterEvent:
    """Return a registration whose hint, if it raises, lets the event move the pod.

    What its other functions raise becomes ``PluginError``, which the queue logs.
    """
    health = plugin.health
    if not isinstance(health, PluginHealthMonitor) or not health.out_of_tree:
        return event
    functions: dict[str, Any] = {}
    for name, (point, wrap) in _HINTS.items():
        function = getattr(event, name)
        if function is not None:
            functions[name] = wrap(_Wrapping(plugin, name, point, health), function)
    return replace(event, **functions) if functions else event


def _raise(error: Exception, *_: Any) -> Any:
    raise error


def _hashable(result: Any, *_: Any) -> Any:
    hash(result)  # what has no hash raises here, where it can be attributed to the plugin
    return result


# Queue in both cases, as kube-scheduler does on a hint's error: a needless attempt costs little, a
# missed event leaves the pod unschedulable until the periodic flush.
_hint = _single_call(lambda helps, *_: bool(helps), lambda *_: True)
# It is never disabled, since the queue must have an order.
_sort_key = _single_call(lambda key, _: key, lambda *_: _LAST)
_sign = _single_call(_hashable)
_invalidation_key = _single_call(_hashable, _raise)
_named_pods = _single_call(lambda keys, *_: None if keys is None else frozenset(keys), _raise)

_HINTS = {
    "hint": ("QueueingHint", _hint),
    "pre_queueing_hint": ("PreQueueingHint", _named_pods),
    "ungated_pods": ("UngatedPods", _named_pods),
}
"""The functions of a registered event: the point in metrics and logs, and the wrapper."""

_WRAPPERS: dict[str, Callable[[_Wrapping, Method], Method]] = {
    "unreserve": _binding_call,
    "pre_bind_pre_flight": _binding_call,
    "post_bind": _binding_call,
    "pre_enqueue": _pre_enqueue,
    "sort_key": _sort_key,
    "sign": _sign,
    "invalidation_key": _invalidation_key,
}
"""The wrappers of methods that do not wait; ``_timed`` is that of all others."""
