"""How trials of nodes ended, remembered from one preemption to the next.

What a preemptor found on a node holds for the next one that all filters take for the same, as long
as the node, the pods nominated to it and the budgets stay what they are. A preemption changes one
node, so that of many alike each tries little more than one.

Where not even the going of all less important pods would help, it does not matter which of them are
there: such a node is not tried again while its victims go one after the other.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from proreus.framework.handle import DryRunKey
from proreus.framework.node_table import NodeTable
from proreus.framework.nominated_pods import NominatedPodsByRow
from proreus.framework.pod_info import NOT_STARTED, PodInfo
from proreus.framework.status import Status
from proreus.framework.verdicts import Rows, Verdicts
from proreus.objects.node import Node
from proreus.objects.policy import PodDisruptionBudget

_PRIORITY_OFFSET = 2**31
"""Makes every priority positive, so that fewer victims always weigh less."""
_UNKNOWN, _CANDIDATE = 0, 1
_MAX_CACHED_KEYS = 16
"""Of so many kinds of preemptors the outcomes are kept: up to about a megabyte for 5,000 nodes."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that would do once ``victims`` are gone, the most important first."""

    node_name: str
    victims: tuple[PodInfo, ...]
    pdb_violations: int
    cost: tuple[int, int, int, int] = field(init=False, compare=False, repr=False)
    """What is compared of candidates, the weightiest first, but for start times: violations, the
    highest priority, the sum of priorities, the number of victims."""
    earliest_start_time: float = field(init=False, compare=False, repr=False)
    """When the first of the most important victims started that have started; infinite: none."""
    has_unstarted: bool = field(init=False, compare=False, repr=False)
    """Whether one of the most important victims has not started: it counts as starting now."""

    def __post_init__(self) -> None:
        priorities = [victim.priority for victim in self.victims]
        highest = priorities[0] if priorities else -_PRIORITY_OFFSET
        total = sum(priorities) + _PRIORITY_OFFSET * len(priorities)
        cost = self.pdb_violations, highest, total, len(priorities)
        object.__setattr__(self, "cost", cost)
        top = max(priorities, default=highest)
        starts = [pod.importance[1] for pod in self.victims if pod.priority == top]
        object.__setattr__(self, "earliest_start_time", min(starts, default=NOT_STARTED))
        object.__setattr__(self, "has_unstarted", NOT_STARTED in starts)


RemainingPods = tuple[Node | None, tuple[PodInfo, ...]]
"""A node as an API object, and the pods on it that no preemptor of a kind may evict."""


class DryRunCache:
    """How the rows of a table fared with one kind of preemptor, of one priority.

    ``reusable``: the next preemptors of this kind will ask too.
    """

    # Invariant: _staying has exactly the rows that failed, with what was there.

    def __init__(self, nodes: NodeTable, priority: int, *, reusable: bool = False) -> None:
        self.reusable = reusable
        self._nodes = nodes
        self._priority = priority
        self._nominated: NominatedPodsByRow | None = None
        self._nominated_position = -1
        self._reset()

    def _reset(self) -> None:
        self._position = self._nodes.position
        self._numbers = np.full(len(self._nodes), _UNKNOWN, dtype=np.int32)
        """By row: whether it is a candidate; above that, the status that it failed with."""
        self._statuses: list[Status | None] = [None, None]
        self._status_numbers: dict[Status, int] = {}
        self._candidates: dict[int, Candidate] = {}
        self._remaining: dict[int, RemainingPods] = {}

    def refresh(self, nominated: NominatedPodsByRow) -> None:
        """Forget rows that changed, and those with other pods nominated to them than before."""
        nodes = self._nodes
        rows = nodes.changes_since(self._position)
        others = None
        if nominated is self._nominated:
            others = nominated.changes.since(self._nominated_position, len(nodes))
        if rows is None or others is None or len(self._numbers) != len(nodes):
            self._reset()
        else:
            self._position = nodes.position
            self._invalidate(
                [row for row in rows if self._remaining.get(row) != self._remaining_at(row)]
            )
            self._invalidate(others)
        self._nominated, self._nominated_position = nominated, nominated.changes.position

    def _invalidate(self, rows: list[int]) -> None:
        self._numbers[rows] = _UNKNOWN
        for row in rows:
            self._candidates.pop(row, None)
            self._remaining.pop(row, None)

    def _remaining_at(self, row: int) -> RemainingPods:
        info, priority = self._nodes[row], self._priority
        return info.node, tuple(pod for pod in info.pods.values() if pod.priority >= priority)

    def note_candidate(self, row: int, candidate: Candidate) -> None:
        """Remember that a row would do."""
        self._numbers[row] = _CANDIDATE
        self._candidates[row] = candidate

    def note_failures(self, rows: Rows, status: Status) -> None:
        """Remember that rows would not."""
        number = self._status_numbers.get(status)
        if number is None:
            number = self._status_numbers[status] = len(self._statuses)
            self._statuses.append(status)
        self._numbers[rows] = number
        self._remaining.update((row, self._remaining_at(row)) for row in rows.tolist())

    def rows_to_try(self, rows: Rows) -> Rows:
        """Return those of the rows that have to be tried."""
        rows_to_try: Rows = rows[self._numbers[rows] == _UNKNOWN]
        return rows_to_try

    def candidates(self, rows: Rows) -> Iterator[Candidate]:
        """Yield the candidates among rows, in the order of the rows."""
        for row in rows[self._numbers[rows] == _CANDIDATE].tolist():
            yield self._candidates[row]

    def reject_failed(self, rows: Rows, verdicts: Verdicts) -> None:
        """Say why others of the rows are none."""
        numbers = self._numbers[rows]
        for number in np.flatnonzero(np.bincount(numbers)).tolist():
            status = self._statuses[number]
            if status is not None:
                verdicts.reject_with(rows[numbers == number], status)


class DryRunCaches:
    """The outcomes for every kind of preemptor; the least recently seen go first."""

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._budgets: list[PodDisruptionBudget] = []
        self._by_key: OrderedDict[object, DryRunCache] = OrderedDict()

    def of(
        self, dry_run_key: DryRunKey | None, pod: PodInfo, budgets: Iterable[PodDisruptionBudget]
    ) -> DryRunCache:
        """Return what is known for pods like this one; nothing where nobody can tell (None)."""
        if dry_run_key is None:
            return DryRunCache(self._nodes, pod.priority)
        budgets = list(budgets)
        if budgets != self._budgets:
            self._by_key.clear()
            self._budgets = budgets
        key = (dry_run_key.signature, pod.priority)
        dry_run_cache = self._by_key.get(key)
        if dry_run_cache is None:
            dry_run_cache = self._by_key[key] = DryRunCache(
                self._nodes, pod.priority, reusable=True
            )
            while len(self._by_key) > _MAX_CACHED_KEYS:
                self._by_key.popitem(last=False)
        self._by_key.move_to_end(key)
        dry_run_cache.refresh(dry_run_key.nominated_by_row)
        return dry_run_cache
