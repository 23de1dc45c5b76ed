"""Checks plugin classes against the base classes of the extension points.

Thus a plugin that would fail at its first call is rejected when it is loaded. The checks are
derived from the base classes: a method that is added there is checked here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from proreus.base.source_location import attribute_location, class_location, function_location
from proreus.config.fields import PluginArgs
from proreus.framework.extension_points import POINTS, UNNAMED_POINTS, points_of
from proreus.framework.plugin import BackgroundPlugin, FetchingPlugin, Plugin
from proreus.framework.pod_group_plugin import PodGroupSourcePlugin
from proreus.process.loading.misnamed import misnamed

_BASES = (
    *POINTS.values(),
    *UNNAMED_POINTS,
    PodGroupSourcePlugin,
    BackgroundPlugin,
    FetchingPlugin,
    Plugin,
)


class ContractViolation(NamedTuple):
    """A fault of a plugin class. ``place`` is ``file:line``, or "" if unknown."""

    place: str
    text: str


def contract_violations(plugin: Any) -> Iterator[ContractViolation]:
    """Yield all violations of an object that was given as a plugin class."""
    if not isinstance(plugin, type):
        yield ContractViolation("", f"it must be a class, not {type(plugin).__name__}")
        return
    place = _place(plugin)
    if not issubclass(plugin, Plugin):
        yield ContractViolation(
            place, f"class {plugin.__name__} must inherit from an extension point: {_all()}"
        )
        return
    yield from _attribute_violations(plugin)
    if not points_of(plugin):
        others = [base.__name__ for base in _BASES[:-1] if issubclass(plugin, base)]
        beside = f" beside {others[0]}, which is called where one is enabled" if others else ""
        yield ContractViolation(
            place, f"class {plugin.__name__} inherits no extension point{beside}: {_all()}"
        )
        return
    if unmade := getattr(plugin, "__abstractmethods__", None):
        yield ContractViolation(
            place, f"class {plugin.__name__} must define {', '.join(sorted(unmade))}"
        )
    yield from _constructor_violations(plugin)
    for base in _BASES:
        violations = (
            _method_violations if issubclass(plugin, base) else _uninherited_method_violations
        )
        for name, declared in _methods(base):
            yield from violations(plugin, base, name, declared)
    for name, text in misnamed(plugin, _BASES):
        place = function_location(getattr(plugin, name)) or attribute_location(plugin, name)
        yield ContractViolation(place, text)


def resembles_plugin(cls: type) -> bool:
    """Return whether a class has a method with the name and parameters of an extension point's."""
    return any(
        _same_parameters(vars(cls).get(name), declared)
        for base in POINTS.values()
        for name, declared in _methods(base)
    )


def _same_parameters(own: object, declared: Callable[..., Any]) -> bool:
    """Return whether an object is a method with the parameter names of another."""
    return inspect.isfunction(own) and (
        [*inspect.signature(own).parameters] == [*inspect.signature(declared).parameters]
    )


def _all() -> str:
    return ", ".join(base.__name__ for base in POINTS.values())


def _place(plugin: type) -> str:
    file, line = class_location(plugin)
    return f"{file}:{line}" if line else file


# ---- attributes --------------------------------------------------------------------------------


def _attribute_violations(plugin: type[Plugin]) -> Iterator[ContractViolation]:
    name: Any = plugin.name
    if not isinstance(name, str) or not name or name == "*" or not name.isprintable():
        text = f"name must be a printable text, neither empty nor *, not {name!r}"
        yield ContractViolation(attribute_location(plugin, "name"), text)
    args: Any = plugin.Args
    if args is not None and not (isinstance(args, type) and issubclass(args, PluginArgs)):
        text = f"Args must be a class that inherits from PluginArgs, or None, not {args!r}"
        yield ContractViolation(attribute_location(plugin, "Args"), text)
    for base in _BASES:
        if issubclass(plugin, base):
            for flag, annotation in inspect.get_annotations(base).items():
                value = getattr(plugin, flag, None)
                if annotation == "ClassVar[bool]" and not isinstance(value, bool):
                    text = f"{flag} must be True or False, not {value!r}"
                    yield ContractViolation(attribute_location(plugin, flag), text)


# ---- methods -----------------------------------------------------------------------------------


