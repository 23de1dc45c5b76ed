"""default_normalize, with kube-scheduler's worked examples."""

from __future__ import annotations

import numpy as np
import pytest

from proreus.framework.scores import default_normalize


@pytest.mark.parametrize(
    ("raw", "reverse", "final"),
    [
        ([0, 1, 3], True, [100, 67, 0]),
        ([0, 0], True, [100, 100]),
        ([10, 25, 40, 0], False, [25, 62, 100, 0]),
        ([1, 3], False, [33, 100]),
        ([0, 0], False, [0, 0]),
        ([8, 7, 0], False, [100, 87, 0]),
        ([15, 8], False, [100, 53]),
        ([2**62, 2**61, 7], False, [100, 50, 0]),
        ([2**63 - 1, 0], True, [0, 100]),
        ([], False, []),
        ([], True, []),
    ],
)
def test_default_normalize(raw: list[int], reverse: bool, final: list[int]) -> None:
    scores = np.array(raw, dtype=np.int64)

    normalized = default_normalize(scores, reverse)

    assert normalized.tolist() == final
    assert normalized.dtype == np.int64
    assert scores.tolist() == raw
