"""Caches bounded in bytes, aged and shrunk."""

from __future__ import annotations

import gc

import pytest
from msgspec import Struct

from proreus.base import bounded_cache
from proreus.base.bounded_cache import (
    AGE_INTERVAL_SECONDS,
    BoundedCache,
    age_caches,
    age_share,
    approximate_size,
)
from proreus.objects.selectors import Requirement, Selector


def test_sizes_stay_within_the_budget() -> None:
    cache: BoundedCache[int, str] = BoundedCache(1000)
    for number in range(200):
        cache.put(number, "value", 10 + number % 50)
        assert cache.size_bytes <= 1000
        assert cache.get(number) == "value"
    assert len(cache) < 60


def test_used_entries_stay_and_others_are_dropped() -> None:
    cache: BoundedCache[str, int] = BoundedCache(1000)
    cache.put("used", 1, 10)
    cache.put("unused", 2, 10)
    for number in range(500):
        cache.put(f"other {number}", number, 10)
        assert cache.get("used") == 1
    assert cache.get("unused") is None


def test_a_value_larger_than_the_budget_serves_until_the_next_ones() -> None:
    cache: BoundedCache[str, int] = BoundedCache(100)
    cache.put("huge", 1, 10_000)
    assert cache.get("huge") == cache.get("huge") == 1
    cache.put("small", 2, 10)
    cache.put("another", 3, 90)
    assert cache.get("huge") is None
    assert cache.size_bytes == 100


def test_replaced_and_removed_values_do_not_count() -> None:
    cache: BoundedCache[str, int] = BoundedCache(1000)
    cache.put("a", 1, 100)
    cache.put("a", 2, 200)
    assert (cache.get("a"), cache.size_bytes) == (2, 200)
    cache.age()
    cache.put("a", 3, 50)
    assert (cache.get("a"), cache.size_bytes, len(cache)) == (3, 50, 1)
    cache.pop("a")
    assert (cache.get("a"), cache.size_bytes, len(cache)) == (None, 0, 0)


def test_ageing_twice_drops_what_was_not_used_between() -> None:
    cache: BoundedCache[str, int] = BoundedCache(1000)
    cache.put("used", 1, 10)
    cache.put("unused", 2, 10)
    for _ in range(3):
        age_caches()
        assert cache.get("used") == 1
    assert cache.items() == [("used", 1)]
    age_caches()
    age_caches()
    assert not len(cache)


def test_shares_age_each_cache_once() -> None:
    caches = [BoundedCache[str, int](100) for _ in range(20)]
    for cache in caches:
        cache.put("a", 1, 1)
    for share in range(AGE_INTERVAL_SECONDS):
        age_share(share)
    assert all(len(cache) == 1 for cache in caches)
    for share in range(AGE_INTERVAL_SECONDS):
        age_share(share)
    assert not any(len(cache) for cache in caches)


def test_caches_that_nothing_refers_to_are_forgotten() -> None:
    gc.collect()
    age_caches()
    before = sum(map(len, bounded_cache._registered))
    cache: BoundedCache[str, int] = BoundedCache(100)
    age_caches()
    assert sum(map(len, bounded_cache._registered)) == before + 1
    del cache
    age_caches()
    assert sum(map(len, bounded_cache._registered)) == before


def test_the_size_of_a_key_includes_what_it_refers_to() -> None:
    text = "x" * 1000
    selector = Selector((Requirement(text, "In", frozenset({text + "1"})),))
    assert 2000 < approximate_size(("plugin", selector)) < 4000


def test_an_object_that_says_its_size_is_not_looked_into() -> None:
    class Sized(Struct, frozen=True):
        text: str = "x" * 1000
        size_bytes: int = 12_345

    assert approximate_size(Sized()) == 12_345


def test_the_size_of_a_large_key_is_that_of_a_part_times_its_share() -> None:
    few = tuple(Requirement(f"key-{number:06}", "Exists") for number in range(1_000))
    many = tuple(Requirement(f"key-{number:06}", "Exists") for number in range(50_000))

    assert approximate_size(many) == pytest.approx(50 * approximate_size(few), rel=0.1)
