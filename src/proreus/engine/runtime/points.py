"""The one place where plugins are called: what an extension point runs, ready-made.

A profile is built into ``ExtensionPoint``s: plugins in order, with methods and counters bound. What
runs once a pod is one loop, ``ExtensionPoint.run``; what runs on many nodes or pods is another,
``call_plugin_for_each``. Time, budget, the check of results and the text of errors are here.

Example: ``for plugin, status in profile.permit.run(state, pod, node_name)`` calls Permit of each
plugin and yields those that did not simply return success. In one cycle out of ten every call is
timed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from time import perf_counter
from typing import Any, Generic, TypeVar, TypeVarTuple

from proreus.base.metrics import SchedulerMetrics
from proreus.engine.runtime.plugin_errors import plugin_error
from proreus.framework.attempt_budget import ROWS_BETWEEN_CHECKS
from proreus.framework.cycle_state import CycleState
from proreus.framework.cycle_state import PluginTimer as Timer
from proreus.framework.plugin import Plugin
from proreus.framework.status import SKIP, SUCCESS, Status

A = TypeVar("A")
P = TypeVar("P", bound=Plugin)
R = TypeVar("R")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

Take = Callable[[Any, str, Any], A | None]

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

FETCH_METHODS = {
    "PreFilter": "fetch_pre_filter",
    "Filter": "fetch_filter",
    "Score": "fetch_score",
    "Reserve": "fetch_reserve",
    "Permit": "fetch_permit",
}
"""The method of a ``FetchingPlugin`` that is awaited right before a point."""


class PluginTimer:
    """Times single plugin calls; a cycle that is sampled carries one in its state."""

    def __init__(self, metrics: SchedulerMetrics) -> None:
        self._seconds = metrics.plugin_execution_duration_seconds

    def observe(self, plugin: Plugin, point: str, result: object, started: float) -> None:
        """Record one call that began at ``started`` (of ``perf_counter``)."""
        code = result.code if type(result) is Status else SUCCESS
        self._seconds.labels(plugin.name, point, code.label).observe(perf_counter() - started)


class ExtensionPoint(tuple[P, ...], Generic[P, A]):
    """The plugins of an extension point that runs once a pod, with their methods bound.

    ``take(plugin, point, result)``: the answer in a result, None for success.
    """

    def __new__(
        cls, method: str, plugins: Iterable[P], take: Take[A], *, counted: bool = False
    ) -> ExtensionPoint[P, A]:
        """``counted``: each call that did not skip is, and checks the attempt's budget."""
        return super().__new__(cls, plugins)

    def __init__(
        self, method: str, plugins: Iterable[P], take: Take[A], *, counted: bool = False
    ) -> None:
        self._method, self._take, self._counted = method, take, counted
        self._name = POINT_OF_METHOD[method]
        self._calls = tuple(
            (plugin, getattr(plugin, method), getattr(plugin.evaluations, method, None))
            for plugin in self
        )

    def without(self, names: Iterable[str]) -> ExtensionPoint[P, A]:
        """Return the point without the plugins of these names."""
        names = frozenset(names)
        left = tuple(plugin for plugin in self if plugin.name not in names)
        return ExtensionPoint(self._method, left, self._take, counted=self._counted)

    def run(
        self, state: CycleState, pod: Any, argument: Any, skipped: list[str] | None = None
    ) -> Iterator[tuple[P, A]]:
        """Call the plugins in order; yield the answers other than success.

        ``skipped``: where a plugin may return Skip, the names of those that did are added to it.
        Raises ``PluginError``.
        """
        point, timer = self._name, state.timer
        budget = state.budget if self._counted else None
        for plugin, method, evaluations in self._calls:
            # Not ``call_plugin``: that would be a call more for each plugin of every pod.
            try:
                if timer is None or plugin.fetches:
                    result = method(state, pod, argument)
                else:
                    result = _timed(timer, plugin, point, method, state, pod, argument)
            except BaseException as error:
                raise plugin_error(plugin, point, error) from error
            if skipped is not None and type(result) is Status and result.code is SKIP:
                skipped.append(plugin.name)
                continue
            if evaluations is not None:
                evaluations.value += 1
            if budget is not None:
                budget.check(plugin.name, point)
            if result is not None:
                answer = self._take(plugin, point, result)
                if answer is not None:
                    yield plugin, answer


def call_plugin(
    plugin: Plugin, point: str, state: CycleState, method: Callable[[*Ts], R], *args: *Ts
) -> R:
    """Call a plugin's method; raises ``PluginError`` for whatever it raises."""
    timer = state.timer
    try:
        if timer is None or plugin.fetches:
            return method(*args)
        return _timed(timer, plugin, point, method, *args)
    except BaseException as error:
        raise plugin_error(plugin, point, error) from error


def call_plugin_for_each(
    plugin: Plugin, point: str, state: CycleState, call: Callable[[T], R], things: Iterable[T]
) -> list[R]:
    """Call a plugin about many nodes or pods, one by one; raises ``PluginError``."""
    timer = None if plugin.fetches else state.timer
    results: list[R] = []
    # One ``try`` for all calls: entering ``call_plugin`` for each of hundreds of victims would cost
    # more than many a RemovePod.
    try:
        for number, one in enumerate(things):
            # A pod's spec decides how long one call takes: the budget is checked between calls, and
            # not at each, since reading the clock costs as much as a cheap plugin.
            if number % ROWS_BETWEEN_CHECKS == 0:
                state.check_budget(plugin.name, point)
            results.append(call(one) if timer is None else _timed(timer, plugin, point, call, one))
    except BaseException as error:
        raise plugin_error(plugin, point, error) from error
    return results


async def await_plugin(
    plugin: Plugin, point: str, state: CycleState, method: Callable[[*Ts], Awaitable[R]], *args: *Ts
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


def _timed(timer: Timer, plugin: Plugin, point: str, method: Callable[[*Ts], R], *args: *Ts) -> R:
    # Not for a fetching plugin: its time is that of its fetch, which has been observed already; the
    # call itself only hands over what was fetched.
    started = perf_counter()
    result = method(*args)
    timer.observe(plugin, point, result, started)
    return result
