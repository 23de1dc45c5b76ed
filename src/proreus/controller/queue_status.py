"""The status of Queues of Volcano and KAI, as far as ours means the same.

Only for clusters in which their own controllers do not run: two writers would undo each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

from proreus.addons.capacity_scheduling.queue_objects import (
    KaiSource,
    QueueSource,
    VolcanoSource,
)
from proreus.addons.capacity_scheduling.queue_tree import QueueTree
from proreus.controller.amounts import (
    is_assigned,
    is_waiting_or_assigned,
    quantities,
    requested,
)
from proreus.controller.pod_sets import PodSets
from proreus.controller.status_kind import WithStatus
from proreus.objects import Pod, Resource

_Compute = Callable[[list[Pod], list[str]], dict[str, Any]]


class QueueStatuses:
    """Implements ``StatusKind``; a queue counts the pods of the queues below it too."""

    def __init__(self, source: QueueSource, compute: _Compute) -> None:
        self._source = source
        self._compute = compute
        self._objects: dict[str, WithStatus[Any]] = {}
        self._pods = PodSets(source.name_for)
        self._tree = QueueTree()

    @property
    def resource(self) -> Resource[Any]:
        """What is watched."""
        return self._source.resource

    def put(self, key: str, obj: WithStatus[Any]) -> Iterable[str]:
        """Note a queue; it may have another parent now."""
        self._objects[key] = obj
        self._rebuild()
        return list(self._objects)

    def remove(self, key: str) -> Iterable[str]:
        """Forget a queue."""
        self._objects.pop(key, None)
        self._rebuild()
        return list(self._objects)

    def put_pod(self, pod: Pod) -> Iterable[str]:
        """Note a pod."""
        return self._with_ancestors(self._pods.put(pod))

    def remove_pod(self, pod: Pod) -> Iterable[str]:
        """Forget a pod."""
        return self._with_ancestors(self._pods.remove(pod))

    def keys(self) -> Iterable[str]:
        """Return the names of all queues."""
        return self._objects

    def get(self, key: str) -> WithStatus[Any] | None:
        """Return a queue."""
        return self._objects.get(key)

    def status(self, key: str, now: float) -> dict[str, Any]:
        """Return what the pods of a queue request and have."""
        below = [name for name in self._objects if key in self._tree.path(name)]
        pods = [pod for name in {key, *below} for pod in self._pods.of(name)]
        return self._compute(pods, sorted(self._tree.children(key)))

    def _with_ancestors(self, names: Iterable[str]) -> set[str]:
        found = {one for name in names for one in (name, *self._tree.path(name))}
        return found & self._objects.keys()

    def _rebuild(self) -> None:
        queues = (self._source.queue_of(one.obj) for one in self._objects.values())
        self._tree = QueueTree(queue for queue in queues if queue is not None)


def volcano_queues() -> QueueStatuses:
    """Return the statuses of Volcano's queues: ``allocated``."""
    return QueueStatuses(
        cast(QueueSource, VolcanoSource()), lambda pods, _: {"allocated": _allocated(pods)}
    )


def kai_queues() -> QueueStatuses:
    """Return the statuses of KAI's queues: ``allocated``, ``requested`` and ``childQueues``."""
    return QueueStatuses(
        cast(QueueSource, KaiSource()),
        lambda pods, children: {
            "allocated": _allocated(pods),
            "requested": quantities(requested(filter(is_waiting_or_assigned, pods))),
            "childQueues": children,
        },
    )


def _allocated(pods: list[Pod]) -> dict[str, str]:
    return quantities(requested(filter(is_assigned, pods)))
