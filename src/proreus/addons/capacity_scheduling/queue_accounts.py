"""Counts the requests and the use of each queue, now and in the past."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import log

from proreus.addons.capacity_scheduling.queue_tree import CapacityQueue, QueueShares, QueueTree
from proreus.addons.pod_amounts import Amounts, count

_HALF_LIVES_TO_KEEP = 30
"""After these a billionth is left."""


class DecayedUsage:
    """The integral over time of amounts, each instant weighted by ``0.5 ** (age / half_life)``.

    Instants are in seconds and must not go back.
    """

    def __init__(self, half_life_seconds: float, now: float) -> None:
        self._half_life = half_life_seconds
        self._since = now
        self._amounts: Amounts = {}
        self._used: dict[str, float] = {}

    def change(self, amounts: Amounts, now: float) -> None:
        """Use these amounts from now on."""
        self._used = self.at(now)
        self._since = now
        self._amounts = dict(amounts)

    def is_over(self, now: float) -> bool:
        """Return whether nothing is used, and the past has decayed to almost nothing."""
        return not self._amounts and now - self._since > _HALF_LIVES_TO_KEEP * self._half_life

    def at(self, now: float) -> dict[str, float]:
        """Return the integral at an instant, in amounts times seconds."""
        decay = 0.5 ** ((now - self._since) / self._half_life)
        grown = (1 - decay) * self._half_life / log(2)
        names = self._used.keys() | self._amounts.keys()
        return {
            name: self._used.get(name, 0.0) * decay + self._amounts.get(name, 0) * grown
            for name in names
        }


@dataclass(frozen=True)
class _QueuedPod:
    """A pod that asks, or has a node (``placed``)."""

    queue: str
    amounts: Amounts
    placed: bool


class QueueAccounts:
    """Counts pods, each once, by the queue that it names.

    ``half_life_seconds``: of past use; 0: the past does not count. ``k``: how much it counts.
    A pod that has a node is ``placed``; one that has none asks. Pods that name no queue are counted
    under "", and what they have is not there to be divided.
    """

    def __init__(self, half_life_seconds: float = 0.0, k: float = 0.0) -> None:
        self._tree: QueueTree | None = None
        self._queues: dict[str, CapacityQueue] = {}
        self._pods: dict[str, _QueuedPod] = {}
        self._requested: dict[str, dict[str, int]] = {}
        self._placed: dict[str, dict[str, int]] = {}
        self._used: dict[str, dict[str, int]] = {}
        """The use of each queue and its descendants; derived from ``_placed`` and the tree, and
        empty while there is none."""
        self._half_life = half_life_seconds
        self._k = k
        self._history: dict[str, DecayedUsage] = {}
        self._capacity_history: DecayedUsage | None = None
        self._shares = QueueShares()
        self._stale = True
        self._computed_at = 0.0

    # ---- queues --------------------------------------------------------------------------------

    def put_queue(self, queue: CapacityQueue) -> None:
        """Add or replace a queue."""
        self._queues[queue.name] = queue
        self._tree, self._stale = None, True

    def remove_queue(self, name: str) -> None:
        """Remove a queue; its pods stay counted, for the case that it comes back."""
        self._queues.pop(name, None)
        self._tree, self._stale = None, True

    @property
    def tree(self) -> QueueTree:
        """The tree of the queues as they are now, built when it is first asked for."""
        if self._tree is None:
            self._tree = QueueTree(self._queues.values())
            self._used = {}
            for leaf, amounts in self._placed.items():
                self._add_used(self._tree, leaf, amounts, 1)
        return self._tree

    def _add_used(self, tree: QueueTree, leaf: str, amounts: Amounts, sign: int) -> None:
        for name in tree.path(leaf):
            count(self._used.setdefault(name, {}), amounts, sign)

    # ---- pods ----------------------------------------------------------------------------------

    def note(self, uid: str, queue: str, amounts: Amounts, placed: bool, now: float) -> None:
        """Count a pod, in place of its earlier version.

        A pod that was placed stays so: what the watch reports may be older than a reservation.
        """
        before = self._pods.get(uid)
        if before is not None:
            placed |= before.placed and before.queue == queue
            if before == _QueuedPod(queue, amounts, placed):
                return
            self._count(before, -1, now)
        self._pods[uid] = pod = _QueuedPod(queue, amounts, placed)
        if before is None or (before.queue, before.amounts) != (queue, amounts):
            if before is not None:
                self._note_request(before)
            self._note_request(pod)
        self._count(pod, 1, now)

    def unplace(self, uid: str, now: float) -> None:
        """Note that a pod has no node any more, and asks again."""
        before = self._pods.get(uid)
        if before is not None and before.placed:
            self._count(before, -1, now)
            self._pods[uid] = pod = _QueuedPod(before.queue, before.amounts, False)
            self._count(pod, 1, now)

    def forget(self, uid: str, now: float) -> None:
        """Do not count a pod any more."""
        before = self._pods.pop(uid, None)
        if before is not None:
            self._count(before, -1, now)
            self._note_request(before)

    def _note_request(self, pod: _QueuedPod) -> None:
        """Compute shares anew if they depend on whether this pod, not counted now, asks.

        They do not where the other pods of its queue ask for more than the queue's share.
        """
        requested, fair = self._requested.get(pod.queue, {}), self._shares.fair.get(pod.queue, {})
        if pod.queue and any(
            name not in fair or requested.get(name, 0) <= fair[name] for name in pod.amounts
        ):
            self._stale = True

    def _count(self, pod: _QueuedPod, sign: int, now: float) -> None:
        _count(self._requested, pod, sign)
        if pod.placed:
            _count(self._placed, pod, sign)
            if self._tree is not None:
                self._add_used(self._tree, pod.queue, pod.amounts, sign)
            if self._half_life and pod.queue:
                history = self._history.get(pod.queue)
                if history is None:
                    history = self._history[pod.queue] = DecayedUsage(self._half_life, now)
                history.change(self._placed.get(pod.queue, {}), now)

    def is_placed(self, uid: str) -> bool:
        """Return whether a pod is counted as placed."""
        pod = self._pods.get(uid)
        return pod is not None and pod.placed

    def used(self, queue: str, resource: str) -> int:
        """Return the use of a queue and its descendants."""
        # The tree first: the use is derived when it is built.
        return self._used.get(queue, {}).get(resource, 0) if queue in self.tree else 0

    def resources(self) -> Iterable[str]:
        """Return the resources that pods of queues request."""
        return {name for queue, one in self._requested.items() if queue for name in one}

    # ---- shares --------------------------------------------------------------------------------

    def shares(self, allocatable: Amounts, now: float, max_age_seconds: float) -> QueueShares:
        """Return the deserved amounts and fair shares of all queues.

        ``allocatable``: of all nodes. Shares are computed again once a pod came or went, the
        capacity changed, or, where the past counts, after ``max_age_seconds``.
        """
        outside = self._placed.get("", {})
        capacity = {
            name: max(amount - outside.get(name, 0), 0) for name, amount in allocatable.items()
        }
        aged = self._half_life and now - self._computed_at >= max_age_seconds
        if self._stale or aged or capacity != self._shares.capacity:
            if self._half_life:
                if self._capacity_history is None:
                    self._capacity_history = DecayedUsage(self._half_life, now)
                self._capacity_history.change(capacity, now)
                # Pods may name a queue that never existed.
                self._history = {
                    name: one for name, one in self._history.items() if not one.is_over(now)
                }
            past = self._past(now)

            def usage(queue: str, resource: str) -> float:
                return past.get(queue, {}).get(resource, 0.0)

            # Without a past, all queues are alike.
            k = self._k if past else 0.0
            self._shares = self.tree.shares(capacity, self._requested, usage, k)
            self._stale, self._computed_at = False, now
        return self._shares

    def _past(self, now: float) -> dict[str, dict[str, float]]:
        """Return the decayed share of the capacity that each queue had, by resource."""
        if self._capacity_history is None or not self._k:
            return {}
        capacity = self._capacity_history.at(now)
        past: dict[str, dict[str, float]] = {}
        for leaf, history in self._history.items():
            for resource, used in history.at(now).items():
                if capacity.get(resource, 0.0) > 0:
                    for name in self.tree.path(leaf):
                        one = past.setdefault(name, {})
                        one[resource] = one.get(resource, 0.0) + used / capacity[resource]
        return past


def _count(counts: dict[str, dict[str, int]], pod: _QueuedPod, sign: int) -> None:
    amounts = counts.setdefault(pod.queue, {})
    count(amounts, pod.amounts, sign)
    if not amounts:
        del counts[pod.queue]
