"""Settings of hypothesis for tests whose plugins disagree."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import Phase, settings


@pytest.fixture(autouse=True)
def without_shrinking() -> Iterator[None]:
    """Most of these tests find a failing cluster; making it the smallest takes a minute each."""
    before = settings.get_current_profile_name()
    settings.register_profile("without shrinking", settings(), phases=[Phase.generate])
    settings.load_profile("without shrinking")
    yield
    settings.load_profile(before)
