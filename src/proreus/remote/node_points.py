"""The points that are asked about nodes: all nodes in one question, and only those not known yet.

Trials (preemption, nodes that pods are nominated to) ask no process: a verdict is the one that the
row has as it is. So room is not made by preemption on a node that such a plugin rejects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from proreus.framework.cycle_state import CycleState
from proreus.framework.node_table import NodeTable
from proreus.framework.node_table_views import NodeTableView
from proreus.framework.plugin import FilterPlugin, PreFilterPlugin, ScorePlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.scores import default_normalize
from proreus.framework.status import Code, Status
from proreus.framework.verdicts import IntArray, Rows, Verdicts
from proreus.remote import wire
from proreus.remote.plugin import REJECTIONS, RemotePlugin, RemoteStateData
from proreus.remote.row_results import RowResults
from proreus.remote.snapshot import Snapshot
from proreus.remote.wire import BadResponse

A = TypeVar("A", bound=wire.Response)

_ROUNDS = 3
"""So often rows are asked about when the plugin's epoch moves with the answer."""


class RemotePreFilter(RemotePlugin, PreFilterPlugin):
    """``POST /v1/pre-filter``."""

    async def fetch_pre_filter(self, state: CycleState, pod: PodInfo) -> Status | None:
        """Ask, and note the answer."""
        state_data = self.state_data(state, pod)
        return await self.run_point(state_data, "preFilter", self._call_pre_filter(state_data))

    async def _call_pre_filter(self, state_data: RemoteStateData) -> None:
        answer = await self.endpoint.call(
            "/v1/pre-filter",
            lambda: self.request_body(state_data),
            wire.PreFilterResponse,
            self.handle.nodes,
        )
        assert answer is not None
        allowed = (Code.SUCCESS, Code.SKIP, Code.UNSCHEDULABLE, Code.UNRESOLVABLE, Code.ERROR)
        status = wire.status_of("status", answer.status, *allowed)
        if status is not None and status.code == Code.ERROR:
            raise BadResponse(status.message)
        names = answer.nodes
        state_data.pre_filter = status if status or names is None else frozenset(names)

    def pre_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable
    ) -> Status | frozenset[str] | None:
        """Answer with what was fetched."""
        state_data = self.state_data(state, pod)
        return state_data.pre_filter if state_data.points else Status.skip()


class _RowRequests(RemotePlugin):
    """How Filter and Score ask."""

    async def request_rows(
        self,
        path: str,
        state_data: RemoteStateData,
        rows: Rows,
        unknown: Callable[[Snapshot, str, Rows], Rows],
        type_: type[A],
        take: Callable[[Rows, A], None],
    ) -> None:
        """Ask about those of the rows that are ``unknown``; hand them and the answer to ``take``.

        An answer that brings a new epoch leaves nothing known but what it says: so once more.
        """
        endpoint, asked = self.endpoint, rows

        def request_body() -> dict[str, Any] | None:
            nonlocal asked
            asked = unknown(endpoint.snapshot, endpoint.epoch, rows)
            if not len(asked):
                return None
            whole = len(asked) == endpoint.snapshot.size
            told = None if whole else wire.array(asked, endpoint.descriptor.arrays)
            return self.request_body(state_data, rows=told)

        for _ in range(_ROUNDS):
            epoch = endpoint.epoch
            answer = await endpoint.call(path, request_body, type_, self.handle.nodes)
            if answer is not None:
                take(asked, answer)
            if endpoint.epoch == epoch:
                return


