"""The points that are asked about nodes: all nodes in one question, and only those not known yet.

Trials (preemption, nodes that pods are nominated to) ask no process: a verdict is the one that the
row has as it is. So room is not made by preemption on a node that such a plugin rejects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from proreus.framework.cycle_state import CycleState
from proreus.framework.node_parts import Part
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import FilterPlugin, PreFilterPlugin, ScorePlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.scores import default_normalize
from proreus.framework.status import Code, Status
from proreus.framework.verdicts import IntArray, Rows, Verdicts
from proreus.remote import wire
from proreus.remote.known import Known
from proreus.remote.plugin import REJECTIONS, Notes, RemotePlugin
from proreus.remote.snapshot import Snapshot
from proreus.remote.wire import BadAnswer

A = TypeVar("A", bound=wire.Answer)

_ROUNDS = 3
"""So often rows are asked about when the plugin's epoch moves with the answer."""


class RemotePreFilter(RemotePlugin, PreFilterPlugin):
    """``POST /v1/pre-filter``."""

    async def fetch_pre_filter(self, state: CycleState, pod: PodInfo) -> Status | None:
        """Ask, and note the answer."""
        notes = self.notes(state, pod)
        return await self.unless_left_out(notes, "preFilter", self._ask_pre_filter(notes))

    async def _ask_pre_filter(self, notes: Notes) -> None:
        answer = await self.endpoint.ask(
            "/v1/pre-filter",
            lambda: self.question(notes),
            wire.PreFilterAnswer,
            self.handle.nodes,
        )
        assert answer is not None
        allowed = (Code.SUCCESS, Code.SKIP, Code.UNSCHEDULABLE, Code.UNRESOLVABLE, Code.ERROR)
        status = wire.status_of("status", answer.status, *allowed)
        if status is not None and status.code == Code.ERROR:
            raise BadAnswer(status.message)
        names = answer.nodes
        notes.pre_filter = status if status or names is None else frozenset(names)

    def pre_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable
    ) -> Status | frozenset[str] | None:
        """Answer with what was fetched."""
        notes = self.notes(state, pod)
        return notes.pre_filter if notes.points else Status.skip()


class _AsksAboutRows(RemotePlugin):
    """How Filter and Score ask."""

    async def ask_about_rows(
        self,
        path: str,
        notes: Notes,
        rows: Rows,
        unknown: Callable[[Snapshot, str, Rows], Rows],
        type_: type[A],
        take: Callable[[Rows, A], None],
    ) -> None:
        """Ask about those of the rows that are ``unknown``; hand them and the answer to ``take``.

        An answer that brings a new epoch leaves nothing known but what it says: so once more.
        """
        endpoint, asked = self.endpoint, rows

        def question() -> dict[str, Any] | None:
            nonlocal asked
            asked = unknown(endpoint.snapshot, endpoint.epoch, rows)
            if not len(asked):
                return None
            whole = len(asked) == endpoint.snapshot.size
            told = None if whole else wire.array(asked, endpoint.descriptor.arrays)
            return self.question(notes, rows=told)

        for _ in range(_ROUNDS):
            epoch = endpoint.epoch
            answer = await endpoint.ask(path, question, type_, self.handle.nodes)
            if answer is not None:
                take(asked, answer)
            if endpoint.epoch == epoch:
                return


class RemoteFilter(_AsksAboutRows, FilterPlugin):
    """``POST /v1/filter``."""

    async def fetch_filter(
        self, state: CycleState, pod: PodInfo, rows: Rows | None
    ) -> Status | None:
        """Ask, and note the answer."""
        notes = self.notes(state, pod)
        return await self.unless_left_out(notes, "filter", self._ask_filter(notes, rows))

    async def _ask_filter(self, notes: Notes, rows: Rows | None) -> None:
        known = notes.known
        await self.ask_about_rows(
            "/v1/filter",
            notes,
            np.arange(len(self.handle.nodes)) if rows is None else rows,
            known.to_judge,
            wire.FilterAnswer,
            lambda asked, answer: self._take_verdicts(known, asked, answer),
        )

    def _take_verdicts(self, known: Known, asked: Rows, answer: wire.FilterAnswer) -> None:
        rejected = wire.int_array("rejected", answer.rejected)
        if answer.status is None:
            which = np.zeros(len(rejected), dtype=np.int64)
        else:
            which = wire.int_array("status", answer.status)
        if len(which) != len(rejected):
            raise BadAnswer(f"status: {len(which)} entries for {len(rejected)} rejected rows")
        strange = rejected[~np.isin(rejected, asked)]
        if len(strange):
            first = strange[:3].tolist()
            raise BadAnswer(f"rejected: {first} are not among the rows of the question")
        statuses = []
        for index, told in enumerate(answer.statuses):
            status = wire.status_of(f"statuses[{index}]", told, *REJECTIONS, Code.ERROR)
            assert status is not None
            statuses.append(status)
        if len(which) and not 0 <= which.min() <= which.max() < len(statuses):
            raise BadAnswer(f"status: must be indices of the {len(statuses)} statuses")
        known.judge(asked, rejected, statuses, which, self.endpoint.snapshot.version)

    def filter_all(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable, verdicts: Verdicts
    ) -> None:
        """Answer with what was fetched, for any table made of the cluster's nodes."""
        notes = self.notes(state, pod)
        if "filter" in notes.points:
            verdicts.merge(notes.known.verdicts(_rows_in(self.handle.nodes, nodes)))


class RemoteScore(_AsksAboutRows, ScorePlugin):
    """``POST /v1/score``: 0 to 100 a row, or any numbers, brought to that here."""

    async def fetch_score(self, state: CycleState, pod: PodInfo, rows: Rows) -> Status | None:
        """Ask, and note the answer."""
        notes = self.notes(state, pod)
        return await self.unless_left_out(notes, "score", self._ask_score(notes, rows))

    async def _ask_score(self, notes: Notes, rows: Rows) -> None:
        known = notes.known
        await self.ask_about_rows(
            "/v1/score",
            notes,
            rows,
            known.to_score,
            wire.ScoreAnswer,
            lambda asked, answer: self._take_scores(known, asked, answer),
        )

    def _take_scores(self, known: Known, asked: Rows, answer: wire.ScoreAnswer) -> None:
        scores = wire.int_array("scores", answer.scores)
        if len(scores) != len(asked):
            raise BadAnswer(f"scores: {len(scores)} entries for {len(asked)} rows")
        known.score(asked, scores, self.endpoint.snapshot.version)

    def score_all(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> IntArray | int:
        """Answer with what was fetched; the same everywhere where nothing was."""
        notes = self.notes(state, pod)
        if "score" not in notes.points:
            return 0
        return notes.known.scores(_rows_in(self.handle.nodes, nodes))

    def normalize(self, state: CycleState, pod: PodInfo, scores: IntArray) -> IntArray:
        """Stretch to 100, as the descriptor says: the highest is the best, or the lowest."""
        best = self.endpoint.descriptor.normalize
        return scores if best == "none" else default_normalize(scores, best == "lowest")


def _rows_in(whole: NodeTable, nodes: NodeTable) -> Rows:
    """Return the rows that the nodes of a table made of ``whole`` have there."""
    if nodes is whole:
        return np.arange(len(whole))
    if isinstance(nodes, Part) and nodes.parent is whole:
        return nodes.picked
    return np.array([whole.rows[node.name] for node in nodes], dtype=np.intp)
