"""Chooses the oldest of several objects where each name should have one."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from typing import Generic, TypeVar

from proreus.framework import logger
from proreus.objects.meta import ApiObject, key_of

log = logger(__name__)

T = TypeVar("T", bound=ApiObject)
V = TypeVar("V")


class OldestByName(Generic[T, V]):
    """Keeps objects by the name that ``name_for`` returns; the oldest of each name counts.

    Of the same age, the first by namespace and name counts: so all processes agree, in whatever
    order they are told of the objects. ``values``: what ``read`` returns for each object that
    counts; without those that it returns None for, or cannot read. ``warning``: what is logged of a
    name that several objects have; "" where they may.
    """

    def __init__(
        self, name_for: Callable[[T], str], read: Callable[[T], V | None], warning: str = ""
    ) -> None:
        self._name_for = name_for
        self._read = read
        self._warning = warning
        self._objects: dict[str, list[T]] = {}
        """By name, the oldest first."""
        self.values: dict[str, V] = {}

    def change(self, old: T | None, new: T | None) -> str | None:
        """Note that an object came, changed or went; return its name if its value is another."""
        one = old if new is None else new
        if one is None:
            return None
        name = self._name_for(one)
        objects = self._objects.setdefault(name, [])
        if old is not None:
            del objects[bisect_left(objects, _age(old), key=_age)]
        if new is not None:
            insort(objects, new, key=_age)
        if old is None and len(objects) > 1 and self._warning:
            log.warning(self._warning, name=name, counts=key_of(objects[0]), added=key_of(one))
        before = self.values.pop(name, None)
        after = self._value(objects[0]) if objects else None
        if after is not None:
            self.values[name] = after
        if not objects:
            del self._objects[name]
        return name if after != before else None

    def _value(self, obj: T) -> V | None:
        try:
            return self._read(obj)
        except (OverflowError, ValueError) as error:
            # An invalid quantity, which CustomResourceDefinitions let pass.
            log.error("A quota or queue cannot be read", object=key_of(obj), err=str(error))
            return None


def _age(obj: ApiObject) -> tuple[float, str, str]:
    meta = obj.metadata
    created = meta.creation_timestamp
    return (0.0 if created is None else created.timestamp()), meta.namespace, meta.name