class RemoteFilter(_RowRequests, FilterPlugin):
    """``POST /v1/filter``."""

    async def fetch_filter(
        self, state: CycleState, pod: PodInfo, rows: Rows | None
    ) -> Status | None:
        """Ask, and note the answer."""
        state_data = self.state_data(state, pod)
        return await self.run_point(state_data, "filter", self._call_filter(state_data, rows))

    async def _call_filter(self, state_data: RemoteStateData, rows: Rows | None) -> None:
        row_results = state_data.row_results
        await self.request_rows(
            "/v1/filter",
            state_data,
            np.arange(len(self.handle.nodes)) if rows is None else rows,
            row_results.rows_without_verdict,
            wire.FilterResponse,
            lambda asked, answer: self._take_verdicts(row_results, asked, answer),
        )

    def _take_verdicts(
        self, row_results: RowResults, asked: Rows, answer: wire.FilterResponse
    ) -> None:
        rejected = wire.int_array("rejected", answer.rejected)
        if answer.status is None:
            which = np.zeros(len(rejected), dtype=np.int64)
        else:
            which = wire.int_array("status", answer.status)
        if len(which) != len(rejected):
            raise BadResponse(f"status: {len(which)} entries for {len(rejected)} rejected rows")
        strange = rejected[~np.isin(rejected, asked)]
        if len(strange):
            first = strange[:3].tolist()
            raise BadResponse(f"rejected: {first} are not among the rows of the question")
        statuses = []
        for index, told in enumerate(answer.statuses):
            status = wire.status_of(f"statuses[{index}]", told, *REJECTIONS, Code.ERROR)
            assert status is not None
            statuses.append(status)
        if len(which) and not 0 <= which.min() <= which.max() < len(statuses):
            raise BadResponse(f"status: must be indices of the {len(statuses)} statuses")
        row_results.set_verdicts(asked, rejected, statuses, which, self.endpoint.snapshot.version)

    def filter_all(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable, verdicts: Verdicts
    ) -> None:
        """Answer with what was fetched, for any table made of the cluster's nodes."""
        state_data = self.state_data(state, pod)
        if "filter" in state_data.points:
            verdicts.merge(state_data.row_results.verdicts(_rows_in(self.handle.nodes, nodes)))


class RemoteScore(_RowRequests, ScorePlugin):
    """``POST /v1/score``: 0 to 100 a row, or any numbers, brought to that here."""

    async def fetch_score(self, state: CycleState, pod: PodInfo, rows: Rows) -> Status | None:
        """Ask, and note the answer."""
        state_data = self.state_data(state, pod)
        return await self.run_point(state_data, "score", self._call_score(state_data, rows))

    async def _call_score(self, state_data: RemoteStateData, rows: Rows) -> None:
        row_results = state_data.row_results
        await self.request_rows(
            "/v1/score",
            state_data,
            rows,
            row_results.rows_without_score,
            wire.ScoreResponse,
            lambda asked, answer: self._take_scores(row_results, asked, answer),
        )

    def _take_scores(
        self, row_results: RowResults, asked: Rows, answer: wire.ScoreResponse
    ) -> None:
        scores = wire.int_array("scores", answer.scores)
        if len(scores) != len(asked):
            raise BadResponse(f"scores: {len(scores)} entries for {len(asked)} rows")
        row_results.set_scores(asked, scores, self.endpoint.snapshot.version)

    def score_all(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> IntArray | int:
        """Answer with what was fetched; the same everywhere where nothing was."""
        state_data = self.state_data(state, pod)
        if "score" not in state_data.points:
            return 0
        return state_data.row_results.scores(_rows_in(self.handle.nodes, nodes))

    def normalize(self, state: CycleState, pod: PodInfo, scores: IntArray) -> IntArray:
        """Stretch to 100, as the descriptor says: the highest is the best, or the lowest."""
        best = self.endpoint.descriptor.normalize
        return scores if best == "none" else default_normalize(scores, best == "lowest")


def _rows_in(whole: NodeTable, nodes: NodeTable) -> Rows:
    """Return the rows that the nodes of a table made of ``whole`` have there."""
    if nodes is whole:
        return np.arange(len(whole))
    if isinstance(nodes, NodeTableView) and nodes.parent is whole:
        return nodes.parent_rows
    return np.array([whole.rows[node.name] for node in nodes], dtype=np.intp)
