"""What an object refers to: to find what keeps alive what should be gone."""

from __future__ import annotations

import gc
from types import FunctionType, ModuleType

import msgspec

from proreus.objects.meta import ApiStruct, ObjectMeta


def referenced(root: object) -> list[object]:
    """Return what an object refers to, directly or not; not by the globals of functions."""
    seen: dict[int, object] = {}
    left = [root]
    while left:
        one = left.pop()
        if id(one) in seen or isinstance(one, type | ModuleType):
            continue
        seen[id(one)] = one
        if isinstance(one, FunctionType):
            left += [one.__closure__, one.__defaults__, one.__kwdefaults__]
            continue
        left += gc.get_referents(one)
        # What cannot be part of a cycle is no concern of the garbage collector.
        if isinstance(one, msgspec.Struct):
            left += [getattr(one, name) for name in one.__struct_fields__]
    return list(seen.values())


def names_of_objects(found: list[object]) -> set[str]:
    """Return the names of the API objects among others."""
    return {
        one.metadata.name
        for one in found
        if isinstance(one, ApiStruct) and isinstance(getattr(one, "metadata", None), ObjectMeta)
    }
