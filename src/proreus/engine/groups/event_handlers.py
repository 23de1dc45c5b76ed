"""From watch events of PodGroups and CompositePodGroups to the queue, which keeps their forest."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import TypeVar

from proreus.base.metrics import SchedulerMetrics
from proreus.engine.queue.scheduling_queue import SchedulingQueue
from proreus.framework.events import (
    ADD,
    COMPOSITE_POD_GROUP,
    DELETE,
    POD_GROUP,
    UPDATE,
    ClusterEvent,
)
from proreus.objects.scheduling import CompositePodGroup, PodGroup

G = TypeVar("G", PodGroup, CompositePodGroup)


class PodGroupHandlers:
    """Applies added, updated and deleted groups. A handler of the informer of either kind.

    Unlike other kinds, groups are watched whether or not a plugin registered them: without its
    group object no pod of it can be queued.
    """

    def __init__(
        self,
        resource: str,
        queue: SchedulingQueue,
        metrics: SchedulerMetrics,
    ) -> None:
        """``resource``: of the events, ``POD_GROUP`` or ``COMPOSITE_POD_GROUP``."""
        assert resource in (POD_GROUP, COMPOSITE_POD_GROUP)
        assert queue.pod_groups is not None
        self._queue = queue
        self._pod_groups = queue.pod_groups
        self._seconds = metrics.event_handling_duration_seconds
        self._added = ClusterEvent(resource, ADD)
        self._updated = ClusterEvent(resource, UPDATE)
        self._deleted = ClusterEvent(resource, DELETE)

    def on_add(self, group: G) -> None:
        """A group appeared."""
        started = perf_counter()
        self._pod_groups.add_group(group)
        self._move(self._added, None, group, started)

    def on_add_all(self, groups: Sequence[G]) -> None:
        """All these groups appeared: the first list."""
        with self._queue.first_list():
            for group in groups:
                self.on_add(group)

    def on_update(self, old: G, new: G) -> None:
        """A group changed."""
        # A resync repeats what is known. Offline objects have no version and always count.
        if old.metadata.resource_version == new.metadata.resource_version != "":
            return
        started = perf_counter()
        self._pod_groups.update_group(old, new)
        self._move(self._updated, old, new, started)

    def on_delete(self, group: G, final_state_unknown: bool = False) -> None:
        """A group is gone."""
        started = perf_counter()
        self._pod_groups.delete_group(group)
        self._move(self._deleted, group, None, started)

    def _move(self, event: ClusterEvent, old: G | None, new: G | None, started: float) -> None:
        self._queue.move_all_to_active_or_backoff(event, old, new)
        self._seconds.labels(event.label).observe(perf_counter() - started)
