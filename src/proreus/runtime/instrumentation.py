"""Wrappers around the methods of out-of-tree plugins: time, failures, and the disabled state.

Methods are wrapped on the instance, so in-tree plugins are called at no extra cost. A wrapped call
is timed. While the plugin is disabled (``plugin_health``) the method is not called, and a neutral
result takes its place: Filter passes, Score is 0, PreFilter skips. Unreserve is always called, so
that what the plugin reserved before is released.

Example: ``instrument(fit, health)`` sets ``fit.filter = call``; ``call`` adds the time of the
original ``filter`` to the Filter point, which ``begin_attempt`` compares with the budget.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import replace
from time import perf_counter
from typing import Any

from proreus.errors import ConfigError, ProreusError
from proreus.framework import plugin as framework
from proreus.framework.events import ClusterEvent
from proreus.framework.plugin import POINTS, Plugin
from proreus.framework.pod_group import Placement
from proreus.framework.pod_info import PodInfo, QueuedPodInfo
from proreus.framework.post_filter_result import PostFilterResult
from proreus.framework.status import Code, Status
from proreus.logs import logger
from proreus.runtime.await_deadline import with_deadline
from proreus.runtime.calls import is_cancellation, plugin_error
from proreus.runtime.plugin_health import PluginHealthMonitor, PointHealth, TracebackLog
from proreus.source_location import class_location, error_location

log = logger(__name__)

_IN_TREE_PREFIX = "proreus."
_SKIP = Status(Code.SKIP)
_UNSCHEDULABLE_RESULT = PostFilterResult(Status.unschedulable())
_DISABLED_SIGNATURE = "disabled"
"""The signature of every pod while the plugin is disabled: results of that time must not mix with
those of the plugin itself in the cache."""

Method = Callable[..., Any]


def is_out_of_tree(code: object) -> bool:
    """Return whether a class or function is not part of proreus."""
    return not (getattr(code, "__module__", None) or "").startswith(_IN_TREE_PREFIX)


@contextmanager
def config_errors_from(plugin: type[Plugin]) -> Iterator[None]:
    """Turn an exception of an out-of-tree plugin into ``ConfigError`` with file and line.

    For calls while profiles are built. Exceptions of in-tree plugins pass unchanged.
    """
    try:
        yield
    except ProreusError:
        raise
    except BaseException as error:
        if is_cancellation(error) or not is_out_of_tree(plugin):
            raise
        file, line = class_location(plugin)
        place = error_location(error, file.__eq__)
        place = place or (f"{file}:{line}" if line else plugin.__name__)
        raise ConfigError(f"{place}: {type(error).__name__}: {error}") from error


def log_exceptions(
    function: Callable[[Any, Any], None], tracebacks: TracebackLog
) -> Callable[[Any, Any], None]:
    """Wrap a handler for ``handle.on_change`` so that its exceptions are logged, not raised."""
    # The informer would record a fault of the object, and it does not catch ``SystemExit``: here
    # the failure is logged as the plugin's own, with its traceback.
    if not is_out_of_tree(function):
        return function

    def call(old: Any, new: Any) -> None:
        try:
            function(old, new)
        except BaseException as error:
            if is_cancellation(error):
                raise
            # Limited: a handler with a bug raises for every object of a list, and again when it is
            # listed anew.
            name = getattr(function, "__qualname__", type(function).__qualname__)
            tracebacks.record("A plugin's on_change handler raised", error, handler=name)

    return call


def log_exceptions_of_task(
    work: Coroutine[Any, Any, None], tracebacks: TracebackLog
) -> Coroutine[Any, Any, None]:
    """Wrap work for ``handle.spawn`` so that its exceptions are logged, not raised."""
    frame = getattr(work, "cr_frame", None)
    if frame is None or frame.f_globals.get("__name__", "").startswith(_IN_TREE_PREFIX):
        return work

    async def run() -> None:
        try:
            await work
        except BaseException as error:
            if is_cancellation(error):
                raise
            name = getattr(work, "__qualname__", type(work).__qualname__)
            tracebacks.record("A plugin's background work raised", error, work=name)

    return run()


def instrument(plugin: Plugin, health: PluginHealthMonitor) -> None:
    """Wrap the methods that a plugin defines itself, on this instance."""
    # Only overridden methods: the base class's ``filter`` calls ``filter_all``, and wrapping both
    # would count the time twice.
    for base in (*POINTS.values(), framework.PodGroupPostFilterPlugin, Plugin):
        if not isinstance(plugin, base):
            continue
        for name, declared in vars(base).items():
            point = POINT_OF_METHOD.get(name)
            if point is None or getattr(type(plugin), name) is declared:
                continue
            method = getattr(plugin, name)
            # The declaration decides, not the plugin's override: a plugin may define a coroutine
            # method as a plain function that returns an awaitable.
            waits = inspect.iscoroutinefunction(declared)
            point_health = health.point_health(
                point, waits or name in _CUSTOM_WRAPPERS or name in _BINDING_CYCLE_METHODS
            )
            if waits:
                seconds = health.deadline_seconds(point)
                method = with_deadline(method, plugin.name, point, seconds)
                wrapped = _wrap_async(method, point_health, health, _DISABLED_RESULTS[name])
            elif name in _BINDING_CYCLE_METHODS:
                wrapped = _wrap_single_call(
                    method, point_health, health, _DISABLED_RESULTS.get(name)
                )
            elif name in _CUSTOM_WRAPPERS:
                wrapped = _CUSTOM_WRAPPERS[name](plugin, method, point_health, health)
            else:
                wrapped = _wrap_timed(method, point_health, health, _DISABLED_RESULTS.get(name))
            setattr(plugin, name, functools.wraps(method)(wrapped))
    if isinstance(plugin, framework.FetchingPlugin):
        for name, point in _FETCH_METHODS.items():
            seconds = health.deadline_seconds(point)
            method = with_deadline(getattr(plugin, name), plugin.name, point, seconds)
            wrapped = _wrap_fetch(method, health.point_health(point))
            setattr(plugin, name, functools.wraps(method)(wrapped))


def _wrap_timed(
    method: Method,
    point_health: PointHealth,
    health: PluginHealthMonitor,
    disabled_result: Method | None,
) -> Method:
    """Time a method of the scheduling cycle; ``calls`` counts its failures."""

    def call(*args: Any) -> Any:
        if health.disabled and disabled_result is not None:
            return disabled_result(*args)
        started = perf_counter()
        try:
            return method(*args)
        finally:  # also a call that raises has used its time
            point_health.seconds += perf_counter() - started

    return call


def _wrap_fetch(method: Method, point_health: PointHealth) -> Method:
    """Time a ``fetch_…`` method: the cycle waits for it, so it counts as the point's time."""

    async def call(*args: Any) -> Any:
        started = perf_counter()
        try:
            return await method(*args)
        finally:
            point_health.seconds += perf_counter() - started

    return call


