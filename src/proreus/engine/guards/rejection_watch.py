"""Notices pods that a kubelet rejects: bound, never started, and Failed.

    pod gone before it started ─► GET ─► Failed, by the kubelet's admission ─► AvoidedNodes.record
    tick ─► AvoidedNodes.expire ─► the queue moves the pods of those controllers
    node gone ─► AvoidedNodes.forget_node ─► likewise

The scheduler's watch leaves finished pods out, and what it delivers for a pod that has just failed
is the state before. So a pod that goes away unstarted, and not by a deletion, is read once more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from proreus.base.errors import ApiError, NotFound
from proreus.base.logs import logger
from proreus.engine.environment import Environment
from proreus.engine.guards.avoided_nodes import (
    AvoidedNodes,
    KubeletRejections,
    controller_name,
)
from proreus.engine.queue.scheduling_queue import SchedulingQueue
from proreus.framework.events import plugin_event
from proreus.objects.kinds import PODS
from proreus.objects.meta import (
    ApiStruct,
    ObjectMeta,
    OwnerReference,
    Resource,
    controller_of,
    key_of,
)
from proreus.objects.node import Node
from proreus.objects.pod import Pod, is_unstarted

log = logger(__name__)

MAX_READS = 32
"""How many pods are read at a time; further ones are not counted."""

_PREFIX = "Pod was rejected"
"""How the message of a pod begins that the kubelet did not admit, since Kubernetes 1.27."""

_REASONS = frozenset(
    (
        "OutOfcpu",
        "OutOfmemory",
        "OutOfpods",
        "OutOfephemeral-storage",
        "NodeAffinity",
        "UnexpectedAdmissionError",
        "TopologyAffinityError",
        "SMTAlignmentError",
        "NodeShutdown",
        "InvalidNodeInfo",
        "PodOSNotSupported",
        "PodOSSelectorNodeLabelDoesNotMatch",
        "UnknownReason",
        "UnexpectedPredicateFailureType",
        "VolumeAttachmentLimitExceeded",
    )
)
"""The kubelet's reasons that have a label value of their own in the metric."""
_OUT_OF = "OutOf"
_ENDED = plugin_event(KubeletRejections.name)


class _FailedStatus(ApiStruct, frozen=True):
    """Why a pod has failed."""

    phase: str = ""
    reason: str = ""
    message: str = ""


class FailedPod(ApiStruct, frozen=True):
    """A pod, as far as it says why it has failed."""

    metadata: ObjectMeta = ObjectMeta()
    status: _FailedStatus = _FailedStatus()


_FAILED_PODS = Resource(
    PODS.group, PODS.version, PODS.plural, PODS.kind, PODS.namespaced, FailedPod
)


@dataclass(eq=False)
class RejectionWatch:
    """Counts rejections, and keeps the queue informed. A handler of the pod informer.

    ``on_change`` is called when the first node is avoided, and when the last one no longer is.
    """

    avoided: AvoidedNodes
    queue: SchedulingQueue
    environment: Environment
    responsible_for_pod: Callable[[Pod], bool]
    on_change: Callable[[], None]

    def __post_init__(self) -> None:
        """Show in the metrics how many nodes are avoided."""
        self._reading = 0
        self.environment.metrics.avoided_nodes.set_function(lambda: {(): self.avoided.count})

    def on_add(self, pod: Pod) -> None:
        """A pod appeared."""

    def on_update(self, old: Pod, new: Pod) -> None:
        """A pod changed."""

    def on_delete(self, pod: Pod, final_state_unknown: bool = False) -> None:
        """A pod is gone, or has finished."""
        node_name = pod.spec.node_name
        if not node_name or not is_unstarted(pod):
            return
        owner = controller_of(pod.metadata)
        # A pod without a controller is not created again. Those of a DaemonSet have nowhere else
        # to go, and its controller backs off by itself.
        if owner is None or owner.kind == "DaemonSet" or pod.metadata.deletion_timestamp:
            return
        if not self.responsible_for_pod(pod) or not self.environment.leads():
            return
        controller = controller_name(pod.metadata)
        assert controller is not None
        if self._reading < MAX_READS and not self.avoided.is_avoided(controller, node_name):
            self._reading += 1
            self.environment.spawn(self._read(pod, owner, controller))

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        """Forget the rejections of a node that is gone: its name may go to another machine."""
        if old is not None and new is None:
            self._end(self.avoided.forget_node(old.metadata.name))

    async def _read(self, pod: Pod, owner: OwnerReference, controller: str) -> None:
        meta = pod.metadata
        try:
            found = await self.environment.api.get(_FAILED_PODS, meta.namespace, meta.name)
        except NotFound:
            return
        except ApiError as error:
            log.v(2).info("Cannot read why a pod has failed", pod=key_of(pod), err=error)
            return
        finally:
            self._reading -= 1
        if found.metadata.uid == meta.uid and _rejected_by_kubelet(found.status):
            self._record(pod, owner, controller, found.status)

    def _record(
        self, pod: Pod, owner: OwnerReference, controller: str, status: _FailedStatus
    ) -> None:
        node_name = pod.spec.node_name
        self.environment.metrics.kubelet_rejections_total.labels(_label(status.reason)).inc()
        active = self.avoided.active
        seconds = self.avoided.record(controller, node_name)
        if not seconds:
            return
        named = f"{owner.kind} {pod.metadata.namespace}/{owner.name}"
        note = (
            f"node {node_name} rejected pods of {named} repeatedly, last with "
            f"{status.reason}: they avoid it for {seconds:g}s"
        )
        self.environment.metrics.node_avoidances_total.inc()
        self.environment.event_recorder.event(
            pod, "Warning", "NodeAvoided", "Scheduling", note, pod.spec.scheduler_name
        )
        log.warning(
            "A kubelet keeps rejecting pods; their controller avoids the node",
            node=node_name,
            controller=named,
            reason=status.reason,
            seconds=seconds,
        )
        if not active:
            self.on_change()

    def tick(self) -> None:
        """End avoidances that are over, and wake pods that may fit now; called once a second."""
        self._end(self.avoided.expire())

    def _end(self, controllers: list[str]) -> None:
        """Wake the pods of controllers that avoid a node less."""
        for controller in controllers:
            self.queue.move_all_to_active_or_backoff(_ENDED, None, controller)
        if controllers and not self.avoided.active:
            self.on_change()


def _rejected_by_kubelet(status: _FailedStatus) -> bool:
    if status.phase != "Failed":
        return False
    known = status.reason in _REASONS or status.reason.startswith(_OUT_OF)
    return known or status.message.startswith(_PREFIX)


def _label(reason: str) -> str:
    """Return the value of the metric's label: a bounded set."""
    if reason in _REASONS:
        return reason
    return "OutOfExtendedResource" if reason.startswith(_OUT_OF) else "other"
