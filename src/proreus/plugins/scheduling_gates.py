"""SchedulingGates: do not schedule pods that have scheduling gates (KEP-3521)."""

from __future__ import annotations

from collections.abc import Iterable

from proreus.framework.events import UPDATE_POD_SCHEDULING_GATES_ELIMINATED, ClusterEvent
from proreus.framework.plugin import PreEnqueuePlugin
from proreus.framework.pod_events import pod_registrations
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.objects.pod import Pod


class SchedulingGates(PreEnqueuePlugin):
    """Keeps pods with ``spec.schedulingGates`` out of the active queue."""

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        """Gate a pod while its spec has scheduling gates."""
        gates = pod.pod.spec.scheduling_gates
        if not gates:
            return None
        names = " ".join(gate.name for gate in gates)
        return Status.unresolvable(f"waiting for scheduling gates: [{names}]")

    def events_to_register(self) -> Iterable[ClusterEvent]:
        """Register the removal of the pod's own last gate."""
        return pod_registrations(
            self.handle.feature_gates,
            target=UPDATE_POD_SCHEDULING_GATES_ELIMINATED,
            hint=_is_schedulable_after_update_pod_scheduling_gates_eliminated,
        )


def _is_schedulable_after_update_pod_scheduling_gates_eliminated(
    pod: PodInfo, old: Pod, new: Pod
) -> bool:
    return new.metadata.uid == pod.uid
