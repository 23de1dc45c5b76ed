"""Reprieve of victims in the preemption of a pod group: does each pod still fit where it would go?

The group fits the nodes without any potential victim. A unit of victims is put back on its nodes,
and the pods of the group are filtered on theirs, in order, each added to its node for those after
it. If one does not fit, the unit is removed again and is a victim.

Most filters of most pods look at the one node only, or at counts across nodes that AddPod reports
not to have changed (``PreFilterPlugin.add_pod``). Then a unit makes a difference for the pods that
would go to its nodes, and no other pod is filtered: the cost of such a unit does not grow with the
size of the cluster, and with the size of the group only where there are counts to be asked.

Worked example: a group has a pod for node ``a`` and one for ``b``. A unit of a pod on ``a`` and one
on ``c``: only the first pod is filtered, on ``a``.

A dry run of groups of groups may leave pods that do not fit beside each other, those of child
groups that failed. Then no unit is put back, as in kube-scheduler.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from proreus.base.errors import PluginError
from proreus.engine.runtime.find_nodes import NodeSearch
from proreus.engine.runtime.points import call_plugin
from proreus.engine.runtime.profile import Profile
from proreus.engine.runtime.scheduling_points import run_reserve, run_unreserve
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import FilterPlugin, PreFilterPlugin
from proreus.framework.pod_group import PlacedPod, ProposedAssignment
from proreus.framework.pod_info import PodInfo


class _Change(NamedTuple):
    """A pod of a unit that may have changed a plugin's counts for an assignment."""

    plugin: PreFilterPlugin
    assignment: ProposedAssignment
    pod: PodInfo
    row: int


class PodGroupReprieve:
    """Puts units of victims back on the live table, as long as ``assignments`` fit.

    The victims have been removed from it, and none of the pods of the group is on it.
    """

    def __init__(
        self, profile: Profile, search: NodeSearch, assignments: Sequence[ProposedAssignment]
    ) -> None:
        self._profile = profile
        self._search = search
        self._table: NodeTable = profile.table
        self._assignments = assignments
        self._counting = [
            (plugin, active)
            for plugin in profile.pre_filter
            if plugin.has_pre_filter_extensions
            and (active := [a for a in assignments if plugin.name not in a.state.skip_filter])
        ]
        """Plugins that keep counts across nodes, and the assignments that they filter."""
        self._decided_by_rows = all(map(self._is_decided_by_row, assignments))
        self._by_row: dict[int, list[ProposedAssignment]] = {}
        for assignment in assignments:
            self._by_row.setdefault(self._table.rows[assignment.node_name], []).append(assignment)
        self._unfit_rows: set[int] = set()
        """Rows whose assignments do not fit, with the units that are back now."""
        if self._decided_by_rows:
            self._unfit_rows = {row for row, pods in self._by_row.items() if not self._fit(pods)}

    def _is_decided_by_row(self, assignment: ProposedAssignment) -> bool:
        """Return whether a pod's filters depend on its node and on counts only.

        If so, Reserve changes nothing either.
        """
        profile, skipped = self._profile, assignment.state.skip_filter
        active = (plugin for plugin in profile.filter if plugin.name not in skipped)
        reserving = (plugin for plugin in profile.reserve if plugin.name not in skipped)
        return all(map(_looks_at_row_and_counts, active)) and not any(
            plugin.reserve_changes_filter for plugin in reserving
        )

    def reprieve(self, unit: Sequence[PlacedPod]) -> bool:
        """Put the pods of a unit back; remove them again and return False if the group must not.

        Raises ``PluginError``.
        """
        rows = {self._table.rows[placed.node_name] for placed in unit}
        changes = [change for placed in unit for change in self._add(placed)]
        if self._decided_by_rows and not changes:
            fit = self._unfit_rows <= rows and all(self._fit(self._by_row.get(r, ())) for r in rows)
        else:
            fit = self._fit(self._assignments)
        if fit:
            self._unfit_rows.clear()
            return True
        self._remove(unit, changes)
        return False

    def _add(self, placed: PlacedPod) -> Iterator[_Change]:
        """Put a pod back, and yield which counts it may have changed."""
        pod, row = placed.pod, self._table.rows[placed.node_name]
        self._table.add_pod(row, pod)
        node, point = self._table[row], "PreFilterExtensionAddPod"
        for plugin, assignments in self._counting:
            add_pod = plugin.add_pod
            for assignment in assignments:
                state, to_place = assignment.state, assignment.pod
                changed = call_plugin(plugin, point, state, add_pod, state, to_place, pod, node)
                # Extensions need not return anything: only False promises unchanged counts.
                if changed is not False:
                    yield _Change(plugin, assignment, pod, row)

    def _remove(self, unit: Sequence[PlacedPod], changes: Iterable[_Change]) -> None:
        for pod, node_name in unit:
            self._table.remove_pod(self._table.rows[node_name], pod.uid)
        point = "PreFilterExtensionRemovePod"
        for plugin, assignment, pod, row in changes:
            state, to_place = assignment.state, assignment.pod
            node, remove_pod = self._table[row], plugin.remove_pod
            call_plugin(plugin, point, state, remove_pod, state, to_place, pod, node)

    def _fit(self, assignments: Iterable[ProposedAssignment]) -> bool:
        added: list[ProposedAssignment] = []
        profile, table = self._profile, self._table
        try:
            for assignment in assignments:
                pod, node_name, state = assignment
                row = table.rows[node_name]
                if self._search.check_node(profile, state, pod, row) is not None:
                    return False
                table.add_pod(row, pod)
                added.append(assignment)
                if not self._decided_by_rows:
                    # A rejection here was none when the group was tried: kube-scheduler goes on.
                    with suppress(PluginError):
                        run_reserve(profile, state, pod, node_name)
            return True
        finally:
            for pod, node_name, state in reversed(added):
                if not self._decided_by_rows:
                    run_unreserve(profile, state, pod, node_name)
                table.remove_pod(table.rows[node_name], pod.uid)


def _looks_at_row_and_counts(plugin: FilterPlugin) -> bool:
    counts = isinstance(plugin, PreFilterPlugin) and plugin.has_pre_filter_extensions
    return plugin.row_local or counts
