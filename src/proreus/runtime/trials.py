"""Many nodes are tried at once, each by itself: would the pod fit if these pods were not there?

Filters that look at one node at a time judge all nodes in one go. Those that look across nodes keep
notes of every node by itself, as if it were the only one that is tried, and are asked node by node.

Once the pod fits, a pod that is put back is the only news: filters that do not look at pods need
not be asked again, nor those whose notes did not change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from proreus.errors import PluginError
from proreus.framework.cycle_state import CycleState
from proreus.framework.handle import TrialGrounds
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import FilterPlugin, PreFilterPlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Code, Status
from proreus.framework.trial_table import TrialTable
from proreus.framework.verdicts import BoolArray, Rows, Verdicts
from proreus.runtime.calls import call_plugin_for_pods
from proreus.runtime.node_points import (
    override_verdict,
    run_filter_plugin,
    run_filter_plugin_on_node,
)
from proreus.runtime.nominated import NominatedPods, equivalence_key


def trial_grounds(
    filters: Sequence[FilterPlugin],
    nominated: NominatedPods,
    table: NodeTable,
    state: CycleState,
    pod: PodInfo,
) -> TrialGrounds | None:
    """Return what trials of a pod rest on beside its priority, the nodes and the pods on them.

    None where a filter that takes part looks across nodes or does not sign the pod, and where
    others of its kind have to respect a nomination of its own.
    """
    signature = equivalence_key(filters, state, pod, table)
    if signature is None:
        return None
    by_row = nominated.by_row(pod, table)
    return TrialGrounds(signature, by_row) if by_row.remembered else None


class NodeTrials:
    """Tries one pod on some rows of a table, without other pods that are on them.

    ``movable``: the pods of each row that may go; they are numbered row by row (``first`` has the
    number of the first one of each row). What a plugin raises is the verdict of the row, an Error.
    """

    def __init__(
        self,
        filters: Sequence[FilterPlugin],
        pre_filters: Sequence[PreFilterPlugin],
        nominated: NominatedPods,
        table: NodeTable,
        state: CycleState,
        pod: PodInfo,
        rows: Rows,
        movable: Sequence[Sequence[PodInfo]],
    ) -> None:
        self._pod = pod
        self._table = TrialTable(table, rows, movable)
        self.first = self._table.first
        self._filters = [p for p in filters if p.name not in state.skip_filter]
        self._followers = [
            p for p in pre_filters if p.follows_trials and p.name not in state.skip_filter
        ]
        self._state = state.clone()
        self._states = [self._state] * len(rows)
        self._own_notes = not all(plugin.row_local for plugin in self._filters)
        """Whether every node has notes of its own."""
        if self._own_notes:
            self._states = [state.clone() for _ in range(len(rows))]
        following = {plugin.name for plugin in self._followers} if self._own_notes else ()
        self._by_node = {
            p.name
            for p in self._filters
            if not (p.row_local and p.columnar_filter) or p.name in following
        }
        """Filters that are asked node by node, with the node's notes."""
        self._noted: dict[str, set[int]] = {p.name: set() for p in self._followers}
        """By follower: the numbers of the pods that make a difference to its notes."""
        self._failed: dict[int, Status] = {}
        by_row = nominated.by_row(pod, table).by_row
        self._nominated = {
            index: by_row[row] for index, row in enumerate(rows.tolist()) if row in by_row
        }

    # ---- the trial -----------------------------------------------------------------------------

    def without_movable(self) -> Verdicts:
        """Take all movable pods off all rows and judge the rows."""
        table = self._table
        table.take_all_off()
        for plugin in self._followers:
            noted = self._noted[plugin.name]
            for row, first in enumerate(self.first[:-1].tolist()):
                removed = table.movable[first : int(self.first[row + 1])]
                told = self._tell(plugin, "Remove", row, removed)
                noted.update(first + n for n, answer in enumerate(told) if answer is not False)
        return self._judge(np.arange(len(table)), None)

    def put_back(self, numbers: Rows) -> BoolArray:
        """Put pods back, one a row at most, ascending; take those off again that keep the pod out.

        Returns which ones stay. To be called only for rows that the pod fits.
        """
        table = self._table
        table.put_back(numbers)
        rows = table.row_of[numbers]
        news: dict[int, int] = {}
        if self._followers or self._by_node or self._nominated:
            news = dict(zip(rows.tolist(), numbers.tolist(), strict=True))
        for plugin in self._followers:
            noted = self._noted[plugin.name]
            for row, number in news.items() if noted else ():
                if number in noted:
                    self._tell(plugin, "Add", row, [table.movable[number]])
        stays: BoolArray = self._judge(rows, news).passed()[rows]
        if not stays.all():
            off = numbers[~stays]
            table.take_off(off)
            for plugin in self._followers:
                noted = self._noted[plugin.name]
                for number in noted.intersection(off.tolist()) if noted else ():
                    row = int(table.row_of[number])
                    self._tell(plugin, "Remove", row, [table.movable[number]])
        return stays

    def error(self, row: int) -> Status | None:
        """Return the Error that a plugin gave while the pods of a row were moved or judged."""
        return self._failed.get(row)

    def _tell(
        self,
        plugin: PreFilterPlugin,
        verb: Literal["Add", "Remove"],
        row: int,
        moved: Sequence[PodInfo],
    ) -> Sequence[bool | None]:
        """Let a plugin bring its notes in step; return what it said of each pod."""
        method = plugin.add_pod if verb == "Add" else plugin.remove_pod
        point, node = f"PreFilterExtension{verb}Pod", self._table[row]
        try:
            return call_plugin_for_pods(
                plugin, point, self._states[row], method, self._pod, moved, node
            )
        except PluginError as error:
            self._fail(row, plugin, error)
            return ()

    def _fail(self, row: int, plugin: PreFilterPlugin | FilterPlugin, error: PluginError) -> None:
        self._failed.setdefault(row, Status.error(str(error)).of(plugin.name))

    # ---- judging -------------------------------------------------------------------------------

    def _judge(self, rows: Rows, news: Mapping[int, int] | None) -> Verdicts:
        """Judge rows; verdicts of others mean nothing. ``news``: what was put back, by row."""
        verdicts = self._ask_filters(self._table, self._state, self._states, rows, news)
        if self._nominated:
            again = [
                row
                for row in rows.tolist()
                if row in self._nominated and (news is None or verdicts.status(row) is None)
            ]
            for row, status in self._rejected_with_nominated(again, news):
                override_verdict(verdicts, row, status)
        if any(s is not None and s.code == Code.ERROR for s in verdicts.statuses):
            for row in rows.tolist():
                found = verdicts.status(row)
                if found is not None and found.code == Code.ERROR:
                    self._failed.setdefault(row, found)
        for row, failure in self._failed.items():
            override_verdict(verdicts, row, failure)
        return verdicts

    def _rejected_with_nominated(
        self, rows: list[int], news: Mapping[int, int] | None
    ) -> list[tuple[int, Status]]:
        """Judge rows with the pods nominated to them on them as well."""
        if not rows:
            return []
        fork = self._table.fork(np.array(rows, dtype=np.intp))
        shared = self._state.clone()
        states = [self._states[row].clone() if self._own_notes else shared for row in rows]
        for index, row in enumerate(rows):
            added = [pod for pod in self._nominated[row] if pod.uid not in fork[index].pods]
            for other in added:
                fork.add_pod(index, other)
            for plugin in self._followers:
                point, method, state = "PreFilterExtensionAddPod", plugin.add_pod, states[index]
                try:
                    call_plugin_for_pods(
                        plugin, point, state, method, self._pod, added, fork[index]
                    )
                except PluginError as error:
                    self._fail(row, plugin, error)
        again = None if news is None else {i: news[row] for i, row in enumerate(rows)}
        verdicts = self._ask_filters(fork, shared, states, np.arange(len(rows)), again)
        judged = ((row, verdicts.status(index)) for index, row in enumerate(rows))
        return [(row, status) for row, status in judged if status is not None]

    def _ask_filters(
        self,
        nodes: NodeTable,
        shared: CycleState,
        states: Sequence[CycleState],
        rows: Rows,
        news: Mapping[int, int] | None,
    ) -> Verdicts:
        """Ask the filters in order, as far as they have anything new to say."""
        verdicts = Verdicts(len(nodes))
        for plugin in self._filters:
            by_node = plugin.name in self._by_node
            mute = news is not None and not plugin.looks_at_pods
            if mute and not self._noted.get(plugin.name):
                continue
            own = Verdicts(len(nodes), plugin.name)
            if by_node:
                concerned = rows.tolist()
                if mute and news is not None:
                    noted = self._noted[plugin.name]
                    concerned = [row for row in concerned if news[row] in noted]
                for row in concerned:
                    if verdicts.status(row) is None:
                        status = self._ask_node(plugin, states[row], nodes, row)
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
                    all_nodes_feasible = np.ones(len(nodes), dtype=np.bool_)
                    own.reject_with(all_nodes_feasible, Status.error(str(error)))
            verdicts.merge(own)
        return verdicts

    def _ask_node(
        self, plugin: FilterPlugin, state: CycleState, nodes: NodeTable, row: int
    ) -> Status | None:
        try:
            return run_filter_plugin_on_node(plugin, state, self._pod, nodes, row)
        except PluginError as error:
            return Status.error(str(error)).of(plugin.name)
