"""Pods whose resize is deferred, in the queue as well as in the cache.

    becomes deferred  ─► queue.add        kube-scheduler's addPod, updatePod and deletePod,
    stays deferred    ─► queue.update     with gate InPlacePodVerticalScalingSchedulerPreemption
    resized, or gone  ─► queue.delete

The cache treats such a pod as any other with a node: see ``event_handlers``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from time import perf_counter

from proreus.engine.cluster_events import pod_events
from proreus.engine.event_handlers import PodHandlers
from proreus.framework.pod_info import PodInfo
from proreus.objects.pod import Pod
from proreus.objects.requests import is_pod_resize_deferred


class DeferredResizeHandlers(PodHandlers):
    """Applies added, updated and deleted pods, also to the queue while a resize is deferred."""

    def on_add(self, pod: Pod) -> None:
        """A pod appeared."""
        if self.is_queued_on_node(pod):
            self._add_deferred(pod)
        super().on_add(pod)

    def on_update(self, old: Pod, new: Pod) -> None:
        """A pod changed."""
        # A pod that is bound just now leaves the queue first; another pod of the same name is
        # deleted and added by the base class, which calls the methods here.
        if old.spec.node_name and old.metadata.uid == new.metadata.uid:
            was, waits = self.is_queued_on_node(old), self.is_queued_on_node(new)
            # Before the cache, as in kube-scheduler.
            if waits and not was:
                self._add_deferred(new)
            elif was and not waits:
                # The old version: as a pod of a group the new one would be looked for elsewhere.
                self._delete_deferred(old)
            elif waits:
                before = PodInfo(old, self._resources_options)
                after = PodInfo(new, self._resources_options)
                changes = pod_events(before, after, self._events, queued=True)
                self._queue.update(before, after, changes)
        super().on_update(old, new)

    def on_delete(self, pod: Pod, final_state_unknown: bool = False) -> None:
        """A pod is gone, or has finished."""
        super().on_delete(pod, final_state_unknown)
        if self.is_queued_on_node(pod):
            self._delete_deferred(pod)

    def use_scheduler_names(self, names: Collection[str], pods: Iterable[Pod]) -> None:
        """Schedule the pods of other schedulerNames from now on. ``pods``: all pods."""
        pods = list(pods)
        before = {pod.metadata.uid for pod in pods if self.is_queued_on_node(pod)}
        super().use_scheduler_names(names, pods)
        for pod in pods:
            was, waits = pod.metadata.uid in before, self.is_queued_on_node(pod)
            if waits and not was:
                self._add_deferred(pod)
            elif was and not waits:
                self._delete_deferred(pod)

    def is_queued_on_node(self, pod: Pod) -> bool:
        """Return whether a pod has a node and is in the queue all the same."""
        return (
            bool(pod.spec.node_name)
            and is_pod_resize_deferred(pod)
            and self.responsible_for_pod(pod)
        )

    def _add_deferred(self, pod: Pod) -> None:
        started = perf_counter()
        self._add_to_queue(PodInfo(pod, self._resources_options), started)

    def _delete_deferred(self, pod: Pod) -> None:
        started = perf_counter()
        self._queue.delete(PodInfo(pod, self._resources_options))
        self._timed.observe(self._events.unscheduled_delete, started)
