"""One attempt to schedule one pod: its state, and how it can end before binding."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Protocol

from msgspec import Struct

from proreus.base.errors import ProreusError
from proreus.engine.extenders.extender import HTTPExtender
from proreus.engine.extenders.extender_chain import ExtenderAnswers
from proreus.engine.runtime.binding_points import Cancellation
from proreus.engine.runtime.find_nodes import FeasibleNodes, NodeSearch
from proreus.engine.runtime.prioritize_nodes import ComputedScores
from proreus.engine.runtime.profile import Profile
from proreus.engine.runtime.select_host import NodeScores
from proreus.engine.runtime.waiting_pods import WaitingPod
from proreus.framework.cycle_state import CycleState
from proreus.framework.diagnosis import Diagnosis, FitError
from proreus.framework.node_table import NodeTable
from proreus.framework.pod_info import PodInfo, QueuedPodInfo
from proreus.framework.post_filter_result import CLEAR_NOMINATION, NominatingInfo, Victims
from proreus.framework.status import Code, Status, checked
from proreus.framework.verdicts import IntArray, Rows, Verdicts


class NodeSubset(Struct, frozen=True):
    """The nodes that a pod must keep to: by name, by row, and as a table of these rows alone."""

    names: frozenset[str]
    rows: Rows
    nodes: NodeTable

    @classmethod
    def of(cls, names: Collection[str], table: NodeTable) -> NodeSubset:
        """Return the nodes of a table that have these names."""
        rows = table.rows_of(names)
        return cls(frozenset(names), rows, table.take(rows))


class Attempt(Struct):
    """One attempt to schedule a popped pod. ``started``: ``perf_counter`` seconds at the pop.

    ``extenders``: those that are interested in it. ``node_subset``: None = all nodes.
    ``may_preempt``: whether PostFilter runs when no node is feasible. ``in_group``: whether the pod
    is scheduled with the others of its PodGroup. ``shadow``: what a candidate
    configuration decided about the pod; None: it is not compared.
    """

    queued: QueuedPodInfo
    pod: PodInfo
    profile: Profile
    state: CycleState
    started: float
    extenders: tuple[HTTPExtender, ...] = ()
    node_subset: NodeSubset | None = None
    may_preempt: bool = True
    in_group: bool = False
    shadow: Comparison | None = None
    record: object = None
    """What the ``AttemptRecorder`` keeps of it."""
    extender_answers: ExtenderAnswers | None = None
    """What HTTP extenders returned; None: there are none, or nothing is recorded."""


class ScheduleResult(Struct):
    """The pod is assumed on this node: the result of a scheduling cycle.

    ``waiting``: set while Permit holds the pod.
    ``point``: PreBind or Bind once the binding cycle is there, ``since`` (of ``Clock``) which time.
    ``nominated``: whether the node is written to the pod's status before it is bound.
    ``cancellation``: set once preemption keeps the pod from being bound. ``ended``: set once
    somebody waits for the end of the binding cycle.
    """

    attempt: Attempt
    node_name: str
    waiting: WaitingPod | None = None
    point: str = ""
    since: float = 0.0
    nominated: bool = False
    cancellation: Cancellation | None = None
    ended: asyncio.Event | None = None


class Failure(Struct):
    """Why an attempt ended without a node.

    ``fit_error``: which plugins rejected the pod; None: an error, and the pod is retried after a
    back-off. ``nominating``: None leaves the nomination as it is. ``cause``: the exception, if any.
    ``victims``: the pods that PostFilter evicts for it. ``point``: the extension point that failed
    after a node was chosen, Reserve, Permit, PreBind or Bind. ``nominated_node``: the node that the
    attempt wrote to the pod's status, or is about to write; the informer may not show it yet.
    ``text``: what is said in place of what the fit error says. ``rejectors``: the plugins that
    rejected the pod's group, where there is no fit error.
    """

    status: Status
    fit_error: FitError | None = None
    nominating: NominatingInfo | None = CLEAR_NOMINATION
    cause: ProreusError | None = None
    victims: Victims | None = None
    point: str = ""
    nominated_node: str = ""
    text: str = ""
    rejectors: frozenset[str] = frozenset()

    @property
    def message(self) -> str:
        """The text of the Event and of the condition."""
        if self.text:
            return self.text
        return self.fit_error.message if self.fit_error is not None else self.status.message


def error_failure(text: str, cause: ProreusError | None = None, point: str = "") -> Failure:
    """Return the failure of an attempt that ended in an error."""
    return Failure(checked(Status(Code.ERROR, (text,))), cause=cause, point=point)


def rejected_on_node(status: Status, point: str = "") -> Failure:
    """Return the failure of a pod that Reserve, Permit or PreBind rejected on its chosen node."""
    verdicts = Verdicts(1)
    verdicts.reject_row(0, status)
    diagnosis = Diagnosis(verdicts)
    diagnosis.add_plugin_status(status)
    return Failure(status, FitError(1, diagnosis), point=point)


class Comparison(Protocol):
    """A decision of a candidate configuration, waiting for the one in force."""

    def complete(self, attempt: Attempt, found: str | Failure, seconds: float) -> None:
        """Compare with the node, or the failure, that the attempt has found in ``seconds``."""
        ...


class Shadow(Protocol):
    """A candidate configuration that decides about pods as well, without effect."""

    def evaluate(self, queued: QueuedPodInfo, in_force: NodeSearch) -> Comparison | None:
        """Decide about a pod before its attempt; None if it is not compared.

        ``in_force``: the search of the configuration in force, to begin at the same node.
        """
        ...

    def pass_over_group(self) -> None:
        """Count an attempt of a PodGroup, which is not compared."""
        ...


class FailureObserver(Protocol):
    """Receives every attempt that failed."""

    def on_failure(self, attempt: Attempt, failure: Failure) -> None:
        """The attempt has ended without a bound pod, which is not requeued yet."""
        ...


class AttemptObserver(FailureObserver, Protocol):
    """Receives the intermediate results of every attempt, which are otherwise not kept."""

    def after_filter(self, attempt: Attempt, diagnosis: Diagnosis, feasible: Rows) -> None:
        """Filter is done: which plugin rejected which node, and the feasible rows."""
        ...

    def after_score(self, attempt: Attempt, feasible: Rows, scores: Mapping[str, IntArray]) -> None:
        """Score is done: each plugin's weighted scores, in the order of ``feasible``."""
        ...


class AttemptRecorder(Protocol):
    """Keeps a record of attempts, to explain them later."""

    def chosen(
        self,
        attempt: Attempt,
        found: FeasibleNodes,
        row: int,
        totals: NodeScores | None = None,
        computed: ComputedScores | None = None,
    ) -> None:
        """Record that a pod's node was chosen, before it is assumed there."""
        ...

    def failed(self, attempt: Attempt, failure: Failure, message: str) -> None:
        """Record how an attempt ended without a bound pod; it is not requeued yet."""
        ...


class OutcomeRecorder(AttemptRecorder, Protocol):
    """Records also what becomes of a pod after its node was chosen."""

    def waits(self, attempt: Attempt, waiting: WaitingPod) -> None:
        """Record that Permit holds the pod."""
        ...

    def permitted(self, attempt: Attempt, seconds: float) -> None:
        """Record that Permit holds the pod no more, allowed or rejected, after so long."""
        ...

    def bound(self, attempt: Attempt) -> None:
        """Record that the pod is bound to the chosen node."""
        ...