def _wrap_async(
    method: Method, point_health: PointHealth, health: PluginHealthMonitor, disabled_result: Method
) -> Method:
    """Watch a method that may wait, without its time; ``calls`` counts its failures."""

    async def call(*args: Any) -> Any:
        if health.disabled:
            return disabled_result(*args)
        result = await method(*args)
        if _is_success(result.status if isinstance(result, PostFilterResult) else result):
            health.succeeded(point_health)
        return result

    return call


def _wrap_single_call(
    method: Method,
    point_health: PointHealth,
    health: PluginHealthMonitor,
    disabled_result: Method | None,
) -> Method:
    """Watch a method of the binding cycle, call by call: many pods are bound between attempts."""

    def call(*args: Any) -> Any:
        if health.disabled and disabled_result is not None:
            return disabled_result(*args)
        started = perf_counter()
        result = method(*args)
        if perf_counter() - started > health.budget_seconds:
            health.note(point_health.point, "slow")
        elif _is_success(result):
            health.succeeded(point_health)
        return result

    return call


def _is_success(result: object) -> bool:
    """Return whether a result is None or a status other than Error."""
    return result is None or (isinstance(result, Status) and result.code != Code.ERROR)


# ---- calls that the queue makes ----------------------------------------------------------------


def _wrap_pre_enqueue(
    plugin: Plugin, method: Method, point_health: PointHealth, health: PluginHealthMonitor
) -> Method:
    """Watch PreEnqueue; an exception gates the pod, as an Error status does."""
    # The queue is no caller that could catch ``PluginError``: it works on watch events, and must go
    # on with the other pods.

    def call(pod: Any) -> Any:
        if health.disabled:
            return None
        try:
            status = method(pod)
        except BaseException as error:
            return Status.error(str(plugin_error(plugin, point_health.point, error)))
        if _is_success(status):
            health.succeeded(point_health)
            return status
        if isinstance(status, Status):
            health.note(point_health.point, "error")
            return status
        health.note(point_health.point, "invalid_answer")
        return Status.error(f"PreEnqueue must return a Status or None, not {status!r:.60}")

    return call


class SortKey:
    """A sort key that may be missing or not comparable; priority and age replace it then."""

    __slots__ = ("_fallback", "_own")

    def __init__(self, own: Any, queued: QueuedPodInfo) -> None:
        self._own = own
        self._fallback = (-queued.info.priority, queued.timestamp)

    def __lt__(self, other: SortKey) -> bool:
        # Raised from inside a heap operation, an exception would leave the queue in disorder.
        try:
            return bool(self._own < other._own)
        except Exception:
            return self._fallback < other._fallback

    def __eq__(self, other: object) -> bool:
        try:
            return isinstance(other, SortKey) and bool(self._own == other._own)
        except Exception:
            return False

    __hash__ = None  # type: ignore[assignment]


