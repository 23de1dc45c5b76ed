"""The scheduling cycle of dry runs, which lets other work have turns within an attempt.

A pod of a kind that has not been asked about yet is filtered on all nodes, plugin by plugin, and
that may take longer than the event loop should wait. Nobody else changes the copy, so an attempt
may pause anywhere.
"""

from __future__ import annotations

from typing import Any

from proreus.dry_run.slices import Slices
from proreus.errors import PluginError
from proreus.runtime.find_nodes import FeasibleNodes
from proreus.runtime.plugin_results import PodSignatures
from proreus.runtime.prioritize_nodes import ComputedScores
from proreus.runtime.scheduling_points import PreFilterOutcome
from proreus.runtime.select_host import NodeScores
from proreus.scheduler.attempt import Attempt
from proreus.scheduler.scheduling_cycle import SchedulingCycle


class DryRunCycle(SchedulingCycle):
    """Chooses a node for a pod, with pauses."""

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        self.slices = Slices()

    async def _pre_filter(self, attempt: Attempt) -> PreFilterOutcome:
        outcome = await super()._pre_filter(attempt)
        await self.slices.pause_if_due()
        return outcome

    async def _find(self, attempt: Attempt, outcome: PreFilterOutcome) -> FeasibleNodes:
        if outcome.names is None:
            await self._fill_results(attempt)
        found = await super()._find(attempt, outcome)
        await self.slices.pause_if_due()
        return found

    async def _prioritize_nodes(
        self, attempt: Attempt, found: FeasibleNodes, computed: ComputedScores | None
    ) -> NodeScores:
        totals = await super()._prioritize_nodes(attempt, found, computed)
        await self.slices.pause_if_due()
        return totals

    async def _fill_results(self, attempt: Attempt) -> None:
        """Bring the shared results of each Filter plugin up to date; the search will find them."""
        profile, state, pod = attempt.profile, attempt.state, attempt.pod
        filters = [one for one in profile.filter if one.name not in state.skip_filter]
        signatures = PodSignatures(pod)
        signatures.sign(filters)
        for plugin in filters:
            signature = signatures[plugin]
            if signature is None:
                continue
            results = profile.equivalence_cache.results(plugin, signature)
            try:
                results.refresh_filter(state, pod, profile.table)
            except PluginError:
                return  # the search fails in the same way, and its caller knows what to say
            await self.slices.pause_if_due()
