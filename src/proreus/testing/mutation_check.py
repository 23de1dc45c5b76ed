"""Finds plugins that change the nodes and pods that they are given.

The scheduler gives all plugins the same objects: what one of them changes is changed for all pods
to come. Most of it is read-only, columns too, but not what is deep inside API objects, nor the
columns of forks: making these read-only would cost every cycle. In tests they are compared before
and after each call.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import msgspec

from proreus.engine.runtime.points import POINT_OF_METHOD
from proreus.framework.extension_points import POINTS
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import Plugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.read_only import ReadOnlyError

Contents = dict[str, Any]
"""The parts of an object, by words that name it in a message."""

_encode = msgspec.msgpack.Encoder(enc_hook=repr).encode
_COLUMNS = ("pod_count", "allowed_pods", "unschedulable", "taint_set", "port_set", "image_set")
_RESOURCE_COLUMNS = ("allocatable", "requested", "nonzero_requested")
_NODE_FIELDS = ("allocatable", "requested", "nonzero_requested", "pvc_ref_counts", "used_ports")


def fail_on_mutation(plugin: Plugin) -> None:
    """Make the methods of a plugin raise ``AssertionError`` if they change their arguments.

    The message names the plugin, its method and what it changed. Coroutines are only checked for
    pods: the scheduler itself changes nodes while they wait.
    """
    for name in _overridden_methods(plugin):
        method = getattr(plugin, name)
        waits = inspect.iscoroutinefunction(method)
        wrapped = _checked_async(plugin, method) if waits else _checked(plugin, method)
        setattr(plugin, name, functools.wraps(method)(wrapped))


def checked_class(plugin: type[Plugin]) -> type[Plugin]:
    """Return a class whose instances ``fail_on_mutation`` before anything binds their methods."""

    def __init__(self: Plugin, args: Any, handle: Any) -> None:
        plugin.__init__(self, args, handle)
        fail_on_mutation(self)

    same = {name: getattr(plugin, name) for name in ("__module__", "__qualname__", "__doc__")}
    return types.new_class(
        plugin.__name__, (plugin,), {}, lambda body: body.update(same, __init__=__init__)
    )


def _overridden_methods(plugin: Plugin) -> Iterator[str]:
    seen = set()
    for base in (*POINTS.values(), Plugin):
        for name, declared in vars(base).items():
            if not isinstance(plugin, base) or name in seen or name not in POINT_OF_METHOD:
                continue
            if getattr(type(plugin), name) is not declared:
                seen.add(name)
                yield name


def _checked(plugin: Plugin, method: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        before = _contents(args)
        try:
            result = method(*args)
        except (TypeError, ValueError) as error:
            raise _named(plugin, method, error) from error
        _require_same(plugin, method, before, _contents(args))
        return result

    return call


def _checked_async(plugin: Plugin, method: Callable[..., Any]) -> Callable[..., Any]:
    async def call(*args: Any) -> Any:
        pods = [arg for arg in args if isinstance(arg, PodInfo)]
        before = _contents(pods)
        try:
            result = await method(*args)
        except (TypeError, ValueError) as error:
            raise _named(plugin, method, error) from error
        _require_same(plugin, method, before, _contents(pods))
        return result

    return call


def _named(plugin: Plugin, method: Callable[..., Any], error: Exception) -> Exception:
    """Return the error about a write to read-only data; other errors as they are."""
    # The messages of mappingproxy and of NumPy, which have no exceptions of their own for it.
    of_python = "'mappingproxy' object" in str(error)
    of_numpy = isinstance(error, ValueError) and str(error).endswith(" is read-only")
    if not (isinstance(error, ReadOnlyError) or of_python or of_numpy):
        return error
    trace = error.__traceback__
    line = ""
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__") == type(plugin).__module__:
            line = f" ({trace.tb_frame.f_code.co_filename}:{trace.tb_lineno})"
        trace = trace.tb_next
    return AssertionError(
        f"plugin {plugin.name} must not change what {method.__name__} is given{line}: {error}"
    )


def _require_same(
    plugin: Plugin, method: Callable[..., Any], before: Contents, after: Contents
) -> None:
    for what, old in before.items():
        if after[what] != old:
            where, was, now = _difference(_decoded(old), _decoded(after[what]), what)
            raise AssertionError(
                f"plugin {plugin.name} must not change what {method.__name__} is given: "
                f"{where} was {was!r} and is now {now!r}"
            )


def _contents(args: Iterable[object]) -> Contents:
    contents: Contents = {}
    for arg in args:
        if isinstance(arg, PodInfo):
            contents |= _pod(arg)
        elif isinstance(arg, NodeInfo):
            contents |= _node(arg)
        elif isinstance(arg, NodeTable):
            contents |= _table(arg)
    return contents


def _pod(pod: PodInfo) -> Contents:
    return {f"pod {pod.key}": _encode(pod.pod)}


def _node(info: NodeInfo) -> Contents:
    contents: Contents = {f"node {info.name}": _encode(info.node)}
    for field in _NODE_FIELDS:
        contents[f"{field} of node {info.name}"] = getattr(info, field).copy()
    pods = (info.pods, info.pods_with_affinity, info.pods_with_required_anti_affinity)
    contents[f"pods of node {info.name}"] = ([list(some) for some in pods], list(info.order))
    return contents


def _table(nodes: NodeTable) -> Contents:
    contents: Contents = {}
    for info in nodes:
        contents |= _node(info)
    for name in _COLUMNS:
        contents[f"column {name}"] = getattr(nodes, name).tolist()
    resources = sorted({*chain.from_iterable(info.allocatable for info in nodes)})
    for name in _RESOURCE_COLUMNS:
        columns = getattr(nodes, name)
        for resource in resources:
            contents[f"column {name}[{resource!r}]"] = columns[resource].tolist()
    return contents


def _decoded(value: Any) -> Any:
    return msgspec.msgpack.decode(value) if isinstance(value, bytes) else value


def _difference(old: Any, new: Any, where: str) -> tuple[str, Any, Any]:
    """Return the innermost place where two values differ, and both values there."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in chain(old, new):
            if old.get(key) != new.get(key):
                return _difference(old.get(key), new.get(key), f"{where}, {key}")
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (one, other) in enumerate(zip(old, new, strict=True)):
            if one != other:
                return _difference(one, other, f"{where}[{index}]")
    return where, old, new
