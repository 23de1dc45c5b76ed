"""Filter node by node until enough feasible nodes are found (``numFeasibleNodesToFind``).

Only for plugins that filter one node at a time and whose results are not cached: all others see
every node.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from proreus.engine.runtime.node_points import filter_function, override_verdict
from proreus.engine.runtime.nominated_pods_filter import NominatedPodsFilter
from proreus.engine.runtime.profile import Profile
from proreus.framework.attempt_budget import ROWS_BETWEEN_CHECKS
from proreus.framework.cycle_state import CycleState
from proreus.framework.plugin import FilterPlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.framework.verdicts import Rows, Verdicts

_MIN_FEASIBLE_NODES_TO_FIND = 100
_MIN_FEASIBLE_PERCENTAGE = 5


def num_feasible_nodes_to_find(
    nodes: int, profile_percentage: int | None, global_percentage: int
) -> int:
    """Return how many feasible nodes are enough."""
    if nodes < _MIN_FEASIBLE_NODES_TO_FIND:
        return nodes
    percentage = global_percentage if profile_percentage is None else profile_percentage
    if percentage == 0:
        percentage = max(50 - nodes // 125, _MIN_FEASIBLE_PERCENTAGE)
    return max(nodes * percentage // 100, _MIN_FEASIBLE_NODES_TO_FIND)


def find_one_by_one(
    plugins: list[FilterPlugin],
    profile: Profile,
    state: CycleState,
    pod: PodInfo,
    verdicts: Verdicts,
    *,
    rows: Rows,
    nominated: NominatedPodsFilter,
    num_nodes_to_find: int,
) -> Rows:
    """Run per-node plugins on ``rows``, in this order, until enough pass; return the rows visited.

    ``verdicts``: those of the other plugins, to which rejections are added. Where one of them
    rejected a row already, only the per-node plugins that come before it in the profile run:
    kube-scheduler would have stopped at it.
    """
    table, order = profile.table, profile.order_of_filter
    filters = [(order[p.name], filter_function(p, state, pod, table)) for p in plugins]
    rows_with_nominated = nominated.rows(table)
    # A list, because reading single cells of an array is slow; a row is visited once, so its
    # verdict from before the walk is the one that counts.
    before = None if verdicts.ids is None else verdicts.ids.tolist()
    visited: list[int] = []
    found = 0
    for number, row in enumerate(rows.tolist()):
        if number % ROWS_BETWEEN_CHECKS == 0:
            state.check_budget(plugins[0].name, "Filter")
        rejected = None if before is None else verdicts.statuses[before[row]]
        limit = len(order) if rejected is None else order[rejected.plugin]
        status = None
        # The second pass is made here, not afterwards: a node that fails it must not count as
        # found, since the count ends the walk.
        if row in rows_with_nominated:
            status = nominated.run_filters_on_row(profile, state, pod, row, table)
        if status is None:
            status = _first_rejection(filters, row, limit)
        if status is not None:
            override_verdict(verdicts, row, status)
        elif rejected is None:
            # kube-scheduler cancels its workers once it has found one node more than it needs.
            # That node is not used, but rejections on the way to it are in the message.
            if found == num_nodes_to_find:
                break
            found += 1
        visited.append(row)
    return np.array(visited, dtype=np.intp)


def _first_rejection(
    filters: list[tuple[int, Callable[[int], Status | None]]], row: int, limit: int
) -> Status | None:
    """Return the first rejection of a row by the plugins whose place is before ``limit``."""
    for place, run_filter in filters:
        if place >= limit:
            return None
        status = run_filter(row)
        if status is not None:
            return status
    return None
