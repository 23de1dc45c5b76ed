"""From watch events of PodGroups and CompositePodGroups to the queue, which keeps their forest."""

from __future__ import annotations

from proreus.base.metrics import SchedulerMetrics
from proreus.engine.event_handlers import OtherHandlers
from proreus.engine.queue.scheduling_queue import SchedulingQueue
from proreus.framework.workload_forest import Group


class PodGroupHandlers(OtherHandlers):
    """Applies added, updated and deleted groups. A handler of the informer of either kind.

    Unlike other kinds, groups are watched whether or not a plugin registered them: without its
    group object no pod of it can be queued.
    """

    def __init__(
        self, event_resource: str, queue: SchedulingQueue, metrics: SchedulerMetrics
    ) -> None:
        """``event_resource``: ``POD_GROUP`` or ``COMPOSITE_POD_GROUP``."""
        super().__init__(event_resource, queue, metrics)
        assert queue.pod_groups is not None
        self._pod_groups = queue.pod_groups

    def on_update(self, old: Group, new: Group) -> None:
        """A group changed."""
        # A resync repeats what is known. Offline objects have no version and always count.
        if not old.metadata.resource_version == new.metadata.resource_version != "":
            super().on_update(old, new)

    def _apply(self, old: Group | None, new: Group | None) -> None:
        if old is None:
            assert new is not None
            self._pod_groups.add_group(new)
        elif new is None:
            self._pod_groups.delete_group(old)
        else:
            self._pod_groups.update_group(old, new)
