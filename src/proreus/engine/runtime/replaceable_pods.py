"""Filter of nodes without the pods whose place a pod may take (``CycleState.replaceable_pods``).

Each such node is filtered by itself, in a fork, with the pods that are nominated to it. What is
found replaces its verdict: the other plugins have seen the node with pods that would go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from proreus.engine.runtime.node_points import override_verdict, run_filter_plugins_on_node
from proreus.engine.runtime.nominated_pods_filter import NominatedPodsFilter
from proreus.engine.runtime.profile import Profile
from proreus.framework.cycle_state import CycleState
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.framework.verdicts import PASSED, Rows

if TYPE_CHECKING:
    from proreus.engine.runtime.find_nodes import FeasibleNodes


def filter_without_replaceable_pods(
    nominated: NominatedPodsFilter, profile: Profile, state: CycleState, pod: PodInfo, row: int
) -> Status | None:
    """Filter one node without its replaceable pods; return its rejection."""
    fork = profile.table.fork(np.array([row], dtype=np.intp))
    without = state.clone()
    for other in state.replaceable_pods[fork[0].name]:
        if other.uid in fork[0].pods:
            profile.remove_pod(without, pod, other, fork, 0)
    return nominated.run_filters_on_row(
        profile, without, pod, 0, fork
    ) or run_filter_plugins_on_node(profile.filter, without, pod, fork, 0)


def with_replaceable_pods(
    nominated: NominatedPodsFilter,
    profile: Profile,
    state: CycleState,
    pod: PodInfo,
    found: FeasibleNodes,
    among: Rows | None,
) -> FeasibleNodes:
    """Filter the nodes with replaceable pods again, without them; ``among``: these rows only."""
    rows = profile.table.rows_of(state.replaceable_pods)
    if among is not None:
        rows = np.intersect1d(rows, among)
    verdicts, evaluated = found.verdicts.copy(), found.evaluated
    for row in rows.tolist():
        status = filter_without_replaceable_pods(nominated, profile, state, pod, row)
        if status is not None:
            override_verdict(verdicts, row, status)
        elif verdicts.ids is not None:
            verdicts.ids[row] = PASSED
    if evaluated is not None:
        # A walk that ends early may not have come to them.
        evaluated = np.append(evaluated, np.setdiff1d(rows, evaluated))
    return found.with_verdicts(verdicts, evaluated)