def _wrap_sort_key(
    plugin: Plugin, method: Method, point_health: PointHealth, health: PluginHealthMonitor
) -> Method:
    """Watch QueueSort; it is never disabled, since the queue must have an order."""

    def call(queued: QueuedPodInfo) -> SortKey:
        try:
            own = method(queued)
        except BaseException as error:
            plugin_error(plugin, point_health.point, error)
            return SortKey(None, queued)
        health.succeeded(point_health)
        return SortKey(own, queued)

    return call


def instrument_hint(event: ClusterEvent, plugin: Plugin) -> ClusterEvent:
    """Return a registration whose hint, if it raises, lets the event move the pod."""
    hint, health = event.hint, plugin.health
    if hint is None or not isinstance(health, PluginHealthMonitor) or not health.out_of_tree:
        return event
    point_health = health.point_health("QueueingHint", waits=True)

    # Queue in both cases, as kube-scheduler does on a hint's error: a needless attempt costs
    # little, a missed event leaves the pod unschedulable until the periodic flush.
    def call(pod: PodInfo, old: Any, new: Any) -> bool:
        if health.disabled:
            return True
        try:
            helps = bool(hint(pod, old, new))
        except BaseException as error:
            plugin_error(plugin, point_health.point, error)
            return True
        health.succeeded(point_health)
        return helps

    return replace(event, hint=call)


# ---- calls of the equivalence cache ------------------------------------------------------------


def _wrap_sign(
    plugin: Plugin, method: Method, point_health: PointHealth, health: PluginHealthMonitor
) -> Method:
    def call(pod: Any) -> Any:
        if health.disabled:
            return _DISABLED_SIGNATURE
        signature = method(pod)
        health.succeeded(point_health)
        return signature

    return call


def _wrap_invalidation_key(
    plugin: Plugin, method: Method, point_health: PointHealth, health: PluginHealthMonitor
) -> Method:
    def call(nodes: Any) -> Any:
        if health.disabled:
            return None
        try:
            result = method(nodes)
            hash(result)
        except BaseException as error:
            raise plugin_error(plugin, point_health.point, error) from error
        health.succeeded(point_health)
        return result

    return call


POINT_OF_METHOD = {
    "pre_enqueue": "PreEnqueue",
    "sort_key": "QueueSort",
    "pre_filter": "PreFilter",
    "add_pod": "PreFilterExtensionAddPod",
    "remove_pod": "PreFilterExtensionRemovePod",
    "filter": "Filter",
    "filter_all": "Filter",
    "post_filter": "PostFilter",
    "pod_group_post_filter": "PodGroupPostFilter",
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
"""The methods that are wrapped, and the extension point of each in metrics and logs."""

_FETCH_METHODS = {
    "fetch_pre_filter": "PreFilter",
    "fetch_filter": "Filter",
    "fetch_score": "Score",
    "fetch_reserve": "Reserve",
    "fetch_permit": "Permit",
}
"""Methods that the cycle awaits right before a point."""

_BINDING_CYCLE_METHODS = frozenset({"unreserve", "pre_bind_pre_flight", "post_bind"})
"""Methods of the binding cycle that do not wait; each call counts by itself."""

_CUSTOM_WRAPPERS: dict[
    str, Callable[[Plugin, Method, PointHealth, PluginHealthMonitor], Method]
] = {
    "pre_enqueue": _wrap_pre_enqueue,
    "sort_key": _wrap_sort_key,
    "sign": _wrap_sign,
    "invalidation_key": _wrap_invalidation_key,
}
"""Methods with a wrapper of their own; each call succeeds or fails by itself."""

_DISABLED_RESULTS: dict[str, Method] = {
    "pre_filter": lambda *_: _SKIP,
    "add_pod": lambda *_: None,
    "remove_pod": lambda *_: None,
    "filter": lambda *_: None,
    "filter_all": lambda *_: None,
    "post_filter": lambda *_: _UNSCHEDULABLE_RESULT,
    "pod_group_post_filter": lambda *_: Status.unschedulable(),
    "pre_score": lambda *_: _SKIP,
    "score": lambda *_: 0,
    "score_all": lambda *_: 0,
    "normalize": lambda state, pod, scores: scores,
    "reserve": lambda *_: None,
    "permit": lambda *_: None,
    "pre_bind_pre_flight": lambda *_: _SKIP,
    "pre_bind": lambda *_: None,
    "bind": lambda *_: _SKIP,
    "post_bind": lambda *_: None,
    "generate_placements": lambda *_: (Placement("all-nodes", None),),
    "score_placement": lambda *_: 0,
    "normalize_placements": lambda state, group, scores: scores,
}
"""The results that stand for those of a disabled plugin."""
