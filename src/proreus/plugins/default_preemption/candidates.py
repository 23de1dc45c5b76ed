"""The dry run of preemption: on which nodes would the pod fit, and at whose expense.

Many nodes are tried in lockstep: all less important pods are taken off all of them, the filters
judge them at once, then the victims are reprieved step by step, one pod on each node a step.
How that is done fast, and apart for filters that look across nodes, is the business of the trials.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from proreus.framework.cycle_state import CycleState
from proreus.framework.handle import Handle, PreemptionDryRun
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Code
from proreus.framework.verdicts import BoolArray, Rows, Verdicts
from proreus.plugins.default_preemption.budgets import DisruptionBudgets
from proreus.plugins.default_preemption.dry_run_cache import Candidate, DryRunCache
from proreus.plugins.default_preemption.pods_by_priority import PodsByPriority, sorted_by_importance

NO_VICTIMS = "No preemption victims found for incoming pod"

_MIN_BATCH = 64
"""So many nodes are tried together at least, though fewer candidates are wanted still."""


class DryRun:
    """Tries nodes for one pod. ``verdicts`` and ``errors`` tell why nodes are no candidates."""

    def __init__(
        self,
        handle: Handle,
        state: CycleState,
        pod: PodInfo,
        budgets: DisruptionBudgets,
        pods_by_priority: PodsByPriority,
        dry_run_cache: DryRunCache,
    ) -> None:
        self._handle = handle
        self._state = state
        self._pod = pod
        self._budgets = budgets
        self._pods_by_priority = pods_by_priority
        self._dry_run_cache = dry_run_cache
        self.verdicts = Verdicts(len(handle.nodes))
        """By row of the cluster's table."""
        self.errors: list[str] = []
        self._potential_rows: Rows = np.empty(0, dtype=np.intp)

    def candidates(self, rows: Rows, wanted: int) -> list[Candidate]:
        """Try rows in order until enough candidates are found, one of them without violations.

        Returns those without violations first.
        """
        self._pods_by_priority.refresh()
        potential_rows = self._pods_by_priority.has_lower_priority_pods(rows, self._pod.priority)
        self.verdicts.reject(rows[~potential_rows], NO_VICTIMS, unresolvable=True)
        self._potential_rows = rows = rows[potential_rows]
        non_violating: list[Candidate] = []
        violating: list[Candidate] = []
        first = 0
        while first < len(rows):
            batch = max(wanted - len(non_violating) - len(violating), _MIN_BATCH)
            for candidate in self._dry_run_batch(rows[first : first + batch]):
                (violating if candidate.pdb_violations else non_violating).append(candidate)
                if non_violating and len(non_violating) + len(violating) >= wanted:
                    return non_violating + violating
            first += batch
        return non_violating + violating

    def _dry_run_batch(self, rows: Rows) -> Iterator[Candidate]:
        """Try some rows together, but for those whose outcome is known."""
        rows_to_try = self._dry_run_cache.rows_to_try(rows)
        if len(rows_to_try) and self._dry_run_cache.reusable:
            self._dry_run_ahead(rows_to_try)
            rows_to_try = self._dry_run_cache.rows_to_try(rows)
        if len(rows_to_try):
            self._dry_run(rows_to_try)
        self._dry_run_cache.reject_failed(rows, self.verdicts)
        yield from self._dry_run_cache.candidates(rows)

    def _dry_run_ahead(self, rows: Rows) -> None:
        """Try rows, and with them others that the next preemptors will want to know of.

        One more row costs next to nothing, and one more trial a lot. Errors do not count yet: they
        may be those of the others, and rows that ended in one are still unknown.
        """
        others = np.setdiff1d(self._dry_run_cache.rows_to_try(self._potential_rows), rows)[
            :_MIN_BATCH
        ]
        errors = len(self.errors)
        self._dry_run(np.concatenate((rows, others)))
        del self.errors[errors:]

    def _dry_run(self, rows: Rows) -> None:
        """Try rows and note how that ended; what ends in an error is known of none."""
        potential_victims: list[list[PodInfo]] = []
        violating: list[int] = []
        for row in rows.tolist():
            less = self._pods_by_priority.lower_priority_pods(row, self._pod.priority)
            first, others = self._budgets.filter_pods_with_pdb_violation(less)
            potential_victims.append(first + others if first else others)
            violating.append(len(first))
        nodes = self._handle.nodes
        for index, victim_indices in enumerate(self._victims(rows, potential_victims)):
            if victim_indices is None:
                continue
            pods, violations = potential_victims[index], violating[index]
            row = int(rows[index])
            name = nodes[row].name
            if not victim_indices:
                self.errors.append(f'expected at least one victim pod on node "{name}"')
                continue
            victim_pods = [pods[number] for number in victim_indices]
            if 0 < violations < len(pods):
                victim_pods = sorted_by_importance(victim_pods)
            violated = sum(number < violations for number in victim_indices)
            self._dry_run_cache.note_candidate(row, Candidate(name, tuple(victim_pods), violated))

    def _victims(
        self, rows: Rows, potential_victims: list[list[PodInfo]]
    ) -> list[list[int] | None]:
        """Return which of its potential victims each row has to lose; None where none will do.

        They are put back one by one, on all rows alike, as long as the pod still fits.
        """
        preemption_dry_run = self._handle.dry_run_preemption(
            self._state, self._pod, rows, potential_victims
        )
        fits = self._fitting(rows, preemption_dry_run)
        counts = np.diff(preemption_dry_run.first)
        victims: list[list[int] | None] = [[] if fit else None for fit in fits.tolist()]
        for step in range(int(counts.max())):
            left = np.flatnonzero(fits & (counts > step))
            stays = preemption_dry_run.reprieve(preemption_dry_run.first[left] + step)
            for index in left[~stays].tolist():
                victim_indices = victims[index]
                assert victim_indices is not None
                victim_indices.append(step)
                error = preemption_dry_run.error(index)
                if error is not None:
                    self.errors.append(error.message)
                    victims[index], fits[index] = None, False
        return victims

    def _fitting(self, rows: Rows, preemption_dry_run: PreemptionDryRun) -> BoolArray:
        """Return on which rows the pod fits without its potential victims."""
        verdicts = preemption_dry_run.remove_all_victims()
        for status in verdicts.counts():
            failing = np.flatnonzero(verdicts.ids == verdicts.id_of(status))
            if status.code == Code.ERROR:
                self.errors.append(status.message)
            else:
                self._dry_run_cache.note_failures(rows[failing], status)
        return verdicts.passed()
