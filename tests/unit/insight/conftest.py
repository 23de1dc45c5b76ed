"""What the tests of explanations share."""

from __future__ import annotations

import pytest

from proreus.insight.explain import explainer
from proreus.insight.explain.engine import Engine


@pytest.fixture(autouse=True)
def enough_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each question be answered to the end: the limits are too short under load."""
    monkeypatch.setattr(Engine.__init__, "__defaults__", (60.0,))
    monkeypatch.setattr(explainer, "LIMIT_SECONDS", 60.0)
