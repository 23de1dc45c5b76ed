"""The search for nodes that can take a pod.

Columns see every node. Answers are shared where plugins allow it; plugins that look across nodes
are asked anew; plugins that only judge one node at a time walk the nodes that are left, in
kube-scheduler's order, and stop once enough are found. Nodes that pods are nominated to are judged
a second time, with those pods on them (``nominated``).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass

import numpy as np

from proreus.framework.cycle_state import CycleState
from proreus.framework.handle import Nominator
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import FilterPlugin, Plugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.framework.verdicts import Rows, Verdicts
from proreus.runtime.asking import filter_table, node_filter
from proreus.runtime.face import Face
from proreus.runtime.judging import judge_node, judge_table, overrule, overrule_all
from proreus.runtime.nominated import NominatedPods
from proreus.runtime.profile import Profile, Signatures

_MIN_FEASIBLE_NODES_TO_FIND = 100
_MIN_FEASIBLE_PERCENTAGE = 5


@dataclass(slots=True)
class Found:
    """What a search found.

    ``verdicts``: by row of the whole table. ``evaluated``: the rows that were judged; None = all.
    ``face``: what those plugins said of every node that share their answers, by ``signatures``;
    None where nobody shared.
    ``rejected_by_extender``: HTTP extenders left nodes out. ``emptied``: they sent the others back
    as objects, which kube-scheduler takes for nodes without pods.
    """

    verdicts: Verdicts
    evaluated: Rows | None
    face: Face | None
    signatures: Mapping[Plugin, Hashable]
    _rows: Rows | None = None
    rejected_by_extender: bool = False
    emptied: bool = False

    @property
    def all_shared(self) -> bool:
        """Whether the face says it all: nobody beside it rejected a node, or left one out."""
        return self.face is not None and self.verdicts is self.face.verdicts

    @property
    def everywhere(self) -> bool:
        """Whether all nodes can take the pod, and ``rows`` are simply those of the table."""
        return self.all_shared and self.count == self.verdicts.size

    @property
    def count(self) -> int:
        """How many nodes can take the pod."""
        if self.face is not None and self.verdicts is self.face.verdicts:
            return self.face.feasible_count
        return len(self.rows)

    @property
    def rows(self) -> Rows:
        """The rows of the nodes that can take the pod."""
        if self._rows is None:
            if self.evaluated is None:
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

        A row that is left out without a reason is one that nobody looked at.
        """
        verdicts, evaluated = self.verdicts.copy(), self.evaluated
        for row, status in rejected.items():
            overrule(verdicts, row, status)
        gone = set(self.rows.tolist()).difference(rows)
        if silent := gone - rejected.keys():
            everything = np.arange(verdicts.size) if evaluated is None else evaluated
            evaluated = np.setdiff1d(everything, list(silent))
        if evaluated is not None and rejected:
            evaluated = np.union1d(evaluated, list(rejected))
        kept = np.array(rows, dtype=np.intp)
        face = None if emptied else self.face
        return Found(verdicts, evaluated, face, self.signatures, kept, bool(gone), emptied)


class NodeSearch:
    """Searches nodes for all profiles of a scheduler.

    ``order``: all rows in kube-scheduler's order. ``next_start``: where the next walk of per-node
    plugins begins, so that every node gets its turn; ``started_at``: where the last one began.
    """

    def __init__(
        self, nominator: Nominator, order: Callable[[], Rows], percentage_of_nodes_to_score: int = 0
    ) -> None:
        self.nominated = NominatedPods(nominator)
        self._order = order
        self.percentage_of_nodes_to_score = percentage_of_nodes_to_score
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
        with_nominated = self.nominated.judge_row(profile, state, pod, row, table)
        return with_nominated or judge_node(profile, state, pod, table, row)

    def judge_trial(
        self, profile: Profile, state: CycleState, pod: PodInfo, nodes: NodeTable
    ) -> Verdicts:
        """Judge every row of a fork, nominated pods taken into account."""
        verdicts = judge_table(profile, state, pod, nodes)
        names = self.nominated.node_names()
        rows = [row for row, node in enumerate(nodes) if node.name in names] if names else []
        for row, status in self.nominated.rejected(profile, state, pod, rows, nodes):
            overrule(verdicts, row, status)
        return verdicts

    # ---- whole table ---------------------------------------------------------------------------

    def _find_anywhere(self, profile: Profile, state: CycleState, pod: PodInfo) -> Found:
        table, signatures = profile.table, Signatures(pod)
        active = [p for p in profile.filter if p.name not in state.skip_filter]
        sharing: dict[FilterPlugin, Hashable] = {}
        others: list[FilterPlugin] = []
        for plugin in active:
            signature = signatures[plugin]
            if signature is None:
                others.append(plugin)
            else:
                sharing[plugin] = signature
        face = profile.shared.face(sharing)
        face.refresh_filter(state, pod, table)
        rejecting: dict[Plugin, Verdicts] = {}
        one_by_one: list[FilterPlugin] = []
        for plugin in others:
            if plugin.columnar_filter:
                verdicts = Verdicts(table.size, plugin.name)
                filter_table(plugin, state, pod, table, verdicts, keep_errors=True)
                if verdicts.ids is not None:
                    rejecting[plugin] = verdicts
            else:
                one_by_one.append(plugin)
        verdicts = face.merged_with(rejecting, active) if rejecting else face.verdicts
        if not one_by_one:
            found = Found(verdicts, None, face, signatures)
            return self._with_nominated(profile, state, pod, found)
        verdicts = verdicts.copy()
        visited = self._walk(profile, state, pod, verdicts, one_by_one)
        return Found(verdicts, visited, face, signatures)

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
        table, wanted, order = profile.table, self._wanted(profile), profile.order_of_filter
        judges = [(order[p.name], node_filter(p, state, pod, table)) for p in plugins]
        nominated = self.nominated.rows(table)
        # A row is visited once: what was said of it before the walk is what counts.
        before = None if verdicts.ids is None else verdicts.ids.tolist()
        visited: list[int] = []
        found = 0
        for row in self.order().tolist():
            rejected = None if before is None else verdicts.statuses[before[row]]
            limit = len(order) if rejected is None else order[rejected.plugin]
            status = None
            if row in nominated:
                status = self.nominated.judge_row(profile, state, pod, row, table)
            if status is None:
                status = _first_rejection(judges, row, limit)
            if status is not None:
                overrule(verdicts, row, status)
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
            profile.table.size,
            profile.percentage_of_nodes_to_score,
            self.percentage_of_nodes_to_score,
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
        found = Found(verdicts, rows, None, {})
        return self._with_nominated(profile, state, pod, found)

    def _with_nominated(
        self, profile: Profile, state: CycleState, pod: PodInfo, found: Found
    ) -> Found:
        """Judge nodes with nominated pods again, with those pods on them."""
        among = None if found.evaluated is None else set(found.evaluated.tolist())
        rejections = self.nominated.rejections(profile, state, pod, among)
        if not rejections:
            return found
        verdicts = found.verdicts.copy()
        for status, rows in rejections.items():
            overrule_all(verdicts, np.fromiter(rows, dtype=np.intp, count=len(rows)), status)
        return Found(verdicts, found.evaluated, found.face, found.signatures)


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
    judges: list[tuple[int, Callable[[int], Status | None]]], row: int, limit: int
) -> Status | None:
    """Ask about a row in order, as long as a plugin's place is before ``limit``."""
    for place, judge in judges:
        if place >= limit:
            return None
        status = judge(row)
        if status is not None:
            return status
    return None
