"""The beta distribution, fitted by its mean and variance, without SciPy.

Source: the continued fraction of the regularised incomplete beta function (DLMF 8.17.22), by
Lentz's method.
"""

from __future__ import annotations

from math import exp, lgamma, log, log1p
from typing import NamedTuple

_MOST_STEPS = 1000
_PRECISION = 1e-15
_TINY = 1e-300


class Beta(NamedTuple):
    """A beta distribution with these two shapes, both positive."""

    alpha: float
    beta: float

    @classmethod
    def fitted(cls, mean: float, variance: float) -> Beta | None:
        """Return the distribution with this mean and variance; None if there is none."""
        if not 0 < mean < 1 or not 0 < variance < mean * (1 - mean):
            return None
        total = mean * (1 - mean) / variance - 1
        return cls(mean * total, (1 - mean) * total)

    def cdf(self, x: float) -> float:
        """Return the probability of a value up to ``x``."""
        if x <= 0:
            return 0.0
        if x >= 1:
            return 1.0
        a, b = self
        # It converges fast left of the mean; the other side is its mirror image.
        if x > (a + 1) / (a + b + 2):
            return 1 - Beta(b, a).cdf(1 - x)
        return _front(x, a, b) * _continued_fraction(x, a, b) / a


def _front(x: float, a: float, b: float) -> float:
    return exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x))


def _continued_fraction(x: float, a: float, b: float) -> float:
    c, d = 1.0, _nonzero(1 - (a + b) * x / (a + 1))
    d = 1 / d
    result = d
    for step in range(1, _MOST_STEPS):
        even = step * (b - step) * x / ((a + 2 * step - 1) * (a + 2 * step))
        odd = -(a + step) * (a + b + step) * x / ((a + 2 * step) * (a + 2 * step + 1))
        factor = 1.0
        for coefficient in (even, odd):
            d = 1 / _nonzero(1 + coefficient * d)
            c = _nonzero(1 + coefficient / c)
            factor = c * d
            result *= factor
        if abs(factor - 1) < _PRECISION:
            break
    return result


def _nonzero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
