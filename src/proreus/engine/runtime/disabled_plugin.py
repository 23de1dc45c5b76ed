"""Neutral results of disabled plugins, and substitutes for plugins that are never called."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar

from proreus.framework.extension_points import POINTS, UNNAMED_POINTS
from proreus.framework.plugin import Plugin
from proreus.framework.pod_group import Placement, PodGroupPostFilterResult
from proreus.framework.post_filter_result import PostFilterResult
from proreus.framework.status import Code, Status

_SKIP = Status(Code.SKIP)
_UNSCHEDULABLE_RESULT = PostFilterResult(Status.unschedulable())
_UNSCHEDULABLE_GROUP_RESULT = PodGroupPostFilterResult(Status.unschedulable())

DISABLED_SIGNATURE = "disabled"
"""The signature of every pod while the plugin is disabled: results of that time must not mix with
those of the plugin itself in the cache."""

DISABLED_RESULTS: dict[str, Callable[..., Any]] = {
    "pre_enqueue": lambda *_: None,
    "pre_filter": lambda *_: _SKIP,
    "add_pod": lambda *_: None,
    "remove_pod": lambda *_: None,
    "filter": lambda *_: None,
    "filter_all": lambda *_: None,
    "filter_feasible": lambda *_: None,
    "post_filter": lambda *_: _UNSCHEDULABLE_RESULT,
    "pod_group_post_filter": lambda *_: _UNSCHEDULABLE_GROUP_RESULT,
    "placement_feasible": lambda *_: None,
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
    "hint": lambda *_: True,
    "pre_queueing_hint": lambda *_: None,
    "sign": lambda *_: DISABLED_SIGNATURE,
    "invalidation_key": lambda *_: None,
}
"""The results that stand for those of a disabled plugin."""

_NEVER_REPLACED = ("filter", "score", "add_pod", "remove_pod", "normalize", "normalize_placements")
"""Methods that a ``NeverCalled`` does not need: another form of it, or its base class, will do."""


class NeverCalled(Plugin):
    """Stands for a plugin none of whose code may run, its constructor included."""

    disabled_because: ClassVar[str] = ""


def never_called(plugin: type[Plugin], because: str) -> type[NeverCalled]:
    """Return a class with a plugin's name, arguments and extension points that does nothing."""
    points = (*POINTS.values(), *UNNAMED_POINTS)
    bases = tuple(base for base in points if issubclass(plugin, base))
    methods = {
        name: _as_method(declared, DISABLED_RESULTS[name])
        for base in (*bases, Plugin)
        for name, declared in vars(base).items()
        if name in DISABLED_RESULTS and name not in _NEVER_REPLACED
    }
    namespace = {
        "__module__": plugin.__module__,
        "__doc__": f"Stands for {plugin.name}, which is not called.",
        "name": plugin.name,
        "Args": plugin.Args,
        "disabled_because": because,
        "row_local": True,
        "looks_at_pods": False,
        "events_to_register": lambda self: (),
        # PrioritySort's order: the queue must have one.
        "sort_key": lambda self, queued: (-queued.info.priority, queued.timestamp),
    }
    return type(plugin.__name__, (NeverCalled, *bases), {**methods, **namespace})


def _as_method(declared: Callable[..., Any], result: Callable[..., Any]) -> Callable[..., Any]:
    if not inspect.iscoroutinefunction(declared):
        return lambda *args: result(*args)

    async def method(*args: Any) -> Any:
        return result(*args)

    return method
