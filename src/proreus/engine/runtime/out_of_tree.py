"""Out-of-tree code that runs outside of extension points: constructors, handlers, background work.

What it raises is logged, or becomes a ``ConfigError`` while profiles are built.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from proreus.base.errors import ConfigError, ProreusError
from proreus.base.logs import named_error_text
from proreus.base.source_location import class_location, error_location
from proreus.engine.runtime.await_deadline import with_deadline
from proreus.engine.runtime.plugin_errors import is_cancellation
from proreus.engine.runtime.plugin_health import HealthContext, PluginCall
from proreus.framework.plugin import Plugin

_IN_TREE_PREFIX = "proreus."


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
        file, _ = class_location(plugin)
        place = error_location(error, file.__eq__) or _class_place(plugin)
        raise ConfigError(f"{place}: {named_error_text(error)}") from error


def _class_place(plugin: type[Plugin]) -> str:
    file, line = class_location(plugin)
    return f"{file}:{line}" if line else plugin.__name__


def constructor(plugin: type[Plugin], health_context: HealthContext) -> Callable[..., Plugin]:
    """Return a function that makes a plugin; an out-of-tree plugin is the current call then."""
    if not is_out_of_tree(plugin):
        return plugin
    return health_context.current_call.noting(PluginCall(plugin.name, "New", plugin), plugin)


def log_exceptions(
    function: Callable[[Any, Any], None], health_context: HealthContext
) -> Callable[[Any, Any], None]:
    """Wrap a handler for ``handle.on_change`` so that its exceptions are logged, not raised."""
    # The informer would record a fault of the object, and it does not catch ``SystemExit``: here
    # the failure is logged as the plugin's own, with its traceback.
    if not is_out_of_tree(function):
        return function
    name = getattr(function, "__qualname__", type(function).__qualname__)
    owner = _owner(getattr(function, "__self__", None))
    handle = health_context.current_call.noting(PluginCall(name, "on_change", owner), function)

    def call(old: Any, new: Any) -> None:
        try:
            handle(old, new)
        except BaseException as error:
            if is_cancellation(error):
                raise
            # Limited: a handler with a bug raises for every object of a list, and again when it is
            # listed anew.
            health_context.tracebacks.record(
                "A plugin's on_change handler raised", error, handler=name
            )

    return call


def log_exceptions_of_task(
    work: Coroutine[Any, Any, None], health_context: HealthContext
) -> Coroutine[Any, Any, None]:
    """Wrap work for ``handle.spawn`` so that its exceptions are logged, not raised."""
    frame = getattr(work, "cr_frame", None)
    if frame is None or frame.f_globals.get("__name__", "").startswith(_IN_TREE_PREFIX):
        return work
    name = getattr(work, "__qualname__", type(work).__qualname__)
    call = PluginCall(name, "spawn", _owner(frame.f_locals.get("self")))
    steps = with_deadline(lambda: work, call, health_context.current_call)

    async def run() -> None:
        try:
            await steps()
        except BaseException as error:
            if is_cancellation(error):
                raise
            health_context.tracebacks.record("A plugin's background work raised", error, work=name)

    return run()


def _owner(instance: object) -> type[Plugin] | None:
    return type(instance) if isinstance(instance, Plugin) else None
