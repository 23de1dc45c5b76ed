"""PreFilter, Filter and Score in one request for all nodes without cached results.

Dry runs (preemption, nominated pods) make no requests; they use the row's present result. Hence
preemption cannot help a pod on a node that a remote plugin rejects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from proreus.framework.cycle_state import CycleState
from proreus.framework.node_table import NodeTable
from proreus.framework.node_table_views import rows_in
from proreus.framework.plugin import FilterPlugin, PreFilterPlugin, ScorePlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.scores import default_normalize
from proreus.framework.status import Code, Status
from proreus.framework.verdicts import IntArray, Rows, Verdicts
from proreus.remote import wire
from proreus.remote.plugin import REJECTIONS, RemotePlugin, RemoteStateData, at_point
from proreus.remote.row_results import RowResults
from proreus.remote.snapshot import Snapshot
from proreus.remote.wire import BadResponse

A = TypeVar("A", bound=wire.Response)

_ROUNDS = 3
"""The most requests for the same rows while each response brings a new epoch."""


class RemotePreFilter(RemotePlugin, PreFilterPlugin):
    """``POST /v1/pre-filter``."""

    @at_point("preFilter")
    async def fetch_pre_filter(self, state_data: RemoteStateData, pod: PodInfo) -> Status | None:
        """Make the request and keep the response."""
        response = await self.endpoint.call(
            "/v1/pre-filter",
            lambda: self.request_body(state_data),
            wire.PreFilterResponse,
            self.handle.nodes,
        )
        assert response is not None
        allowed = (Code.SUCCESS, Code.SKIP, Code.UNSCHEDULABLE, Code.UNRESOLVABLE, Code.ERROR)
        status, names = wire.verdict_of(response, *allowed), response.nodes
        state_data.pre_filter = status if status or names is None else frozenset(names)
        return None

    def pre_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable
    ) -> Status | frozenset[str] | None:
        """Return the fetched result."""
        state_data = self.state_data(state, pod)
        return state_data.pre_filter if state_data.points else Status.skip()


class _RowRequests(RemotePlugin):
    """Requests about rows, for Filter and Score."""

    async def request_rows(
        self,
        path: str,
        state_data: RemoteStateData,
        rows: Rows,
        unknown: Callable[[Snapshot, str, Rows], Rows],
        type_: type[A],
        take: Callable[[Rows, A], None],
    ) -> None:
        """Request the ``unknown`` ones of ``rows``; call ``take`` with them and the response.

        A response with a new epoch invalidates all earlier results, so that the request is
        repeated for the other rows.
        """
        endpoint, requested = self.endpoint, rows

        def request_body() -> dict[str, Any] | None:
            nonlocal requested
            requested = unknown(endpoint.sync.snapshot, endpoint.epoch, rows)
            if not len(requested):
                return None
            whole = len(requested) == endpoint.sync.snapshot.size
            encoded = None if whole else wire.array(requested, endpoint.descriptor.arrays)
            return self.request_body(state_data, rows=encoded)

        for _ in range(_ROUNDS):
            epoch = endpoint.epoch
            response = await endpoint.call(path, request_body, type_, self.handle.nodes)
            if response is not None:
                take(requested, response)
            if endpoint.epoch == epoch:
                return


class RemoteFilter(_RowRequests, FilterPlugin):
    """``POST /v1/filter``."""

    @at_point("filter")
    async def fetch_filter(
        self, state_data: RemoteStateData, pod: PodInfo, rows: Rows | None
    ) -> Status | None:
        """Make the request and keep the response."""
        row_results = state_data.row_results
        await self.request_rows(
            "/v1/filter",
            state_data,
            np.arange(len(self.handle.nodes)) if rows is None else rows,
            row_results.rows_without_verdict,
            wire.FilterResponse,
            lambda requested, response: self._take_verdicts(row_results, requested, response),
        )
        return None

    def _take_verdicts(
        self, row_results: RowResults, requested: Rows, response: wire.FilterResponse
    ) -> None:
        rejected = wire.int_array("rejected", response.rejected)
        if response.status is None:
            which = np.zeros(len(rejected), dtype=np.int64)
        else:
            which = wire.int_array("status", response.status)
        if len(which) != len(rejected):
            raise BadResponse(f"status: {len(which)} entries for {len(rejected)} rejected rows")
        unexpected = rejected[~np.isin(rejected, requested)]
        if len(unexpected):
            first = unexpected[:3].tolist()
            raise BadResponse(f"rejected: {first} are not among the requested rows")
        statuses = []
        for index, body in enumerate(response.statuses):
            status = wire.status_of(f"statuses[{index}]", body, *REJECTIONS, Code.ERROR)
            assert status is not None
            statuses.append(status)
        if len(which) and not 0 <= which.min() <= which.max() < len(statuses):
            raise BadResponse(f"status: must be indices of the {len(statuses)} statuses")
        row_results.set_verdicts(
            requested, rejected, statuses, which, self.endpoint.sync.snapshot.version
        )

    def filter_all(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable, verdicts: Verdicts
    ) -> None:
        """Merge the fetched verdicts, for any table made of the cluster's nodes."""
        state_data = self.state_data(state, pod)
        if "filter" in state_data.points:
            verdicts.merge(state_data.row_results.verdicts(rows_in(self.handle.nodes, nodes)))


class RemoteScore(_RowRequests, ScorePlugin):
    """``POST /v1/score``: one score per row, 0 to 100 or normalised to that here."""

    @at_point("score")
    async def fetch_score(
        self, state_data: RemoteStateData, pod: PodInfo, rows: Rows
    ) -> Status | None:
        """Make the request and keep the response."""
        row_results = state_data.row_results
        await self.request_rows(
            "/v1/score",
            state_data,
            rows,
            row_results.rows_without_score,
            wire.ScoreResponse,
            lambda requested, response: self._take_scores(row_results, requested, response),
        )
        return None

    def _take_scores(
        self, row_results: RowResults, requested: Rows, response: wire.ScoreResponse
    ) -> None:
        scores = wire.int_array("scores", response.scores)
        if len(scores) != len(requested):
            raise BadResponse(f"scores: {len(scores)} entries for {len(requested)} rows")
        row_results.set_scores(requested, scores, self.endpoint.sync.snapshot.version)

    def score_all(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> IntArray | int:
        """Return the fetched scores; 0 for all rows if none were fetched."""
        state_data = self.state_data(state, pod)
        if "score" not in state_data.points:
            return 0
        return state_data.row_results.scores(rows_in(self.handle.nodes, nodes))

    def normalize(self, state: CycleState, pod: PodInfo, scores: IntArray) -> IntArray:
        """Scale scores to 0..100 if the descriptor says so; the highest or the lowest is best."""
        best = self.endpoint.descriptor.normalize
        return scores if best == "none" else default_normalize(scores, best == "lowest")
