"""The status of Volcano's PodGroups, as Volcano's scheduler writes it at the end of a session.

Operators such as Kubeflow's training operator create no pods of a group in phase Pending. A group
is Inqueue at once here: whether there is room for it, in its queue or on nodes, is decided when its
pods are scheduled. Only for clusters in which Volcano's own scheduler does not run.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from proreus.addons.coscheduling.groups import VOLCANO, VOLCANO_GANGS, Gang, membership_of
from proreus.controller.amounts import is_assigned
from proreus.controller.status_reconciler import StatusReconciler
from proreus.objects import Pod


class VolcanoPodGroupStatuses(StatusReconciler[Gang]):
    """Phases of PodGroups: Inqueue, Running, Completed; and their pods by phase."""

    def __init__(self) -> None:
        super().__init__(VOLCANO_GANGS, _group_of)

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


def _group_of(pod: Pod) -> str:
    membership = membership_of(pod)
    if membership is None or membership.source != VOLCANO:
        return ""
    return membership.object_key
