"""The scheduling cycle of dry runs, which lets other work have turns within an attempt.

A pod of a kind that has not been asked about yet is filtered on all nodes, plugin by plugin, and
that may take longer than the event loop should wait. Nobody else changes the copy, so an attempt
may pause anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from proreus.base.errors import PluginError
from proreus.engine.cycles.attempt import Attempt
from proreus.engine.cycles.scheduling_cycle import SchedulingCycle
from proreus.engine.runtime.find_nodes import FeasibleNodes, PodSignatures
from proreus.engine.runtime.prioritize_nodes import ComputedScores
from proreus.engine.runtime.profile import Profile
from proreus.engine.runtime.scheduling_points import PreFilterOutcome
from proreus.engine.runtime.select_host import NodeScores
from proreus.framework.cycle_state import CycleState
from proreus.framework.plugin import FilterPlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.verdicts import Rows, Verdicts
from proreus.insight.dry_run.slices import Slices

ROWS_AT_ONCE = 256
"""The number of nodes that are filtered one by one between two looks at the clock."""


class DryRunCycle(SchedulingCycle):
    """Chooses a node for a pod, with pauses."""

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        self.slices = Slices()
        self._found: FeasibleNodes | None = None
        """Nodes found in parts, for the search of the same attempt."""

    async def _pre_filter(self, attempt: Attempt) -> PreFilterOutcome:
        outcome = await super()._pre_filter(attempt)
        await self.slices.pause_if_due()
        return outcome

    async def _find(self, attempt: Attempt, outcome: PreFilterOutcome) -> FeasibleNodes:
        profile, pod = attempt.profile, attempt.pod
        filters = [one for one in profile.filter if one.name not in attempt.state.skip_filter]
        signatures = PodSignatures(pod)
        signatures.sign(filters)
        per_node = any(signatures[one] is None and not one.columnar_filter for one in filters)
        if per_node:
            self._found = await self._find_in_parts(attempt, outcome, signatures)
        elif outcome.names is None:
            await self._fill_results(attempt, filters, signatures)
        try:
            found = await super()._find(attempt, outcome)
        finally:
            self._found = None
        await self.slices.pause_if_due()
        return found

    def search(
        self,
        profile: Profile,
        state: CycleState,
        pod: PodInfo,
        names: frozenset[str] | None,
        placement: Rows | None = None,
    ) -> FeasibleNodes:
        """Return the nodes found in parts; without them filter all nodes, or the named ones."""
        if self._found is not None:
            return self._found
        return super().search(profile, state, pod, names, placement)

    async def _find_in_parts(
        self, attempt: Attempt, outcome: PreFilterOutcome, signatures: PodSignatures
    ) -> FeasibleNodes:
        """Filter node by node until enough are found, as ``NodeSearch.find`` does."""
        profile, state, pod = attempt.profile, attempt.state, attempt.pod
        table, search = profile.table, self.node_search
        if outcome.names is None:
            order, enough = search.order(), search.num_nodes_to_find(profile)
        else:
            order, enough = table.rows_of(outcome.names), len(outcome.names)
        verdicts = Verdicts(table.size)
        visited: list[int] = []
        feasible = 0
        for start in range(0, len(order), ROWS_AT_ONCE):
            rows = order[start : start + ROWS_AT_ONCE]
            part = search.find(profile, state, pod, frozenset(table[row].name for row in rows))
            passed = frozenset(part.rows.tolist())
            for row in rows.tolist():
                if row in passed and feasible == enough:
                    break
                feasible += row in passed
                visited.append(row)
            verdicts.merge(part.verdicts)
            if len(visited) < start + len(rows):
                break
            await self.slices.pause_if_due()
        return FeasibleNodes(verdicts, np.array(visited, dtype=np.intp), None, signatures)

    async def _prioritize_nodes(
        self, attempt: Attempt, found: FeasibleNodes, computed: ComputedScores | None
    ) -> NodeScores:
        totals = await super()._prioritize_nodes(attempt, found, computed)
        await self.slices.pause_if_due()
        return totals

    async def _fill_results(
        self, attempt: Attempt, filters: Sequence[FilterPlugin], signatures: PodSignatures
    ) -> None:
        """Bring the shared results of each Filter plugin up to date; the search will find them."""
        profile, state, pod = attempt.profile, attempt.state, attempt.pod
        for plugin in filters:
            signature = signatures[plugin]
            if signature is None:
                continue
            results = profile.equivalence_cache.results(plugin, signature)
            try:
                for _ in results.refresh_filter_in_parts(state, pod, profile.table, ROWS_AT_ONCE):
                    await self.slices.pause_if_due()
            except PluginError:
                return  # the search fails in the same way, and its caller reports it
            await self.slices.pause_if_due()
