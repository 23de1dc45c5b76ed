"""A node and the pods on it (kube-scheduler's ``NodeInfo``): one row of the table as an object.

Per-node plugins are written against it; the columns of ``NodeTable`` mirror it. Amounts are int64
in the units of ``objects.quantity``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from proreus.framework.attribute_hints import AttributeHints
from proreus.framework.pod_info import HostPort, PodInfo
from proreus.framework.read_only import Amounts, ReadOnlyDict, ReadOnlySet
from proreus.objects.node import Node
from proreus.objects.pod import Pod, ResourceList
from proreus.objects.quantity import parse_amount, parse_quantity, whole_value
from proreus.objects.resource_names import is_tracked_resource
from proreus.objects.taints import Taint

_NO_LABELS: Mapping[str, str] = MappingProxyType({})

_DERIVED = (
    "labels",
    "allocatable",
    "allowed_pod_number",
    "nonzero_requested",
    "pods_with_affinity",
    "pods_with_required_anti_affinity",
    "pvc_ref_counts",
)

_put = dict.__setitem__
"""How a ``NodeInfo`` changes its own containers, which are read-only for everybody else."""


def _parse_allocatable(quantities: ResourceList) -> tuple[Mapping[str, int], int]:
    """Return the amounts that a scheduler tracks, and the number of pods."""
    tracked = [(name, text) for name, text in quantities.items() if is_tracked_resource(name)]
    # A node may have 45,000 resources; what it has of them is mostly the same few quantities.
    values = {text: whole_value(parse_quantity(text)) for text in {text for _, text in tracked}}
    amounts = {name: values[text] for name, text in tracked}
    if "cpu" in amounts:
        amounts["cpu"] = parse_amount("cpu", quantities["cpu"])
    return amounts, parse_amount("pods", quantities.get("pods", 0))


class NodeInfo(AttributeHints):
    """A node, the pods on it (assumed ones included) and their sums.

    ``name``; ``node``, the API object; ``labels``, of the node. ``pods``: by UID.
    ``pods_with_affinity``, ``pods_with_required_anti_affinity``: those of them that have such terms
    about other pods. ``allowed_pod_number``: allocatable ``pods``. ``requested``: sum of
    ``PodInfo.accounted_requests.amounts``; ``requested`` and ``allocatable`` read as 0 for a
    resource that they lack. ``nonzero_requested``: cpu and memory with defaults for what pods do
    not request. ``used_ports`` is a set, not a count, as in kube-scheduler: of two pods with the
    same port the first that leaves frees it. Containers are read-only for all but this class;
    ``labels`` also for it.
    """

    __slots__ = (
        "allocatable",
        "allowed_pod_number",
        "labels",
        "name",
        "node",
        "nonzero_requested",
        "order",
        "pods",
        "pods_with_affinity",
        "pods_with_required_anti_affinity",
        "pvc_ref_counts",
        "requested",
        "row",
        "used_ports",
    )

    def __init__(self, name: str) -> None:
        self.name: str = name
        self.node: Node | None = None
        self.labels: Mapping[str, str] = _NO_LABELS
        self.row: int = -1
        """Its row in its table; -1 while it is in none."""
        self.pods: ReadOnlyDict[str, PodInfo] = ReadOnlyDict()
        self.order: list[str] = []
        """UIDs of the pods in the order of kube-scheduler's list, which decides between equal
        victims."""
        self.pods_with_affinity: ReadOnlyDict[str, PodInfo] = ReadOnlyDict()
        self.pods_with_required_anti_affinity: ReadOnlyDict[str, PodInfo] = ReadOnlyDict()
        self.allocatable: Amounts = Amounts()
        self.allowed_pod_number: int = 0
        self.requested: Amounts = Amounts()
        self.nonzero_requested: ReadOnlyDict[str, int] = ReadOnlyDict(cpu=0, memory=0)
        self.used_ports: ReadOnlySet[HostPort] = ReadOnlySet()
        self.pvc_ref_counts: ReadOnlyDict[str, int] = ReadOnlyDict()

    def __repr__(self) -> str:
        return f"NodeInfo({self.name}, {len(self.pods)} pods)"

    @property
    def taints(self) -> tuple[Taint, ...]:
        """Taints of the node."""
        return self.node.spec.taints if self.node is not None else ()

    @property
    def unschedulable(self) -> bool:
        """Whether the node is cordoned."""
        return self.node is not None and self.node.spec.unschedulable

    def set_node(self, node: Node) -> None:
        """Replace the node object; its pods stay."""
        # Most updates leave it as it is.
        if self.node is None or self.node.status.allocatable != node.status.allocatable:
            amounts, self.allowed_pod_number = _parse_allocatable(node.status.allocatable)
            self.allocatable = Amounts(amounts)
        self.node = node
        # A view, not a copy: a node has dozens of labels, and informers hold them already.
        self.labels = MappingProxyType(node.metadata.labels)

    def add_pod(self, pod: PodInfo) -> None:
        """Add a pod to the node and its sums."""
        # A pod that is replaced by a newer version keeps its place in the order.
        if pod.uid not in self.pods:
            self.order.append(pod.uid)
        _put(self.pods, pod.uid, pod)
        accounted_requests = pod.accounted_requests
        requested = self.requested
        for name, amount in accounted_requests.amounts.items():
            _put(requested, name, requested.get(name, 0) + amount)
        nonzero = self.nonzero_requested
        _put(nonzero, "cpu", nonzero["cpu"] + accounted_requests.nonzero[0])
        _put(nonzero, "memory", nonzero["memory"] + accounted_requests.nonzero[1])
        if pod.host_ports:
            set.update(self.used_ports, pod.host_ports)
        spec = pod.pod.spec
        if spec.affinity is not None:
            self._note_affinity(pod)
        if spec.volumes:
            self._count_claims(pod.pod, 1)

    def replace_pod(self, pod: PodInfo) -> None:
        """Replace a pod by a version of it that has the same sums."""
        for pods in (self.pods, self.pods_with_affinity, self.pods_with_required_anti_affinity):
            if pod.uid in pods:
                _put(pods, pod.uid, pod)

    def remove_pod(self, uid: str) -> PodInfo:
        """Remove a pod and return it; raises ``KeyError`` if it is not on the node."""
        pod: PodInfo = dict.pop(self.pods, uid)
        # As kube-scheduler removes from a slice: the last pod moves into the gap.
        last = self.order.pop()
        if last != uid:
            self.order[self.order.index(uid)] = last
        accounted_requests = pod.accounted_requests
        requested = self.requested
        for name, amount in accounted_requests.amounts.items():
            left = requested[name] - amount
            if left:
                _put(requested, name, left)
            else:
                # Whoever may create pods decides on the names: at 0 they would pile up.
                dict.pop(requested, name, None)
        nonzero = self.nonzero_requested
        _put(nonzero, "cpu", nonzero["cpu"] - accounted_requests.nonzero[0])
        _put(nonzero, "memory", nonzero["memory"] - accounted_requests.nonzero[1])
        if pod.host_ports:
            set.difference_update(self.used_ports, pod.host_ports)
        dict.pop(self.pods_with_affinity, uid, None)
        dict.pop(self.pods_with_required_anti_affinity, uid, None)
        if pod.pod.spec.volumes:
            self._count_claims(pod.pod, -1)
        return pod

    def difference(self) -> str:
        """Return the name of a field that does not follow from node and pods; "" if all do.

        ``used_ports`` cannot be derived: which pod's departure freed a port is not known.
        """
        fresh = NodeInfo(self.name)
        if self.node is not None:
            fresh.set_node(self.node)
        for pod in self.pods.values():
            fresh.add_pod(pod)
        if sorted(self.order) != sorted(self.pods):
            return "order"
        for name in _DERIVED:
            if getattr(self, name) != getattr(fresh, name):
                return name
        if {name: amount for name, amount in self.requested.items() if amount} != {
            name: amount for name, amount in fresh.requested.items() if amount
        }:
            return "requested"
        return "" if self.used_ports <= fresh.used_ports else "used_ports"

    def clone(self) -> NodeInfo:
        """Return a copy for a dry run; the pods themselves are shared."""
        # ``__init__`` would create a dozen empty containers that are replaced at once; preemption
        # clones hundreds of nodes for one pod.
        other = NodeInfo.__new__(NodeInfo)
        other._copy_node_from(self)
        other._copy_pods_from(self)
        return other

    def _copy_node_from(self, other: NodeInfo) -> None:
        self.name = other.name
        self.node = other.node
        self.labels = other.labels
        self.row = other.row
        self.allocatable = other.allocatable
        self.allowed_pod_number = other.allowed_pod_number

    def _copy_pods_from(self, other: NodeInfo) -> None:
        self.pods = ReadOnlyDict(other.pods)
        self.order = other.order.copy()
        self.pods_with_affinity = ReadOnlyDict(other.pods_with_affinity)
        self.pods_with_required_anti_affinity = ReadOnlyDict(other.pods_with_required_anti_affinity)
        self.requested = Amounts(other.requested)
        self.nonzero_requested = ReadOnlyDict(other.nonzero_requested)
        self.used_ports = ReadOnlySet(other.used_ports)
        self.pvc_ref_counts = ReadOnlyDict(other.pvc_ref_counts)

    def _note_affinity(self, pod: PodInfo) -> None:
        affinity = pod.pod.spec.affinity
        assert affinity is not None
        if affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None:
            _put(self.pods_with_affinity, pod.uid, pod)
        if affinity.pod_anti_affinity is not None and affinity.pod_anti_affinity.required:
            _put(self.pods_with_required_anti_affinity, pod.uid, pod)

    def _count_claims(self, pod: Pod, step: int) -> None:
        counts = self.pvc_ref_counts
        for key in claim_keys(pod):
            count = counts.get(key, 0) + step
            # Deleted at 0, or a node would collect the name of every claim that it ever had.
            if count > 0:
                _put(counts, key, count)
            else:
                dict.pop(counts, key, None)


def claim_keys(pod: Pod) -> Iterable[str]:
    """Yield ``namespace/claim`` for each volume by claim; ephemeral volumes do not count."""
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            yield f"{pod.metadata.namespace}/{volume.persistent_volume_claim.claim_name}"
