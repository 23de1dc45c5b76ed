"""Moves unschedulable pods at events of the cluster, and flushes pods that wait long.

An event may concern ten thousand pods: they are looked at in portions, between which others are
scheduled.

kube-scheduler's ``moveAllToActiveOrBackoffQueue`` and ``flushUnschedulableEntitiesLeftover``.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from proreus.base import logs
from proreus.base.clock import Clock
from proreus.engine.queue.in_flight import InFlightPods
from proreus.engine.queue.named_pods import NamedPods
from proreus.engine.queue.queueing_hints import (
    NO_MATCHES,
    QueueingHints,
    QueueingStrategy,
)
from proreus.engine.queue.sub_queues import QueueOptions, SubQueues
from proreus.framework.events import (
    ADD,
    ALL,
    ANY,
    ASSIGNED_POD,
    DELETE,
    UNSCHEDULABLE_TIMEOUT,
    ClusterEvent,
)
from proreus.framework.pod_info import PodInfo, QueuedPodInfo
from proreus.framework.queued_pod_group import QueuedEntityInfo, QueuedPodGroupInfo

log = logs.logger(__name__)

LEFT_OVER_FLUSH_SECONDS = 30

_MOST_MOVES = 100
"""Of more waiting events those of a kind are merged: more hints cost as much as to try a pod."""

_ATTEMPTS_BETWEEN_FLUSHES = 3
"""How often a group is tried by count between two calls of ``PutOffGroups.flush``."""

Precheck = Callable[[QueuedPodInfo], bool]


class _Move(Struct):
    """An event, and the pods that it may help.

    ``changes``: the old and the new version of each object that it is about; None if they are too
    many to be kept. ``candidates``: None until they are looked up.
    """

    event: ClusterEvent
    changes: Sequence[tuple[Any, Any]] | None
    precheck: Precheck | None = None
    candidates: Iterator[QueuedEntityInfo] | None = None
    named: NamedPods | None = None

    @property
    def change(self) -> tuple[Any, Any] | None:
        """The change that hints are asked about; None for many, of which one is likely to help."""
        return self.changes[0] if self.changes is not None and len(self.changes) == 1 else None


class PutOffGroups:
    """The groups of plugins for which something has happened, though maybe not enough.

    The end of a gang is as many events as it has pods. To try all waiting groups at each of them
    would cost as much as to place them as often, and in vain: half of the room helps no group. So a
    group is tried once the pods that went have made room for as many of its pods as it lacked. The
    count is rough (nobody looks whether the room is on one node, or on one that the group may use),
    so ``flush`` gives what was put off to the queue once a second, and no group is tried by count
    more often than a few times in between.

    Example: of 50 pods 30 fit, and pods of the same size are deleted one by one. The twentieth
    deletion has the group tried; the nineteen before it put it off.
    """

    def __init__(self) -> None:
        self._events: dict[str, ClusterEvent] = {}
        self._attempts: dict[str, int] = {}

    def puts_off(self, queued: QueuedEntityInfo, event: ClusterEvent, old: Any) -> bool:
        """Return whether a group that an event helps waits for more events, or for ``flush``.

        Groups of the API do not: they are tried when kube-scheduler tries them.
        """
        if not isinstance(queued, QueuedPodGroupInfo) or not queued.root.is_provided:
            return False
        if queued.gated or event.wildcard:
            return False
        queued.room_made += _room_made(queued, event, old)
        attempts = self._attempts.get(queued.key, 0)
        if queued.room_made < queued.lacking or attempts >= _ATTEMPTS_BETWEEN_FLUSHES:
            self._events[queued.key] = event
            return True
        self._attempts[queued.key] = attempts + 1
        self._events.pop(queued.key, None)
        return False

    def flush(self) -> Mapping[str, ClusterEvent]:
        """Return the keys of the groups that were put off, with the last event of each."""
        events, self._events = self._events, {}
        self._attempts.clear()
        return events


class EventMoves:
    """Moves pods and groups from ``unschedulable`` to ``active`` or ``backoff``.

    ``names_pods``: whether plugins may name the pods that an event concerns.
    """

    def __init__(
        self,
        sub_queues: SubQueues,
        in_flight: InFlightPods,
        hints: QueueingHints,
        clock: Clock,
        options: QueueOptions,
        *,
        names_pods: bool,
    ) -> None:
        self._sub_queues = sub_queues
        self._unschedulable = sub_queues.unschedulable
        self._in_flight = in_flight
        self._hints = hints
        self._clock = clock
        self._timeout = options.unschedulable_timeout_seconds
        self._flushes_gated_pods = options.flushes_gated_pods
        self._names_pods = names_pods
        self.portion = math.inf
        """How many pods are looked at before others are scheduled."""
        self._moves: deque[_Move] = deque()
        """The events that have not been seen by all pods, in their order."""
        self._put_off_groups = PutOffGroups()
        self._first_list: dict[ClusterEvent, list[Any]] | None = None
        self._next_left_over_flush = clock.monotonic()

    def move_all(self, event: ClusterEvent, old: Any, new: Any, precheck: Precheck | None) -> bool:
        """Move the pods that an event may help; return whether a plugin registered the event."""
        # Not even pods in flight can need it: whatever rejects them did not register it.
        if not event.wildcard and self._hints.matches_of(event) is NO_MATCHES:
            return False
        if self._first_list is not None and event.action == ADD:
            self._first_list.setdefault(event, []).append(new)
            return False
        self._begin(_Move(event, ((old, new),), precheck))
        # Replayed, it concerns any pod: what is named now may not be what is named then.
        self.record(event, old, new)
        return True

    def record(self, event: ClusterEvent, old: Any, new: Any) -> None:
        """Keep an event for the pods in flight, and for groups that have yet to go on."""
        self._in_flight.record(event, old, new)
        unfinished = self._sub_queues.unfinished_groups
        for key, group in list(unfinished.items()):
            # While it is tried, its pods are in flight.
            if self._sub_queues.get_entity(key) is not group:
                del unfinished[key]
            elif not group.helped:
                strategy = self._hints.group_queueing_strategy(group, event, old, new)
                group.helped = strategy is not QueueingStrategy.SKIP

    @contextmanager
    def first_list(self) -> Iterator[None]:
        """Take all additions of a kind meanwhile for one event, which needs no hints.

        Asked about each object of a first list, hints and PreEnqueue would be called for each pod
        that waits times each object. One of so many is likely to help.
        """
        first_list: dict[ClusterEvent, list[Any]] = {}
        self._first_list = first_list
        try:
            yield
        finally:
            self._first_list = None
            for event, added in first_list.items():
                self._begin(_Move(event, [(None, new) for new in added]))
                self.record(ClusterEvent(ANY, ALL, label=event.label), None, None)

    def _is_held(self, queued: QueuedEntityInfo, event: ClusterEvent) -> bool:
        """Return whether a pod is gated by a plugin that the event does not concern."""
        # It has not passed PreEnqueue: other plugins' events do not concern it yet.
        return (
            queued.gated
            and not (event.wildcard and self._flushes_gated_pods)
            and not self._hints.gating_plugin_registered(queued, event)
        )

    def _begin(self, move: _Move) -> None:
        # With room for all pods none is here, and every one that is bound is an event.
        if not len(self._unschedulable):
            return
        self._moves.append(move)
        # Of many events in a row each would have a portion looked at.
        if len(self._moves) == 1:
            self.go_on()
        elif len(self._moves) > _MOST_MOVES:
            self._merge()

    def _merge(self) -> None:
        """Replace the moves that have not begun by one for each kind of event."""
        begun = [move for move in self._moves if move.candidates is not None]
        events = {
            (move.event.resource, move.event.action): move.event
            for move in self._moves
            if move.candidates is None
        }
        self._moves = deque([*begun, *(_Move(event, None) for event in events.values())])

    @property
    def is_moving(self) -> bool:
        """Whether an event has pods left that were not looked at."""
        return bool(self._moves)

    def go_on(self) -> None:
        """Look at some of the pods that events may help: at ``portion`` of them, at the least."""
        looked_at = 0.0
        while self._moves and looked_at < self.portion:
            move = self._moves[0]
            if move.candidates is None:
                move.candidates = iter(self._look_up(move))
            for queued in move.candidates:
                looked_at += queued.size
                # While others were scheduled, it may have moved, or gone.
                if self._unschedulable.get(queued.key) is queued:
                    self._move(queued, move)
                if looked_at >= self.portion:
                    break
            else:
                self._moves.popleft()

    def _look_up(self, move: _Move) -> list[QueuedEntityInfo]:
        """Return the pods that an event may help, before hints are called."""
        try:
            if self._names_pods and move.change is not None:
                move.named = self._hints.named_pods(move.event, *move.change)
            return self._candidates(move)
        except Exception as error:
            # A move that stayed would raise at every pop. An attempt too many costs little.
            log.error(
                "The pods that an event may help cannot be told; hints are called for all",
                err=error,
                trace=True,
                event=move.event.label,
            )
            return self._unschedulable.pods()

    def _candidates(self, move: _Move) -> list[QueuedEntityInfo]:
        candidates = self._hints.candidates_for(self._unschedulable, move.event, move.changes)
        if move.named is None and move.precheck is None:
            return candidates
        return [one for one in candidates if _concerns(one, move.named, move.precheck)]

    def _move(self, queued: QueuedEntityInfo, move: _Move) -> None:
        event = move.event
        if self._is_held(queued, event):
            return
        strategy = self._strategy(queued, move)
        if strategy is QueueingStrategy.SKIP:
            return
        if event == UNSCHEDULABLE_TIMEOUT:
            queued.set_was_flushed_from_unschedulable(True)
        self._unschedulable.discard(queued.key)
        self._sub_queues.requeue(queued, strategy, event.label)

    def _strategy(self, queued: QueuedEntityInfo, move: _Move) -> QueueingStrategy:
        if move.change is None:
            return QueueingStrategy.AFTER_BACKOFF
        event, (old, new) = move.event, move.change
        if isinstance(queued, QueuedPodGroupInfo):
            strategy = self._hints.group_queueing_strategy(queued, event, old, new, move.named)
        else:
            strategy = self._hints.queueing_strategy(queued, event, old, new, move.named)
        if strategy is not QueueingStrategy.SKIP and self._put_off_groups.puts_off(
            queued, event, old
        ):
            return QueueingStrategy.SKIP
        return strategy

    def flush_put_off(self) -> bool:
        """Move the groups that were put off; return whether there were some. Once a second."""
        put_off = self._put_off_groups.flush()
        for key, event in put_off.items():
            queued = self._unschedulable.get(key)
            if isinstance(queued, QueuedPodGroupInfo) and not queued.gated:
                self._unschedulable.discard(key)
                strategy = QueueingStrategy.AFTER_BACKOFF
                self._sub_queues.requeue(queued, strategy, event.label)
        return bool(put_off)

    def flush_left_over_is_due(self) -> bool:
        """Return whether 30 seconds have passed since this was last true."""
        now = self._clock.monotonic()
        if now < self._next_left_over_flush:
            return False
        self._next_left_over_flush = now + LEFT_OVER_FLUSH_SECONDS
        return True

    def flush_left_over(self) -> bool:
        """Move the pods that have waited too long for an event; return whether there are any."""
        # A safety net for hints that miss an event. kube-scheduler counts the pods that needed it
        # (pod_scheduled_after_flush_total).
        if any(move.event == UNSCHEDULABLE_TIMEOUT for move in self._moves):
            return False
        now = self._clock.monotonic()
        latest = now - self._timeout
        # A pod that stays, because it is gated again, is flushed again after the same time. Up to
        # 1.36 such pods were not flushed.
        left_over = [
            queued
            for queued in self._unschedulable.pods()
            if max(queued.timestamp, queued.flush_timestamp) < latest
        ]
        if self._flushes_gated_pods:
            for queued in left_over:
                queued.flush_timestamp = now
        if left_over:
            self._begin(_Move(UNSCHEDULABLE_TIMEOUT, ((None, None),), None, iter(left_over)))
            self.record(UNSCHEDULABLE_TIMEOUT, None, None)
        return bool(left_over)


def _concerns(queued: QueuedEntityInfo, named: NamedPods | None, precheck: Precheck | None) -> bool:
    """Return whether an event concerns a pod, or one of a group's: a named one, if any are."""
    return any(
        (named is None or named.may_concern(pod.key)) and (precheck is None or precheck(pod))
        for pod in queued.queued_pods
    )


def _room_made(group: QueuedPodGroupInfo, event: ClusterEvent, old: Any) -> int:
    """Return for how many more pods of a group there may be room, at most, after an event.

    An event that is not the end of a pod may make room for any number.
    """
    if event.resource != ASSIGNED_POD or not event.action & DELETE or old is None:
        return group.lacking
    freed = PodInfo(old).requests.amounts
    needed = next((one for one in group.queued_pods if one.rejectors), group).info.requests.amounts
    # A pod more also where the amounts are too small for one: they complete what was free before.
    by_resource = [-(-freed.get(name, 0) // amount) for name, amount in needed.items() if amount]
    return max(1, *by_resource) if by_resource else 1
