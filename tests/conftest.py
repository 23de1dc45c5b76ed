"""What all tests need."""

import asyncio
import logging
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes, or is drawn for, tells of the machine and of what else runs on it.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", settings.get_profile("unhurried"), max_examples=10_000)
settings.load_profile("unhurried")

# Asked for "the" event loop before there is one, Python 3.11 makes one; pytest-asyncio asks, and
# nobody closes what it gets. Said beforehand that there is none, it makes none.
asyncio.set_event_loop(None)


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """Commands take over the process's logging; no test may hear of another's."""
    loggers = (logging.getLogger(), logging.getLogger("proreus"))
    before = [(logger, logger.level, list(logger.handlers)) for logger in loggers]
    yield
    for logger, level, handlers in before:
        logger.setLevel(level)
        logger.handlers[:] = handlers
