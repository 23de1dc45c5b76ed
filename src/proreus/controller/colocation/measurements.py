"""Reads the real use of nodes and pods from metrics.k8s.io."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from proreus.addons.node_metrics.providers import NODE_USAGES
from proreus.addons.pod_amounts import CPU_AND_MEMORY
from proreus.client.http.session import ApiClient
from proreus.client.watching.list_watch import ListWatch
from proreus.client.watching.pager import list_all_pages
from proreus.client.watching.watch import ListDecoder
from proreus.objects import ApiStruct, ObjectMeta, Resource, parse_amount
from proreus.objects.meta import ApiObject, key_of

T = TypeVar("T", bound=ApiObject)

_PAGE_SIZE = 2000
_LIST_SECONDS = 30.0


class CpuAndMemory(NamedTuple):
    """Of cpu in milli-CPU, of memory in bytes."""

    cpu: int
    memory: int

    @classmethod
    def of(cls, quantities: Mapping[str, str | int | float]) -> CpuAndMemory:
        """Return the amounts of a resource list, 0 for missing ones; raise ``ValueError``."""
        return cls(*(parse_amount(name, quantities.get(name, 0)) for name in CPU_AND_MEMORY))


NOTHING = CpuAndMemory(0, 0)


class Measured(NamedTuple):
    """The use of a node or pod, and the time of the measurement in Unix seconds."""

    used: CpuAndMemory
    at: float


class ContainerUsage(ApiStruct, frozen=True):
    """The use of one container."""

    usage: dict[str, str | int | float] = {}


class PodUsage(ApiStruct, frozen=True):
    """metrics.k8s.io PodMetrics."""

    metadata: ObjectMeta = ObjectMeta()
    timestamp: datetime | None = None
    containers: tuple[ContainerUsage, ...] = ()


POD_USAGES = Resource("metrics.k8s.io", "v1beta1", "pods", "PodMetrics", True, PodUsage)


@dataclass(frozen=True)
class Measurements:
    """The latest of nodes by name, and of pods by key."""

    nodes: Mapping[str, Measured] = field(default_factory=dict)
    pods: Mapping[str, Measured] = field(default_factory=dict)


async def read_measurements(client: ApiClient) -> Measurements:
    """Read the metrics of all nodes and pods; raises ``ApiError``."""
    nodes = {
        one.metadata.name: Measured(CpuAndMemory.of(one.usage), one.timestamp.timestamp())
        for one in await list_all(client, NODE_USAGES)
        if one.timestamp is not None
    }
    pods = {
        key_of(one): Measured(_total(one.containers), one.timestamp.timestamp())
        for one in await list_all(client, POD_USAGES)
        if one.timestamp is not None
    }
    return Measurements(nodes, pods)


async def list_all(client: ApiClient, resource: Resource[T]) -> list[T]:
    """Return all objects of a resource; raises ``ApiError``."""
    decoder: ListDecoder[Any] = ListDecoder(resource.type)
    listing = ListWatch(client, resource)
    return (await list_all_pages(listing, decoder, _PAGE_SIZE, _LIST_SECONDS)).items


def _total(containers: Iterable[ContainerUsage]) -> CpuAndMemory:
    used = [CpuAndMemory.of(one.usage) for one in containers]
    return CpuAndMemory(sum(one.cpu for one in used), sum(one.memory for one in used))
