"""The search for nodes that can take a pod.

Columns see every node. Answers are shared where plugins allow it; plugins that look across nodes
are asked anew; plugins that only judge one node at a time walk the nodes that are left, in
kube-scheduler's order, and stop once enough are found. Nodes that pods are nominated to are judged
a second time, with those pods on them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from proreus.framework.cycle_state import CycleState
from proreus.framework.handle import Nominator
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import FilterPlugin, PreFilterPlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.framework.verdicts import PASSED, Rows, Verdicts
from proreus.runtime.asking import filter_node, filter_table, raise_error
from proreus.runtime.profile import SKIPPED, Profile
from proreus.runtime.shared_answers import Face

_MIN_FEASIBLE_NODES_TO_FIND = 100
_MIN_FEASIBLE_PERCENTAGE = 5
_FEW_NOMINATED = 4
"""Up to so many nodes with nominated pods are judged one by one."""


@dataclass(slots=True)
class Found:
    """What a search found.

    ``verdicts``: by row of the whole table. ``evaluated``: the rows that were judged; None = all.
    ``face``: set when all of it was shared, and nothing was judged beside it.
    ``rejected_by_extender``: HTTP extenders left nodes out. ``emptied``: they sent the others back
    as objects, which kube-scheduler takes for nodes without pods.
    """

    verdicts: Verdicts
    evaluated: Rows | None
    face: Face | None
    signatures: dict[str, Hashable]
    _rows: Rows | None = None
    rejected_by_extender: bool = False
    emptied: bool = False

    @property
    def count(self) -> int:
        """How many nodes can take the pod."""
        return self.face.feasible_count if self.face is not None else len(self.rows)

    @property
    def rows(self) -> Rows:
        """The rows of the nodes that can take the pod."""
        if self._rows is None:
            if self.face is not None:
                self._rows = np.flatnonzero(self.face.feasible)
            elif self.evaluated is None:
                self._rows = self.verdicts.passed_rows()
            else:
                self._rows = self.evaluated[self.judged.passed()]
        return self._rows

    @property
    def judged(self) -> Verdicts:
        """The verdicts of the rows that were judged."""
        return self.verdicts if self.evaluated is None else self.verdicts.take(self.evaluated)

    def add_rejection(self, row: int, status: Status) -> None:
        """Note what became of a row that was judged apart, unless it was judged here too."""
        if self.evaluated is not None and row not in self.evaluated:
            self.verdicts.reject_row(row, status)
            self.evaluated = np.append(self.evaluated, row)
            self._rows = None

    def narrowed(self, rows: list[int], rejected: Mapping[int, Status], emptied: bool) -> Found:
        """Return what is left once extenders had their say: some rows, reasons for some others.

        A row that is left out without a reason is one that nobody looked at. What comes back shares
        nothing with other pods.
        """
        verdicts, evaluated = self.verdicts.copy(), self.evaluated
        for row, status in rejected.items():
            _overrule(verdicts, row, status)
        gone = set(self.rows.tolist()).difference(rows)
        if silent := gone - rejected.keys():
            everything = np.arange(verdicts.size) if evaluated is None else evaluated
            evaluated = np.setdiff1d(everything, list(silent))
        if evaluated is not None and rejected:
            evaluated = np.union1d(evaluated, list(rejected))
        kept = np.array(rows, dtype=np.intp)
        return Found(verdicts, evaluated, None, self.signatures, kept, bool(gone), emptied)


class NodeSearch:
    """Searches nodes for all profiles of a scheduler.

    ``order``: all rows in kube-scheduler's order. ``next_start``: where the next walk of per-node
    plugins begins, so that every node gets its turn; ``started_at``: where the last one began.
    """

    def __init__(
        self, nominator: Nominator, order: Callable[[], Rows], percentage_of_nodes_to_score: int = 0
    ) -> None:
        self._nominator = nominator
        self._order = order
        self._percentage = percentage_of_nodes_to_score
        self.one_is_enough = True
        """Whether a walk may stop at the first node where no plugin scores; not with extenders."""
        self.next_start = 0
        self.started_at = 0

    def order(self) -> Rows:
        """Return all rows in the order in which kube-scheduler would have looked at them."""
        return np.roll(self._order(), -self.started_at)

    def find(
        self, profile: Profile, state: CycleState, pod: PodInfo, names: frozenset[str] | None
    ) -> Found:
        """Judge all nodes, or those that PreFilter named; raises ``PluginError``.

        A columnar plugin's Error about a row is that row's verdict: see ``raise_error``.
        """
        self.started_at = self.next_start
        if names is not None:
            return self._find_among(profile, state, pod, names)
        return self._find_anywhere(profile, state, pod)

    def check_node(
        self, profile: Profile, state: CycleState, pod: PodInfo, row: int
    ) -> Status | None:
        """Judge one node, nominated pods taken into account."""
        table = profile.table
        with_nominated = self._judge_with_nominated(profile, state, pod, row, table)
        return with_nominated or judge_node(profile, state, pod, table, row)

    def judge_trial(
        self, profile: Profile, state: CycleState, pod: PodInfo, nodes: NodeTable
    ) -> Verdicts:
        """Judge every row of a fork, nominated pods taken into account."""
        verdicts = judge_table(profile, state, pod, nodes)
        nominated = set(self._nominator.nominated_nodes())
        rows = [row for row, node in enumerate(nodes) if node.name in nominated]
        for row, status in self._rejected_with_nominated(profile, state, pod, rows, nodes):
            _overrule(verdicts, row, status)
        return verdicts

    # ---- whole table ---------------------------------------------------------------------------

    def _find_anywhere(self, profile: Profile, state: CycleState, pod: PodInfo) -> Found:
        signatures = profile.signatures(pod)
        active = [p for p in profile.filter if p.name not in state.skip_filter]
        if all(plugin.name in signatures for plugin in active):
            key = tuple(
                SKIPPED if p.name in state.skip_filter else signatures[p.name]
                for p in profile.filter
            )
            face = profile.shared.face(key, [(p, signatures[p.name]) for p in active])
            face.refresh_filter(state, pod, profile.table)
            found = Found(face.verdicts, None, face, signatures)
            return self._with_nominated(profile, state, pod, found)

        table = profile.table
        verdicts = Verdicts(table.size)
        one_by_one: list[FilterPlugin] = []
        for plugin in active:
            if plugin.name in signatures:
                answers = profile.shared.answers(plugin, signatures[plugin.name])
                answers.refresh_filter(state, pod, table)
                verdicts.merge(answers.verdicts)
            elif plugin.columnar_filter:
                own = Verdicts(table.size, plugin.name)
                filter_table(plugin, state, pod, table, own, keep_errors=True)
                verdicts.merge(own)
            else:
                one_by_one.append(plugin)
        if not one_by_one:
            found = Found(verdicts, None, None, signatures)
            return self._with_nominated(profile, state, pod, found)
        visited = self._walk(profile, state, pod, verdicts, one_by_one)
        return Found(verdicts, visited, None, signatures)

    def _walk(
        self,
        profile: Profile,
        state: CycleState,
        pod: PodInfo,
        verdicts: Verdicts,
        plugins: list[FilterPlugin],
    ) -> Rows:
        """Ask per-node plugins until enough nodes are found; return the rows visited.

        A plugin that comes before the one that rejected a row over columns is asked first, as it
        would have been in kube-scheduler. Like there, the walk ends with one node too many, which
        does not count: what is rejected on the way to it does.
        """
        table, wanted = profile.table, self._wanted(profile)
        nominated = self._rows_with_nominated(table)
        visited: list[int] = []
        found = 0
        for row in map(int, self.order()):
            rejected = verdicts.status(row)
            limit = len(profile.filter)
            if rejected is not None:
                limit = profile.order_of_filter[rejected.plugin]
            status = None
            if row in nominated:
                status = self._judge_with_nominated(profile, state, pod, row, table)
            if status is None:
                status = _first_rejection(profile, state, pod, row, plugins, limit)
            if status is not None:
                _overrule(verdicts, row, status)
            elif rejected is None:
                if found == wanted:
                    break
                found += 1
            visited.append(row)
        self._advance(len(visited), table)
        return np.array(visited, dtype=np.intp)

    def _wanted(self, profile: Profile) -> int:
        """Return how many feasible nodes a walk looks for."""
        if not profile.score and self.one_is_enough:
            return 1
        return num_feasible_nodes_to_find(
            profile.table.size, profile.percentage_of_nodes_to_score, self._percentage
        )

    def _advance(self, visited: int, table: NodeTable) -> None:
        self.next_start = (self.next_start + visited) % max(table.size, 1)

    # ---- some rows -----------------------------------------------------------------------------

    def _find_among(
        self, profile: Profile, state: CycleState, pod: PodInfo, names: frozenset[str]
    ) -> Found:
        table = profile.table
        rows = table.rows_of(names)
        verdicts = Verdicts(table.size)
        part = judge_table(profile, state, pod, table.take(rows), keep_errors=True)
        for index, row in enumerate(rows.tolist()):
            status = part.status(index)
            if status is not None:
                verdicts.reject_row(row, status)
        self._advance(len(rows), table)
        found = Found(verdicts, rows, None, profile.signatures(pod))
        return self._with_nominated(profile, state, pod, found)

    # ---- nominated pods ------------------------------------------------------------------------

    def _with_nominated(
        self, profile: Profile, state: CycleState, pod: PodInfo, found: Found
    ) -> Found:
        """Judge nodes with nominated pods again, with those pods on them."""
        rows = self._rows_with_nominated(profile.table)
        if rows and found.evaluated is not None:
            rows &= set(found.evaluated.tolist())
        if not rows:
            return found
        rejected = self._rejected_with_nominated(profile, state, pod, sorted(rows), profile.table)
        if not rejected:
            return found
        verdicts = found.verdicts.copy()
        for row, status in rejected:
            _overrule(verdicts, row, status)
        return Found(verdicts, found.evaluated, None, found.signatures)

    def _rows_with_nominated(self, table: NodeTable) -> set[int]:
        names = self._nominator.nominated_nodes()
        return {row for name in names if (row := table.rows.get(name)) is not None}

    def _judge_with_nominated(
        self, profile: Profile, state: CycleState, pod: PodInfo, row: int, nodes: NodeTable
    ) -> Status | None:
        """Judge a row with the pods that are nominated to it and not less important."""
        nominated = self._nominated_before(pod, nodes[row].name)
        if not nominated:
            return None
        trial = state.clone()
        fork = nodes.fork(np.array([row], dtype=np.intp))
        for other in nominated:
            if other.uid in fork[0].pods:
                continue
            profile.add_pod(trial, pod, other, fork, 0)
        return judge_node(profile, trial, pod, fork, 0)

    def _rejected_with_nominated(
        self, profile: Profile, state: CycleState, pod: PodInfo, rows: list[int], nodes: NodeTable
    ) -> list[tuple[int, Status]]:
        """Judge rows, each with the pods nominated to it; return those that are rejected."""
        if len(rows) > _FEW_NOMINATED and _adding_is_row_local(profile, state):
            judged = self._judge_at_once(profile, state, pod, rows, nodes)
        else:
            judged = (
                (row, self._judge_with_nominated(profile, state, pod, row, nodes)) for row in rows
            )
        return [(row, status) for row, status in judged if status is not None]

    def _judge_at_once(
        self, profile: Profile, state: CycleState, pod: PodInfo, rows: list[int], nodes: NodeTable
    ) -> Iterable[tuple[int, Status | None]]:
        """Judge many rows in one go: only where adding a pod to one concerns no other."""
        nominated = {row: self._nominated_before(pod, nodes[row].name) for row in rows}
        rows = [row for row in rows if nominated[row]]
        fork = nodes.fork(np.array(rows, dtype=np.intp))
        for index, row in enumerate(rows):
            for other in nominated[row]:
                if other.uid not in fork[index].pods:
                    fork.add_pod(index, other)
        verdicts = judge_table(profile, state, pod, fork)
        return ((row, verdicts.status(index)) for index, row in enumerate(rows))

    def _nominated_before(self, pod: PodInfo, node_name: str) -> list[PodInfo]:
        """Return the pods nominated to a node that this pod has to respect."""
        return [
            other
            for other in self._nominator.nominated_pods(node_name)
            if other.priority >= pod.priority and other.uid != pod.uid
        ]


def _adding_is_row_local(profile: Profile, state: CycleState) -> bool:
    """Tell whether a pod added to one node concerns that node's verdict alone."""
    skipped = state.skip_filter
    return all(p.row_local or p.name in skipped for p in profile.filter) and all(
        type(p).add_pod is PreFilterPlugin.add_pod or p.name in skipped for p in profile.pre_filter
    )


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


def num_feasible_nodes_to_find(
    nodes: int, profile_percentage: int | None, global_percentage: int
) -> int:
    """Return after how many feasible nodes a walk may stop (kube-scheduler's function)."""
    if nodes < _MIN_FEASIBLE_NODES_TO_FIND:
        return nodes
    percentage = global_percentage if profile_percentage is None else profile_percentage
    if percentage == 0:
        percentage = max(50 - nodes // 125, _MIN_FEASIBLE_PERCENTAGE)
    return max(nodes * percentage // 100, _MIN_FEASIBLE_NODES_TO_FIND)


def _first_rejection(
    profile: Profile,
    state: CycleState,
    pod: PodInfo,
    row: int,
    plugins: list[FilterPlugin],
    limit: int,
) -> Status | None:
    for plugin in plugins:
        if profile.order_of_filter[plugin.name] >= limit:
            return None
        status = filter_node(plugin, state, pod, profile.table, row)
        if status is not None:
            return status
    return None


def _overrule(verdicts: Verdicts, row: int, status: Status) -> None:
    """Set a row's verdict, whatever it was."""
    if verdicts.ids is not None:
        verdicts.ids[row] = PASSED
    verdicts.reject_row(row, status)
