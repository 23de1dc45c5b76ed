"""The annotations that say which devices a pod got, as each project's agents read them.

``scheduling.koordinator.sh/device-allocated`` is written for every pod, and read back after a
restart. Pods that Volcano or HAMi placed are known by theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from proreus.addons.device_share.devices import MIB, MIG_PREFIX, Inventory, NodeDevice
from proreus.addons.device_share.mig import MEMORY_SLICES
from proreus.addons.device_share.requests import (
    PodDeviceRequest,
    Share,
    containers_by_index,
    ends_before_the_others,
    share_of_container,
    whole_gpus,
)
from proreus.addons.device_share.usage import Allocation, Grant
from proreus.framework import PodInfo
from proreus.objects import Container, parse_amount
from proreus.objects.codec import UNDECODABLE

ALLOCATED = "scheduling.koordinator.sh/device-allocated"
_BIND_TIME = "scheduling.koordinator.sh/bind-timestamp"
_GPU_MINORS = "scheduling.koordinator.sh/gpu-minors"
HAMI_NODE = "hami.io/vgpu-node"
_VGPU_IDS = {"volcano": "volcano.sh/vgpu-ids-new", "hami": "hami.io/vgpu-devices-allocated"}
_UNREADABLE = (*UNDECODABLE, LookupError, TypeError, AttributeError)
"""What reading an annotation raises that no agent wrote."""
_CORE, _RATIO, _BYTES = (
    f"koordinator.sh/gpu-{name}" for name in ("core", "memory-ratio", "memory")
)


def result_annotations(
    pod: PodInfo,
    request: PodDeviceRequest,
    allocation: Allocation,
    inventory: Inventory,
    now: float,
) -> dict[str, str]:
    """Return the annotations to write; ``now``: in seconds since the epoch."""
    found = {ALLOCATED: _encode(allocation.grants), _BIND_TIME: str(int(now * 10**9))}
    gpus = dict.fromkeys(str(grant.minor) for grant in allocation.grants if grant.type == "gpu")
    if gpus:
        # A container's NVIDIA_VISIBLE_DEVICES may refer to it, without any agent.
        found[_GPU_MINORS] = ",".join(gpus)
    grants = [grant for grant in allocation.grants if grant.type == "gpu" and not grant.profile]
    if request.family == "volcano":
        ids = ";".join(
            _cards_by_container(pod, request, grants, inventory)[_first_container(pod) :]
        )
        found |= {
            _VGPU_IDS["volcano"]: ids,
            "volcano.sh/devices-to-allocate": ids,
            "volcano.sh/vgpu-node": allocation.node_name,
            "volcano.sh/vgpu-time": str(int(now)),
            "volcano.sh/bind-phase": "allocating",
            "volcano.sh/bind-time": str(int(now)),
        }
    elif grants and _is_of_hami(request, inventory):
        cards = _cards_by_container(pod, request, grants, inventory)
        ids = "".join(f"{one};" for one in cards)
        found |= {
            _VGPU_IDS["hami"]: ids,
            "hami.io/vgpu-devices-to-allocate": ids,
            HAMI_NODE: allocation.node_name,
            "hami.io/vgpu-time": str(int(now)),
            "hami.io/bind-phase": "allocating",
            "hami.io/bind-time": str(int(now)),
        }
    elif request.family == "volcano-memory":
        found |= {
            "volcano.sh/gpu-index": ",".join(str(grant.minor) for grant in grants),
            "volcano.sh/predicate-time": str(int(now * 10**9)),
        }
    return found


def allocation_of(
    annotations: Mapping[str, str], node_name: str, request: PodDeviceRequest | None
) -> Allocation | None:
    """Return what annotations say that a pod on a node has, None if they say nothing valid.

    ``request``: of the pod, None if it has none that is valid.
    """
    group = "" if request is None else request.spread_group
    try:
        grants = tuple(_read(annotations, request))
    except _UNREADABLE:
        return None
    if not grants or not all(map(_is_possible, grants)):
        return None
    return Allocation(node_name, grants, group)


def _is_possible(grant: Grant) -> bool:
    amounts = grant.milli, grant.memory, grant.memory_milli
    return min(amounts) >= 0 and 0 <= grant.start < MEMORY_SLICES


def _read(annotations: Mapping[str, str], request: PodDeviceRequest | None) -> Iterator[Grant]:
    if ALLOCATED in annotations:
        yield from _decode(annotations[ALLOCATED])
        return
    for name in _VGPU_IDS.values():
        if name in annotations:
            yield from _read_vgpu_ids(annotations[name])
            return
    shares = () if request is None else request.shares
    if "volcano.sh/gpu-index" in annotations and shares:
        for minor in annotations["volcano.sh/gpu-index"].split(","):
            share = shares[0]
            yield Grant("gpu", int(minor), share.milli, share.memory, share.memory_milli)


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
    # Koordinator's agent takes what is listed for a limit, so what was not asked for is left out.
    found = {_CORE: _percent(grant.milli)} if grant.milli else {}
    found[_RATIO] = _percent(grant.memory_milli)
    return found | ({_BYTES: str(grant.memory)} if grant.memory else {})


def _percent(milli: int) -> str:
    # A quantity: 125 thousandths of a device are 12.5 percent, written 12500m.
    return f"{milli * 100}m" if milli % 10 else str(milli // 10)


def _milli(quantity: str | int | float) -> int:
    # As CPUs, quantities are read in thousandths.
    return parse_amount("cpu", quantity) // 100


def _decode(text: str) -> Iterator[Grant]:
    by_type = msgspec.json.decode(text, type=dict[str, list[dict[str, Any]]])
    for type_, entries in by_type.items():
        for entry in entries:
            yield _grant(type_, entry)


def _grant(type_: str, entry: dict[str, Any]) -> Grant:
    resources = entry.get("resources") or {}
    minor, id_ = int(entry["minor"]), entry.get("id") or ""
    for name in resources:
        if name.startswith(MIG_PREFIX):
            start = int((entry.get("extension") or {}).get("migStart", 0))
            profile = name.removeprefix(MIG_PREFIX)
            return Grant(type_, minor, id=id_, profile=profile, start=start)
    if type_ != "gpu":
        milli = _milli(resources.get(f"koordinator.sh/{type_}", 0))
        return Grant(type_, minor, milli, 0, milli, id_)
    memory = parse_amount(_BYTES, resources.get(_BYTES, 0))
    core, ratio = _milli(resources.get(_CORE, 0)), _milli(resources.get(_RATIO, 0))
    return Grant(type_, minor, core, memory, ratio, id_)


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


def _first_container(pod: PodInfo) -> int:
    return len(pod.pod.spec.init_containers)


def _read_vgpu_ids(text: str) -> Iterator[Grant]:
    for card in text.replace(";", ":").split(":"):
        if not card:
            continue
        name, _, memory, cores, *_ = card.split(",")
        id_ = name.partition("[")[0]  # Volcano's MIG instances have a position in brackets
        minor = int(id_.removeprefix("gpu-")) if id_.startswith("gpu-") else -1
        yield Grant("gpu", minor, int(cores) * 10, int(memory) * MIB, 0, id_)
