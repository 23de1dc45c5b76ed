import pytest

from proreus.base.clock import FakeClock
from proreus.workbench.sandbox.store import Store
from proreus.workbench.sandbox.strategies import STRATEGIES


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(1_000_000.0)


@pytest.fixture
def store(clock: FakeClock) -> Store:
    return Store(STRATEGIES, clock)
