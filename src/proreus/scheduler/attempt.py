"""One attempt to schedule one pod: its state, how it can end before binding, and its trace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Protocol

from proreus.errors import ProreusError
from proreus.framework.cycle_state import CycleState
from proreus.framework.diagnosis import Diagnosis, FitError
from proreus.framework.node_table import NodeTable
from proreus.framework.pod_info import PodInfo, QueuedPodInfo
from proreus.framework.post_filter_result import CLEAR_NOMINATION, NominatingInfo
from proreus.framework.status import Code, Status
from proreus.framework.verdicts import IntArray, Rows
from proreus.logs import logger
from proreus.runtime.profile import Profile
from proreus.runtime.waiting_pods import WaitingPod
from proreus.scheduler.extender import HTTPExtender

log = logger(__name__)

LONG_SECONDS = 0.1
"""From here on an attempt is logged, as in kube-scheduler's utiltrace."""


@dataclass(frozen=True, slots=True)
class NodeSubset:
    """The nodes that a pod must keep to: by name, and as a part of the table."""

    names: frozenset[str]
    nodes: NodeTable


@dataclass(slots=True)
class Attempt:
    """A popped pod on its way. ``started``: ``perf_counter`` seconds at the pop.

    ``extenders``: those that want to be asked about it. ``node_subset``: None = all nodes may do.
    ``may_preempt``: whether PostFilter runs when no node does.
    """

    queued: QueuedPodInfo
    pod: PodInfo
    profile: Profile
    state: CycleState
    started: float
    extenders: tuple[HTTPExtender, ...] = ()
    node_subset: NodeSubset | None = None
    may_preempt: bool = True


@dataclass(slots=True)
class ScheduleResult:
    """The node that was chosen and assumed; ``waiting`` when Permit holds the pod."""

    attempt: Attempt
    node_name: str
    waiting: WaitingPod | None = None


@dataclass(slots=True)
class Failure:
    """Why an attempt ended without a node.

    ``fit_error`` tells which plugins rejected the pod; without it, nobody did: something went wrong
    and the pod comes back after a back-off. ``nominating`` None leaves the nomination alone.
    ``cause``: what was raised, where something was.
    """

    status: Status
    fit_error: FitError | None = None
    nominating: NominatingInfo | None = CLEAR_NOMINATION
    cause: ProreusError | None = None

    @property
    def message(self) -> str:
        """The text of the event and the condition."""
        return self.fit_error.message if self.fit_error is not None else self.status.message


def error_failure(text: str, cause: ProreusError | None = None) -> Failure:
    """Return the failure for something that went wrong."""
    return Failure(Status(Code.ERROR, (text,)), cause=cause)


class AttemptObserver(Protocol):
    """Is told of every attempt what was found out on the way. Without one nothing is kept."""

    def after_filter(self, attempt: Attempt, diagnosis: Diagnosis, feasible: Rows) -> None:
        """Filter is done: who rejected which node, and the rows that are left."""
        ...

    def after_score(self, attempt: Attempt, feasible: Rows, scores: Mapping[str, IntArray]) -> None:
        """Score is done: each plugin's weighted scores, as ``feasible`` goes."""
        ...

    def on_failure(self, attempt: Attempt, failure: Failure) -> None:
        """The attempt has ended without a bound pod; to be called before the pod is requeued."""
        ...


class Trace:
    """The times of one operation's steps. Made for each pod: it must cost next to nothing."""

    __slots__ = ("_began", "_steps")

    def __init__(self) -> None:
        self._began = perf_counter()
        self._steps: list[tuple[str, float]] = []

    def step(self, name: str) -> None:
        """Note that a step is done."""
        self._steps.append((name, perf_counter()))

    def log_if_long(self, name: str, pod: str) -> None:
        """Tell of the operation if it took long, with -v 2 or more."""
        seconds = perf_counter() - self._began
        if seconds < LONG_SECONDS or not log.v(2):
            return
        share = LONG_SECONDS / (len(self._steps) + 1)
        slow, last = [], self._began
        for step, at in self._steps:
            if at - last >= share or log.v(4):
                slow.append(f"{step}: {_milliseconds(at - last)}")
            last = at
        log.v(2).info(
            "Trace", name=name, pod=pod, totalTime=_milliseconds(seconds), steps=", ".join(slow)
        )


def _milliseconds(seconds: float) -> str:
    return f"{int(seconds * 1000)}ms"
