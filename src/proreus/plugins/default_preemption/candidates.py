"""Candidates for preemption: the dry run that finds them.

``DryRun`` is kube-scheduler's DryRunPreemption and SelectVictimsOnNode, for many nodes at a time.
All lower-priority pods are removed from all rows, filters evaluate the rows at once, then the
potential victims are reprieved in lockstep, one pod on each row a step.

Worked example of the order: potential victims ``a`` (priority 30), ``b`` (20) and ``c`` (10), of
which only ``c`` would violate a PodDisruptionBudget. They are reprieved as ``c``, ``a``, ``b``. If
there is capacity for one, ``c`` stays, and the victims are ``a`` and ``b`` without a violation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from typing import NamedTuple

import numpy as np

from proreus.base.errors import PluginError
from proreus.framework.cycle_state import CycleState
from proreus.framework.handle import Handle, PreemptionDryRun
from proreus.framework.node_info import NodeInfo
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Code, Status
from proreus.framework.verdicts import BoolArray, Rows, Verdicts
from proreus.plugins.default_preemption.domain_victims import (
    DomainVictims,
    GroupGenerations,
    NodeNotFound,
)
from proreus.plugins.default_preemption.dry_run_cache import DryRunCache
from proreus.plugins.default_preemption.potential_victims import (
    NO_VICTIMS,
    DisruptionBudgets,
    EqualVictims,
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


class _Trial(NamedTuple):
    """A row to be dry-run in lockstep with others.

    ``pods``: its potential victims in the order of the reprieve. ``candidate``: makes the candidate
    from the indices of those that have to be evicted.
    """

    row: int
    pods: list[PodInfo]
    candidate: Callable[[list[int]], Candidate | Status]


class DryRun:
    """Finds the candidates for one pod.

    ``choose`` returns the potential victims on a node, ``select`` finds the victims on a node; None
    means as kube-scheduler does. ``units`` finds the units in which pods of groups are evicted;
    None means each pod by itself. ``extender_may_preempt``: whether an extender may add victims on
    a node that needs none; None means that such a node is an error
    (``Change.CANDIDATES_WITHOUT_VICTIMS``).

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
        extender_may_preempt: bool | None = None,
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
        self._extender_may_preempt = extender_may_preempt
        self._rows_with_groups: Set[int] = frozenset()

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
        rows = rows[potential_rows]
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
        """Yield the candidates among some rows, dry-running rows that are not in the cache."""
        rows_to_try = self._dry_run_cache.rows_to_try(rows)
        if len(rows_to_try):
            self._dry_run(rows_to_try)
        self._dry_run_cache.reject_failed(rows, self.verdicts)
        yield from self._dry_run_cache.candidates(rows)

    def _dry_run(self, rows: Rows) -> None:
        """Dry-run rows and cache the results, apart from errors."""
        trials: list[_Trial] = []
        for row in rows.tolist():
            try:
                if row in self._rows_with_groups:
                    found, groups = self._with_groups(row)
                else:
                    found, groups = self._without_groups(row), ()
            except (NodeNotFound, PluginError) as error:
                self.errors.append(str(error))
                continue
            if isinstance(found, _Trial):
                trials.append(found)
            else:
                self._note(row, found, groups)
        for trial, victims in zip(trials, self._victims(trials), strict=True):
            if victims:
                self._note(trial.row, trial.candidate(victims))
            elif victims is not None:
                self._note(trial.row, self._without_victims(self._handle.nodes[trial.row].name))

    def _without_victims(self, node_name: str) -> Candidate | Status:
        # The pod was rejected with all pods in place and fits now that all are back: an extender
        # rejected it, or a filter contradicts itself.
        if self._extender_may_preempt is None:
            return Status.error(f'expected at least one victim pod on node "{node_name}"')
        if self._extender_may_preempt:
            return Candidate(node_name, (), 0)
        return Status.unresolvable(NO_VICTIMS)

    def _without_groups(self, row: int) -> _Trial | Candidate | Status:
        node = self._handle.nodes[row]
        if self._select is not None:
            return self._select(self._state, self._pod, node, self._budgets)
        if self._choose is None:
            potential = self._pods_by_priority.lower_priority_pods(row, self._pod.priority)
        else:
            chosen = self._choose(self._pod, node)
            if isinstance(chosen, Status):
                return chosen
            potential = list(chosen)
        first, others = self._budgets.filter_pods_with_pdb_violation(potential)
        # Reprieved in this order, so that as few budgets as possible are violated.
        pods = first + others if first else others

        def candidate(victims: list[int]) -> Candidate:
            victim_pods = [pods[number] for number in victims]
            # With one group only, the order of the reprieve is the order of importance already.
            if 0 < len(first) < len(pods) or not self._budgets.by_importance:
                victim_pods = self._by_importance(victim_pods, row)
            violated = sum(number < len(first) for number in victims)
            return Candidate(node.name, tuple(victim_pods), violated)

        return _Trial(row, pods, candidate)

    def _with_groups(self, row: int) -> tuple[_Trial | Candidate | Status, GroupGenerations]:
        """Return a trial or the result of a row with pods of groups, and the groups it evicts.

        Raises ``NodeNotFound`` and ``PluginError``.
        """
        assert self._units is not None
        node = self._handle.nodes[row]
        units = self._units.of_nodes([node])
        if not all(unit.is_single_pod for unit in units):
            dry_run = UnitDryRun(self._handle, self._state, self._pod, row)
            groups = tuple(group for unit in units for group in unit.groups)
            return dry_run.select_victims(units, self._budgets), groups
        # Each pod may be evicted by itself, though pods of groups are there.
        lower, violations = self._budgets.reprieve_order(
            unit for unit in units if unit.priority < self._pod.priority
        )
        if not lower:
            return Status.unresolvable(NO_VICTIMS), ()

        def candidate(victims: list[int]) -> Candidate | Status:
            return candidate_of_units(node.name, [lower[number] for number in victims], violations)

        return _Trial(row, [unit.placed[0].pod for unit in lower], candidate), ()

    def _note(self, row: int, found: Candidate | Status, groups: GroupGenerations = ()) -> None:
        if isinstance(found, Status) and found.code == Code.ERROR:
            self.errors.append(found.message)
        else:
            # The pods that stay depend on the priorities of groups: any change drops the row.
            self._dry_run_cache.note(row, found, groups if row in self._rows_with_groups else None)

    def _by_importance(self, victims: list[PodInfo], row: int) -> list[PodInfo]:
        if self._pods_by_priority.equal_victims is EqualVictims.REVERSED:
            return sorted_by_importance(victims, EqualVictims.REVERSED)
        # The start times that were sampled when the node's pods were listed decide again.
        lower = self._pods_by_priority.lower_priority_pods(row, self._pod.priority)
        chosen = {pod.uid for pod in victims}
        return [pod for pod in lower if pod.uid in chosen]

    def _victims(self, trials: list[_Trial]) -> list[list[int] | None]:
        """Return for each trial the indices of its pods that have to be evicted.

        None means that the pod does not fit even without all of them, or that a plugin failed.
        """
        if not trials:
            return []
        rows = np.array([trial.row for trial in trials], dtype=np.intp)
        preemption_dry_run = self._handle.dry_run_preemption(
            self._state, self._pod, rows, [trial.pods for trial in trials]
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

    def _fitting(self, rows: Rows, preemption_dry_run: PreemptionDryRun) -> BoolArray:
        """Return a mask of the rows that the pod fits without its potential victims."""
        verdicts = preemption_dry_run.remove_all_victims()
        for status in verdicts.counts():
            for row in rows[verdicts.ids == verdicts.id_of(status)].tolist():
                self._note(row, status)
        return verdicts.passed()
