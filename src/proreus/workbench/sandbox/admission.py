"""Kubelet admission: sums the pods of a node, and checks whether a new pod still fits.

Deliberately independent of the scheduler's own arithmetic: a pod that was bound to a node where it
does not fit ends as Failed here, instead of running unnoticed. Reasons and messages are the
kubelet's (``OutOfcpu``, ``NodePorts``); like the kubelet, only the first failed check is reported.
"""

from dataclasses import dataclass, field

from proreus.objects.node import Node
from proreus.objects.pod import Pod
from proreus.objects.quantity import amounts_of
from proreus.objects.requests import pod_requests
from proreus.objects.resource_names import is_tracked_resource
from proreus.objects.selectors import parse_node_selector, selector_of_map
from proreus.objects.taints import NO_EXECUTE, first_untolerated

PODS = "pods"
_FIRST = {PODS: 0, "cpu": 1, "memory": 2, "ephemeral-storage": 3}
_AFFINITY = "node(s) didn't match Pod's node affinity/selector"
_PORTS = "node(s) didn't have free ports for the requested pod ports"
_TAINTS = "node(s) had taints that the pod didn't tolerate"
_WILDCARD_ADDRESSES = ("", "0.0.0.0", "::")

HostPort = tuple[str, str, int]
"""Address, protocol, port."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a kubelet rejects a pod: ``status.reason`` and ``status.message`` of the failed pod."""

    reason: str
    message: str


@dataclass(slots=True)
class PodRequirements:
    """The requests (CPU in millicores, others in units) and ports that a pod occupies on a node."""

    requests: dict[str, int]
    ports: tuple[HostPort, ...]


def pod_requirements(pod: Pod) -> PodRequirements:
    """Return the effective requests and the host ports of a pod; it also counts as one pod."""
    requests = {name: amount for name, amount in pod_requests(pod).items() if amount}
    requests[PODS] = 1
    ports = tuple(
        (port.host_ip, port.protocol or "TCP", port.host_port)
        for container in (*pod.spec.containers, *pod.spec.init_containers)
        for port in container.ports
        if port.host_port
    )
    return PodRequirements(requests, ports)


@dataclass(slots=True)
class NodeAllocation:
    """A node, and the resources that its admitted pods occupy."""

    node: Node
    address: str = ""
    used: dict[str, int] = field(default_factory=dict)
    ports: list[HostPort] = field(default_factory=list)
    capacity: dict[str, int] = field(default_factory=dict)

    def refresh(self, node: Node) -> None:
        """Replace the node object, and read its allocatable resources anew."""
        self.node = node
        self.capacity = amounts_of(node.status.allocatable)

    def add_pod(self, requirements: PodRequirements) -> None:
        """Add the resources of an admitted pod."""
        for name, amount in requirements.requests.items():
            self.used[name] = self.used.get(name, 0) + amount
        self.ports.extend(requirements.ports)

    def remove_pod(self, requirements: PodRequirements) -> None:
        """Subtract the resources of a pod that has ended or is gone."""
        for name, amount in requirements.requests.items():
            self.used[name] -= amount
        for port in requirements.ports:
            self.ports.remove(port)

    def check(self, pod: Pod, requirements: PodRequirements) -> Rejection | None:
        """Return why the node rejects a pod, or None when it is admitted."""
        for name in sorted(requirements.requests, key=lambda n: (_FIRST.get(n, 4), n)):
            wanted = requirements.requests[name]
            used, capacity = self.used.get(name, 0), self.capacity.get(name, 0)
            if used + wanted > capacity and (name == PODS or is_tracked_resource(name)):
                return Rejection(
                    f"OutOf{name}",
                    f"Node didn't have enough resource: {name}, requested: {wanted}, "
                    f"used: {used}, capacity: {capacity}",
                )
        if not self._has_affinity(pod):
            return _failed("NodeAffinity", _AFFINITY)
        if any(_conflicts(wanted, taken) for wanted in requirements.ports for taken in self.ports):
            return _failed("NodePorts", _PORTS)
        no_execute = frozenset({NO_EXECUTE})
        if first_untolerated(self.node.spec.taints, pod.spec.tolerations, no_execute) is not None:
            return _failed("TaintToleration", _TAINTS)
        return None

    def _has_affinity(self, pod: Pod) -> bool:
        labels, name = self.node.metadata.labels, self.node.metadata.name
        spec = pod.spec
        if spec.node_selector and not selector_of_map(spec.node_selector).matches(labels):
            return False
        affinity = spec.affinity.node_affinity if spec.affinity is not None else None
        if affinity is None or affinity.required is None:
            return True
        return parse_node_selector(affinity.required).matches(labels, name)


def _failed(predicate: str, text: str) -> Rejection:
    return Rejection(predicate, f"Predicate {predicate} failed: {text}")


def _conflicts(one: HostPort, other: HostPort) -> bool:
    if one[1:] != other[1:]:
        return False
    return one[0] == other[0] or one[0] in _WILDCARD_ADDRESSES or other[0] in _WILDCARD_ADDRESSES
