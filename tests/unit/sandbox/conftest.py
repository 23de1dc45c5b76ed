import pytest

from proreus.clock import FakeClock
from proreus.sandbox.store import Store
from proreus.sandbox.strategies import STRATEGIES


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(1_000_000.0)


@pytest.fixture
def store(clock: FakeClock) -> Store:
    return Store(STRATEGIES, clock)
