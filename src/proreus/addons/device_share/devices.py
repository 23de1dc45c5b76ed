"""Devices of a node, read from Device objects, annotations or allocatable amounts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import msgspec

from proreus.framework import NodeInfo
from proreus.objects import ApiStruct, ObjectMeta, Resource, parse_amount
from proreus.objects.codec import UNDECODABLE
from proreus.objects.selectors import parse_count

WHOLE = 1000
"""One device, in thousandths: the unit of compute, and of memory of unknown size."""
MIB = 2**20
MIG_PREFIX = "nvidia.com/mig-"
"""Of the resources that are MIG profiles."""
VOLCANO_REGISTER = "volcano.sh/node-vgpu-register"
HAMI_REGISTER = "hami.io/node-nvidia-register"
PARTITIONS = "scheduling.koordinator.sh/gpu-partitions"
PARTITION_POLICY = "node.koordinator.sh/gpu-partition-policy"
_COUNTED = {
    "nvidia.com/gpu": 1,
    "koordinator.sh/gpu": 100,
    "koordinator.sh/gpu-core": 100,
    "volcano.sh/gpu-number": 1,
}
"""Resources that count GPUs, and how much of each one GPU is."""
MOST_DEVICES = 256
"""The most GPUs of a node that count: more are a mistake, and would take all memory."""


class DeviceTopology(ApiStruct, frozen=True):
    """The place of a device: socket, NUMA node, PCIe switch."""

    socket_id: int = msgspec.field(name="socketID", default=-1)
    node_id: int = msgspec.field(name="nodeID", default=-1)
    pcie_id: str = msgspec.field(name="pcieID", default="")


class DeviceEntry(ApiStruct, frozen=True):
    """A device of a Device object."""

    id: str = ""
    minor: int = 0
    type: str = ""
    health: bool = False
    labels: dict[str, str] = {}
    resources: dict[str, str | int | float] = {}
    topology: DeviceTopology | None = None


class PartitionEntry(ApiStruct, frozen=True):
    """A partition of GPUs in the annotation of a Device object."""

    minors: tuple[int, ...] = ()
    ring_bus_bandwidth: str | int | None = None
    allocation_score: int = 0


class DeviceObjectSpec(ApiStruct, frozen=True):
    """The devices of a node."""

    devices: tuple[DeviceEntry, ...] = ()


class DeviceObject(ApiStruct, frozen=True):
    """scheduling.koordinator.sh Device, named as its node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceObjectSpec = DeviceObjectSpec()


class RegisteredCard(ApiStruct, frozen=True):
    """A card in HAMi's list in JSON, which omits zero and false.

    ``count``: how many may share it; ``devmem``: its memory in MiB.
    """

    id: str = ""
    index: int = 0
    count: int = 0
    devmem: int = 0
    type: str = ""
    numa: int = 0
    mode: str = ""
    health: bool = False


DEVICES = Resource(
    "scheduling.koordinator.sh", "v1alpha1", "devices", "Device", False, DeviceObject, custom=True
)


@dataclass(frozen=True, slots=True)
class NodeDevice:
    """A device: ``type`` gpu, rdma or fpga; ``memory`` in bytes, 0 if it is not known.

    ``max_users``: how many may share it, 0 for any number. ``numa`` is -1 and ``pcie`` is "" where
    they are not known. ``mig``: whether it can be split into MIG instances. ``mode``: that of a
    registered vGPU card (hami-core, mps, mig), "" if the agent did not say. ``labels``: of its
    entry in the Device object.
    """

    minor: int
    type: str = "gpu"
    id: str = ""
    memory: int = 0
    numa: int = -1
    pcie: str = ""
    model: str = ""
    max_users: int = 0
    mig: bool = False
    mode: str = ""
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def memory_capacity(self) -> int:
        """Its memory in bytes; in thousandths where that is not known."""
        return self.memory or WHOLE


@dataclass(frozen=True, slots=True)
class Partition:
    """GPUs, by minor, that may be used together, and the bandwidth between them in bytes.

    ``score``: the best of one number of GPUs have the highest (``allocationScore``).
    """

    minors: frozenset[int]
    bandwidth: int = 0
    score: int = 0


@dataclass(frozen=True, slots=True)
class Inventory:
    """Devices of a node, by type and minor, and its table of partitions.

    ``fixed_profiles``: MIG profiles whose instances exist already, on GPUs that nobody else can
    see; NodeResourcesFit counts them. ``has_hami_agent``: HAMi's agent gives pods their GPUs.
    ``honors_partitions``: several GPUs are given in listed partitions alone.
    """

    devices: tuple[NodeDevice, ...] = ()
    partitions: tuple[Partition, ...] = ()
    fixed_profiles: frozenset[str] = frozenset()
    has_hami_agent: bool = False
    honors_partitions: bool = False

    @property
    def has_gpus(self) -> bool:
        """Whether there is a GPU."""
        gpus = any(device.type == "gpu" for device in self.devices)
        return gpus or bool(self.fixed_profiles)


