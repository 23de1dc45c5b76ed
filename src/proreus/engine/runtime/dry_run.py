"""The dry run of preemption: would a pod fit these nodes without some of their pods?

Many nodes are evaluated at once, each as if it were the only one that changes. A ``row_local``
filter evaluates the columns of all of them in one call. A filter that looks across nodes gets a
clone of the cycle state for each node (its PreFilter extensions update it) and is called node by
node.

A reprieve changes one pod on a node that the preemptor fits. Hence filters that do not look at pods
are not run again, unless an extension reported that this pod changes their state.

Worked example: two nodes, potential victims numbered 0, 1 (first node) and 2 (second): ``first`` is
``[0, 2, 3]``. After ``remove_all_victims`` the preemptor fits both. ``reprieve([0, 2])`` adds one
pod to each node and returns ``[True, False]``: 2 is removed again and is a victim.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from proreus.base.errors import PluginError
from proreus.engine.runtime.node_points import (
    override_verdict,
    run_filter_plugin,
    run_filter_plugin_on_node,
)
from proreus.engine.runtime.nominated_pods_filter import NominatedPodsFilter, equivalence_key
from proreus.engine.runtime.points import call_plugin_for_each
from proreus.framework.cycle_state import CycleState
from proreus.framework.dry_run_table import DryRunTable
from proreus.framework.handle import DryRunKey
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import FilterPlugin, PreFilterPlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Code, Status
from proreus.framework.verdicts import BoolArray, Rows, Verdicts


def dry_run_key(
    filters: Sequence[FilterPlugin],
    nominated: NominatedPodsFilter,
    table: NodeTable,
    state: CycleState,
    pod: PodInfo,
) -> DryRunKey | None:
    """Return the key by which preemptors of one priority share the results of dry runs.

    None if an active filter looks across nodes or does not sign the pod, or if the pod is nominated
    itself.
    """
    signature = equivalence_key(filters, state, pod, table)
    if signature is None:
        return None
    # A pod ignores its own nomination while equivalent pods respect it: they have other results.
    by_row = nominated.by_row(pod, table)
    return DryRunKey(signature, by_row) if by_row.is_cached else None


class PreemptionDryRun:
    """The dry run of one pod on some rows of a table, without ``potential_victims`` of each row.

    Victims are numbered row by row; those of row ``r`` are ``first[r]`` up to ``first[r + 1]``. An
    exception in a plugin becomes an Error status of the row.
    """

    def __init__(
        self,
        filters: Sequence[FilterPlugin],
        pre_filters: Sequence[PreFilterPlugin],
        nominated: NominatedPodsFilter,
        table: NodeTable,
        state: CycleState,
        pod: PodInfo,
        rows: Rows,
        potential_victims: Sequence[Sequence[PodInfo]],
    ) -> None:
        self._pod = pod
        self._table = DryRunTable(table, rows, potential_victims)
        self.first = self._table.first
        self._filters = [p for p in filters if p.name not in state.skip_filter]
        self._extensions = [
            p
            for p in pre_filters
            if p.has_pre_filter_extensions and p.name not in state.skip_filter
        ]
        self._state = state.clone()
        self._states = [self._state] * len(rows)
        self._state_per_node = not all(plugin.row_local for plugin in self._filters)
        # Cloned only then: for hundreds of rows the clones would cost more than the filters.
        if self._state_per_node:
            self._states = [state.clone() for _ in range(len(rows))]
        extension_names = (
            {plugin.name for plugin in self._extensions} if self._state_per_node else ()
        )
        # With a state for each node, a filter with extensions cannot share one call.
        self._by_node = {
            p.name
            for p in self._filters
            if not (p.row_local and p.columnar_filter) or p.name in extension_names
        }
        """Names of the filters that are called node by node, each time with the node's state."""
        self._state_depends_on: dict[str, set[int]] = {p.name: set() for p in self._extensions}
        """By plugin with extensions: the victims whose removal changed its state."""
        self._errors: dict[int, Status] = {}
        by_row = nominated.by_row(pod, table).by_row
        self._nominated = {
            index: by_row[row] for index, row in enumerate(rows.tolist()) if row in by_row
        }

    # ---- remove and reprieve -------------------------------------------------------------------

    def remove_all_victims(self) -> Verdicts:
        """Remove all potential victims from all rows and filter the rows."""
        table = self._table
        table.remove_all_victims()
        for plugin in self._extensions:
            relevant = self._state_depends_on[plugin.name]
            for row, first in enumerate(self.first[:-1].tolist()):
                removed = table.potential_victims[first : int(self.first[row + 1])]
                self._state.check_budget(plugin.name, "PostFilter")
                changed = self._run_extension(plugin, "Remove", row, removed)
                # Extensions need not return anything: only False promises an unchanged state.
                relevant.update(
                    first + n for n, change in enumerate(changed) if change is not False
                )
        return self._run_filters(np.arange(len(table)), None)

    def reprieve(self, numbers: Rows) -> BoolArray:
        """Add victims back, at most one a row, ascending; return which ones may stay.

        Those with which the pod does not fit any more are removed again. To be called only for rows
        that the pod fits.
        """
        table = self._table
        table.reprieve(numbers)
        rows = table.row_of[numbers]
        reprieved: dict[int, int] = {}
        # Looked up only in these cases; a dict of hundreds of rows a step would be measurable.
        if self._extensions or self._by_node or self._nominated:
            reprieved = dict(zip(rows.tolist(), numbers.tolist(), strict=True))
        for plugin in self._extensions:
            relevant = self._state_depends_on[plugin.name]
            for row, number in reprieved.items() if relevant else ():
                if number in relevant:
                    self._run_extension(plugin, "Add", row, [table.potential_victims[number]])
        fits: BoolArray = self._run_filters(rows, reprieved).passed()[rows]
        if not fits.all():
            off = numbers[~fits]
            table.remove_victims(off)
            for plugin in self._extensions:
                relevant = self._state_depends_on[plugin.name]
                for number in relevant.intersection(off.tolist()) if relevant else ():
                    row = int(table.row_of[number])
                    self._run_extension(plugin, "Remove", row, [table.potential_victims[number]])
        return fits

    def error(self, row: int) -> Status | None:
        """Return the Error of a plugin about a row, in an extension or in Filter; None without."""
        return self._errors.get(row)

    def _run_extension(
        self,
        plugin: PreFilterPlugin,
        verb: Literal["Add", "Remove"],
        row: int,
        moved: Sequence[PodInfo],
        state: CycleState | None = None,
        node: NodeInfo | None = None,
    ) -> Sequence[bool | None]:
        """Run a plugin's AddPod or RemovePod for pods of a row; return its results.

        ``state``, ``node``: others than those of the row.
        """
        method = plugin.add_pod if verb == "Add" else plugin.remove_pod
        state = self._states[row] if state is None else state
        node = self._table[row] if node is None else node

        def move(pod: PodInfo) -> bool | None:
            return method(state, self._pod, pod, node)

        try:
            return call_plugin_for_each(plugin, f"PreFilterExtension{verb}Pod", state, move, moved)
        except PluginError as error:
            self._fail(row, plugin, error)
            return ()

    def _fail(self, row: int, plugin: PreFilterPlugin | FilterPlugin, error: PluginError) -> None:
        # The first error counts, as in kube-scheduler, where it ends the dry run of the node.
        self._errors.setdefault(row, Status.error(str(error)).with_plugin(plugin.name))

    # ---- filters -------------------------------------------------------------------------------

    def _run_filters(self, rows: Rows, reprieved: Mapping[int, int] | None) -> Verdicts:
        """Filter rows; verdicts of other rows are undefined.

        ``reprieved``: the victim that was just added, by row; None after the removal of all.
        """
        verdicts = self._run_filter_plugins(self._table, self._state, self._states, rows, reprieved)
        # kube-scheduler filters with nominated pods first and without them second; here it is the
        # other way round, so that columns come first. After the removal of all victims the status
        # with nominated pods is the one to report, hence also for rows that are rejected already.
        if self._nominated:
            again = [
                row
                for row in rows.tolist()
                if row in self._nominated and (reprieved is None or verdicts.status(row) is None)
            ]
            for row, status in self._rejected_with_nominated(again, reprieved):
                override_verdict(verdicts, row, status)
        if any(s is not None and s.code == Code.ERROR for s in verdicts.statuses):
            for row in rows.tolist():
                found = verdicts.status(row)
                if found is not None and found.code == Code.ERROR:
                    self._errors.setdefault(row, found)
        for row, failure in self._errors.items():
            override_verdict(verdicts, row, failure)
        return verdicts

    def _rejected_with_nominated(
        self, rows: list[int], reprieved: Mapping[int, int] | None
    ) -> list[tuple[int, Status]]:
        """Filter rows with the pods nominated to them added; return those that are rejected."""
        if not rows:
            return []
        fork = self._table.fork(np.array(rows, dtype=np.intp))
        shared = self._state.clone()
        # Adding nominated pods must not change the states that later reprieves work on.
        states = [self._states[row].clone() if self._state_per_node else shared for row in rows]
        for index, row in enumerate(rows):
            added = [pod for pod in self._nominated[row] if pod.uid not in fork[index].pods]
            for other in added:
                fork.add_pod(index, other)
            for plugin in self._extensions:
                self._run_extension(plugin, "Add", row, added, states[index], fork[index])
        again = None if reprieved is None else {i: reprieved[row] for i, row in enumerate(rows)}
        verdicts = self._run_filter_plugins(fork, shared, states, np.arange(len(rows)), again)
        statuses = ((row, verdicts.status(index)) for index, row in enumerate(rows))
        return [(row, status) for row, status in statuses if status is not None]

    def _run_filter_plugins(
        self,
        nodes: NodeTable,
        shared: CycleState,
        states: Sequence[CycleState],
        rows: Rows,
        reprieved: Mapping[int, int] | None,
    ) -> Verdicts:
        """Run the filters in order, apart from those that a reprieve cannot affect."""
        verdicts = Verdicts(len(nodes))
        for plugin in self._filters:
            by_node = plugin.name in self._by_node
            unaffected = reprieved is not None and not plugin.looks_at_pods
            if unaffected and not self._state_depends_on.get(plugin.name):
                continue
            # By itself first: `merge` keeps the status of the plugin that comes first in order.
            own = Verdicts(len(nodes), plugin.name)
            if by_node:
                rows_to_filter = rows.tolist()
                if unaffected and reprieved is not None:
                    relevant = self._state_depends_on[plugin.name]
                    rows_to_filter = [row for row in rows_to_filter if reprieved[row] in relevant]
                for row in rows_to_filter:
                    shared.check_budget(plugin.name, "PostFilter")
                    if verdicts.status(row) is None:
                        status = self._run_filter_on_node(plugin, states[row], nodes, row)
                        if status is not None:
                            own.reject_row(row, status)
            else:
                try:
                    run_filter_plugin(
                        plugin,
                        shared,
                        self._pod,
                        nodes,
                        own,
                        keep_errors=True,
                        earlier=verdicts,
                        columns=True,
                    )
                except PluginError as error:
                    # One call for all rows: it is unknown which of them it failed for.
                    all_nodes_feasible = np.ones(len(nodes), dtype=np.bool_)
                    own.reject_with(all_nodes_feasible, Status.error(str(error)))
            verdicts.merge(own)
            shared.check_budget(plugin.name, "PostFilter")
        return verdicts

    def _run_filter_on_node(
        self, plugin: FilterPlugin, state: CycleState, nodes: NodeTable, row: int
    ) -> Status | None:
        try:
            return run_filter_plugin_on_node(plugin, state, self._pod, nodes, row)
        except PluginError as error:
            return Status.error(str(error)).with_plugin(plugin.name)
