"""Finds attributes of a plugin class that are meant for an extension point, but misnamed.

Go's names (``NormalizeScore``), other spellings (``un_reserve``) and typos are never read, so the
plugin would do less than its author thinks.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from proreus.base.similar_names import similar
from proreus.framework.plugin import Plugin

_GO_NAMES = {
    "less": "sort_key",
    "normalizescore": "normalize",
    "scoreextensions": "normalize",
    "prefilterextensions": "add_pod",
    "signpod": "sign",
}
"""Methods of kube-scheduler's interfaces whose names differ by more than their spelling."""

_CLOSE = 0.85
"""The similarity of two names from which on one is a typo, if the parameters are the same."""


class _Declared(NamedTuple):
    """A method or flag of a base class; ``parameters`` are None for a flag."""

    base: type[Plugin]
    name: str
    parameters: tuple[str, ...] | None


def misnamed(plugin: type[Plugin], bases: Iterable[type[Plugin]]) -> Iterator[tuple[str, str]]:
    """Yield the name of each misnamed attribute of a plugin, and a sentence about it.

    ``bases``: the classes that declare the attributes with a meaning.
    """
    known = {one.name: one for base in bases for one in _declared_by(base)}
    for cls in plugin.__mro__:
        if cls.__module__.startswith("proreus.framework."):
            continue
        for name, value in vars(cls).items():
            if name.startswith("_") or name in known:
                continue
            meant = _meant(name, value, known)
            if meant is not None and not _defines(plugin, meant):
                yield name, _sentence(plugin, name, meant)


def _declared_by(base: type[Plugin]) -> Iterator[_Declared]:
    for name, value in vars(base).items():
        if inspect.isfunction(value) and not name.startswith("_"):
            yield _Declared(base, name, _parameters(value))
        elif isinstance(value, bool):
            yield _Declared(base, name, None)


def _parameters(method: Any) -> tuple[str, ...]:
    return tuple(inspect.signature(method).parameters)


def _defines(plugin: type[Plugin], meant: _Declared) -> bool:
    """Return whether a plugin has the attribute itself: then another name is that of a helper."""
    own = getattr(plugin, meant.name, None)
    return own is not None and own is not getattr(meant.base, meant.name)


def _meant(name: str, value: Any, known: Mapping[str, _Declared]) -> _Declared | None:
    is_method = inspect.isfunction(value)
    if not is_method and not isinstance(value, bool):
        return None
    alike = {one: known[one] for one in known if (known[one].parameters is not None) == is_method}
    bare = _bare(name)
    for one, declared in alike.items():
        if bare == _bare(one) or one == _GO_NAMES.get(bare):
            return declared
    if not is_method:
        return None
    parameters = _parameters(value)
    same = [one for one, declared in alike.items() if declared.parameters == parameters]
    close = similar(name, same, _CLOSE)
    return known[close] if close else None


def _bare(name: str) -> str:
    return name.replace("_", "").casefold()


def _sentence(plugin: type[Plugin], name: str, meant: _Declared) -> str:
    right = meant.name
    if meant.parameters is not None:
        right += f"({', '.join(meant.parameters)})"
    text = f"{name} has no effect: it must be called {right}"
    if issubclass(plugin, meant.base):
        return text
    return f"{text}, and class {plugin.__name__} must inherit from {meant.base.__name__}"
