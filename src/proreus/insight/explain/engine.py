"""Asks the scheduler's own plugins whether a pod would fit, without leaving a trace.

Each question begins with a new ``CycleState`` and PreFilter, and runs the Filter plugins of the
profile in force, nominated pods included, past the shared results: a changed pod must not push
those of real pods out of the cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from time import thread_time

import numpy as np

from proreus.base.errors import PluginError
from proreus.engine.runtime.dry_run import PreemptionDryRun
from proreus.engine.runtime.find_nodes import NodeSearch
from proreus.engine.runtime.node_points import run_filter_plugin
from proreus.engine.runtime.profile import Profile
from proreus.engine.runtime.scheduling_points import PreFilterOutcome, run_pre_filter
from proreus.framework.cluster_table import ClusterTable
from proreus.framework.cycle_state import CycleState
from proreus.framework.node_info import NodeInfo
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.framework.verdicts import Rows, Verdicts
from proreus.objects.node import Node

LIMIT_SECONDS = 0.1


class Engine:
    """The plugins of a profile, and the nodes as they are now. Most methods may raise
    ``PluginError``.
    """

    def __init__(
        self, profile: Profile, search: NodeSearch, limit_seconds: float = LIMIT_SECONDS
    ) -> None:
        """``limit_seconds``: of CPU time, after which ``out_of_time`` says to ask no more."""
        self._ends = thread_time() + limit_seconds
        self.profile = profile
        assert isinstance(profile.table, ClusterTable)
        self.table = profile.table
        self._search = search
        self.questions = 0
        """The number of runs of PreFilter."""

    @property
    def out_of_time(self) -> bool:
        """Return whether the questions have taken long enough: no pod is scheduled meanwhile."""
        return thread_time() > self._ends

    def _begin(self, pod: PodInfo) -> tuple[CycleState, PreFilterOutcome]:
        self.questions += 1
        state = CycleState()
        return state, run_pre_filter(self.profile, state, pod)

    def rejection(self, pod: PodInfo, row: int) -> Status | None:
        """Return why a pod does not fit a node; None if it does."""
        state, outcome = self._begin(pod)
        if outcome.status is not None:
            return outcome.status
        if outcome.names is not None and self.table[row].name not in outcome.names:
            plugins = " ".join(outcome.plugins_with_names)
            return Status.unresolvable(f"node(s) didn't satisfy plugin(s) [{plugins}]").with_plugin(
                outcome.plugins_with_names[0]
            )
        return self._search.check_node(self.profile, state, pod, row)

    def rejection_on(self, node: Node, pod: PodInfo, row: int) -> Status | None:
        """Return why a pod does not fit a node that is changed to ``node``; None if it does.

        The columns have the change while the question is asked, so that plugins which look across
        nodes see it too. Nothing is scheduled meanwhile, and shared results are not asked.
        """
        with self.changed_to(row, node):
            return self.rejection(pod, row)

    @contextmanager
    def changed_to(self, row: int, node: Node) -> Iterator[None]:
        """Have another node in a row for the length of a ``with`` block."""
        info = self.table[row]
        before = info.node
        assert before is not None
        if node is before:
            yield
            return
        try:
            self._put(info, node)
            yield
        finally:
            self._put(info, before)

    def _put(self, info: NodeInfo, node: Node) -> None:
        info.set_node(node)
        # The row is recorded as changed, both times, so that readers evaluate it again.
        self.table.update_node(info)

    def rejection_without(
        self, pod: PodInfo, row: int, without: Sequence[PodInfo]
    ) -> Status | None:
        """Return why a pod does not fit a node from which some pods are gone; None if it does."""
        state, outcome = self._begin(pod)
        # PreFilter's Unschedulable may be due to those very pods; the dry run then asks Filter.
        if outcome.status is not None:
            return outcome.status
        if outcome.names is not None and self.table[row].name not in outcome.names:
            return Status.unresolvable("excluded by PreFilter")
        dry_run = PreemptionDryRun(
            self.profile.filter,
            self.profile.pre_filter,
            self._search.nominated,
            self.table,
            state,
            pod,
            np.array([row], dtype=np.intp),
            [list(without)],
        )
        verdicts = dry_run.remove_all_victims()
        return dry_run.error(0) or verdicts.status(0)

    def rejections_beside(
        self, pod: PodInfo, node: str, victims: Sequence[str]
    ) -> Mapping[str, str]:
        """Return, by victim, why the pod would not fit if only the other victims were gone.

        ``victims``: ``namespace/name``. Left out are victims that are gone, and victims beside
        which the pod would fit by now.
        """
        row = self.table.rows.get(node)
        if row is None:
            return {}
        present = {other.key: other for other in self.table[row].pods.values()}
        left = [present[key] for key in victims if key in present]
        found: dict[str, str] = {}
        for victim in left:
            if self.out_of_time:
                break
            others = [other for other in left if other is not victim]
            with suppress(PluginError):
                status = (
                    self.rejection_without(pod, row, others) if others else self.rejection(pod, row)
                )
                if status is not None:
                    found[victim.key] = f"{', '.join(status.reasons)} ({status.plugin})"
        return found

    def rejections(self, pod: PodInfo) -> tuple[Status | None, list[tuple[str, Verdicts]]]:
        """Return PreFilter's rejection, or each Filter plugin's verdicts of all nodes.

        By itself: also for nodes that an earlier plugin rejects.
        """
        state, outcome = self._begin(pod)
        if outcome.status is not None:
            return outcome.status, []
        found = []
        if outcome.names is not None:
            absent = Verdicts(self.table.size, outcome.plugins_with_names[0])
            mask = np.ones(self.table.size, dtype=np.bool_)
            mask[self.table.rows_of(outcome.names)] = False
            absent.reject(mask, "excluded by PreFilter", unresolvable=True)
            found.append((outcome.plugins_with_names[0], absent))
        for plugin in self.profile.filter:
            if plugin.name in state.skip_filter:
                continue
            verdicts = Verdicts(self.table.size, plugin.name)
            run_filter_plugin(plugin, state, pod, self.table, verdicts, keep_errors=True)
            found.append((plugin.name, verdicts))
        return None, found

    def fitting_rows(self, found: list[tuple[str, Verdicts]]) -> Rows:
        """Return the rows that none of the plugins rejects, nominated pods left out."""
        passed = np.ones(self.table.size, dtype=np.bool_)
        for _, verdicts in found:
            passed &= verdicts.passed()
        return np.flatnonzero(passed)
