"""The normalisation that several add-ons share: the range of raw scores is stretched to 0..100."""

from __future__ import annotations

import numpy as np

from proreus.framework import MAX_SCORE, IntArray


def min_max_normalize(scores: IntArray) -> IntArray:
    """Return ``100 * (score - min) / (max - min)``, truncated; 0 for all if they are equal."""
    if not scores.size:
        return scores
    least, most = int(scores.min()), int(scores.max())
    if least == most:
        return np.zeros_like(scores)
    if most - least <= np.iinfo(np.int64).max // MAX_SCORE:
        return (scores - least) * MAX_SCORE // (most - least)
    # Python's integers have no limit: raw scores may be any int64.
    wide = scores.astype(object)
    return ((wide - least) * MAX_SCORE // (most - least)).astype(np.int64)
