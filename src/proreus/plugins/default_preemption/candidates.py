"""The dry run of preemption: on which nodes would the pod fit, and at whose expense.

Many nodes are tried in lockstep: all less important pods are taken off all of them, the filters
judge them at once, then the victims are reprieved step by step, one pod on each node a step.
How that is done fast, and apart for filters that look across nodes, is the business of the trials.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from proreus.framework.cycle_state import CycleState
from proreus.framework.handle import Handle, NodeTrials
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Code
from proreus.framework.verdicts import BoolArray, Rows, Verdicts
from proreus.plugins.default_preemption.budgets import Budgets
from proreus.plugins.default_preemption.crowds import Crowds, most_important_first
from proreus.plugins.default_preemption.outcomes import Candidate, Outcomes

NO_VICTIMS = "No preemption victims found for incoming pod"

_SOME = 64
"""So many nodes are tried together at least, though fewer candidates are wanted still."""


class DryRun:
    """Tries nodes for one pod. ``verdicts`` and ``errors`` tell why nodes are no candidates."""

    def __init__(
        self,
        handle: Handle,
        state: CycleState,
        pod: PodInfo,
        budgets: Budgets,
        crowds: Crowds,
        outcomes: Outcomes,
    ) -> None:
        self._handle = handle
        self._state = state
        self._pod = pod
        self._budgets = budgets
        self._crowds = crowds
        self._outcomes = outcomes
        self.verdicts = Verdicts(len(handle.nodes))
        """By row of the cluster's table."""
        self.errors: list[str] = []
        self._promising: Rows = np.empty(0, dtype=np.intp)

    def candidates(self, rows: Rows, wanted: int) -> list[Candidate]:
        """Try rows in order until enough candidates are found, one of them without violations.

        Returns those without violations first.
        """
        self._crowds.refresh()
        promising = self._crowds.with_less_important(rows, self._pod.priority)
        self.verdicts.reject(rows[~promising], NO_VICTIMS, unresolvable=True)
        self._promising = rows = rows[promising]
        clean: list[Candidate] = []
        violating: list[Candidate] = []
        first = 0
        while first < len(rows):
            some = max(wanted - len(clean) - len(violating), _SOME)
            for candidate in self._try(rows[first : first + some]):
                (violating if candidate.pdb_violations else clean).append(candidate)
                if clean and len(clean) + len(violating) >= wanted:
                    return clean + violating
            first += some
        return clean + violating

    def _try(self, rows: Rows) -> Iterator[Candidate]:
        """Try some rows together, but for those whose outcome is known."""
        unknown = self._outcomes.unknown(rows)
        if len(unknown) and self._outcomes.lasting:
            self._find_out_more(unknown)
            unknown = self._outcomes.unknown(rows)
        if len(unknown):
            self._find_out(unknown)
        self._outcomes.reject_failed(rows, self.verdicts)
        yield from self._outcomes.candidates(rows)

    def _find_out_more(self, rows: Rows) -> None:
        """Try rows, and with them others that the next preemptors will want to know of.

        One more row costs next to nothing, and one more trial a lot. Errors do not count yet: they
        may be those of the others, and rows that ended in one are still unknown.
        """
        others = np.setdiff1d(self._outcomes.unknown(self._promising), rows)[:_SOME]
        errors = len(self.errors)
        self._find_out(np.concatenate((rows, others)))
        del self.errors[errors:]

    def _find_out(self, rows: Rows) -> None:
        """Try rows and note how that ended; what ends in an error is known of none."""
        potential: list[list[PodInfo]] = []
        violating: list[int] = []
        for row in rows.tolist():
            less = self._crowds.less_important(row, self._pod.priority)
            first, others = self._budgets.split(less)
            potential.append(first + others if first else others)
            violating.append(len(first))
        nodes = self._handle.nodes
        for index, doomed in enumerate(self._victims(rows, potential)):
            if doomed is None:
                continue
            pods, violations = potential[index], violating[index]
            row = int(rows[index])
            name = nodes[row].name
            if not doomed:
                self.errors.append(f'expected at least one victim pod on node "{name}"')
                continue
            gone = [pods[number] for number in doomed]
            if 0 < violations < len(pods):
                gone = most_important_first(gone)
            violated = sum(number < violations for number in doomed)
            self._outcomes.note_candidate(row, Candidate(name, tuple(gone), violated))

    def _victims(self, rows: Rows, potential: list[list[PodInfo]]) -> list[list[int] | None]:
        """Return which of its potential victims each row has to lose; None where none will do.

        They are put back one by one, on all rows alike, as long as the pod still fits.
        """
        trials = self._handle.try_nodes(self._state, self._pod, rows, potential)
        fits = self._fitting(rows, trials)
        counts = np.diff(trials.first)
        victims: list[list[int] | None] = [[] if fit else None for fit in fits.tolist()]
        for step in range(int(counts.max())):
            left = np.flatnonzero(fits & (counts > step))
            stays = trials.put_back(trials.first[left] + step)
            for index in left[~stays].tolist():
                doomed = victims[index]
                assert doomed is not None
                doomed.append(step)
                error = trials.error(index)
                if error is not None:
                    self.errors.append(error.message)
                    victims[index], fits[index] = None, False
        return victims

    def _fitting(self, rows: Rows, trials: NodeTrials) -> BoolArray:
        """Return on which rows the pod fits without its potential victims."""
        verdicts = trials.without_movable()
        for status in verdicts.counts():
            failing = np.flatnonzero(verdicts.ids == verdicts.id_of(status))
            if status.code == Code.ERROR:
                self.errors.append(status.message)
            else:
                self._outcomes.note_failures(rows[failing], status)
        return verdicts.passed()
