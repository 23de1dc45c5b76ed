"""The annotations with the devices of a pod, as the agents of each project read them.

``scheduling.koordinator.sh/device-allocated`` is written for every pod, and read back after a
restart. Pods that Volcano or HAMi placed are known by theirs. Only the names of the
devices are read: the amounts are those that the pod requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from proreus.addons.device_share.devices import MIB, MIG_PREFIX, Inventory, NodeDevice
from proreus.addons.device_share.requests import (
    PodDeviceRequest,
    Share,
    containers_by_index,
    ends_before_the_others,
    share_of_container,
    whole_gpus,
)
from proreus.addons.device_share.usage import Grant
from proreus.framework import PodInfo
from proreus.objects import ApiStruct, Container
from proreus.objects.codec import UNDECODABLE

ALLOCATED = "scheduling.koordinator.sh/device-allocated"
_BIND_TIME = "scheduling.koordinator.sh/bind-timestamp"
_GPU_MINORS = "scheduling.koordinator.sh/gpu-minors"
HAMI_NODE = "hami.io/vgpu-node"
_VGPU_IDS = {"volcano": "volcano.sh/vgpu-ids-new", "hami": "hami.io/vgpu-devices-allocated"}
_GPU_INDEX = "volcano.sh/gpu-index"
_CORE, _RATIO, _BYTES = (
    f"koordinator.sh/gpu-{name}" for name in ("core", "memory-ratio", "memory")
)


def result_annotations(
    pod: PodInfo,
    request: PodDeviceRequest,
    granted: tuple[Grant, ...],
    node_name: str,
    inventory: Inventory,
    now: float,
) -> dict[str, str]:
    """Return the annotations to write; ``now``: in seconds since the epoch."""
    found = {ALLOCATED: _encode(granted), _BIND_TIME: str(int(now * 10**9))}
    gpus = dict.fromkeys(str(grant.minor) for grant in granted if grant.type == "gpu")
    if gpus:
        # A container's NVIDIA_VISIBLE_DEVICES may refer to it, without any agent.
        found[_GPU_MINORS] = ",".join(gpus)
    grants = [grant for grant in granted if grant.type == "gpu" and not grant.profile]
    if request.family == "volcano":
        first = len(pod.pod.spec.init_containers)
        ids = ";".join(_cards_by_container(pod, request, grants, inventory)[first:])
        found |= {_VGPU_IDS["volcano"]: ids, "volcano.sh/devices-to-allocate": ids}
        found |= _binding("volcano.sh", node_name, now)
    elif grants and _is_of_hami(request, inventory):
        cards = _cards_by_container(pod, request, grants, inventory)
        ids = "".join(f"{one};" for one in cards)
        found |= {_VGPU_IDS["hami"]: ids, "hami.io/vgpu-devices-to-allocate": ids}
        found |= _binding("hami.io", node_name, now)
    elif request.family == "volcano-memory":
        found |= {
            _GPU_INDEX: ",".join(str(grant.minor) for grant in grants),
            "volcano.sh/predicate-time": str(int(now * 10**9)),
        }
    return found


def _binding(prefix: str, node_name: str, now: float) -> dict[str, str]:
    seconds = str(int(now))
    return {
        f"{prefix}/vgpu-node": node_name,
        f"{prefix}/vgpu-time": seconds,
        f"{prefix}/bind-phase": "allocating",
        f"{prefix}/bind-time": seconds,
    }


class InvalidClaim(ValueError):
    """Annotations that name devices that the pod cannot have."""


def claimed_devices(pod: PodInfo, request: PodDeviceRequest) -> tuple[Grant, ...]:
    """Return the devices that a pod's annotations name, without amounts; () for none.

    Raises ``InvalidClaim`` if an annotation cannot be read.
    """
    annotations = pod.pod.metadata.annotations
    for name, read in _READERS.items():
        if name in annotations:
            try:
                return tuple(read(annotations[name], pod, request))
            except (*UNDECODABLE, LookupError):
                raise InvalidClaim(f"annotation {name} cannot be read") from None
    return ()


# ---- Koordinator ---------------------------------------------------------------------------------


def _encode(grants: tuple[Grant, ...]) -> str:
    by_type: dict[str, list[dict[str, Any]]] = {}
    for grant in grants:
        entry: dict[str, Any] = {"minor": grant.minor, "resources": _resources(grant)}
        if grant.id:
            entry["id"] = grant.id
        if grant.profile:
            entry["extension"] = {"migStart": grant.start}
        by_type.setdefault(grant.type, []).append(entry)
    return msgspec.json.encode(by_type).decode()


def _resources(grant: Grant) -> dict[str, str]:
    if grant.profile:
        return {MIG_PREFIX + grant.profile: "1"}
    if grant.type != "gpu":
        return {f"koordinator.sh/{grant.type}": _percent(grant.milli)}
    # Koordinator's agent takes listed amounts for limits: only requested ones are listed.
    found = {_CORE: _percent(grant.milli)} if grant.milli else {}
    found[_RATIO] = _percent(grant.memory_milli)
    return found | ({_BYTES: str(grant.memory)} if grant.memory else {})


def _percent(milli: int) -> str:
    # A quantity: 125 thousandths of a device are 12.5 percent, written 12500m.
    return f"{milli * 100}m" if milli % 10 else str(milli // 10)


class _Extension(ApiStruct, frozen=True):
    mig_start: int = 0


class _Entry(ApiStruct, frozen=True):
    """A device of a pod in Koordinator's annotation."""

    minor: int
    id: str = ""
    resources: dict[str, str | int | float] = {}
    extension: _Extension = _Extension()


