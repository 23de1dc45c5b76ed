"""Containers that plugins read and only the scheduler changes.

A plugin that changed the sums of a node would change them for all pods to come, also after the
plugin is gone. Reading costs what it costs with ``dict`` and ``set``, since nothing of that is
overridden; the owner of a container changes it by the methods of the base class
(``dict.__setitem__(amounts, …)``).
"""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")


class ReadOnlyError(TypeError):
    """A plugin tried to change a value of the scheduler's."""


def _refuse(self: object, *args: Any, **kwargs: Any) -> NoReturn:
    copied = "set" if isinstance(self, set) else "dict"
    raise ReadOnlyError(f"what plugins are given is read-only; change a copy: {copied}(…)")


class ReadOnlyDict(dict[K, V]):
    """A dict without its methods that change it; copies are plain dicts."""

    __slots__ = ()

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle as a plain dict, which can be changed."""
        return dict, (dict(self),)


class Amounts(ReadOnlyDict[str, int]):
    """Amounts by resource, read-only; a missing resource reads as 0."""

    __slots__ = ()

    def __missing__(self, resource: str) -> int:
        return 0


class ReadOnlySet(set[T]):
    """A set without its methods that change it; copies are plain sets."""

    __slots__ = ()

    __ior__ = __iand__ = __isub__ = __ixor__ = _refuse
    add = clear = discard = pop = remove = update = _refuse
    difference_update = intersection_update = _refuse
    symmetric_difference_update = _refuse

    def copy(self) -> set[T]:
        """Return a plain set, which can be changed."""
        return set(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle as a plain set, which can be changed."""
        return set, (set(self),)
