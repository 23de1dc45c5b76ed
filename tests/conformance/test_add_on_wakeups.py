"""No pod is left behind with add-ons: see ``test_wakeups``."""

from __future__ import annotations

import pytest

from conformance.test_wakeups import _quiet, check
from conformance.wakeups.worlds import ADD_ON_WORLDS

__all__ = ["_quiet"]


@pytest.mark.parametrize("world", ADD_ON_WORLDS)
def test_no_pod_is_left_behind(world: str) -> None:
    check(world)
