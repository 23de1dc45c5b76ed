"""All extenders of a scheduler, and their part in each step: kube-scheduler's order and rules.

    filter       one after the other, each sees the nodes that the one before accepted
    prioritize   all at once; errors count as no score
    preempt      one after the other, each may remove nodes and replace victims
    bind         the first interested one that has a bind verb

While a request is under way, nothing may change under the scheduling cycle: the caller has paused
the informers (``SchedulingCycle.run``).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np
from msgspec import Struct, field

from proreus.base.errors import ExtenderError
from proreus.base.int64 import wrap
from proreus.base.logs import logger
from proreus.base.metrics import SchedulerMetrics
from proreus.engine.extenders.extender import HTTPExtender
from proreus.engine.runtime import score_log
from proreus.engine.runtime.find_nodes import FeasibleNodes
from proreus.engine.runtime.select_host import AttemptTotals
from proreus.framework.node_table import NodeTable
from proreus.framework.pod_info import PodInfo
from proreus.framework.post_filter_result import Victims
from proreus.framework.status import Status, checked
from proreus.framework.verdicts import FloatArray, IntArray, Rows
from proreus.objects.meta import key_of
from proreus.objects.node import Node
from proreus.objects.pod import Pod

log = logger(__name__)

EXTENDER = "Extender"
"""The name under which all extenders are recorded as a pod's rejector."""


class FilterAnswer(Struct):
    """One extender's answer to a filter request. ``accepted``: the number of nodes left.

    ``failed`` and ``unresolvable``: messages by node, the latter where preemption does not help.
    ``error``: why there was no answer.
    """

    url: str
    accepted: int = 0
    failed: Mapping[str, str] = field(default_factory=dict)
    unresolvable: Mapping[str, str] = field(default_factory=dict)
    error: str = ""


class ExtenderAnswers(Struct):
    """All answers of one attempt, in the order of the extenders.

    ``scores``: URL, and what is added to the total of each node (already weighted). ``errors``: of
    prioritize requests, by URL. ``totals``: of plugins and extenders together, by feasible node.
    """

    filters: list[FilterAnswer] = field(default_factory=list)
    scores: list[tuple[str, Mapping[str, int]]] = field(default_factory=list)
    errors: dict[str, str] = field(default_factory=dict)
    totals: IntArray | None = None


class Pausable(Protocol):
    """A source of watch events that can be paused."""

    def paused(self) -> AbstractContextManager[None]:
        """Hold events back for the length of a ``with`` block, and deliver them after it."""
        ...