def _read_allocated(text: str, pod: PodInfo, request: PodDeviceRequest) -> Iterator[Grant]:
    by_type = msgspec.json.decode(text, type=dict[str, list[_Entry]])
    for type_, entries in by_type.items():
        for one in entries:
            profiles = [name for name in one.resources if name.startswith(MIG_PREFIX)]
            profile = profiles[0].removeprefix(MIG_PREFIX) if profiles else ""
            yield Grant(type_, one.minor, id=one.id, profile=profile, start=one.extension.mig_start)


# ---- Volcano and HAMi ----------------------------------------------------------------------------


def _is_of_hami(request: PodDeviceRequest, inventory: Inventory) -> bool:
    """Return whether HAMi's agent gives a pod its GPUs; on its nodes it does so for whole ones."""
    return request.family == "hami" or (request.family == "nvidia" and inventory.has_hami_agent)


def _cards_by_container(
    pod: PodInfo, request: PodDeviceRequest, grants: list[Grant], inventory: Inventory
) -> list[str]:
    """Return ``id,type,MiB,percent:`` for each card of each container (``containers_by_index``).

    Agents count positions: one that has no card has an empty string. An init container has cards
    of containers that start when it has ended.
    """
    devices = {(one.type, one.minor): one for one in inventory.devices}
    shares = [_share(one, request) for one in containers_by_index(pod)]
    left = iter(grants)
    lent: list[tuple[Share, list[Grant]]] = []
    cards: dict[int, list[Grant]] = {}
    for index, share in enumerate(shares):
        if share is not None and not ends_before_the_others(pod, index):
            cards[index] = [next(left) for _ in range(share.count)]
            lent.append((share, cards[index]))
    for index, share in enumerate(shares):
        if share is not None and index not in cards:
            of_one = (found for other, found in lent if share.is_lent_by(other))
            cards[index] = next(of_one, grants)[: share.count]
    return [
        "".join(_card(grant, shares[index], devices) for grant in cards.get(index, ()))
        for index in range(len(shares))
    ]


def _share(container: Container, request: PodDeviceRequest) -> Share | None:
    if request.family == "nvidia":
        return whole_gpus(container)
    return share_of_container(container)


def _card(grant: Grant, share: Share | None, devices: Mapping[tuple[str, int], NodeDevice]) -> str:
    assert share is not None
    name = grant.id or f"{grant.type}-{grant.minor}"
    memory = share.memory_of(devices[grant.type, grant.minor]) // MIB
    return f"{name},NVIDIA,{memory},{share.milli // 10}:"


def _read_hami(text: str, pod: PodInfo, request: PodDeviceRequest) -> Iterator[Grant]:
    cards = [list(_cards(one)) for one in text.split(";")]
    shares = [_share(one, request) for one in containers_by_index(pod)]
    holders = [
        index
        for index, share in enumerate(shares[: len(cards)])
        if share is not None and not ends_before_the_others(pod, index)
    ]
    if holders:
        for index in holders:
            yield from cards[index]
    else:
        # Only init containers have cards: each the same ones, or some of them.
        yield from max(cards, key=len)


def _read_volcano(text: str, pod: PodInfo, request: PodDeviceRequest) -> Iterator[Grant]:
    return _cards(text.replace(";", ":"))


def _cards(text: str) -> Iterator[Grant]:
    for card in filter(None, text.split(":")):
        id_ = card.split(",")[0].partition("[")[0]  # Volcano's MIG instances have a position
        named_by_minor = id_.startswith("gpu-")
        yield Grant("gpu", int(id_.removeprefix("gpu-")) if named_by_minor else -1, id=id_)


def _read_index(text: str, pod: PodInfo, request: PodDeviceRequest) -> Iterator[Grant]:
    return (Grant("gpu", int(minor)) for minor in text.split(","))


_READERS = {
    ALLOCATED: _read_allocated,
    _VGPU_IDS["volcano"]: _read_volcano,
    _VGPU_IDS["hami"]: _read_hami,
    _GPU_INDEX: _read_index,
}
"""By annotation; the first that a pod has counts."""
