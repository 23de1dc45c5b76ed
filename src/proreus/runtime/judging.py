"""A profile's Filter plugins, asked in order about one node or about a table.

Nominated pods are not looked at here: see ``nominated``.
"""

from __future__ import annotations

from proreus.framework.cycle_state import CycleState
from proreus.framework.node_table import NodeTable
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.framework.verdicts import PASSED, Rows, Verdicts
from proreus.runtime.asking import filter_node, filter_table, raise_error
from proreus.runtime.profile import Profile


def judge_node(
    profile: Profile, state: CycleState, pod: PodInfo, nodes: NodeTable, row: int
) -> Status | None:
    """Ask a profile's Filter plugins, in order, about one row of a table."""
    for plugin in profile.filter:
        if plugin.name not in state.skip_filter:
            status = filter_node(plugin, state, pod, nodes, row)
            if status is not None:
                return status
    return None


def judge_table(
    profile: Profile,
    state: CycleState,
    pod: PodInfo,
    nodes: NodeTable,
    *,
    keep_errors: bool = False,
) -> Verdicts:
    """Ask a profile's Filter plugins about every row of a table, without nominated pods."""
    verdicts = Verdicts(len(nodes))
    for plugin in profile.filter:
        if plugin.name not in state.skip_filter:
            own = Verdicts(len(nodes), plugin.name)
            filter_table(plugin, state, pod, nodes, own, keep_errors=True, earlier=verdicts)
            verdicts.merge(own)
    if not keep_errors:
        raise_error(verdicts)
    return verdicts


def overrule(verdicts: Verdicts, row: int, status: Status) -> None:
    """Set a row's verdict, whatever it was."""
    if verdicts.ids is not None:
        verdicts.ids[row] = PASSED
    verdicts.reject_row(row, status)


def overrule_all(verdicts: Verdicts, rows: Rows, status: Status) -> None:
    """Set the verdict of rows, whatever it was."""
    if verdicts.ids is not None:
        verdicts.ids[rows] = PASSED
    verdicts.reject_with(rows, status)
