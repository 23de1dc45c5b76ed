"""Queues of other projects, read as ``CapacityQueue``, and the queues that pods name.

Volcano: ``Queue`` (scheduling.volcano.sh/v1beta1), named by an annotation. KAI: ``Queue``
(scheduling.run.ai/v2), named by a label. Koordinator: ElasticQuotas that labels make a tree.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import ceil
from typing import Any, NamedTuple

import msgspec

from proreus.addons.capacity_scheduling.oldest_by_name import OldestByName
from proreus.addons.capacity_scheduling.queue_tree import CapacityQueue
from proreus.addons.capacity_scheduling.quotas import ELASTIC_QUOTAS, ElasticQuota
from proreus.addons.pod_charges import PodCharges, of_cluster
from proreus.config.durations import DurationError, parse_duration
from proreus.framework import Handle, PodInfo, logger
from proreus.objects import PODS, ApiStruct, ObjectMeta, Pod, Resource
from proreus.objects.codec import UNDECODABLE
from proreus.objects.quantity import amounts_of

log = logger(__name__)

Quantities = dict[str, str | int | float]

_GPU = "nvidia.com/gpu"
_MEGABYTE = 10**6


class QueueLabels(NamedTuple):
    """The queue that a pod names, "" for none, and whether the pod may be evicted."""

    queue: str = ""
    preemptible: bool = True


class QueueSource:
    """A kind of object as queues, and the way in which pods name them."""

    resource: Resource[Any]

    def queue_of(self, obj: Any) -> CapacityQueue | None:
        """Read an object as a queue, None if it is none; raises ``ValueError``."""
        raise NotImplementedError

    def labels_of(self, pod: Pod) -> QueueLabels:
        """Return the labels and annotations of a pod about its queue."""
        raise NotImplementedError

    def queue_named(self, name: str, namespace: str) -> str:
        """Return the queue of a pod that names ``name``, "" for none."""
        return name

    def queue_for(self, pod: Pod) -> str:
        """Return the queue that a pod names now, "" for none."""
        return self.queue_named(self.labels_of(pod).queue, pod.metadata.namespace)

    def note(self, old: Any, new: Any) -> Collection[str]:
        """Note a change of a queue; return the namespaces whose pods may change their queue."""
        return ()


_NO_LABELS = QueueLabels()


class PodQueues:
    """The queues of pods, by the labels that ``source`` reads.

    A pod that waits asks in the queue that its labels name now. One that has a node stays in the
    queue that they named when it got it (``addons.pod_charges``): otherwise it would take from a
    queue that never let it start, or keep what its own one has to give back.
    """

    def __init__(self, source: QueueSource, handle: Handle) -> None:
        self._source = source

        def make() -> PodCharges[QueueLabels]:
            charges = PodCharges(handle.shared, "CapacityScheduling", self._claim)
            handle.shared.on_change(PODS, charges.pod_changed, with_provided=True)
            return charges

        self.charges: PodCharges[QueueLabels] = of_cluster(handle, type(source).__name__, make)
        """The labels of pods that have a node."""

    def _claim(self, pod: Pod) -> QueueLabels | None:
        labels = self._source.labels_of(pod)
        return None if labels == _NO_LABELS else labels

    def _labels_of(self, pod: Pod) -> QueueLabels:
        charged = self.charges.latest(pod.metadata.uid)
        if charged is not None:
            return charged
        return _NO_LABELS if self.charges.is_decided(pod) else self._source.labels_of(pod)

    def name_for(self, pod: Pod) -> str:
        """Return the queue of a pod, "" for none."""
        return self._source.queue_named(self._labels_of(pod).queue, pod.metadata.namespace)

    def is_preemptible(self, pod: Pod) -> bool:
        """Return whether a pod may be evicted for others."""
        return self._labels_of(pod).preemptible

    def reserve(self, pod: PodInfo, node_name: str) -> None:
        """Keep a pod that got a node in its present queue."""
        self.charges.reserve(pod, node_name, self._claim(pod.pod))


# ---- Volcano -------------------------------------------------------------------------------------


class VolcanoGuarantee(ApiStruct, frozen=True):
    """The amounts that are not lent."""

    resource: Quantities = {}


class VolcanoQueueSpec(ApiStruct, frozen=True):
    """Spec of a Volcano queue, as far as it is read."""

    weight: int = 1
    capability: Quantities = {}
    deserved: Quantities = {}
    guarantee: VolcanoGuarantee = VolcanoGuarantee()
    parent: str = ""
    priority: int = 0
    reclaimable: bool | None = None


class VolcanoQueue(ApiStruct, frozen=True):
    """scheduling.volcano.sh Queue."""

    metadata: ObjectMeta = ObjectMeta()
    spec: VolcanoQueueSpec = VolcanoQueueSpec()


VOLCANO_QUEUES = Resource(
    "scheduling.volcano.sh", "v1beta1", "queues", "Queue", False, VolcanoQueue, custom=True
)


class VolcanoSource(QueueSource):
    """Pods without annotation are of the queue "default", as in Volcano."""

    resource = VOLCANO_QUEUES

    def queue_of(self, obj: VolcanoQueue) -> CapacityQueue | None:
        """Return a queue, None for the root, of which all others are children."""
        if obj.metadata.name == "root":
            return None
        spec = obj.spec
        return CapacityQueue(
            obj.metadata.name,
            spec.parent,
            deserved=amounts_of(spec.deserved),
            guarantee=amounts_of(spec.guarantee.resource),
            limit=amounts_of(spec.capability),
            weight=float(max(spec.weight, 0)),
            priority=spec.priority,
            reclaimable=spec.reclaimable is not False,
        )

    def labels_of(self, pod: Pod) -> QueueLabels:
        """Read the annotations, one of which may be a label."""
        labels, annotations = pod.metadata.labels, pod.metadata.annotations
        name = annotations.get("scheduling.volcano.sh/queue-name")
        key = "volcano.sh/preemptable"
        return QueueLabels(
            name or annotations.get("volcano.sh/queue-name", ""),
            (annotations.get(key) or labels.get(key)) != "false",
        )

    def queue_named(self, name: str, namespace: str) -> str:
        """Return the queue of that name."""
        return name or "default"


# ---- KAI -----------------------------------------------------------------------------------------


class KaiQueueResource(ApiStruct, frozen=True):
    """The quota, limit and weight of a resource; -1 means unlimited."""

    quota: float = 0
    limit: float = -1
    over_quota_weight: float = 0


class KaiQueueResources(ApiStruct, frozen=True):
    """CPU in millicores, memory in megabytes, and GPUs."""

    cpu: KaiQueueResource | None = None
    memory: KaiQueueResource | None = None
    gpu: KaiQueueResource | None = None


class KaiQueueSpec(ApiStruct, frozen=True):
    """Spec of a KAI queue, as far as it is read."""

    parent_queue: str = ""
    priority: int | None = None
    resources: KaiQueueResources | None = None
    reclaim_min_runtime: str = ""


class KaiQueue(ApiStruct, frozen=True):
    """scheduling.run.ai Queue."""

    metadata: ObjectMeta = ObjectMeta()
    spec: KaiQueueSpec = KaiQueueSpec()


KAI_QUEUES = Resource("scheduling.run.ai", "v2", "queues", "Queue", False, KaiQueue, custom=True)

_KAI_DEFAULT_PRIORITY = 100


class KaiSource(QueueSource):
    """Pods without label are outside of all queues."""

    resource = KAI_QUEUES

    def queue_of(self, obj: KaiQueue) -> CapacityQueue | None:
        """Return a queue."""
        spec = obj.spec
        resources = spec.resources or KaiQueueResources()
        by_name = {
            "cpu": (resources.cpu, 1),
            "memory": (resources.memory, _MEGABYTE),
            _GPU: (resources.gpu, 1),
        }
        found = {name: (one, unit) for name, (one, unit) in by_name.items() if one is not None}
        return CapacityQueue(
            obj.metadata.name,
            spec.parent_queue,
            deserved={n: ceil(one.quota * u) for n, (one, u) in found.items() if one.quota >= 0},
            unlimited=frozenset(n for n, (one, _) in found.items() if one.quota < 0),
            limit={n: ceil(one.limit * u) for n, (one, u) in found.items() if one.limit >= 0},
            weights={n: one.over_quota_weight for n, (one, _) in found.items()},
            priority=_KAI_DEFAULT_PRIORITY if spec.priority is None else spec.priority,
            reclaim_min_runtime_seconds=_seconds(spec.reclaim_min_runtime),
        )

    def labels_of(self, pod: Pod) -> QueueLabels:
        """Read the labels; that of the queue has an older spelling."""
        labels = pod.metadata.labels
        return QueueLabels(
            labels.get("kai.scheduler/queue") or labels.get("runai/queue", ""),
            labels.get("kai.scheduler/preemptibility") != "non-preemptible",
        )


# ---- Koordinator ---------------------------------------------------------------------------------

_KOORDINATOR = "quota.scheduling.koordinator.sh/"


class ElasticQuotaSource(QueueSource):
    """ElasticQuotas as a tree. A pod's label names its quota; else the oldest of its namespace."""

    resource = ELASTIC_QUOTAS

    def __init__(self) -> None:
        self._of_namespaces: OldestByName[ElasticQuota, str] = OldestByName(
            lambda quota: quota.metadata.namespace, lambda quota: quota.metadata.name
        )
        """The names of quotas that are no parents, since only these have pods."""

    def queue_of(self, obj: ElasticQuota) -> CapacityQueue | None:
        """Return a quota as a queue; weights are ``max`` unless an annotation says others."""
        meta = obj.metadata
        least, most = amounts_of(obj.spec.min), amounts_of(obj.spec.max)
        lends = meta.labels.get(f"{_KOORDINATOR}allow-lent-resource") != "false"
        weights = _shared_weight(meta) or most
        return CapacityQueue(
            meta.name,
            meta.labels.get(f"{_KOORDINATOR}parent", ""),
            deserved=least,
            guarantee={} if lends else least,
            limit=most,
            weights={name: float(amount) for name, amount in weights.items()},
        )

    def note(self, old: ElasticQuota | None, new: ElasticQuota | None) -> Collection[str]:
        """Note a change of a quota; return its namespace if another is its first now."""
        namespace = self._of_namespaces.change(_unless_parent(old), _unless_parent(new))
        return () if namespace is None else (namespace,)

    def labels_of(self, pod: Pod) -> QueueLabels:
        """Read the labels."""
        labels = pod.metadata.labels
        return QueueLabels(
            labels.get(f"{_KOORDINATOR}name", ""),
            labels.get(f"{_KOORDINATOR}preemptible") != "false",
        )

    def queue_named(self, name: str, namespace: str) -> str:
        """Return the quota of that name, or the oldest of the namespace."""
        return name or self._of_namespaces.values.get(namespace, "")


def _unless_parent(quota: ElasticQuota | None) -> ElasticQuota | None:
    is_parent = quota and quota.metadata.labels.get(f"{_KOORDINATOR}is-parent") == "true"
    return None if is_parent else quota


def _shared_weight(meta: ObjectMeta) -> Mapping[str, int]:
    text = meta.annotations.get(f"{_KOORDINATOR}shared-weight", "")
    if not text:
        return {}
    try:
        return amounts_of(msgspec.json.decode(text, type=Quantities))
    except UNDECODABLE as error:
        log.error("A shared weight cannot be read", quota=meta.name, err=str(error))
        return {}


def _seconds(text: str) -> float:
    """Return the seconds of a duration such as ``1h30m``, 0 for any other text."""
    try:
        return parse_duration(text) if text else 0.0
    except DurationError as error:
        log.error("A duration of a queue cannot be read", err=str(error))
        return 0.0
