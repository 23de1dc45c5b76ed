"""SchedulingGates: a pod is not tried while anybody holds a gate closed (KEP-3521)."""

from __future__ import annotations

from collections.abc import Iterable

from proreus.framework.events import POD, UPDATE_POD_SCHEDULING_GATES_ELIMINATED, ClusterEvent
from proreus.framework.plugin import PreEnqueuePlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.objects.pod import Pod


class SchedulingGates(PreEnqueuePlugin):
    """Keeps pods with ``spec.schedulingGates`` out of the active queue."""

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        """Turn a pod away while it has gates."""
        gates = pod.pod.spec.scheduling_gates
        if not gates:
            return None
        names = " ".join(gate.name for gate in gates)
        return Status.unresolvable(f"waiting for scheduling gates: [{names}]")

    def events_to_register(self) -> Iterable[ClusterEvent]:
        """The last gate of the pod itself is gone."""
        return (
            ClusterEvent(
                POD,
                UPDATE_POD_SCHEDULING_GATES_ELIMINATED,
                _is_schedulable_after_update_pod_scheduling_gates_eliminated,
            ),
        )


def _is_schedulable_after_update_pod_scheduling_gates_eliminated(
    pod: PodInfo, old: Pod, new: Pod
) -> bool:
    return new.metadata.uid == pod.uid
