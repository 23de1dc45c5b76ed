"""The statuses of PodGroups of scheduler-plugins (as its PodGroupController), and of Volcano.

The former are as there, but for its faults: only pods of the group's own namespace count,
``scheduleStartTime`` is filled in, and a group is followed beyond 48 hours without a start, about
which there is an Event.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Any

from proreus.addons.coscheduling.groups import (
    GANGS,
    SCHEDULER_PLUGINS,
    VOLCANO,
    VOLCANO_GANGS,
    Gang,
    membership_of,
)
from proreus.base.clock import rfc3339
from proreus.controller.amounts import is_assigned
from proreus.controller.status_reconciler import StatusReconciler
from proreus.objects import Pod

FINAL = ("Finished", "Failed")
GIVE_UP_SECONDS = 48 * 3600.0


def phase_after(phase: str, min_member: int, members: int, counts: Counter[str]) -> str:
    """Return the phase that follows one, of a group with so many pods; ``counts``: by pod phase.

    The final phases stay.
    """
    if phase in FINAL:
        return phase
    if not phase:
        return "Pending"
    if members < min_member:
        return "Pending"
    if phase == "Pending":
        return "Scheduling"
    running, succeeded, failed = counts["Running"], counts["Succeeded"], counts["Failed"]
    if succeeded >= min_member:
        return "Finished"
    if failed and failed + running + succeeded >= min_member:
        return "Failed"
    return "Scheduling" if succeeded + running < min_member else "Running"


def settled_phase(phase: str, min_member: int, members: int, counts: Counter[str]) -> str:
    """Return the phase in which a group stays while its pods do not change."""
    while (following := phase_after(phase, min_member, members, counts)) != phase:
        phase = following
    return phase


def owners(pods: Iterable[Pod]) -> str:
    """Return the owners of pods as ``namespace/name``, sorted and divided by commas."""
    found = {
        f"{pod.metadata.namespace}/{owner.name}"
        for pod in pods
        for owner in pod.metadata.owner_references
    }
    return ",".join(sorted(found))


def is_given_up(gang: Gang, phase: str, now: float) -> bool:
    """Return whether a group has not started within 48 hours."""
    created = gang.metadata.creation_timestamp
    if created is None or phase not in ("", "Pending", "Scheduling"):
        return False
    return now - created.timestamp() > GIVE_UP_SECONDS


class PodGroupStatuses(StatusReconciler[Gang]):
    """Phases of PodGroups, and their members by phase."""

    def __init__(self) -> None:
        super().__init__(GANGS, partial(_group_of, SCHEDULER_PLUGINS))

    def status(self, key: str, now: float) -> dict[str, Any]:
        """Return phase, counts by pod phase, owners, and when the group began to be scheduled."""
        seen = self.objects[key]
        before = str(seen.status.get("phase") or "")
        if before in FINAL:
            return {}
        pods = self.pods.of(key)
        counts = Counter(pod.status.phase for pod in pods)
        # Where a definition lets it be omitted: a group without pods has not finished.
        min_member = max(1, seen.obj.spec.min_member)
        phase = settled_phase(before, min_member, len(pods), counts)
        status: dict[str, Any] = {
            "phase": phase,
            "running": counts["Running"],
            "succeeded": counts["Succeeded"],
            "failed": counts["Failed"],
        }
        if phase != "Pending" and not seen.status.get("scheduleStartTime"):
            status["scheduleStartTime"] = rfc3339(now)
        if phase != "Pending" and not seen.status.get("occupiedBy") and (names := owners(pods)):
            status["occupiedBy"] = names
        return status


class VolcanoPodGroupStatuses(StatusReconciler[Gang]):
    """Phases of Volcano's PodGroups, as its scheduler writes them at the end of a session.

    Operators such as Kubeflow's training operator create no pods of a group in phase Pending. A
    group is Inqueue at once here: whether there is room for it, in its queue or on nodes, is
    decided when its pods are scheduled. Only for clusters in which Volcano's own scheduler does not
    run.
    """

    def __init__(self) -> None:
        super().__init__(VOLCANO_GANGS, partial(_group_of, VOLCANO))

    def status(self, key: str, now: float) -> dict[str, Any]:
        """Return phase and counts, by the rules of ``jobStatus`` in Volcano's session."""
        pods = self.pods.of(key)
        counts = Counter(pod.status.phase for pod in pods)
        succeeded = counts["Succeeded"]
        allocated = succeeded + sum(is_assigned(pod) for pod in pods)
        phase = "Inqueue"
        if pods and allocated >= self.objects[key].obj.spec.min_member:
            phase = "Completed" if allocated == succeeded else "Running"
        return {
            "phase": phase,
            "running": counts["Running"],
            "succeeded": succeeded,
            "failed": counts["Failed"],
        }


def _group_of(source: str, pod: Pod) -> str:
    membership = membership_of(pod)
    if membership is None or membership.source != source:
        return ""
    return membership.object_key
