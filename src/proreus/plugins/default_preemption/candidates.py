"""The dry run of preemption: on which nodes would the pod fit, and at whose expense.

Nodes are tried on a fork of the table. Where all filters look at one node at a time, many nodes are
tried in lockstep: all less important pods are removed from all of them, the filters judge them at
once, then the victims are reprieved step by step, one pod on each node a step. Filters that look
across nodes are asked about one node at a time, with notes of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from proreus.errors import PluginError
from proreus.framework.cycle_state import CycleState
from proreus.framework.handle import Handle
from proreus.framework.node_table import NodeTable
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.framework.verdicts import Rows
from proreus.plugins.default_preemption.budgets import Budgets

NO_VICTIMS = "No preemption victims found for incoming pod"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that would do once ``victims`` are gone, the most important first."""

    node_name: str
    victims: tuple[PodInfo, ...]
    pdb_violations: int


@dataclass(slots=True)
class _Trial:
    """One node of a fork while its victims are being reprieved."""

    row: int
    violating: list[PodInfo]
    others: list[PodInfo]
    victims: list[PodInfo]
    violations: int = 0

    def next(self, step: int) -> PodInfo | None:
        """Return the pod to be reprieved at a step: those that violate a budget come first."""
        if step < len(self.violating):
            return self.violating[step]
        step -= len(self.violating)
        return self.others[step] if step < len(self.others) else None


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
        at_once = wanted if self._handle.filters_are_row_local(self._state) else 1
        for first in range(0, len(rows), at_once):
            for candidate in self._try(rows[first : first + at_once]):
                (violating if candidate.pdb_violations else clean).append(candidate)
            if clean and len(clean) + len(violating) >= wanted:
                break
        return clean + violating

    def _try(self, rows: Rows) -> Iterator[Candidate]:
        """Try some rows together."""
        fork, state = self._handle.nodes.fork(rows), self._state.clone()
        try:
            trials = self._without_less_important(fork, state, rows)
            trials = self._that_fit(fork, state, rows, trials)
            self._reprieve(fork, state, trials)
        except PluginError as error:
            self.errors.append(str(error))
            return
        for trial in trials:
            name = fork[trial.row].name
            if not trial.victims:
                self.errors.append(f'expected at least one victim pod on node "{name}"')
                continue
            victims = trial.victims
            if trial.violating and trial.others:
                victims = most_important_first(victims)
            yield Candidate(name, tuple(victims), trial.violations)

    def _without_less_important(
        self, fork: NodeTable, state: CycleState, rows: Rows
    ) -> list[_Trial]:
        """Remove all less important pods from every row that has any."""
        trials = []
        for row, node in enumerate(fork):
            potential = [p for p in node.pods.values() if p.priority < self._pod.priority]
            if not potential:
                self.statuses[int(rows[row])] = Status.unresolvable(NO_VICTIMS)
                continue
            for victim in potential:
                self._handle.run_remove_pod(state, self._pod, victim, fork, row)
            potential = most_important_first(potential)
            trials.append(_Trial(row, *self._budgets.split(potential), victims=[]))
        return trials

    def _that_fit(
        self, fork: NodeTable, state: CycleState, rows: Rows, trials: list[_Trial]
    ) -> list[_Trial]:
        """Keep the rows on which the pod fits without the less important ones."""
        fitting = []
        for trial, status in self._judge(fork, state, trials):
            if status is None:
                fitting.append(trial)
            else:
                self.statuses[int(rows[trial.row])] = status
        return fitting

    def _reprieve(self, fork: NodeTable, state: CycleState, trials: list[_Trial]) -> None:
        """Put pods back one by one, on all rows alike, as long as the pod still fits."""
        step, left = 0, trials
        while True:
            left = [trial for trial in left if trial.next(step) is not None]
            if not left:
                return
            for trial in left:
                pod = trial.next(step)
                assert pod is not None
                self._handle.run_add_pod(state, self._pod, pod, fork, trial.row)
            for trial, status in self._judge(fork, state, left):
                pod = trial.next(step)
                if status is not None and pod is not None:
                    self._handle.run_remove_pod(state, self._pod, pod, fork, trial.row)
                    trial.victims.append(pod)
                    trial.violations += step < len(trial.violating)
            step += 1

    def _judge(
        self, fork: NodeTable, state: CycleState, trials: list[_Trial]
    ) -> list[tuple[_Trial, Status | None]]:
        if not trials:
            return []
        part = fork.take(np.array([trial.row for trial in trials], dtype=np.intp))
        verdicts = self._handle.run_filters_with_nominated(state, self._pod, part)
        return [(trial, verdicts.status(index)) for index, trial in enumerate(trials)]


def most_important_first(pods: list[PodInfo]) -> list[PodInfo]:
    """Sort pods by priority, then by how long they have run.

    Of pods that have not started the last one comes first: kube-scheduler asks the clock anew for
    each comparison, so that of two the one it asks about first is always the older one.
    """
    never = float("inf")

    def key(item: tuple[int, PodInfo]) -> tuple[int, float, int]:
        index, pod = item
        start = pod.pod.status.start_time
        if start is None:
            return -pod.priority, never, -index
        return -pod.priority, start.timestamp(), index

    return [pod for _, pod in sorted(enumerate(pods), key=key)]


def started_at(pod: PodInfo, now: float) -> float:
    """Return when a pod started, in seconds since the epoch; one that has not starts now."""
    start = pod.pod.status.start_time
    return now if start is None else start.timestamp()
