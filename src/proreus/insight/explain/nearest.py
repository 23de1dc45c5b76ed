"""The nodes on which a waiting pod lacks the least."""

from __future__ import annotations

from collections.abc import Container, Sequence

import numpy as np

from proreus.framework.pod_info import PodInfo
from proreus.framework.verdicts import IntArray, Rows, Verdicts
from proreus.insight.explain.engine import Engine


def nearest_rows(
    engine: Engine,
    pod: PodInfo,
    found: Sequence[tuple[str, Verdicts]],
    nodes: int,
    proposals: Container[str],
) -> Rows:
    """Return the rows that the fewest plugins reject, and that lack the smallest share.

    Last come those that a plugin rejects which is not in ``proposals``.
    """
    rejecting: IntArray = np.zeros(engine.table.size, dtype=np.int64)
    hopeless = np.zeros(engine.table.size, dtype=np.bool_)
    for plugin, verdicts in found:
        rejected = ~verdicts.passed()
        rejecting += rejected
        if plugin not in proposals:
            hopeless |= rejected
    missing = np.zeros(engine.table.size)
    for resource, requested in pod.requests.amounts.items():
        if requested:
            free = engine.table.allocatable[resource] - engine.table.requested[resource]
            missing = np.maximum(missing, (requested - free) / requested)
    order = np.lexsort((np.maximum(missing, 0), rejecting, hopeless))
    return order[:nodes]
