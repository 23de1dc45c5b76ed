"""Reprieve of victims in the preemption of a pod group: does each pod still fit where it would go?

The group fits the nodes without any potential victim. A unit of victims is put back on its nodes,
and the pods of the group are filtered on theirs, in order, each added to its node for those after
it. If one does not fit, the unit is removed again and is a victim.

Most filters of most pods look at the one node only. Then a unit makes a difference for the pods
that would go to its nodes, and no other pod is filtered: the cost of a unit does not grow with the
size of the group or of the cluster.

Worked example: a group has a pod for node ``a`` and one for ``b``. A unit of a pod on ``a`` and one
on ``c``: only the first pod is filtered, on ``a``.

A dry run of groups of groups may leave pods that do not fit beside each other, those of child
groups that failed. Then no unit is put back, as in kube-scheduler.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from proreus.errors import PluginError
from proreus.framework.node_table import NodeTable
from proreus.framework.pod_group import PlacedPod, ProposedAssignment
from proreus.runtime.find_nodes import NodeSearch
from proreus.runtime.profile import Profile
from proreus.runtime.scheduling_points import run_reserve, run_unreserve


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
        self._look_at_one_node = all(map(self._looks_at_one_node, assignments))
        self._by_row: dict[int, list[ProposedAssignment]] = {}
        for assignment in assignments:
            self._by_row.setdefault(self._table.rows[assignment.node_name], []).append(assignment)
        self._unfit_rows: set[int] = set()
        """Rows whose assignments do not fit, with the units that are back now."""
        if self._look_at_one_node:
            self._unfit_rows = {row for row, pods in self._by_row.items() if not self._fit(pods)}

    def _looks_at_one_node(self, assignment: ProposedAssignment) -> bool:
        """Return whether a pod's filters depend on its node alone, and Reserve changes nothing."""
        profile, skipped = self._profile, assignment.state.skip_filter
        active = (plugin for plugin in profile.filter if plugin.name not in skipped)
        extensions = (
            plugin
            for plugin in profile.pre_filter
            if plugin.has_pre_filter_extensions and plugin.name not in skipped
        )
        reserving = (plugin for plugin in profile.reserve if plugin.name not in skipped)
        return (
            all(plugin.row_local for plugin in active)
            and next(extensions, None) is None
            and next(reserving, None) is None
        )

    def reprieve(self, unit: Sequence[PlacedPod]) -> bool:
        """Put the pods of a unit back; remove them again and return False if the group must not.

        Raises ``PluginError``.
        """
        rows = {self._table.rows[placed.node_name] for placed in unit}
        self._add(unit)
        if self._look_at_one_node:
            fit = self._unfit_rows <= rows and all(self._fit(self._by_row.get(r, ())) for r in rows)
        else:
            fit = self._fit(self._assignments)
        if fit:
            self._unfit_rows -= rows
            return True
        self._remove(unit)
        return False

    def _add(self, unit: Sequence[PlacedPod]) -> None:
        for pod, node_name in unit:
            row = self._table.rows[node_name]
            self._table.add_pod(row, pod)
            if not self._look_at_one_node:
                for assignment in self._assignments:
                    self._profile.run_add_pod(
                        assignment.state, assignment.pod, pod, self._table[row]
                    )

    def _remove(self, unit: Sequence[PlacedPod]) -> None:
        for pod, node_name in unit:
            row = self._table.rows[node_name]
            self._table.remove_pod(row, pod.uid)
            if not self._look_at_one_node:
                for assignment in self._assignments:
                    self._profile.run_remove_pod(
                        assignment.state, assignment.pod, pod, self._table[row]
                    )

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
                if not self._look_at_one_node:
                    # A rejection here was none when the group was tried: kube-scheduler goes on.
                    with suppress(PluginError):
                        run_reserve(profile, state, pod, node_name)
            return True
        finally:
            for pod, node_name, state in reversed(added):
                if not self._look_at_one_node:
                    run_unreserve(profile, state, pod, node_name)
                table.remove_pod(table.rows[node_name], pod.uid)
