"""The dry run of preemption: on which nodes would the pod fit, and at whose expense.

Many nodes are tried in lockstep: all less important pods are taken off all of them, the filters
judge them at once, then the victims are reprieved step by step, one pod on each node a step.
How that is done fast, and apart for filters that look across nodes, is the business of the trials.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from proreus.framework.cycle_state import CycleState
from proreus.framework.handle import Handle, NodeTrials
from proreus.framework.pod_info import NEVER, PodInfo
from proreus.framework.status import Code, Status
from proreus.framework.verdicts import BoolArray, Rows
from proreus.plugins.default_preemption.budgets import Budgets

NO_VICTIMS = "No preemption victims found for incoming pod"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that would do once ``victims`` are gone, the most important first."""

    node_name: str
    victims: tuple[PodInfo, ...]
    pdb_violations: int


class DryRun:
    """Tries nodes for one pod. ``statuses`` and ``errors`` tell why nodes are no candidates."""

    def __init__(self, handle: Handle, state: CycleState, pod: PodInfo, budgets: Budgets) -> None:
        self._handle = handle
        self._state = state
        self._pod = pod
        self._budgets = budgets
        self.statuses: dict[int, Status] = {}
        """By row of the cluster's table."""
        self.errors: list[str] = []

    def candidates(self, rows: Rows, wanted: int) -> list[Candidate]:
        """Try rows in order until enough candidates are found, one of them without violations.

        Returns those without violations first.
        """
        clean: list[Candidate] = []
        violating: list[Candidate] = []
        for first in range(0, len(rows), wanted):
            for candidate in self._try(rows[first : first + wanted]):
                (violating if candidate.pdb_violations else clean).append(candidate)
                if clean and len(clean) + len(violating) >= wanted:
                    return clean + violating
        return clean + violating

    def _try(self, rows: Rows) -> Iterator[Candidate]:
        """Try some rows together."""
        tried: list[int] = []
        potential: list[list[PodInfo]] = []
        violating: list[int] = []
        nodes, least = self._handle.nodes, -self._pod.priority
        for row in rows.tolist():
            there = enumerate(nodes[row].pods.values())
            less = [(k, i, p) for i, p in there if (k := p.importance)[0] > least]
            if not less:
                self.statuses[row] = Status.unresolvable(NO_VICTIMS)
                continue
            first, others = self._budgets.split(_in_order(less))
            tried.append(row)
            potential.append(first + others)
            violating.append(len(first))
        if not tried:
            return
        victims = self._victims(tried, potential)
        for index, (row, doomed) in enumerate(zip(tried, victims, strict=True)):
            if doomed is None:
                continue
            name, pods, violations = nodes[row].name, potential[index], violating[index]
            if not doomed:
                self.errors.append(f'expected at least one victim pod on node "{name}"')
                continue
            gone = [pods[number] for number in doomed]
            if 0 < violations < len(pods):
                gone = most_important_first(gone)
            yield Candidate(name, tuple(gone), sum(number < violations for number in doomed))

    def _victims(self, rows: list[int], potential: list[list[PodInfo]]) -> list[list[int] | None]:
        """Return which of its potential victims each row has to lose; None where none will do.

        They are put back one by one, on all rows alike, as long as the pod still fits.
        """
        trials = self._handle.try_nodes(
            self._state, self._pod, np.array(rows, dtype=np.intp), potential
        )
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

    def _fitting(self, rows: list[int], trials: NodeTrials) -> BoolArray:
        """Return on which rows the pod fits without its potential victims."""
        verdicts = trials.without_movable()
        for index in np.flatnonzero(~verdicts.passed()).tolist():
            status = verdicts.status(index)
            assert status is not None
            if status.code == Code.ERROR:
                self.errors.append(status.message)
            else:
                self.statuses[rows[index]] = status
        return verdicts.passed()


Ranked = tuple[tuple[int, float], int, PodInfo]
"""Importance of a pod, where it stood among the others, the pod."""


def most_important_first(pods: Iterable[PodInfo]) -> list[PodInfo]:
    """Sort pods by priority, then by how long they have run.

    Of pods that have not started the last one comes first: kube-scheduler asks the clock anew for
    each comparison, so that of two the one it asks about first is always the older one.
    """
    return _in_order([(pod.importance, index, pod) for index, pod in enumerate(pods)])


def _in_order(ranked: list[Ranked]) -> list[PodInfo]:
    if NEVER in [key[1] for key, _, _ in ranked]:
        ranked = [(k, -i if k[1] == NEVER else i, pod) for k, i, pod in ranked]
    ranked.sort()
    return [pod for _, _, pod in ranked]


def started_at(pod: PodInfo, now: float) -> float:
    """Return when a pod started, in seconds since the epoch; one that has not starts now."""
    start = pod.importance[1]
    return now if start == NEVER else start
