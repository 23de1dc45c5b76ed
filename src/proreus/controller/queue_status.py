"""The status of Queues of Volcano and KAI, as far as ours means the same.

Only for clusters in which their own controllers do not run: two writers would undo each other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from proreus.addons.capacity_scheduling.queue_objects import (
    KaiSource,
    QueueSource,
    VolcanoSource,
)
from proreus.addons.capacity_scheduling.queue_tree import CapacityQueue, QueueTree
from proreus.addons.pod_amounts import quantities
from proreus.base import logs
from proreus.controller.amounts import (
    is_assigned,
    requested,
)
from proreus.controller.status_reconciler import StatusReconciler
from proreus.objects import Pod
from proreus.objects.pod import is_terminal

log = logs.logger(__name__)

_Compute = Callable[[list[Pod], list[str]], dict[str, Any]]


class QueueStatuses(StatusReconciler[Any]):
    """A queue counts the pods of the queues below it too."""

    def __init__(self, source: QueueSource, compute: _Compute) -> None:
        super().__init__(source.resource, source.queue_for)
        self._source = source
        self._compute = compute
        self._known_tree: QueueTree | None = None

    @property
    def _tree(self) -> QueueTree:
        """The tree of the queues as they are now, built when it is first asked for."""
        if self._known_tree is None:
            queues = (self._queue(key) for key in self.objects)
            self._known_tree = QueueTree(queue for queue in queues if queue is not None)
        return self._known_tree

    def _queue(self, key: str) -> CapacityQueue | None:
        try:
            return self._source.queue_of(self.objects[key].obj)
        except (OverflowError, ValueError) as error:
            # A quantity that is none, which definitions let pass: the tree does without this one.
            log.warning("A queue cannot be read", queue=key, err=str(error))
            return None

    def keys_after(self, key: str) -> Collection[str]:
        """Return all queues: any may be above or below another now."""
        self._known_tree = None
        return list(self.objects)

    def keys_that_count(self, names: Collection[str]) -> Collection[str]:
        """Return the queues of these names, and the queues above them."""
        found = {one for name in names for one in (name, *self._tree.path(name))}
        return found & self.objects.keys()

    def status(self, key: str, now: float) -> dict[str, Any]:
        """Return the resources that pods of a queue, and of queues below it, request and have."""
        pods = [pod for name in self._tree.subtree(key) for pod in self.pods.of(name)]
        return self._compute(pods, sorted(self._tree.children(key)))


def volcano_queues() -> QueueStatuses:
    """Return the statuses of Volcano's queues: ``allocated``."""
    return QueueStatuses(VolcanoSource(), lambda pods, _: {"allocated": _allocated(pods)})


def kai_queues() -> QueueStatuses:
    """Return the statuses of KAI's queues: ``allocated``, ``requested`` and ``childQueues``."""
    return QueueStatuses(
        KaiSource(),
        lambda pods, children: {
            "allocated": _allocated(pods),
            "requested": quantities(requested(pod for pod in pods if not is_terminal(pod))),
            "childQueues": children,
        },
    )


def _allocated(pods: list[Pod]) -> dict[str, str]:
    return quantities(requested(filter(is_assigned, pods)))
