"""Gates that are on without their whole effect are told of."""

from __future__ import annotations

from typing import Any

import pytest

from proreus.feature_gates import GATES
from proreus.plugins.dynamic_resources.features import NOT_BUILT


@pytest.mark.parametrize("gate", NOT_BUILT)
def test_a_gate_without_its_whole_effect_is_warned_of(
    cluster: Any, gate: str, caplog: pytest.LogCaptureFixture
) -> None:
    cluster("n1", gates=[f"{gate}=true"])
    [record] = [r for r in caplog.records if r.levelname == "WARNING"]
    assert record.pairs == {"gate": gate, "so": NOT_BUILT[gate]}  # type: ignore[attr-defined]


def test_by_default_nothing_is_lacking(cluster: Any, caplog: pytest.LogCaptureFixture) -> None:
    cluster("n1")
    assert not caplog.records
    assert not any(GATES[gate].default for gate in NOT_BUILT)
