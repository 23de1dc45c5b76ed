"""The demand of a pod on the zones of a node: requests of containers, and QoS class."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from proreus.addons.pod_amounts import CPU_AND_MEMORY, Amounts, requests_of
from proreus.addons.qos import qos_class
from proreus.objects import Container, Pod
from proreus.objects.quantity import amounts_of

_NATIVE = ("cpu", "memory", "ephemeral-storage", "pods", "storage")
_HUGEPAGES = "hugepages-"


@dataclass(frozen=True)
class ContainerDemand:
    """The requests of a container. ``kind``: its name in messages."""

    kind: str
    amounts: Amounts


@dataclass(frozen=True)
class Demand:
    """The requests of a pod: ``containers``, init containers first, and as a whole (``total``).

    Init containers that restart are among the init containers, and count as such in ``total``.
    """

    containers: tuple[ContainerDemand, ...]
    inits: int
    total: Amounts
    guaranteed: bool
    best_effort: bool

    @classmethod
    def of(cls, pod: Pod) -> Demand:
        """Return the demand of a pod."""
        spec = pod.spec
        inits = [_demand(one, init=True) for one in spec.init_containers]
        apps = [_demand(one, init=False) for one in spec.containers]
        qos = qos_class(pod)
        return cls(
            (*inits, *apps), len(inits), requests_of(pod), qos == "Guaranteed", qos == "BestEffort"
        )

    @property
    def needs_alignment(self) -> bool:
        """Whether a kubelet may align anything of it."""
        return not self.best_effort or any(is_extended(name) for name in self.total)

    def key(self) -> Hashable:
        """Return a key that is equal for pods with the same demand."""
        containers = tuple((one.kind, tuple(one.amounts.items())) for one in self.containers)
        return containers, tuple(self.total.items()), self.guaranteed, self.best_effort


def is_aligned_for_guaranteed_pods_only(resource: str) -> bool:
    """Return whether kubelets align a resource for Guaranteed pods alone."""
    return resource in CPU_AND_MEMORY or resource.startswith(_HUGEPAGES)


def is_extended(resource: str) -> bool:
    """Return whether a resource is none of Kubernetes' own."""
    return "/" in resource and not resource.partition("/")[0].endswith("kubernetes.io")


def is_host_level(resource: str) -> bool:
    """Return whether a resource need not belong to a zone."""
    native = resource in _NATIVE or resource.startswith(_HUGEPAGES)
    return not native or resource in ("ephemeral-storage", "storage")


def _demand(container: Container, *, init: bool) -> ContainerDemand:
    kind = "container"
    if init:
        kind = "sidecar container" if container.restart_policy == "Always" else "init container"
    return ContainerDemand(kind, amounts_of(container.resources.requests))
