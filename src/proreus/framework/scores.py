"""Arithmetic of scores that several plugins share, with Go's rounding."""

from __future__ import annotations

import numpy as np

from proreus.base.int64 import MAX_INT64
from proreus.framework.plugin import MAX_SCORE
from proreus.framework.verdicts import IntArray


def default_normalize(scores: IntArray, reverse: bool = False) -> IntArray:
    """Stretch scores so that the highest becomes 100; ``reverse``: the lowest is the best.

    Source: kube-scheduler's ``DefaultNormalizeScore``. Without any positive score all become 100
    when reversed and stay as they are otherwise.
    """
    most = int(scores.max(initial=0))
    if most == 0:
        return np.full_like(scores, MAX_SCORE) if reverse else scores
    if most > MAX_INT64 // MAX_SCORE:
        # Python's integers have no limit: the scores of a plugin may be any int64.
        scores = scores.astype(object)
    stretched: IntArray = (MAX_SCORE * scores // most).astype(np.int64, copy=False)
    return MAX_SCORE - stretched if reverse else stretched