def _methods(base: type[Plugin]) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, value in vars(base).items():
        if inspect.isfunction(value) and not name.startswith("_"):
            yield name, value


def _must_be_defined(declared: Callable[..., Any]) -> bool:
    """Return whether a base class's method only raises NotImplementedError."""
    return "NotImplementedError" in declared.__code__.co_names


def _method_violations(
    plugin: type[Plugin], base: type[Plugin], name: str, declared: Callable[..., Any]
) -> Iterator[ContractViolation]:
    own = getattr(plugin, name)
    if own is declared:
        if _must_be_defined(declared):
            wanted = f"{_def(declared)} {name}{_taken(declared)}"
            text = f"class {plugin.__name__} is a {base.__name__} and must define {wanted}"
            yield ContractViolation(_place(plugin), text)
        return
    if not callable(own):
        text = f"{name} must be a method, {_def(declared)} {name}{_taken(declared)}, not {own!r}"
        yield ContractViolation(attribute_location(plugin, name), text)
        return
    place = function_location(own)
    waits = inspect.iscoroutinefunction(inspect.unwrap(own))
    if waits and not inspect.iscoroutinefunction(declared):
        text = f"{name} must be def, not async def: nothing may wait at this point"
        yield ContractViolation(place, text)
    elif not waits and inspect.iscoroutinefunction(declared):
        yield ContractViolation(place, f"{name} must be async def, not def")
    if not _takes(plugin, name, own, len(inspect.signature(declared).parameters) - 1):
        text = f"{name} must take {_taken(declared)}, it takes {_taken(own)}"
        yield ContractViolation(place, text)


def _uninherited_method_violations(
    plugin: type[Plugin], base: type[Plugin], name: str, declared: Callable[..., Any]
) -> Iterator[ContractViolation]:
    own = getattr(plugin, name, None)
    if _same_parameters(own, declared):
        text = (
            f"{name} is a method of {base.__name__}, which class {plugin.__name__} does not "
            "inherit: it would never be called; inherit it, or rename the method"
        )
        yield ContractViolation(function_location(own), text)


def _constructor_violations(plugin: type[Plugin]) -> Iterator[ContractViolation]:
    made = plugin.__init__
    if made is Plugin.__init__:
        return
    place = function_location(made)
    if not _takes(plugin, "__init__", made, 2):
        text = f"__init__ must take {_taken(Plugin.__init__)}, it takes {_taken(made)}"
        yield ContractViolation(place, text)
        return
    missing = sorted(_read_by(plugin) - _names_in(made))
    if missing and "__init__" not in _names_in(made):
        reads = " and ".join(f"self.{name}" for name in missing)
        yield ContractViolation(
            place, f"__init__ must call super().__init__(args, handle), for {reads}"
        )


def _read_by(plugin: type[Plugin]) -> set[str]:
    """Return the attributes set by ``Plugin.__init__`` that the plugin's methods use."""
    own = (cls for cls in plugin.__mro__ if cls.__module__ != Plugin.__module__)
    methods = (value for cls in own for value in vars(cls).values() if inspect.isfunction(value))
    return {name for method in methods for name in _names_in(method) & {"args", "handle"}}


def _names_in(function: Callable[..., Any]) -> set[str]:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return set(code.co_names) if code is not None else set()


def _takes(plugin: type[Plugin], name: str, own: Callable[..., Any], count: int) -> bool:
    """Return whether a method can be called with ``count`` positional arguments."""
    static = inspect.getattr_static(plugin, name)
    instance = () if isinstance(static, (staticmethod, classmethod)) else (None,)
    try:
        signature = inspect.signature(own)
    except (TypeError, ValueError):  # not written in Python, and without a signature
        return True
    try:
        signature.bind(*instance, *(None,) * count)
    except TypeError:
        return False
    return True


def _def(function: Callable[..., Any]) -> str:
    return "async def" if inspect.iscoroutinefunction(function) else "def"


def _taken(function: Callable[..., Any]) -> str:
    """Return a function's parameters as text, without annotations."""
    signature = inspect.signature(function)
    bare = [
        one.replace(annotation=inspect.Parameter.empty) for one in signature.parameters.values()
    ]
    shown = signature.replace(parameters=bare, return_annotation=inspect.Signature.empty)
    return str(shown)
