"""The risks that LowRiskOverCommitment weighs, of one node and of all, by the same operations."""

from __future__ import annotations

from math import sqrt

import numpy as np

from proreus.addons.node_metrics.metrics import Usage
from proreus.addons.node_metrics.node_columns import FloatArray
from proreus.addons.trimaran.beta_distribution import Beta, cdf_of_all
from proreus.addons.trimaran.commitments import Committed
from proreus.addons.trimaran.load_variation_risk_balancing import mean_and_deviation
from proreus.framework import IntArray

_MOST_OF_VARIANCE = 0.99


def limit_risk(capacity: int, pods: Committed) -> float:
    """Return how much of what limits are beyond requests is beyond the capacity too."""
    requests = min(pods.requests, capacity)
    if pods.limits <= capacity:
        return 0.0
    return (pods.limits - capacity) / (pods.limits - requests)


def load_risk(usage: Usage, capacity: int, pods: Committed, window: int) -> float:
    """Return the probability that more is used than is requested."""
    mean, deviation = mean_and_deviation(usage, capacity, 0)
    deviation = min(deviation * sqrt(window), sqrt(_MOST_OF_VARIANCE * mean * (1 - mean)))
    requests = min(pods.requests, capacity)
    threshold = min(max(requests / capacity, 0.0), 1.0)
    distribution: Beta | None = None
    if mean == 0 or (deviation == 0 and mean <= threshold):
        probability = 1.0
    elif deviation == 0:
        probability = 0.0
    else:
        distribution = Beta.fitted(mean, deviation * deviation)
        probability = 0.0 if distribution is None else distribution.cdf(threshold)
    if pods.limits < capacity and requests <= pods.limits:
        # No more than the limits can be used.
        if pods.limits == 0:
            probability = 1.0
        elif distribution is not None and (most := distribution.cdf(pods.limits / capacity)) > 0:
            probability = min(max(probability / most, 0.0), 1.0)
    return 1 - probability


def limit_risks(capacity: IntArray, requests: IntArray, limits: IntArray) -> FloatArray:
    """Return ``limit_risk`` of each node."""
    beyond = limits > capacity
    range_ = np.where(beyond, limits - np.minimum(requests, capacity), 1)
    risks: FloatArray = np.where(beyond, (limits - capacity) / range_, 0.0)
    return risks


class LoadRisks:
    """The ``load_risk`` of each node, which depends on no new pod: of changed nodes only."""

    def __init__(self) -> None:
        self._read = np.zeros((5, 0))
        self._risks = np.zeros(0)

    def of_all(
        self,
        average: FloatArray,
        deviation: FloatArray,
        capacity: IntArray,
        requests: IntArray,
        limits: IntArray,
        window: int,
    ) -> FloatArray:
        """Return the risks; 0 where nothing is measured (NaN) or there is no capacity."""
        read = np.array((average, deviation, capacity, requests, limits), dtype=np.float64)
        if read.shape == self._read.shape:
            same = (read == self._read) | (np.isnan(read) & np.isnan(self._read))
            changed = np.flatnonzero(~same.all(axis=0))
            risks = self._risks.copy()
        else:
            changed = np.arange(len(capacity))
            risks = np.zeros(len(capacity))
        risks[changed] = 0.0
        rows = changed[~np.isnan(average[changed]) & (capacity[changed] > 0)]
        if len(rows):
            risks[rows] = load_risks(read[:, rows], window)
        self._read, self._risks = read, risks
        return risks


def load_risks(read: FloatArray, window: int) -> FloatArray:
    """Return ``load_risk`` of each node: all are measured, and have a capacity.

    ``read``: rows of average and deviation in percent, capacity, requests and limits.
    """
    average, deviation, capacity, requests, limits = read
    mean = np.clip(np.clip(average * capacity / 100, 0.0, capacity) / capacity, 0.0, 1.0)
    deviation = np.clip(np.clip(deviation * capacity / 100, 0.0, capacity) / capacity, 0.0, 1.0)
    most = np.sqrt(_MOST_OF_VARIANCE * mean * (1 - mean))
    deviation = np.minimum(deviation * sqrt(window), most)
    requests = np.minimum(requests, capacity)
    threshold = np.clip(requests / capacity, 0.0, 1.0)
    steady = deviation == 0
    probability = ((mean == 0) | (steady & (mean <= threshold))).astype(np.float64)
    variance = deviation * deviation
    room = mean * (1 - mean)
    spread = np.flatnonzero((mean > 0) & (mean < 1) & (variance > 0) & (variance < room))
    total = room[spread] / variance[spread] - 1
    alpha, beta = mean[spread] * total, (1 - mean[spread]) * total
    probability[spread] = cdf_of_all(alpha, beta, threshold[spread])
    limited = (limits < capacity) & (requests <= limits)
    # No more than the limits can be used.
    probability[limited & (limits == 0)] = 1.0
    within = np.flatnonzero((limited & (limits > 0))[spread])
    rows = spread[within]
    highest = cdf_of_all(alpha[within], beta[within], limits[rows] / capacity[rows])
    known = highest > 0
    rows, highest = rows[known], highest[known]
    probability[rows] = np.clip(probability[rows] / highest, 0.0, 1.0)
    risks: FloatArray = 1 - probability
    return risks
