"""Keeps watch over the calls of plugins that were brought along.

Their methods are wrapped, on the instance: what comes with proreus is called as before, at no cost.
A wrapped call is timed, and while the plugin is left out (``health``) it is not made at all: the
answer is the one of a plugin that has nothing to say. Reservations are undone in any case, so that
a plugin's books stay right.
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
from proreus.runtime.calls import is_cancellation, plugin_error
from proreus.runtime.plugin_health import PluginHealthMonitor, PointHealth
from proreus.source_location import class_location, error_location

log = logger(__name__)

_IN_TREE_PREFIX = "proreus."
_SKIP = Status(Code.SKIP)
_UNSCHEDULABLE_RESULT = PostFilterResult(Status.unschedulable())
_DISABLED_SIGNATURE = "left out"
"""Stands for the part of a pod that a plugin reads which is left out: shared answers of that time
are kept apart from the plugin's own."""

Method = Callable[..., Any]


def is_out_of_tree(code: object) -> bool:
    """Tell whether a class or a function did not come with proreus."""
    return not (getattr(code, "__module__", None) or "").startswith(_IN_TREE_PREFIX)


@contextmanager
def config_errors_from(plugin: type[Plugin]) -> Iterator[None]:
    """Turn what a plugin that was brought along raises into ``ConfigError`` with its place.

    For what is called while profiles are built; what comes with proreus raises as it does.
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


def log_exceptions(function: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """Let a function of ``handle.on_change`` fail without harm to who calls it."""
    if not is_out_of_tree(function):
        return function

    def call(old: Any, new: Any) -> None:
        try:
            function(old, new)
        except BaseException as error:
            if is_cancellation(error):
                raise
            name = getattr(function, "__qualname__", repr(function))
            log.error("A plugin's on_change handler raised", err=error, trace=True, handler=name)

    return call


def log_exceptions_of_task(work: Coroutine[Any, Any, None]) -> Coroutine[Any, Any, None]:
    """Let what a plugin does beside scheduling (``handle.spawn``) fail without harm to others."""
    frame = getattr(work, "cr_frame", None)
    if frame is None or frame.f_globals.get("__name__", "").startswith(_IN_TREE_PREFIX):
        return work

    async def run() -> None:
        try:
            await work
        except BaseException as error:
            if is_cancellation(error):
                raise
            name = getattr(work, "__qualname__", repr(work))
            log.error("A plugin's background work raised", err=error, trace=True, work=name)

    return run()


def instrument(plugin: Plugin, health: PluginHealthMonitor) -> None:
    """Wrap the methods that a plugin defines itself, on this instance."""
    for base in (*POINTS.values(), framework.PodGroupPostFilterPlugin, Plugin):
        if not isinstance(plugin, base):
            continue
        for name, declared in vars(base).items():
            point = POINT_OF_METHOD.get(name)
            if point is None or getattr(type(plugin), name) is declared:
                continue
            method = getattr(plugin, name)
            waits = inspect.iscoroutinefunction(declared)
            point_health = health.point_health(
                point, waits or name in _CUSTOM_WRAPPERS or name in _BINDING_CYCLE_METHODS
            )
            if waits:
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
            method = getattr(plugin, name)
            wrapped = _wrap_fetch(method, health.point_health(point))
            setattr(plugin, name, functools.wraps(method)(wrapped))


def _wrap_timed(
    method: Method,
    point_health: PointHealth,
    health: PluginHealthMonitor,
    disabled_result: Method | None,
) -> Method:
    """Call in the scheduling cycle; failures are noted by ``calls``."""

    def call(*args: Any) -> Any:
        if health.disabled and disabled_result is not None:
            return disabled_result(*args)
        started = perf_counter()
        try:
            return method(*args)
        finally:
            point_health.seconds += perf_counter() - started

    return call


def _wrap_fetch(method: Method, point_health: PointHealth) -> Method:
    """Call before the point is asked: the cycle waits for it, so it is in the point's time."""

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
    """Call what may wait; failures are noted by ``calls``."""

    async def call(*args: Any) -> Any:
        if health.disabled:
            return disabled_result(*args)
        answer = await method(*args)
        if _is_success(answer.status if isinstance(answer, PostFilterResult) else answer):
            health.succeeded(point_health)
        return answer

    return call


def _wrap_single_call(
    method: Method,
    point_health: PointHealth,
    health: PluginHealthMonitor,
    disabled_result: Method | None,
) -> Method:
    """Call beside scheduling cycles, where many pods are bound between two of them."""

    def call(*args: Any) -> Any:
        if health.disabled and disabled_result is not None:
            return disabled_result(*args)
        started = perf_counter()
        answer = method(*args)
        if perf_counter() - started > health.budget_seconds:
            health.note(point_health.point, "slow")
        elif _is_success(answer):
            health.succeeded(point_health)
        return answer

    return call


def _is_success(answer: object) -> bool:
    """Tell whether an answer is a status that is no failure of the plugin."""
    return answer is None or (isinstance(answer, Status) and answer.code != Code.ERROR)


# ---- calls that the queue makes ----------------------------------------------------------------


def _wrap_pre_enqueue(
    plugin: Plugin, method: Method, point_health: PointHealth, health: PluginHealthMonitor
) -> Method:
    """An exception gates the pod, as an Error status does."""

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
    """A sort key that may be missing or not comparable; then priority and age decide."""

    __slots__ = ("_fallback", "_own")

    def __init__(self, own: Any, queued: QueuedPodInfo) -> None:
        self._own = own
        self._fallback = (-queued.info.priority, queued.timestamp)

    def __lt__(self, other: SortKey) -> bool:
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
    """A queue must have an order, whatever its plugin does: this one is never left out."""

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
    """Return a registration of a plugin; its hint, if it fails, says that the event may help."""
    hint, health = event.hint, plugin.health
    if hint is None or not isinstance(health, PluginHealthMonitor) or not health.out_of_tree:
        return event
    point_health = health.point_health("QueueingHint", waits=True)

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


# ---- calls about sharing -----------------------------------------------------------------------


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


def _invalidation_key(
    plugin: Plugin, method: Method, point_health: PointHealth, health: PluginHealthMonitor
) -> Method:
    def call(nodes: Any) -> Any:
        if health.disabled:
            return None
        try:
            answer = method(nodes)
            hash(answer)
        except BaseException as error:
            raise plugin_error(plugin, point_health.point, error) from error
        health.succeeded(point_health)
        return answer

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
    "invalidation_key": "Outlook",
}
"""The methods that are watched, and the points that they are called at."""

_FETCH_METHODS = {
    "fetch_pre_filter": "PreFilter",
    "fetch_filter": "Filter",
    "fetch_score": "Score",
    "fetch_reserve": "Reserve",
    "fetch_permit": "Permit",
}
"""Methods that the cycle waits for before it asks at a point."""

_BINDING_CYCLE_METHODS = frozenset({"unreserve", "pre_bind_pre_flight", "post_bind"})
"""Methods that are called in binding cycles and do not wait; each call counts by itself."""

_CUSTOM_WRAPPERS: dict[
    str, Callable[[Plugin, Method, PointHealth, PluginHealthMonitor], Method]
] = {
    "pre_enqueue": _wrap_pre_enqueue,
    "sort_key": _wrap_sort_key,
    "sign": _wrap_sign,
    "invalidation_key": _invalidation_key,
}
"""Methods with a way of their own; a success or a failure of theirs is one of a call."""

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
"""What a plugin answers that is left out."""
