"""Caches that are bounded in bytes and give memory back that nobody asks for any more.

Whoever may create objects decides what is cached, how many entries there are and how large each of
them is. A bound on the number of entries is then none on memory, and a cache that forgets only
when it is full stays full after the objects are gone.

A ``BoundedCache`` has two generations. New entries are young; one that is asked for becomes young
again. Once the young ones reach half of the budget, or at the next ``age``, the old ones are
dropped and the young ones are old. So an entry stays for at least half a budget of other entries,
and goes after one to two calls of ``age`` if it is not used. This is about what least recently used
means, without the cost of keeping an order at every look-up.

Example: budget 32 MB. 10,000 pods of 4 KB each fill it; an entry that every replica uses stays. The
pods are deleted, nobody asks for their entries, and after two calls of ``age`` the cache is empty.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Hashable
from functools import partial
from itertools import count
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar
from weakref import ref

import msgspec
from msgspec.structs import astuple

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
A = TypeVar("A")
P = ParamSpec("P")
F = TypeVar("F", bound=Callable[..., Any])

AGE_INTERVAL_SECONDS = 60
"""The time between two agings of each cache; unused entries are gone after one to two of them."""

BYTES_AN_ENCODED_BYTE = 12
"""The memory that a byte of JSON or MessagePack takes once decoded and parsed, roughly: a label
requirement of 50 bytes is two objects, a tuple, a set and three texts.
"""

BYTES_AN_ENTRY = 400
"""The memory of an entry besides its contents."""


class Ageing(Protocol):
    """Drops entries that nobody has used since the previous call of ``age``."""

    def age(self) -> None:
        """Drop entries that nobody has used since the last call."""
        ...


class BoundedCache(Generic[K, V]):
    """A mapping that forgets; ``budget_bytes`` bounds the sizes that ``put`` is told.

    An entry larger than the budget is kept until the next ones: the pod at hand needs it several
    times. None is not a value.
    """

    __slots__ = ("__weakref__", "_old", "_old_bytes", "_young", "_young_bytes", "budget_bytes")

    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self._young: dict[K, tuple[V, int]] = {}
        self._old: dict[K, tuple[V, int]] = {}
        self._young_bytes = self._old_bytes = 0
        register(self)

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    @property
    def size_bytes(self) -> int:
        """The sizes of all entries together."""
        return self._young_bytes + self._old_bytes

    def get(self, key: K) -> V | None:
        """Return a value, or None."""
        entry = self._young.get(key)
        if entry is not None:
            return entry[0]
        entry = self._old.pop(key, None)
        if entry is None:
            return None
        value, size_bytes = entry
        self._old_bytes -= size_bytes
        self._put_young(key, value, size_bytes)
        return value

    def items(self) -> list[tuple[K, V]]:
        """Return all keys with their values, the least recently used ones first."""
        return [(key, entry[0]) for part in (self._old, self._young) for key, entry in part.items()]

    def put(self, key: K, value: V, size_bytes: int) -> V:
        """Keep a value, which takes about ``size_bytes`` with its key, and return it."""
        self.pop(key)
        self._put_young(key, value, size_bytes)
        return value

    def pop(self, key: K) -> None:
        """Forget a value, if it is there."""
        entry = self._young.pop(key, None)
        if entry is not None:
            self._young_bytes -= entry[1]
        entry = self._old.pop(key, None)
        if entry is not None:
            self._old_bytes -= entry[1]

    def clear(self) -> None:
        """Forget everything."""
        self._young, self._old = {}, {}
        self._young_bytes = self._old_bytes = 0

    def age(self) -> None:
        """Drop the entries that were not used since the last call."""
        self._old, self._old_bytes = self._young, self._young_bytes
        self._young, self._young_bytes = {}, 0

    def _put_young(self, key: K, value: V, size_bytes: int) -> None:
        if self._young and self._young_bytes + size_bytes > self.budget_bytes // 2:
            self.age()
        self._young[key] = value, size_bytes
        self._young_bytes += size_bytes


class LoadingCache(BoundedCache[K, V], Generic[P, K, V]):
    """A ``BoundedCache`` that computes missing entries from their keys.

    ``key`` returns the key for arguments, ``load`` a value with its size in bytes for a key and the
    same arguments.
    """

    __slots__ = ("_key", "_load")

    def __init__(
        self,
        budget_bytes: int,
        key: Callable[P, K],
        load: Callable[Concatenate[K, P], tuple[V, int]],
    ) -> None:
        super().__init__(budget_bytes)
        self._key = key
        self._load = load

    def of(self, *args: P.args, **kwargs: P.kwargs) -> V:
        """Return the value for arguments, computed at the first time."""
        key = self._key(*args, **kwargs)
        value = self.get(key)
        return self.put(key, *self._load(key, *args, **kwargs)) if value is None else value


class RepeatingCache(LoadingCache[[A], K, V], Generic[A, K, V]):
    """A ``LoadingCache`` that is asked about the same argument several times in a row.

    To compare identity spares the computation of the key.
    """

    __slots__ = ("_last",)

    def __init__(
        self, budget_bytes: int, key: Callable[[A], K], load: Callable[[K, A], tuple[V, int]]
    ) -> None:
        super().__init__(budget_bytes, key, load)
        self._last: tuple[A, V] | None = None

    def of(self, argument: A) -> V:
        """Return the value for an argument."""
        if self._last is None or self._last[0] is not argument:
            self._last = argument, super().of(argument)
        return self._last[1]

    def age(self) -> None:
        """Drop the entries that were not used since the last call, and forget the last argument."""
        super().age()
        self._last = None


_MOST_LOOKED_AT = 1_000
_rng = random.Random(0)

_PLAIN_TYPES = frozenset((str, bytes, int, float, bool, type(None)))
"""An empty container, as nearly all parts of a key with thousands of resources are."""


def approximate_size(value: Any) -> int:
    """Return about how many bytes a key takes, with all that tuples and sets in it refer to.

    An object that has a ``size_bytes`` takes that. Of thousands of objects at one depth some, by
    chance, stand for all.
    """
    # A pod of a megabyte makes keys of half a million objects: a third of a second.
    total, level, each = 0.0, [value], 1.0
    while level:
        if len(level) > 2 * _MOST_LOOKED_AT:
            # Not every n-th: of objects with n fields that would be the same field each time.
            each *= len(level) / _MOST_LOOKED_AT
            level = _rng.choices(level, k=_MOST_LOOKED_AT)
        total += each * sum(map(sys.getsizeof, level))
        others = [one for one in level if type(one) not in _PLAIN_TYPES]
        level = []
        for one in others:
            size_bytes = getattr(one, "size_bytes", None)
            if size_bytes is not None:
                total += each * (size_bytes - sys.getsizeof(one))
            elif isinstance(one, tuple | list | frozenset):
                level += one
            elif isinstance(one, msgspec.Struct):
                level += astuple(one)
    return int(total)


# ---- all caches of the process -----------------------------------------------------------------

_registered: tuple[dict[int, ref[Ageing]], ...] = tuple({} for _ in range(AGE_INTERVAL_SECONDS))
"""In equal shares, of which one is aged each second."""
_numbers = count()
_lru_caches: list[Any] = []


def register(cache: Ageing) -> None:
    """Age a cache from now on, for as long as it is referenced."""
    # Tables for dry runs have such caches too, and come and go by the thousand.
    number = next(_numbers)
    share = _registered[number % len(_registered)]
    share[number] = ref(cache, partial(share.pop, number))


def cleared_with_age(function: F) -> F:
    """Clear the ``functools.lru_cache`` of a function whenever caches are aged.

    For small values that are cheap to compute again.
    """
    _lru_caches.append(function)
    return function


def age_caches() -> None:
    """Age all caches."""
    for share in range(len(_registered)):
        age_share(share)


def age_share(share: int) -> None:
    """Age one of ``AGE_INTERVAL_SECONDS`` equal shares of all caches.

    Freeing what a large cache drops takes milliseconds, so that it is better done share by share.
    """
    caches = _registered[share]
    # The numbers alone: pairs are objects that garbage collection tracks, so that it may run while
    # they are made, and caches that it frees would change the dictionary.
    for number in list(caches):
        referenced = caches.get(number)
        cache = None if referenced is None else referenced()
        if cache is not None:
            cache.age()
    for function in _lru_caches[share :: len(_registered)]:
        function.cache_clear()