class ExtenderChain:
    """The extenders in the order in which they are called."""

    def __init__(
        self,
        extenders: Sequence[HTTPExtender],
        table: NodeTable,
        metrics: SchedulerMetrics,
        rng: random.Random,
    ) -> None:
        self._extenders = tuple(extenders)
        self._table = table
        self._rng = np.random.default_rng(rng.getrandbits(64))
        self._in_progress = metrics.goroutines.labels("prioritizing_extender")
        self.filter_or_prioritize = any(e.filter_verb or e.prioritize_verb for e in extenders)
        """Whether one feasible node is not enough to decide, even if no plugin scores."""

    def interested_in(self, pod: Pod) -> tuple[HTTPExtender, ...]:
        """Return the extenders that are interested in a pod."""
        return tuple(extender for extender in self._extenders if extender.is_interested(pod))

    async def close(self) -> None:
        """Close all connections."""
        for extender in self._extenders:
            await extender.close()

    # ---- filter --------------------------------------------------------------------------------

    async def filter(
        self,
        interested: Sequence[HTTPExtender],
        pod: Pod,
        found: FeasibleNodes,
        answers: ExtenderAnswers | None = None,
    ) -> FeasibleNodes:
        """Let extenders narrow down feasible nodes; raises ``ExtenderError``.

        The result is a copy: the verdicts of ``found`` may be shared with other pods. ``answers``
        is filled with what each extender answered.
        """
        filters = [extender for extender in interested if extender.filter_verb]
        if not filters or not found.count:
            return found
        rows = {self._table[row].name: row for row in found.rows.tolist()}
        statuses: dict[str, Status] = {}
        left, without_pods = rows, False
        for extender in filters:
            # No nodes are left: kube-scheduler does not call the remaining extenders either.
            if not left:
                break
            try:
                filtered = await extender.filter(pod, self._nodes(left.values()))
            except ExtenderError as error:
                if answers is not None:
                    answers.filters.append(FilterAnswer(extender.url, error=str(error)))
                _pass_over(extender, error)
                continue
            failed = self._of_known(filtered.failed)
            unresolvable = self._of_known(filtered.unresolvable)
            for name, message in failed.items():
                statuses[name] = checked(Status.unschedulable(message))
            # After the failed ones: a node in both is unresolvable, and preemption skips it.
            for name, message in unresolvable.items():
                statuses[name] = checked(Status.unresolvable(message))
            left = {name: rows[name] for name in filtered.names}
            if answers is not None:
                answers.filters.append(FilterAnswer(extender.url, len(left), failed, unresolvable))
            without_pods = without_pods or filtered.as_objects
        # An extender may reject nodes that a later one lists.
        by_row = {
            self._table.rows[name]: status for name, status in statuses.items() if name not in left
        }
        return found.after_extenders(sorted(left.values()), by_row, without_pods)

    # ---- prioritize ----------------------------------------------------------------------------

    async def prioritize(
        self,
        interested: Sequence[HTTPExtender],
        pod: Pod,
        rows: Rows,
        node_scores: IntArray,
        answers: ExtenderAnswers | None = None,
    ) -> AttemptTotals:
        """Return the order of feasible nodes with the extenders' scores added; errors are ignored.

        Nodes with equal totals are ordered at random, those that no extender scored last. Only the
        order of the returned totals has a meaning. ``answers`` is filled with the scores.
        """
        # Copied before the first await: shared totals change with the next row.
        totals = node_scores[rows]
        prioritizers = [extender for extender in interested if extender.prioritize_verb]
        # An interested extender without this verb counts as if it had scored all nodes with 0.
        scored = np.full(len(rows), len(prioritizers) < len(interested))
        if prioritizers:
            places = {self._table[row].name: index for index, row in enumerate(rows.tolist())}
            for url, scores in await self.scores(prioritizers, pod, rows, answers):
                if answers is not None:
                    answers.scores.append((url, scores))
                for name, score in scores.items():
                    index = places.get(name)
                    if index is not None:
                        totals[index] = wrap(int(totals[index]) + score)
                        scored[index] = True
        if answers is not None:
            answers.totals = totals
        if score_log.log.threshold >= score_log.LEVEL:
            names = [self._table[row].name for row in rows.tolist()]
            score_log.log_final_scores(key_of(pod), names, totals.tolist())
        chance = np.where(scored, 1.0 - self._rng.random(len(rows)), 0.0)
        return AttemptTotals(len(node_scores), rows, _in_order(totals, chance))

    async def scores(
        self,
        interested: Sequence[HTTPExtender],
        pod: Pod,
        rows: Rows,
        answers: ExtenderAnswers | None = None,
    ) -> list[tuple[str, Mapping[str, int]]]:
        """Return the URL and the weighted scores by node of each extender with this verb."""
        prioritizers = [extender for extender in interested if extender.prioritize_verb]
        nodes = self._nodes(rows.tolist())
        # Together, as in kube-scheduler: their scores are added, so the order does not matter.
        errors = None if answers is None else answers.errors
        requests = (self._prioritize(extender, pod, nodes, errors) for extender in prioritizers)
        found = await asyncio.gather(*requests)
        return [(extender.url, s) for extender, s in zip(prioritizers, found, strict=True)]

    async def _prioritize(
        self,
        extender: HTTPExtender,
        pod: Pod,
        nodes: Sequence[Node],
        errors: dict[str, str] | None,
    ) -> Mapping[str, int]:
        self._in_progress.inc()
        try:
            return await extender.prioritize(pod, nodes)
        except ExtenderError as error:
            message = "Failed to run extender's priority function. No score given by this extender"
            log.v(5).info(message, err=error, extender=extender.url)
            if errors is not None:
                errors[extender.url] = str(error)
            return {}
        finally:
            self._in_progress.dec()

    # ---- preempt -------------------------------------------------------------------------------

    def may_preempt(self, pod: Pod) -> bool:
        """Return whether an extender with a preemptVerb is interested in a pod."""
        return any(self._preempting(pod))

    def _preempting(self, pod: Pod) -> Iterator[HTTPExtender]:
        return (one for one in self._extenders if one.preempt_verb and one.is_interested(pod))

    async def preempt(self, pod: Pod, victims: Mapping[str, Victims]) -> Mapping[str, Victims]:
        """Return the preemption candidates that extenders accept, by node name.

        Candidates without victims are for extenders to add some; those that stay without are
        dropped, also where all extenders that could add some fail and are ignorable. Raises
        ``ExtenderError``. If nothing changes, ``victims`` itself is returned.
        """
        for extender in self._preempting(pod):
            if not victims:
                break
            try:
                left = await extender.preempt(pod, victims, self._table)
            except ExtenderError as error:
                _pass_over(extender, error)
                continue
            # Preemption without victims would nominate a node that was full a moment ago.
            for name in [name for name, those in left.items() if not those.pods]:
                if name in victims and not victims[name].pods:
                    continue
                if not extender.ignorable:
                    raise ExtenderError(f'expected at least one victim pod on node "{name}"')
                del left[name]
            victims = left
        if all(those.pods for those in victims.values()):
            return victims
        return {name: those for name, those in victims.items() if those.pods}

    # ---- bind ----------------------------------------------------------------------------------

    async def bind(self, pod: PodInfo, node_name: str) -> bool:
        """Let the extender that binds do so; return whether there is one.

        Raises ``ExtenderError``.
        """
        for extender in self._extenders:
            if not extender.bind_verb or not extender.is_interested(pod.pod):
                continue
            try:
                await extender.bind(pod.pod, node_name)
            except ExtenderError as error:
                _pass_over(extender, error)
                continue
            return True
        return False

    def _of_known(self, messages: Mapping[str, str]) -> dict[str, str]:
        """Return the messages about nodes that exist; an extender may name many others."""
        return {name: text for name, text in messages.items() if name in self._table.rows}

    def _nodes(self, rows: Iterable[int]) -> list[Node]:
        nodes = [self._table[row].node for row in rows]
        return [node for node in nodes if node is not None]


def _pass_over(extender: HTTPExtender, error: ExtenderError) -> None:
    """Log the error of an ignorable extender; raise that of any other."""
    if not extender.ignorable:
        raise error
    log.v(2).info("Passing over an extender's error", err=error, extender=extender.url)


def _in_order(totals: IntArray, chance: FloatArray) -> IntArray:
    """Return ranks from 0 on, by total, and by chance among equal totals."""
    # Totals may be negative, which would mark a node as infeasible; ranks are not.
    order = np.lexsort((chance, totals))
    same = (np.diff(totals[order]) == 0) & (np.diff(chance[order]) == 0)
    numbers = np.empty(len(totals), dtype=np.int64)
    numbers[order] = np.concatenate(([0], np.cumsum(~same)))
    return numbers
