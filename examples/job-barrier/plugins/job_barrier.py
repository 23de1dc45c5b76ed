"""JobBarrier: the pods of a job start together, or not at all.

Permit holds each pod of a job that has found a node, until as many of them have one as the job
needs, its master among them. If that takes too long, all of them give up their nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from pydantic import Field

from proreus.framework import (
    MAX_PERMIT_WAIT_SECONDS,
    ClusterEvent,
    CycleState,
    Handle,
    NodeTable,
    PermitPlugin,
    PluginArgs,
    PodInfo,
    PreFilterPlugin,
    ReservePlugin,
    Seconds,
    Status,
    WaitingPod,
    events,
)
from proreus.objects import PODS, ObjectMeta, Pod, key_of


@dataclass
class Job:
    """The pods of a job by key: those without a node, and the roles of those that have one."""

    pending: set[str] = field(default_factory=set)
    placed: dict[str, str] = field(default_factory=dict)


class JobBarrier(PreFilterPlugin, ReservePlugin, PermitPlugin):
    """Pods name their job by a label, their role by another, the minimum by an annotation."""

    class Args(PluginArgs):
        """How a job is recognised, and how long its pods wait for each other."""

        job_label: str = Field("example.com/job", description="Label of pods: name of the job.")
        role_label: str = Field("example.com/role", description="Label of pods: role in the job.")
        master_role: str = Field("master", description="One pod of it must be placed; empty: none.")
        minimum: str = Field(
            "example.com/min-members", description="Annotation of pods: how many must be placed."
        )
        wait_seconds: Seconds = Field(60.0, gt=0, le=MAX_PERMIT_WAIT_SECONDS)

    args: Args

    def __init__(self, args: Args, handle: Handle) -> None:
        super().__init__(args, handle)
        self._jobs: dict[str, Job] = {}
        handle.on_change(PODS, self._on_pod)

    # ---- the barrier ---------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        text = pod.pod.metadata.annotations.get(self.args.minimum, "1")
        if self._name(pod.pod.metadata) and not (text.isascii() and text.isdigit()):
            expected = f'annotation {self.args.minimum} must be a whole number, not "{text}"'
            return Status.unresolvable(expected)
        return None

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        if name := self._name(pod.pod.metadata):
            self._place(name, pod.pod.metadata)
        return None

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        name = self._name(pod.pod.metadata)
        if not name:
            return None
        job, held = self._jobs[name], list(self._held(name))
        # After a reload of the configuration there may be pods that a former instance holds.
        roles = job.placed | {one.pod.key: self._role(one.pod.pod.metadata) for one in held}
        if missing := self._missing(roles, pod):
            if not held:  # the first one activates the others, which may have been rejected before
                self.handle.activate(job.pending)
            return Status.wait(self.args.wait_seconds, f"job {name} waits for {missing}")
        for sibling in held:
            sibling.allow(self.name)
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Reject the waiting siblings of a pod that loses its node (timed out, not bound)."""
        name = self._name(pod.pod.metadata)
        job = self._jobs.get(name)
        if job is None or job.placed.pop(pod.key, None) is None:
            return
        job.pending.add(pod.key)
        for sibling in self._held(name):
            sibling.reject(self.name, f"job {name} cannot start: {pod.name} lost its place")

    def _missing(self, roles: Mapping[str, str], pod: PodInfo) -> str:
        """Return what a job lacks to start, "" for nothing; ``roles`` are of its placed pods."""
        needed = int(pod.pod.metadata.annotations.get(self.args.minimum, "1"))
        if len(roles) < needed:
            return f"{needed - len(roles)} more of {needed} pods"
        master = self.args.master_role
        return "" if not master or master in roles.values() else f"its {master}"

    def _held(self, name: str) -> Iterator[WaitingPod]:
        for waiting in self.handle.waiting_pods():
            if self._name(waiting.pod.pod.metadata) == name:
                yield waiting

    # ---- the pods of each job ------------------------------------------------------------------

    def _on_pod(self, old: Pod | None, new: Pod | None) -> None:
        """Follow the pods of the cluster, those from before this process included."""
        if old is not None and (name := self._name(old.metadata)) and name in self._jobs:
            job, key = self._jobs[name], key_of(old)
            job.pending.discard(key)
            if new is None:
                job.placed.pop(key, None)
            if not (job.pending or job.placed):
                del self._jobs[name]
        if new is not None and (name := self._name(new.metadata)):
            if new.spec.node_name:
                self._place(name, new.metadata)
            elif key_of(new) not in (job := self._jobs.setdefault(name, Job())).placed:
                job.pending.add(key_of(new))

    def _place(self, name: str, meta: ObjectMeta) -> None:
        job, key = self._jobs.setdefault(name, Job()), f"{meta.namespace}/{meta.name}"
        job.pending.discard(key)
        job.placed[key] = self._role(meta)

    def _role(self, meta: ObjectMeta) -> str:
        return meta.labels.get(self.args.role_label, "")

    def _name(self, meta: ObjectMeta) -> str:
        """Return ``namespace/job``, "" for a pod without a job."""
        job = meta.labels.get(self.args.job_label, "")
        return job and f"{meta.namespace}/{job}"

    def events_to_register(self) -> Iterable[ClusterEvent]:
        # Freed capacity wakes the sibling that did not fit, which activates the others in permit.
        # So does a new member; and pods without a node move no other pod by themselves.
        return (ClusterEvent(events.TARGET_POD, events.UPDATE, self._may_help),)

    def _may_help(self, pod: PodInfo, old: Pod, new: Pod) -> bool:
        """Return whether the pod itself got another minimum."""
        changed = old.metadata.annotations != new.metadata.annotations
        return changed and new.metadata.uid == pod.uid