def inventory_of(node: NodeInfo, found: DeviceObject | None) -> Inventory:
    """Return the devices of a node: of its Device object if it has one, else of the node itself."""
    partitions: tuple[Partition, ...] = ()
    honors = False
    mig = _is_mig_capable(node)
    annotations = {} if node.node is None else node.node.metadata.annotations
    cards = annotations.get(VOLCANO_REGISTER) or annotations.get(HAMI_REGISTER)
    has_hami_agent = HAMI_REGISTER in annotations
    if found is not None:
        devices = tuple(_of_entries(found.spec.devices, mig))
        partitions = tuple(_partitions(found.metadata.annotations))
        honors = found.metadata.labels.get(PARTITION_POLICY) == "Honor"
    elif cards is not None:
        devices = tuple(_registered(cards, mig))
    else:
        devices = tuple(_counted(node, mig))
    splits = any(device.mig for device in devices)
    listed = (name for name, amount in node.allocatable.items() if amount and not splits)
    fixed = (name.removeprefix(MIG_PREFIX) for name in listed if name.startswith(MIG_PREFIX))
    return Inventory(devices, partitions, frozenset(fixed), has_hami_agent, honors)


def _is_mig_capable(node: NodeInfo) -> bool:
    return node.labels.get("nvidia.com/mig.capable") == "true"


def _of_entries(entries: tuple[DeviceEntry, ...], mig: bool) -> Iterator[NodeDevice]:
    """Yield the healthy devices of a Device object that have a valid amount of memory."""
    for one in sorted(entries, key=lambda entry: (entry.type, entry.minor)):
        if not one.health:
            continue
        where = one.topology or DeviceTopology()
        try:
            listed = one.resources.get("koordinator.sh/gpu-memory", 0)
            memory = parse_amount("koordinator.sh/gpu-memory", listed)
        except ValueError:
            continue
        if memory < 0:
            continue
        yield NodeDevice(
            one.minor,
            one.type,
            one.id,
            memory,
            where.node_id,
            where.pcie_id,
            one.labels.get("node.koordinator.sh/gpu-model", ""),
            mig=mig and one.type == "gpu",
            labels=one.labels,
        )


def _partitions(annotations: Mapping[str, str]) -> Iterator[Partition]:
    listed = _json(annotations.get(PARTITIONS, "{}"), dict[str, list[PartitionEntry]])
    for one in chain.from_iterable(listed.values()):
        try:
            bandwidth = parse_amount("bandwidth", one.ring_bus_bandwidth or 0)
        except ValueError:
            continue
        yield Partition(frozenset(one.minors), bandwidth, one.allocation_score)


def _registered(text: str, mig: bool) -> Iterator[NodeDevice]:
    """Yield the healthy cards of a vGPU agent that have no negative amounts."""
    in_json = text.lstrip().startswith("[")
    listed = _json(text, list[RegisteredCard]) if in_json else _cards_in_text(text)
    for card in listed:
        if card.health and card.devmem >= 0 and card.count >= 0:
            yield NodeDevice(
                card.index,
                id=card.id,
                memory=card.devmem * MIB,
                numa=card.numa,
                model=card.type,
                max_users=card.count,
                mig=card.mode == "mig" or (mig and not card.mode),
                mode=card.mode,
            )


def _cards_in_text(text: str) -> Iterator[RegisteredCard]:
    """Yield the cards of a list that HAMi once wrote, and Volcano still does.

    ``id,count,MiB,model,health[,mode]:`` is Volcano's,
    ``id,count,MiB,cores,model,numa,health[,index,mode]:`` HAMi's.
    """
    for position, card in enumerate(one for one in text.split(":") if one.strip()):
        fields = card.strip().split(",")
        health = next((i for i, one in enumerate(fields) if one in ("true", "false")), -1)
        if health not in (4, 6):
            continue
        count, devmem = parse_count(fields[1]), parse_count(fields[2])
        if count is None or devmem is None:
            continue
        has_cores = health == 6
        index = parse_count(fields[7]) if len(fields) > 8 else None
        numa = parse_count(fields[5]) if has_cores else None
        yield RegisteredCard(
            id=fields[0],
            index=position if index is None else index,
            count=count,
            devmem=devmem,
            type=fields[4 if has_cores else 3],
            numa=-1 if numa is None else numa,
            mode=fields[-1] if len(fields) > health + 1 else "",
            health=fields[health] == "true",
        )


def _counted(node: NodeInfo, mig: bool) -> Iterator[NodeDevice]:
    allocatable = node.allocatable
    count = max((allocatable[name] // one for name, one in _COUNTED.items()), default=0)
    count = min(count, MOST_DEVICES)
    if not count:
        return
    memory = (parse_count(node.labels.get("nvidia.com/gpu.memory", "")) or 0) * MIB
    memory = memory or allocatable["koordinator.sh/gpu-memory"] // count
    memory = memory or allocatable["volcano.sh/gpu-memory"] * MIB // count
    model = node.labels.get("nvidia.com/gpu.product", "")
    for minor in range(count):
        yield NodeDevice(minor, memory=memory, model=model, mig=mig)


def _json(text: str, type_: Any) -> Any:
    """Decode a text in JSON; return an empty value if it cannot be read."""
    try:
        return msgspec.json.decode(text, type=type_)
    except UNDECODABLE:
        return type_()
