"""The work of every second, beside the scheduling loop: time limits, gates, gauges, caches."""

from __future__ import annotations

from collections.abc import Callable

from proreus.base.bounded_cache import AGE_INTERVAL_SECONDS, age_share
from proreus.base.logs import logger
from proreus.base.metrics import SchedulerMetrics
from proreus.engine.cluster_events import as_assigned
from proreus.engine.scheduler import Scheduler
from proreus.framework.events import ASSIGNED_POD_DELETE

log = logger(__name__)


class Housekeeping:
    """The work of every second; ``calls`` are made too."""

    def __init__(self, scheduler: Scheduler, metrics: SchedulerMetrics) -> None:
        self.calls: list[Callable[[], None]] = []
        self._scheduler = scheduler
        self._cache_size = metrics.cache_size
        self._ticks = 0

    def tick(self) -> None:
        """Handle ended back-offs, pods left in the queue too long, and expired time limits.

        To be called at every whole second of the clock.
        """
        self._scheduler.queue.flush()
        self._scheduler.waiting_pods.expire()
        self._forget_unconfirmed_pods()
        self._open_gates_of_disabled_plugins()
        for call in self.calls:
            call()
        self._measure_cache()
        self.age_caches()

    def age_caches(self) -> None:
        """Drop cache entries that were not used lately; once a second, on a standby too."""
        self._ticks += 1
        age_share(self._ticks % AGE_INTERVAL_SECONDS)

    def _forget_unconfirmed_pods(self) -> None:
        queue = self._scheduler.queue
        for pod, node_name in self._scheduler.cache.expire_assumed():
            log.warning("Assumed pod was never confirmed; scheduling it anew", pod=pod.key)
            # Its resources are free again: for the queue, that is the deletion of an assigned pod.
            assigned_pod = as_assigned(pod.pod, node_name)
            queue.move_all_to_active_or_backoff(ASSIGNED_POD_DELETE, assigned_pod, None)
            # It may be bound all the same, and the watch has lost that: then its binding fails.
            queue.add_again(pod)

    def _open_gates_of_disabled_plugins(self) -> None:
        # No event opens them: it is our own policy that disables a plugin for its failures.
        queue = self._scheduler.queue
        for profile in self._scheduler.profiles.values():
            for health in profile.health_monitors:
                if health.tick():
                    gated = queue.gated_pods()
                    queue.activate([q.key for q in gated if q.gating_plugin == health.plugin])

    def _measure_cache(self) -> None:
        sizes, cache = self._cache_size, self._scheduler.cache
        sizes.labels("assumed_pods").set(cache.assumed_count)
        sizes.labels("pods").set(cache.pod_count)
        sizes.labels("nodes").set(cache.node_count)
