"""What became of a pod, and why: the scheduler's own verdicts and scores, by node and plugin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from proreus.errors import ProreusError
from proreus.framework.diagnosis import Diagnosis
from proreus.framework.node_table import NodeTable
from proreus.framework.status import Status
from proreus.framework.verdicts import IntArray, Rows
from proreus.scheduler.attempt import Attempt, Failure

State = Literal[
    "pending", "gated", "waiting", "binding", "bound", "unschedulable", "error", "deleted"
]


class Event(NamedTuple):
    """An Event about a pod (``namespace/name``)."""

    pod: str
    reason: str
    note: str


@dataclass(frozen=True)
class Outcome:
    """How the latest attempt to schedule a pod went, and where the pod is now.

    ``state``: pending (not tried yet), gated (PreEnqueue), waiting (Permit holds it), binding
    (PreBind or Bind is not through), bound, unschedulable, error, deleted. ``node``: where it is,
    or will be; "" for nowhere. ``message``: what the FailedScheduling event says. ``rejected_by``:
    the plugins that turned it down.
    """

    pod: str
    state: State
    node: str = ""
    message: str = ""
    nominated_node: str = ""
    rejected_by: frozenset[str] = frozenset()
    feasible: Sequence[str] = ()
    """The nodes that Filter left, in the order of their names."""
    rejections: Mapping[str, Status] = field(default_factory=dict)
    """By node, what the first plugin said that rejected it. Nodes that nobody looked at (per-node
    plugins stop when enough nodes are found) are in neither."""
    scores: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By node and plugin: normalised and multiplied by the weight, as it was added up. Empty when
    fewer than two nodes were feasible, since nobody is asked then."""

    @property
    def bound(self) -> bool:
        """Whether the pod has its node."""
        return self.state == "bound"

    def why_not(self, node: str) -> str:
        """Return ``Plugin: reason, reason`` for a node that was rejected, "" for one that passed.

        Raises ``LookupError`` for a node that was not looked at.
        """
        if node in self.feasible:
            return ""
        if node not in self.rejections:
            raise LookupError(f"nobody looked at node {node!r}; {_known(self)}")
        status = self.rejections[node]
        return f"{status.plugin}: {status.message}" if status.plugin else status.message

    def score(self, node: str, plugin: str = "") -> int:
        """Return what a plugin added to a node's score, or all of them together.

        Raises ``LookupError`` where nothing was added, and says why.
        """
        if node not in self.scores:
            few = "nothing is scored unless two nodes or more are feasible"
            raise LookupError(f"node {node!r} has no score ({few}); {_known(self)}")
        added = self.scores[node]
        if not plugin:
            return sum(added.values())
        if plugin not in added:
            names = ", ".join(added) or "nobody"
            raise LookupError(f"{plugin} did not score this pod (skipped?); who did: {names}")
        return added[plugin]

    def __str__(self) -> str:
        """Tell everything, a line a node."""
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
    """What was found out in one attempt."""

    feasible: list[str] = field(default_factory=list)
    rejections: dict[str, Status] = field(default_factory=dict)
    scores: dict[str, dict[str, int]] = field(default_factory=dict)
    failure: Failure | None = None


class AttemptLog:
    """Keeps the findings of the latest attempt of each pod. Implements
    ``scheduler.AttemptObserver``.

    Names instead of rows: the table may have changed when somebody asks. ``raised``: what plugins
    raised since it was last emptied.
    """

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self.attempts: list[str] = []
        """Keys of pods, an attempt each, in order."""
        self._records: dict[str, AttemptRecord] = {}
        self.raised: list[tuple[str, ProreusError]] = []

    def get(self, key: str) -> AttemptRecord | None:
        """Return the findings about a pod, None if it was never tried."""
        return self._records.get(key)

    def after_filter(self, attempt: Attempt, diagnosis: Diagnosis, feasible: Rows) -> None:
        """Note who rejected which node."""
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
        """Note what each plugin added to each node's score."""
        self._records[attempt.pod.key].scores = {
            self._table[row].name: {plugin: int(added[i]) for plugin, added in scores.items()}
            for i, row in enumerate(feasible.tolist())
        }

    def on_failure(self, attempt: Attempt, failure: Failure) -> None:
        """Note how the attempt ended."""
        key = attempt.pod.key
        record = self._records.get(key)
        if record is None or record.failure is not None:
            record = self._new_record(key)
        record.failure = failure
        if failure.cause is not None:
            self.raised.append((key, failure.cause))

    def _new_record(self, key: str) -> AttemptRecord:
        self.attempts.append(key)
        record = self._records[key] = AttemptRecord()
        return record
