"""Moves what lives long out of the memory that short-lived objects have left behind.

An allocator gives memory back by the page, and a page is in use as long as one object on it. While
a large pod is tried, small objects that are kept, such as the record of a decision, are allocated
between millions that are not: a few hundred of them then hold megabytes. A copy made afterwards
fills the gaps on pages that are in use anyway.
"""

from __future__ import annotations

import gc
import io
import pickle
import sys
from collections.abc import Iterator
from typing import Any, Protocol, TypeVar
from weakref import WeakSet

from proreus.gc_tuning import collection_is_long
from proreus.logs import logger

log = logger(__name__)

T = TypeVar("T")


class Reallocating(Protocol):
    """Something that keeps small objects for long."""

    def reallocate(self) -> Iterator[None]:
        """Replace these objects by copies, for at most some milliseconds a step."""
        ...


_registered: WeakSet[Reallocating] = WeakSet()


def register(owner: Reallocating) -> None:
    """Have an object reallocate after each peak of memory, for as long as it is referenced."""
    _registered.add(owner)


def reallocate_all() -> Iterator[None]:
    """Have all registered objects reallocate; each step takes at most some milliseconds."""
    for owner in list(_registered):
        try:
            yield from owner.reallocate()
        except Exception as error:
            # Parts of what is kept may be a plugin's, with types of its own.
            log.warning("Cannot move what is kept", err=error, owner=type(owner).__name__)
    _clear_keys_of_msgspec()
    # For the tuples of what was replaced: Python would keep them for others to be made of.
    if not collection_is_long():
        gc.collect()


def _clear_keys_of_msgspec() -> None:
    """Have msgspec forget the keys that it has decoded last and nothing else refers to."""
    # It keeps 512, to give the same texts out again, and forgets them in each tenth collection that
    # looks at its module: none does, since what was imported is frozen (``gc_tuning``).
    for _ in range(10):
        gc.get_referents(sys.modules.get("msgspec._core"))


class Reallocator:
    """Copies values one after the other; equal texts in all of them become one object.

    It keeps what it has copied for as long as it lives: Python would make the next copies of the
    tuples of what was replaced before, where these have lain.
    """

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._originals: list[object] = []

    def copy(self, value: T, shared: tuple[type, ...] = ()) -> T:
        """Return a copy of a value, of which everything is allocated anew.

        Objects of the types ``shared`` are not copied.
        """
        self._originals.append(value)
        out = io.BytesIO()
        pickler = _Pickler(out, shared, self._texts)
        pickler.dump(value)
        copy: T = _Unpickler(io.BytesIO(out.getvalue()), pickler.kept).load()
        return copy


def reallocated(value: T, shared: tuple[type, ...] = ()) -> T:
    """Return a copy of a single value; see ``Reallocator``."""
    return Reallocator().copy(value, shared)


class _Pickler(pickle.Pickler):
    def __init__(self, out: io.BytesIO, shared: tuple[type, ...], texts: dict[str, str]) -> None:
        super().__init__(out, pickle.HIGHEST_PROTOCOL)
        self._shared = shared
        self._texts = texts
        self.kept: list[Any] = []

    def persistent_id(self, obj: Any) -> int | None:
        if type(obj) is str:
            kept = self._texts.get(obj)
            if kept is None:
                kept = (obj + "\0")[:-1]  # an object of its own
                self._texts[kept] = kept
        elif type(obj) in self._shared:
            kept = obj
        else:
            return None
        self.kept.append(kept)
        return len(self.kept) - 1


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: io.BytesIO, kept: list[Any]) -> None:
        super().__init__(data)
        self._kept = kept

    def persistent_load(self, pid: int) -> Any:
        return self._kept[pid]
