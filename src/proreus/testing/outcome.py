"""The outcome of scheduling a pod: the scheduler's verdicts and scores, by node and plugin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from proreus.engine.cycles.attempt import Attempt, Failure
from proreus.framework.diagnosis import Diagnosis
from proreus.framework.node_table import NodeTable
from proreus.framework.status import Status
from proreus.framework.verdicts import IntArray, Rows

State = Literal[
    "pending", "gated", "waiting", "binding", "bound", "unschedulable", "error", "deleted"
]


class Event(NamedTuple):
    """An Event about a ``pod``, given by its key: ``reason`` and ``note``."""

    pod: str
    reason: str
    note: str


@dataclass(frozen=True)
class Outcome:
    """The result of the latest attempt to schedule a pod, and the pod's present state.

    ``state``: pending (no attempt yet), gated (by PreEnqueue), waiting (on Permit), binding
    (PreBind or Bind is running), bound, unschedulable, error, deleted. ``node``: the node that it
    is bound to or assumed on, or "". ``message``: that of the FailedScheduling event.
    ``rejected_by``: the plugins that rejected it. ``pod``: its key (``namespace/name``).
    ``nominated_node``: where preemption evicts pods for it, or "".
    """

    pod: str
    state: State
    node: str = ""
    message: str = ""
    nominated_node: str = ""
    rejected_by: frozenset[str] = frozenset()
    feasible: Sequence[str] = ()
    """The nodes that passed Filter, sorted by name."""
    rejections: Mapping[str, Status] = field(default_factory=dict)
    """By node, the status of the first plugin that rejected it. Nodes that were not filtered, since
    enough feasible nodes had been found, are neither here nor in ``feasible``."""
    scores: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By node and plugin: the normalised score times the plugin's weight. Empty when fewer than two
    nodes were feasible, since Score does not run then."""

    @property
    def bound(self) -> bool:
        """Whether the pod is bound."""
        return self.state == "bound"

    def why_not(self, node: str) -> str:
        """Return ``Plugin: reason, reason`` for a node that was rejected, "" for one that passed.

        Raises ``LookupError`` for a node that was not filtered.
        """
        if node in self.feasible:
            return ""
        if node not in self.rejections:
            raise LookupError(f"node {node!r} was not filtered; {_known(self)}")
        status = self.rejections[node]
        return f"{status.plugin}: {status.message}" if status.plugin else status.message

    def score(self, node: str, plugin: str = "") -> int:
        """Return a plugin's weighted score of a node, or the sum over all plugins.

        Raises ``LookupError``, with the reason, if there is none.
        """
        if node not in self.scores:
            few = "nothing is scored unless two nodes or more are feasible"
            raise LookupError(f"node {node!r} has no score ({few}); {_known(self)}")
        added = self.scores[node]
        if not plugin:
            return sum(added.values())
        if plugin not in added:
            names = ", ".join(added) or "none"
            raise LookupError(
                f"{plugin} did not score this pod (skipped?); plugins that did: {names}"
            )
        return added[plugin]

    def __str__(self) -> str:
        """Return the whole outcome as text, with a line for each node."""
        where = f" on {self.node}" if self.node else ""
        lines = [f"{self.pod}: {self.state}{where}" + (self.message and f": {self.message}")]
        for node in self.feasible:
            added = self.scores.get(node)
            sums = " + ".join(f"{name} {score}" for name, score in (added or {}).items())
            lines.append(f"  {node}: " + (f"{self.score(node)} = {sums}" if added else "feasible"))
        lines += [f"  {node}: {self.why_not(node)}" for node in self.rejections]
        return "\n".join(lines)


def _known(outcome: Outcome) -> str:
    feasible = ", ".join(outcome.feasible) or "none"
    rejected = ", ".join(outcome.rejections) or "none"
    return f"feasible: {feasible}; rejected: {rejected}"


@dataclass
class AttemptRecord:
    """The record of one attempt."""

    feasible: list[str] = field(default_factory=list)
    rejections: dict[str, Status] = field(default_factory=dict)
    scores: dict[str, dict[str, int]] = field(default_factory=dict)
    failure: Failure | None = None


class AttemptLog:
    """Records the latest attempt of each pod. Implements ``scheduler.AttemptObserver``.

    It keeps names of nodes instead of rows, since the table may change before the record is read.
    """

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self.attempts: list[str] = []
        """The pod key of each attempt, in order."""
        self._records: dict[str, AttemptRecord] = {}

    def get(self, key: str) -> AttemptRecord | None:
        """Return the record of a pod's latest attempt, or None."""
        return self._records.get(key)

    def after_filter(self, attempt: Attempt, diagnosis: Diagnosis, feasible: Rows) -> None:
        """Record the feasible nodes, and which plugin rejected each other node."""
        table, verdicts = self._table, diagnosis.complete()
        passed = set(feasible.tolist())
        self._new_record(attempt.pod.key).rejections = {
            table[row].name: status
            for row in range(table.size)
            if row not in passed
            and (status := verdicts.status(row)) is not None
            and (status.plugin or status.reasons)
        }
        self._records[attempt.pod.key].feasible = sorted(table[row].name for row in passed)

    def after_score(self, attempt: Attempt, feasible: Rows, scores: Mapping[str, IntArray]) -> None:
        """Record each plugin's weighted score of each node."""
        self._records[attempt.pod.key].scores = {
            self._table[row].name: {plugin: int(added[i]) for plugin, added in scores.items()}
            for i, row in enumerate(feasible.tolist())
        }

    def on_failure(self, attempt: Attempt, failure: Failure) -> None:
        """Record the failure of an attempt."""
        key = attempt.pod.key
        record = self._records.get(key)
        if record is None or record.failure is not None:
            record = self._new_record(key)
        record.failure = failure

    def _new_record(self, key: str) -> AttemptRecord:
        self.attempts.append(key)
        record = self._records[key] = AttemptRecord()
        return record
