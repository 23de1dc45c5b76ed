"""The record of one attempt to schedule a pod."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct

from proreus.framework.status import Status
from proreus.insight.decisions.outcomes import ExtenderAnswer, PermitWait
from proreus.insight.decisions.results import Results, Shared
from proreus.insight.decisions.scores import ScoreTable
from proreus.insight.decisions.verdicts import VerdictColumn, VerdictCounts

_BYTES = 600
_BYTES_A_NAME = 8


class NodeNames(Shared):
    """The name of each row's node at one time, which the records of that time share."""

    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self._names = names

    def followed_by(self, names: list[str]) -> NodeNames:
        """Return the names of a later time; this object where they are the same."""
        return self if names == self._names else NodeNames(names)

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, row: int) -> str:
        return self._names[row]

    def of(self, rows: Iterable[int]) -> list[str]:
        """Return the names of some rows."""
        return [self._names[row] for row in rows]

    def row_of(self, name: str) -> int | None:
        """Return a node's row; None if it is not there."""
        return self._names.index(name) if name in self._names else None

    @property
    def size_bytes(self) -> int:
        """About how much memory they take, without the texts, which the nodes have."""
        return _BYTES_A_NAME * len(self._names)


class Victim(Struct, frozen=True):
    """A pod that preemption chose to evict. ``pod``: ``namespace/name``."""

    pod: str
    uid: str
    priority: int


class FailureRecord(Struct):
    """Why an attempt ended without a bound pod.

    ``message``: that of the condition, shortened. ``plugins``: those that rejected the pod;
    ``pending_plugins``: those of them that wait for something. ``nominated_node``: where
    ``victims`` are evicted for it, of which ``pdb_violations`` violate a PodDisruptionBudget.
    ``counts``: how many nodes were rejected by status, where the rows had to be given up for
    memory. ``point``: the extension point that failed after a node was chosen, "" if none was.
    """

    status: Status
    message: str
    plugins: Sequence[str] = ()
    pending_plugins: Sequence[str] = ()
    nominated_node: str = ""
    victims: Sequence[Victim] = ()
    pdb_violations: int = 0
    counts: VerdictCounts | None = None
    point: str = ""


class DecisionRecord(msgspec.Struct, gc=False, eq=False):
    """The results of one attempt.

    ``at``: when its node was chosen, or it failed, in seconds since the epoch. ``key``:
    ``namespace/name`` of the pod. ``seconds``: how long the attempt took until then. ``names``: of
    the nodes, by row. ``node``: the one that was chosen, "" if none. ``failure``: why it ended;
    None while all goes well. ``count``: how many attempts in a row failed in just this way, the
    first at ``first_at``. ``extenders``: the URLs of those that were interested, and
    ``extender_answers`` what they returned. ``permit``: that Permit held it. ``bound_at``: when it
    was bound; None: it is not, or not yet. ``results``: of this attempt as of their
    ``end``, which other attempts may share; None: they are not kept.
    """

    # Made for each pod and kept by the thousand: a Struct is made in a fifth of the time, and one
    # that refers to nothing that refers to it need not be seen by the garbage collector.
    key: str
    uid: str
    profile: str
    configuration: int
    first_at: float
    at: float
    seconds: float
    names: NodeNames
    node: str = ""
    results: Results | None = None
    end: int = 0
    size_bytes: int = _BYTES
    bound_at: float | None = None
    count: int = 1
    failure: FailureRecord | None = None
    permit: PermitWait | None = None
    extenders: Sequence[str] = ()
    extender_answers: Sequence[ExtenderAnswer] = ()

    def row_of(self, node: str) -> int | None:
        """Return a node's row at that time; None: it was not there."""
        return self.names.row_of(node)

    def found(self) -> tuple[VerdictColumn | None, ScoreTable | None]:
        """Return the results of Filter and Score; None for a point that did not run or is not
        kept.
        """
        if self.results is None:
            return None, None
        return self.results.as_of(self.end, len(self.names))

    def release(self) -> int:
        """Give up the results; return how many bytes nobody uses any more."""
        results, self.results = self.results, None
        return 0 if results is None else results.release()

    def same_failure(self, other: DecisionRecord) -> bool:
        """Return whether another attempt for the same pod failed just as this one."""
        mine, its = self.failure, other.failure
        if mine is None or its is None or self.node or other.node or self.uid != other.uid:
            return False
        if (mine.status, mine.message, mine.nominated_node, mine.victims) != (
            its.status,
            its.message,
            its.nominated_node,
            its.victims,
        ):
            return False
        if self.names is not other.names:
            return False
        if self.extender_answers != other.extender_answers:
            return False
        results, others = self.results, other.results
        if results is None or others is None:
            return results is others and mine.counts is None
        return results is others or results.verdicts.same_as(others.verdicts)
