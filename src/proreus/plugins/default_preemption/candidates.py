"""Candidates for preemption: the dry run that finds them.

``DryRun`` is kube-scheduler's DryRunPreemption and SelectVictimsOnNode, for many nodes at a time.
All lower-priority pods are removed from all rows, filters evaluate the rows at once, then the
potential victims are reprieved in lockstep, one pod on each row a step.

Worked example of the order: potential victims ``a`` (priority 30), ``b`` (20) and ``c`` (10), of
which only ``c`` would violate a PodDisruptionBudget. They are reprieved as ``c``, ``a``, ``b``. If
there is capacity for one, ``c`` stays, and the victims are ``a`` and ``b`` without a violation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set

import numpy as np

from proreus.base.errors import PluginError
from proreus.framework.cycle_state import CycleState
from proreus.framework.handle import Handle, PreemptionDryRun
from proreus.framework.node_info import NodeInfo
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Code, Status
from proreus.framework.verdicts import BoolArray, Rows, Verdicts
from proreus.plugins.default_preemption.domain_victims import (
    DomainVictim,
    DomainVictims,
    NodeNotFound,
)
from proreus.plugins.default_preemption.dry_run_cache import DryRunCache
from proreus.plugins.default_preemption.potential_victims import (
    NO_VICTIMS,
    DisruptionBudgets,
    PodsByPriority,
    sorted_by_importance,
)
from proreus.plugins.default_preemption.select_candidate import Candidate
from proreus.plugins.default_preemption.unit_dry_run import (
    UnitDryRun,
    candidate_of_units,
)

# A dry run costs much by itself and little for each row more, so that a batch has this many rows
# even when fewer candidates are missing.
_MIN_BATCH = 64

ChoosePotentialVictims = Callable[[PodInfo, NodeInfo], Sequence[PodInfo] | Status]
"""See ``DefaultPreemption.potential_victims``."""

SelectVictims = Callable[[CycleState, PodInfo, NodeInfo, DisruptionBudgets], Candidate | Status]
"""See ``DefaultPreemption.select_victims_on_node``."""


class DryRun:
    """Finds the candidates for one pod.

    ``choose`` says which pods of a node are potential victims, ``select`` finds the victims on a
    node; None: as kube-scheduler does. ``units``: finds the units in which pods of groups are
    evicted; None: each pod by itself.

    ``verdicts`` (by row of the cluster's table) and ``errors``: why other rows are no candidates.
    """

    def __init__(
        self,
        handle: Handle,
        state: CycleState,
        pod: PodInfo,
        budgets: DisruptionBudgets,
        pods_by_priority: PodsByPriority,
        dry_run_cache: DryRunCache,
        *,
        choose: ChoosePotentialVictims | None = None,
        select: SelectVictims | None = None,
        units: DomainVictims | None = None,
    ) -> None:
        self._handle = handle
        self._state = state
        self._pod = pod
        self._budgets = budgets
        self._pods_by_priority = pods_by_priority
        self._dry_run_cache = dry_run_cache
        self.verdicts = Verdicts(len(handle.nodes))
        self.errors: list[str] = []
        self._choose = choose
        self._select = select
        self._units = units
        self._rows_with_groups: Set[int] = frozenset()
        self._potential_rows: Rows = np.empty(0, dtype=np.intp)

    def candidates(self, rows: Rows, wanted: int) -> list[Candidate]:
        """Return candidates among rows, those without PDB violations first.

        Rows are dry-run in the order given, until there are ``wanted`` candidates of which one at
        least violates no budget, or until no row is left (DryRunPreemption).
        """
        self._pods_by_priority.refresh()
        if self._units is not None:
            self._rows_with_groups = self._pods_by_priority.rows_with_groups()
        potential_rows = np.ones(len(rows), dtype=np.bool_)
        if self._choose is None and self._select is None:
            potential_rows = self._rows_with_victims(rows)
        self.verdicts.reject(rows[~potential_rows], NO_VICTIMS, unresolvable=True)
        self._potential_rows = rows = rows[potential_rows]
        non_violating: list[Candidate] = []
        violating: list[Candidate] = []
        first = 0
        while first < len(rows):
            batch = max(wanted - len(non_violating) - len(violating), _MIN_BATCH)
            for candidate in self._dry_run_batch(rows[first : first + batch]):
                (violating if candidate.pdb_violations else non_violating).append(candidate)
                # The rest of the batch is dropped, as if it had not been dry-run: more candidates
                # than wanted would change which one is picked.
                if non_violating and len(non_violating) + len(violating) >= wanted:
                    return non_violating + violating
            first += batch
        return non_violating + violating

    def _rows_with_victims(self, rows: Rows) -> BoolArray:
        potential_rows = self._pods_by_priority.has_lower_priority_pods(rows, self._pod.priority)
        if self._rows_with_groups:
            # The priority that counts there is that of the groups.
            potential_rows |= np.isin(rows, list(self._rows_with_groups))
        return potential_rows

    def _dry_run_batch(self, rows: Rows) -> Iterator[Candidate]:
        """Yield the candidates among some rows, dry-running those that are not in the cache."""
        rows_to_try = self._dry_run_cache.rows_to_try(rows)
        if len(rows_to_try) and self._dry_run_cache.reusable:
            self._dry_run_ahead(rows_to_try)
            # Rows that ended in an error are still there; their errors have to be reported now.
            rows_to_try = self._dry_run_cache.rows_to_try(rows)
        if len(rows_to_try):
            self._dry_run(rows_to_try)
        self._dry_run_cache.reject_failed(rows, self.verdicts)
        yield from self._dry_run_cache.candidates(rows)

    def _dry_run_ahead(self, rows: Rows) -> None:
        """Dry-run rows along with others that the next preemptors with this key will need."""
        others = np.setdiff1d(self._dry_run_cache.rows_to_try(self._potential_rows), rows)[
            :_MIN_BATCH
        ]
        errors = len(self.errors)
        self._dry_run(np.concatenate((rows, others)))
        # Errors are dropped: they may be about `others`, which kube-scheduler would not have
        # visited. A row with an error is not cached, and is dry-run again if needed.
        del self.errors[errors:]

    def _dry_run(self, rows: Rows) -> None:
        """Dry-run rows and cache the results, apart from errors."""
        if self._rows_with_groups:
            with_groups = [row for row in rows.tolist() if row in self._rows_with_groups]
            self._dry_run_units(with_groups)
            rows = np.setdiff1d(rows, with_groups, assume_unique=True)
            if not len(rows):
                return
        if self._select is not None:
            for row in rows.tolist():
                self._dry_run_selection(row, self._select)
            return
        tried: list[int] = []
        potential_victims: list[list[PodInfo]] = []
        violating: list[int] = []
        for row in rows.tolist():
            potential = self._potential_victims(row)
            if potential is None:
                continue
            tried.append(row)
            first, others = self._budgets.filter_pods_with_pdb_violation(potential)
            # Reprieved in this order, so that as few budgets as possible are violated.
            potential_victims.append(first + others if first else others)
            violating.append(len(first))
        nodes = self._handle.nodes
        for index, victim_indices in enumerate(self._victims(tried, potential_victims)):
            if victim_indices is None:
                continue
            pods, violations = potential_victims[index], violating[index]
            row = tried[index]
            name = nodes[row].name
            # The pod was rejected with all pods in place and fits now that all are back: a filter
            # contradicts itself. kube-scheduler reports the same error.
            if not victim_indices:
                self.errors.append(f'expected at least one victim pod on node "{name}"')
                continue
            victim_pods = [pods[number] for number in victim_indices]
            # With one group only, the order of the reprieve is the order of importance already.
            if 0 < violations < len(pods) or not self._budgets.by_importance:
                victim_pods = self._by_importance(victim_pods, row)
            violated = sum(number < violations for number in victim_indices)
            self._dry_run_cache.note_candidate(row, Candidate(name, tuple(victim_pods), violated))

    def _dry_run_selection(self, row: int, select: SelectVictims) -> None:
        try:
            found = select(self._state, self._pod, self._handle.nodes[row], self._budgets)
        except PluginError as error:
            self.errors.append(str(error))
            return
        self._note(row, found)

    def _note(self, row: int, found: Candidate | Status) -> None:
        if isinstance(found, Candidate):
            self._dry_run_cache.note_candidate(row, found)
        elif found.code == Code.ERROR:
            self.errors.append(found.message)
        else:
            self._dry_run_cache.note_failures(np.array([row], dtype=np.intp), found)

    def _potential_victims(self, row: int) -> list[PodInfo] | None:
        """Return the pods that may be evicted from a row; None if it is no candidate."""
        if self._choose is None:
            return self._pods_by_priority.lower_priority_pods(row, self._pod.priority)
        found = self._choose(self._pod, self._handle.nodes[row])
        if isinstance(found, Status):
            self._note(row, found)
            return None
        return list(found)

    def _dry_run_units(self, rows: Sequence[int]) -> None:
        """Dry-run rows with pods of groups."""
        assert self._units is not None
        single_pods: dict[int, list[DomainVictim]] = {}
        for row in rows:
            try:
                units = self._units.of_nodes([self._handle.nodes[row]])
                if all(unit.is_single_pod for unit in units):
                    single_pods[row] = units
                    continue
                dry_run = UnitDryRun(self._handle, self._state, self._pod, row)
                self._note_units(row, dry_run.select_victims(units, self._budgets), units)
            except (NodeNotFound, PluginError) as error:
                self.errors.append(str(error))
        if single_pods:
            self._dry_run_single_pods(single_pods)

    def _dry_run_single_pods(self, units_by_row: Mapping[int, list[DomainVictim]]) -> None:
        """Dry-run rows where each pod may be evicted by itself, though pods of groups are there."""
        rows, potential, violating = [], [], []
        for row, units in units_by_row.items():
            lower, violations = self._budgets.reprieve_order(
                unit for unit in units if unit.priority < self._pod.priority
            )
            if not lower:
                self._note_units(row, Status.unresolvable(NO_VICTIMS))
                continue
            rows.append(row)
            potential.append(lower)
            violating.append(violations)
        pods = [[unit.placed[0].pod for unit in units] for units in potential]
        for index, indices in enumerate(self._victims(rows, pods)):
            if indices is not None:
                name = self._handle.nodes[rows[index]].name
                victims = [potential[index][number] for number in indices]
                self._note_units(rows[index], candidate_of_units(name, victims, violating[index]))

    def _note_units(
        self, row: int, found: Candidate | Status, units: Sequence[DomainVictim] = ()
    ) -> None:
        if isinstance(found, Status) and found.code == Code.ERROR:
            self.errors.append(found.message)
            return
        groups = tuple(group for unit in units for group in unit.groups)
        self._dry_run_cache.note_with_groups(row, found, groups)

    def _by_importance(self, victims: list[PodInfo], row: int) -> list[PodInfo]:
        if not self._pods_by_priority.sampled_once:
            return sorted_by_importance(victims, sampled_once=False)
        # The start times that were sampled when the node's pods were listed decide again.
        lower = self._pods_by_priority.lower_priority_pods(row, self._pod.priority)
        chosen = {pod.uid for pod in victims}
        return [pod for pod in lower if pod.uid in chosen]

    def _victims(
        self, row_numbers: list[int], potential_victims: list[list[PodInfo]]
    ) -> list[list[int] | None]:
        """Return for each row the indices of its potential victims that have to be evicted.

        None: the pod does not fit even without all of them, or a plugin failed.
        """
        if not row_numbers:
            return []
        rows = np.array(row_numbers, dtype=np.intp)
        preemption_dry_run = self._handle.dry_run_preemption(
            self._state, self._pod, rows, potential_victims
        )
        fits = self._fitting(rows, preemption_dry_run)
        counts = np.diff(preemption_dry_run.first)
        victims: list[list[int] | None] = [[] if fit else None for fit in fits.tolist()]
        # The n-th step reprieves the n-th potential victim of every row that has that many. Rows
        # do not depend on each other, so that each sees the same sequence as if it were alone.
        for step in range(int(counts.max())):
            left = np.flatnonzero(fits & (counts > step))
            stays = preemption_dry_run.reprieve(preemption_dry_run.first[left] + step)
            for index in left[~stays].tolist():
                victim_indices = victims[index]
                assert victim_indices is not None
                victim_indices.append(step)
                # An error rejects the row as well; kube-scheduler then gives the node up.
                error = preemption_dry_run.error(index)
                if error is not None:
                    self.errors.append(error.message)
                    victims[index], fits[index] = None, False
        return victims

    def _note_failures(self, rows: Rows, status: Status) -> None:
        if self._rows_with_groups.isdisjoint(rows.tolist()):
            self._dry_run_cache.note_failures(rows, status)
            return
        # Which pods stay there depends on the priorities of groups: any change drops these rows.
        for row in rows.tolist():
            self._note_units(row, status)

    def _fitting(self, rows: Rows, preemption_dry_run: PreemptionDryRun) -> BoolArray:
        """Return on which rows the pod fits without its potential victims."""
        verdicts = preemption_dry_run.remove_all_victims()
        for status in verdicts.counts():
            failing = np.flatnonzero(verdicts.ids == verdicts.id_of(status))
            if status.code == Code.ERROR:
                self.errors.append(status.message)
            else:
                self._note_failures(rows[failing], status)
        return verdicts.passed()
