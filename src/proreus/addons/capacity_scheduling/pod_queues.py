"""Decides in which queue each pod is counted, and whether it may be evicted.

A pod that waits asks in the queue that its labels name now. One that has a node stays in the queue
that they named when it got it (``addons.pod_charges``): otherwise it would take from a queue that
never let it start, or keep what its own one has to give back.
"""

from __future__ import annotations

from proreus.addons.capacity_scheduling.queue_objects import QueueLabels, QueueNaming
from proreus.addons.pod_charges import PodCharges, of_cluster
from proreus.framework import Handle, PodInfo
from proreus.objects import PODS, Pod

_NO_LABELS = QueueLabels()


class PodQueues:
    """The queues of pods, by the labels that ``naming`` reads."""

    def __init__(self, naming: QueueNaming, handle: Handle) -> None:
        self._naming = naming

        def make() -> PodCharges[QueueLabels]:
            charges = PodCharges(handle.shared, "CapacityScheduling", self._claim)
            handle.shared.on_change(PODS, charges.pod_changed, with_provided=True)
            return charges

        self._charges: PodCharges[QueueLabels] = of_cluster(handle, type(naming), make)

    def _claim(self, pod: Pod) -> QueueLabels | None:
        labels = self._naming.labels_of(pod)
        return None if labels == _NO_LABELS else labels

    def _labels_of(self, pod: Pod) -> QueueLabels:
        charged = self._charges.latest(pod.metadata.uid)
        if charged is not None:
            return charged
        return _NO_LABELS if self._charges.is_decided(pod) else self._naming.labels_of(pod)

    def decide(self, pod: Pod) -> None:
        """Have a pod that has a node stay in the queue that it is in."""
        self._charges.decide(pod)

    def name_for(self, pod: Pod) -> str:
        """Return the queue of a pod; "" if it is of none."""
        return self._naming.queue_named(self._labels_of(pod).queue, pod.metadata.namespace)

    def is_preemptible(self, pod: Pod) -> bool:
        """Return whether a pod may be evicted for others."""
        return self._labels_of(pod).preemptible

    def reserve(self, pod: PodInfo, node_name: str) -> None:
        """Have a pod stay in the queue that it is in now."""
        self._charges.reserve(pod, node_name, self._claim(pod.pod))

    def unreserve(self, pod: PodInfo) -> None:
        """Have a pod that has no node after all follow its labels again."""
        self._charges.unreserve(pod)
