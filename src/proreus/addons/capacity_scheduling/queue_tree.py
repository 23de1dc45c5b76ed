"""Divides the capacity among a tree of queues, from the top down.

A queue whose parent is unknown, that is its own ancestor, or that is more than 64 deep, stands at
the top.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from proreus.addons.capacity_scheduling.fair_share import ShareClaim, fair_shares, scaled
from proreus.addons.pod_amounts import Amounts

_NOTHING: Amounts = MappingProxyType({})
_MAX_DEPTH = 64
"""Deeper ones are not organisations any more; the tree is walked recursively."""


@dataclass(frozen=True)
class CapacityQueue:
    """A queue, read from any kind of object.

    ``deserved``: may be lent, and is given back by preemption; ``unlimited``: resources of which it
    deserves all. ``guarantee``: not lent. ``limit``: never exceeded; a resource that is not in it
    is not limited. ``weights``: of what nobody deserves, by resource, ``weight`` for others.
    ``reclaimable``: whether pods of it are evicted for those of other queues, and not before they
    have run for ``reclaim_min_runtime_seconds``.
    """

    name: str
    parent: str = ""
    deserved: Amounts = field(default_factory=dict)
    unlimited: frozenset[str] = frozenset()
    guarantee: Amounts = field(default_factory=dict)
    limit: Amounts = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    weight: float = 1.0
    priority: int = 0
    reclaimable: bool = True
    reclaim_min_runtime_seconds: float = 0.0


@dataclass(frozen=True)
class QueueShares:
    """The part of the capacity that each queue deserves, and its fair share, by resource."""

    deserved: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    fair: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    capacity: Amounts = field(default_factory=dict)


class QueueTree:
    """Queues by name, with their children and ancestors."""

    def __init__(self, queues: Iterable[CapacityQueue] = ()) -> None:
        self._queues = {queue.name: queue for queue in queues}
        self._paths = {name: self._path_of(name) for name in self._queues}
        self._children: dict[str, list[str]] = {}
        for name, path in self._paths.items():
            self._children.setdefault(path[1] if len(path) > 1 else "", []).append(name)

    def _path_of(self, name: str) -> tuple[str, ...]:
        path = [name]
        while (parent := self._queues[path[-1]].parent) in self._queues:
            if parent in path or len(path) == _MAX_DEPTH:
                return (name,)
            path.append(parent)
        return tuple(path)

    def __contains__(self, name: object) -> bool:
        return name in self._queues

    def __getitem__(self, name: str) -> CapacityQueue:
        return self._queues[name]

    def is_leaf(self, name: str) -> bool:
        """Return whether a queue has no children: only then it takes pods."""
        return name not in self._children

    def children(self, name: str) -> Sequence[str]:
        """Return the queues below a queue; ``name`` "" stands for the root."""
        return self._children.get(name, ())

    def subtree(self, name: str) -> list[str]:
        """Return a queue and its descendants."""
        found = [name]
        for one in found:
            found += self.children(one)
        return found

    def path(self, name: str) -> tuple[str, ...]:
        """Return a queue and its ancestors, up to the top; empty for an unknown queue."""
        return self._paths.get(name, ())

    def diverging(self, name: str, other: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the parts of both paths below the first common ancestor."""
        path, others = self.path(name), self.path(other)
        return (
            tuple(one for one in path if one not in others),
            tuple(one for one in others if one not in path),
        )

    def shares(
        self,
        capacity: Amounts,
        requests: Mapping[str, Amounts],
        usage: Callable[[str, str], float],
        k: float,
    ) -> QueueShares:
        """Divide the capacity, from the top down, each resource by itself.

        ``requests``: of the pods of each leaf, by name; ``usage(queue, resource)``: the decayed
        share of the capacity; ``k``: see ``fair_shares``.
        """
        deserved: dict[str, dict[str, int]] = {name: {} for name in self._queues}
        fair: dict[str, dict[str, int]] = {name: {} for name in self._queues}
        for resource, amount in capacity.items():
            asked: dict[str, int] = {}
            for name in self._children.get("", ()):
                self._ask(name, resource, requests, asked)
            levels = [("", amount, amount)]
            while levels:
                parent, most, share = levels.pop()
                children = [self._queues[name] for name in self._children.get(parent, ())]
                wished = {
                    one.name: most
                    if resource in one.unlimited
                    else max(one.deserved.get(resource, 0), one.guarantee.get(resource, 0))
                    for one in children
                }
                mine = scaled(wished, most)
                claims = [
                    ShareClaim(
                        one.name,
                        mine[one.name],
                        asked[one.name],
                        one.weights.get(resource, one.weight),
                        one.priority,
                        usage(one.name, resource),
                        min(one.guarantee.get(resource, 0), mine[one.name]),
                    )
                    for one in children
                ]
                found = fair_shares(share, claims, k)
                for one in children:
                    deserved[one.name][resource] = mine[one.name]
                    fair[one.name][resource] = found[one.name]
                    levels.append((one.name, mine[one.name], found[one.name]))
        return QueueShares(deserved, fair, capacity)

    def _ask(
        self,
        name: str,
        resource: str,
        requests: Mapping[str, Amounts],
        asked: dict[str, int],
    ) -> int:
        """Sum the requests of a queue and its descendants within their limits, into ``asked``."""
        total = requests.get(name, _NOTHING).get(resource, 0)
        for child in self._children.get(name, ()):
            total += self._ask(child, resource, requests, asked)
        limit = self._queues[name].limit.get(resource)
        asked[name] = total if limit is None else min(total, limit)
        return asked[name]
