"""The plugin: a barrier at Permit for the first members of a job, and a queue for the others.

Worked example: a job has eight pods and a minimum of three. The first three that find nodes are
held until all three have one. Only then are the other five admitted, each by itself, after all
pods of their priority that are no such surplus.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from proreus.addons.job_barrier.jobs import Job, JobBarrierArgs, Jobs, Quorum
from proreus.framework import (
    ClusterEvent,
    CycleState,
    Handle,
    NodeTable,
    PermitPlugin,
    PodInfo,
    PreFilterPlugin,
    QueuedPodInfo,
    QueueSortPlugin,
    ReservePlugin,
    Status,
    WaitingPod,
    events,
)
from proreus.objects import PODS, Pod


class JobBarrier(QueueSortPlugin, PreFilterPlugin, ReservePlugin, PermitPlugin):
    """Starts a job once its quorum has nodes, and admits its elastic members afterwards."""

    Args = JobBarrierArgs
    args: JobBarrierArgs

    def __init__(self, args: JobBarrierArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._jobs = Jobs(args)
        handle.on_change(PODS, self._jobs.pod_changed)

    # ---- elastic members -----------------------------------------------------------------------

    def sort_key(self, queued: QueuedPodInfo) -> tuple[int, bool, float]:
        """Return PrioritySort's key, elastic members after all others of their priority."""
        return -queued.info.priority, self._is_elastic(queued.info), queued.timestamp

    def _is_elastic(self, pod: PodInfo) -> bool:
        """Return whether the job has its quorum without this pod."""
        meta = pod.pod.metadata
        name = self._jobs.name_of(pod.pod)
        if not name:
            return False
        quorum = self._jobs.quorum_of(meta)
        roles = self._roles(name, self._jobs.of(name))
        roles.pop(pod.key, None)
        return isinstance(quorum, Quorum) and not quorum.needs(self._jobs.role_of(meta), roles)

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        """Reject pods with wrong annotations, and elastic members of a job not yet started."""
        meta = pod.pod.metadata
        name = self._jobs.name_of(pod.pod)
        if not name:
            return Status.skip()
        quorum = self._jobs.quorum_of(meta)
        if isinstance(quorum, str):
            return Status.unresolvable(quorum)
        if not self._jobs.of(name).started and self._is_elastic(pod):
            return Status.unresolvable(f"job {name} has not started: its other pods come first")
        return None

    # ---- the barrier ---------------------------------------------------------------------------

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Count the pod as placed."""
        self._jobs.place(pod.pod)
        return None

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Hold the pod until the job has its quorum; release all others with the last one."""
        meta = pod.pod.metadata
        name = self._jobs.name_of(pod.pod)
        if not name:
            return None
        job, held, quorum = self._jobs.of(name), list(self._held(name)), self._jobs.quorum_of(meta)
        assert isinstance(quorum, Quorum)  # or PreFilter would have rejected the pod
        if job.started and self.args.mode == "start":
            return None
        if missing := quorum.missing(self._roles(name, job)):
            if not held:  # the first one activates the others, which may have been rejected before
                self.handle.activate(job.pending)
            return Status.wait(self.args.wait_seconds, f"job {name} waits for {missing}")
        job.started = True
        for sibling in held:
            sibling.allow(self.name)
        self.handle.activate(job.pending)  # the elastic ones
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Reject the waiting siblings of a pod that loses its node (timed out, not bound)."""
        name = self._jobs.name_of(pod.pod)
        if not name or not self._jobs.displace(pod.pod):
            return
        for sibling in self._held(name):
            sibling.reject(self.name, f"job {name} cannot start: {pod.name} lost its place")

    def _roles(self, name: str, job: Job) -> dict[str, str]:
        """Return the roles of the pods that have a node, by key."""
        # After a reload of the configuration there may be pods that a former instance holds.
        role_of = self._jobs.role_of
        held = {one.pod.key: role_of(one.pod.pod.metadata) for one in self._held(name)}
        return job.placed | held

    def _held(self, name: str) -> Iterator[WaitingPod]:
        for waiting in self.handle.waiting_pods():
            if self._jobs.name_of(waiting.pod.pod) == name:
                yield waiting

    # ---- events --------------------------------------------------------------------------------

    def events_to_register(self) -> Iterable[ClusterEvent]:
        """Register members that get a node or go, and new annotations."""
        return (
            ClusterEvent(events.ASSIGNED_POD, events.ADD | events.DELETE, self._is_of_job),
            ClusterEvent(events.TARGET_POD, events.UPDATE, self._is_itself),
        )

    def _is_of_job(self, pod: PodInfo, old: Pod | None, new: Pod | None) -> bool:
        other = new or old
        name = self._jobs.name_of(pod.pod)
        return other is not None and bool(name) and self._jobs.name_of(other) == name

    def _is_itself(self, pod: PodInfo, old: Any, new: Any) -> bool:
        changed: bool = old.metadata.annotations != new.metadata.annotations
        return changed and new.metadata.uid == pod.uid
