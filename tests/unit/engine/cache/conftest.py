"""A cache in virtual time, and what goes into it."""

from __future__ import annotations

import pytest

from proreus.base.clock import FakeClock
from proreus.engine.cache.cache import Cache
from proreus.testing.builders import make_node, make_pod


class CacheHarness:
    """A cache and its clock; every look at it validates it."""

    make_node = staticmethod(make_node)
    make_pod = staticmethod(make_pod)

    def __init__(self, assumed_ttl_seconds: float | None = None) -> None:
        self.clock = FakeClock(1000)
        self._cache = Cache(self.clock, assumed_ttl_seconds)

    @property
    def cache(self) -> Cache:
        self._cache.validate()
        return self._cache

    def cpu(self, name: str) -> int:
        """What is requested on a node."""
        table = self.cache.table
        return int(table.requested["cpu"][table.rows[name]])

    def order(self) -> list[str]:
        """Names of the nodes in kube-scheduler's order."""
        table = self.cache.table
        return [table[row].name for row in self.cache.node_order().tolist()]


@pytest.fixture
def harness() -> CacheHarness:
    return CacheHarness()


@pytest.fixture
def make_harness() -> type[CacheHarness]:
    return CacheHarness
