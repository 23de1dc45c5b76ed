"""Jobs: their pods, the ones with a node, and the pods that they lack to start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field

from proreus.framework import MAX_PERMIT_WAIT_SECONDS, PluginArgs, Seconds, is_provided
from proreus.objects import ObjectMeta, Pod, key_of
from proreus.objects.pod import is_terminal
from proreus.objects.selectors import parse_count


class JobBarrierArgs(PluginArgs):
    """``job_label``, ``role_label``: of pods. ``min_members``, ``min_by_role``: annotations.

    ``mode`` start: the barrier is for the first start alone; always: so many must run or wait
    whenever a member starts. ``wait_seconds``: how long a pod with a node waits for the others.
    """

    job_label: str = Field("proreus.dev/job", min_length=1)
    role_label: str = Field("proreus.dev/role", min_length=1)
    min_members: str = Field("proreus.dev/min-members", min_length=1)
    min_by_role: str = Field("proreus.dev/min-members-by-role", min_length=1)
    mode: Literal["start", "always"] = "start"
    wait_seconds: Seconds = Field(60.0, gt=0, le=MAX_PERMIT_WAIT_SECONDS)


@dataclass(frozen=True, slots=True)
class Quorum:
    """The least number of members of a job, in all and by role."""

    members: int
    by_role: Mapping[str, int]

    def missing(self, roles: Mapping[str, str]) -> str:
        """Return a text about missing pods, "" for none; ``roles``: by key of counted pods."""
        if len(roles) < self.members:
            return f"{self.members - len(roles)} more of {self.members} pods"
        count = Counter(roles.values())
        for role, least in self.by_role.items():
            if count[role] < least:
                return f"{least - count[role]} more of {least} pods of role {role}"
        return ""

    def needs(self, role: str, roles: Mapping[str, str]) -> bool:
        """Return whether one more pod of a role is needed beside the counted ones."""
        count = Counter(roles.values())
        if count[role] < self.by_role.get(role, 0):
            return True
        # Places of roles that are still missing are kept for them.
        kept = sum(max(least - count[other], 0) for other, least in self.by_role.items())
        return len(roles) + kept < self.members


@dataclass(slots=True)
class Job:
    """The pods of a job by key: those without a node, and the roles of those that have one.

    ``started``: the barrier was reached once, as one of its pods was bound.
    """

    pending: set[str] = field(default_factory=set)
    placed: dict[str, str] = field(default_factory=dict)
    started: bool = False


class Jobs:
    """The jobs that have pods, by ``namespace/name``; one is forgotten with its last pod."""

    def __init__(self, args: JobBarrierArgs) -> None:
        self._args = args
        self._jobs: dict[str, Job] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def name_of(self, pod: Pod) -> str:
        """Return ``namespace/job``, "" for a pod without a job."""
        meta = pod.metadata
        # A provided pod, which holds room for a member, has its labels and is no member.
        job = "" if is_provided(pod) else meta.labels.get(self._args.job_label, "")
        return job and f"{meta.namespace}/{job}"

    def role_of(self, meta: ObjectMeta) -> str:
        """Return the role of a pod, "" for none."""
        return meta.labels.get(self._args.role_label, "")

    def of(self, name: str) -> Job:
        """Return a job; one without pods is as new."""
        return self._jobs.get(name) or Job()

    def quorum_of(self, meta: ObjectMeta) -> Quorum | str:
        """Return the quorum by a pod's annotations, or the error in them."""
        annotations, by_role = meta.annotations, {}
        for part in filter(None, annotations.get(self._args.min_by_role, "").split(",")):
            role, _, least = (text.strip() for text in part.partition("="))
            number = parse_count(least)
            if not role or number is None:
                return f'annotation {self._args.min_by_role} must be role=number,…, not "{part}"'
            by_role[role] = number
        text = annotations.get(self._args.min_members, str(sum(by_role.values()) or 1))
        members = parse_count(text)
        if members is None:
            return f'annotation {self._args.min_members} must be a whole number, not "{text}"'
        return Quorum(max(members, sum(by_role.values())), by_role)

    def place(self, pod: Pod) -> None:
        """Note that a pod has a node, assumed or bound."""
        if name := self.name_of(pod):
            job, key = self._jobs.setdefault(name, Job()), key_of(pod)
            job.pending.discard(key)
            job.placed[key] = self.role_of(pod.metadata)

    def displace(self, pod: Pod) -> bool:
        """Note that a pod has lost its node; return whether it had one."""
        job, key = self.of(self.name_of(pod)), key_of(pod)
        if job.placed.pop(key, None) is None:
            return False
        job.pending.add(key)
        return True

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """Follow the pods of the cluster, earlier ones included."""
        gone = new is None or is_terminal(new)
        if old is not None and (name := self.name_of(old)) in self._jobs:
            job, key = self._jobs[name], key_of(old)
            job.pending.discard(key)
            if new is None or gone or self.name_of(new) != name:
                job.placed.pop(key, None)
            if not (job.pending or job.placed):
                del self._jobs[name]
        if new is None or gone or not (name := self.name_of(new)):
            return
        if new.spec.node_name:
            self.place(new)
            # A bound pod has passed the barrier, maybe in an earlier process.
            self._jobs[name].started = True
        elif key_of(new) not in (job := self._jobs.setdefault(name, Job())).placed:
            job.pending.add(key_of(new))
