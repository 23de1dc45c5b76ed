"""Reads the device requests of a pod, in the names of each project.

Thousandths of a device are called milli, as with CPUs. ``koordinator.sh/gpu: 50``,
``gpu-fraction: "0.5"`` and ``koordinator.sh/gpu-core: 50`` with ``gpu-memory-ratio: 50`` are all
500 milli of compute and 500 milli of memory of one GPU.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from proreus.addons.device_share.devices import MIB, MIG_PREFIX, WHOLE, NodeDevice
from proreus.addons.device_share.hints import NO_HINTS, Hints, InvalidRequest, hints_of
from proreus.framework import PodInfo
from proreus.objects import Container
from proreus.objects.quantity import amounts_of

_KOORDINATOR = "koordinator.sh/"
_NICS = {"koordinator.sh/rdma": "rdma", "koordinator.sh/fpga": "fpga"}
_VOLCANO = ("number", "memory", "cores", "memory-percentage")
_HAMI = ("nvidia.com/gpumem", "nvidia.com/gpucores", "nvidia.com/gpumem-percentage")
_FRACTION, _MEMORY, _COUNT = "gpu-fraction", "gpu-memory", "gpu-fraction-num-devices"

Family = Literal["nvidia", "koordinator", "volcano", "volcano-memory", "kai", "hami"]


@dataclass(frozen=True, slots=True)
class Share:
    """The request to each of ``count`` devices of a type.

    ``milli``: compute. Memory is in bytes (``memory``), or in thousandths of what the device has
    (``memory_milli``). ``profile``: of a MIG instance, such as 1g.5gb; the rest is 0 then.
    """

    count: int = 1
    milli: int = 0
    memory: int = 0
    memory_milli: int = 0
    type: str = "gpu"
    profile: str = ""

    def memory_of(self, device: NodeDevice) -> int:
        """Return the memory asked of a device, in its unit (``NodeDevice.memory_capacity``)."""
        if self.memory:
            # Sizes cannot be compared with a memory that is not known.
            return self.memory if device.memory else WHOLE + 1
        # Down, so that 0.6 and 0.4 share a device whatever its size.
        return device.memory_capacity * self.memory_milli // WHOLE

    def is_lent_by(self, other: Share) -> bool:
        """Return whether a later container with ``other`` can lend its devices for this share."""
        return replace(self, count=other.count) == other and self.count <= other.count

    @property
    def is_whole(self) -> bool:
        """Whether nobody else may use the device."""
        return self.milli >= WHOLE and not self.profile


@dataclass(frozen=True, slots=True)
class PodDeviceRequest:
    """The request of a pod. Devices of one share are distinct; two shares may have the same one.

    ``ids``, ``not_ids``, ``models``, ``not_models``: constraints, empty for none. ``mode``: the
    modes of vGPU cards that will do. ``spread_group``: no device with a pod of that group.
    ``hints``: Koordinator's, which count for its names and NVIDIA's.
    """

    family: Family
    shares: tuple[Share, ...]
    ids: frozenset[str] = frozenset()
    not_ids: frozenset[str] = frozenset()
    models: frozenset[str] = frozenset()
    not_models: frozenset[str] = frozenset()
    mode: str = ""
    spread_group: str = ""
    hints: Hints = NO_HINTS

    def allows(self, device: NodeDevice) -> bool:
        """Return whether a device meets the constraints."""
        if not self.hints.allows(device.type, device.labels):
            return False
        if device.type != "gpu":
            return True
        model = device.model.lower()
        return not (
            (self.ids and device.id not in self.ids)
            or device.id in self.not_ids
            or (self.models and not any(one in model for one in self.models))
            or any(one in model for one in self.not_models)
            or (self.mode and (device.mode or "hami-core") not in self.mode)
            # Its agent splits it, for requests that name the placement of an instance.
            or (device.mode == "mig" and not any(share.profile for share in self.shares))
        )


def request_of(pod: PodInfo) -> PodDeviceRequest | None:
    """Return the request of a pod, None if it has none; raises ``InvalidRequest``."""
    amounts = pod.requests.amounts
    annotations = pod.pod.metadata.annotations
    if _FRACTION in annotations or _MEMORY in annotations:
        return PodDeviceRequest("kai", (_kai_share(annotations),))
    names = [name for name, amount in amounts.items() if amount and "/" in name]
    if not names:
        return None
    if any(name.startswith("volcano.sh/vgpu-") for name in names):
        return _with_constraints(pod, PodDeviceRequest("volcano", _volcano_shares(pod)))
    if any(name in _HAMI for name in names):
        return _with_constraints(pod, PodDeviceRequest("hami", _hami_shares(pod)))
    if "volcano.sh/gpu-memory" in names:
        memory = amounts["volcano.sh/gpu-memory"] * MIB
        return PodDeviceRequest("volcano-memory", (Share(memory=memory),))
    if "volcano.sh/gpu-number" in names:
        return PodDeviceRequest("volcano-memory", (_whole(amounts["volcano.sh/gpu-number"]),))
    hints = hints_of(annotations)
    shares = tuple(_other_shares(names, amounts, hints))
    if not shares:
        return None
    family: Family = "koordinator" if any(_is_koordinator(name) for name in names) else "nvidia"
    return PodDeviceRequest(family, shares, hints=hints)


def _is_koordinator(name: str) -> bool:
    return name in _NICS or name.startswith(_KOORDINATOR + "gpu")


def _whole(count: int, type_: str = "gpu") -> Share:
    return Share(count, WHOLE, 0, WHOLE, type_)


def _other_shares(names: list[str], amounts: Mapping[str, int], hints: Hints) -> Iterator[Share]:
    if any(name.startswith(_KOORDINATOR + "gpu") for name in names):
        yield _koordinator_share(amounts)
    elif "nvidia.com/gpu" in names:
        yield _whole(amounts["nvidia.com/gpu"])
    for name in names:
        if name.startswith(MIG_PREFIX):
            yield Share(amounts[name], profile=name.removeprefix(MIG_PREFIX))
        elif name in _NICS:
            milli = dict(hints.counted).get(_NICS[name])
            if milli is not None:
                yield Share(amounts[name], milli, 0, milli, _NICS[name])
                continue
            count, percent = _split(amounts[name], 0, name)
            yield Share(count, percent * 10, 0, percent * 10, _NICS[name])


# ---- Koordinator ---------------------------------------------------------------------------------


def _koordinator_share(amounts: Mapping[str, int]) -> Share:
    gpu, core, memory, ratio, shared = (
        amounts.get(_KOORDINATOR + name, 0)
        for name in ("gpu", "gpu-core", "gpu-memory", "gpu-memory-ratio", "gpu.shared")
    )
    if memory and ratio:
        raise InvalidRequest("gpu-memory and gpu-memory-ratio exclude each other")
    if gpu and (core or memory or ratio):
        raise InvalidRequest("gpu excludes gpu-core, gpu-memory and gpu-memory-ratio")
    if gpu:
        core = ratio = gpu
    if not memory and not ratio:
        raise InvalidRequest("gpu-core needs gpu-memory or gpu-memory-ratio")
    if memory:
        count = shared or max(core // 100, 1)
        _require_multiple(core, count, _KOORDINATOR + "gpu-core")
        return Share(count, core * 10 // count, memory // count)
    count, percent = _split(ratio, shared, _KOORDINATOR + "gpu-memory-ratio")
    _require_multiple(core, count, _KOORDINATOR + "gpu-core")
    return Share(count, core * 10 // count, 0, percent * 10)


def _split(amount: int, shared: int, name: str) -> tuple[int, int]:
    """Return over how many devices an amount goes (100 is one), and the percentage of each."""
    if shared:
        if amount > 100 * shared:
            raise InvalidRequest(f"{name} is more than {shared} devices have")
        return shared, amount // shared
    if amount <= 100:
        return 1, amount
    if amount % 100:
        raise InvalidRequest(f"{name} above 100 must be a multiple of 100")
    return amount // 100, 100


def _require_multiple(core: int, count: int, name: str) -> None:
    if core > 100 * count or (count > 1 and core % count):
        raise InvalidRequest(f"{name} does not fit the number of devices, {count}")


# ---- KAI -----------------------------------------------------------------------------------------


def _kai_share(annotations: Mapping[str, str]) -> Share:
    if _FRACTION in annotations and _MEMORY in annotations:
        raise InvalidRequest(f"annotations {_FRACTION} and {_MEMORY} exclude each other")
    try:
        count = int(annotations.get(_COUNT, "1"))
        if _MEMORY in annotations:
            share = Share(count, memory=int(annotations[_MEMORY]) * MIB)
        else:
            fraction = float(annotations[_FRACTION])
            milli = math.floor(fraction * WHOLE + 0.5) if math.isfinite(fraction) else 0
            share = Share(count, milli, 0, milli)
    except ValueError:
        raise InvalidRequest(f"annotations {_FRACTION}, {_MEMORY} must be numbers") from None
    if count < 1 or not (0 < share.milli <= WHOLE or share.memory > 0):
        raise InvalidRequest(f"annotation {_FRACTION} must be in (0, 1], {_MEMORY} above 0")
    return share


# ---- Volcano and HAMi: by container --------------------------------------------------------------


def containers_by_index(pod: PodInfo) -> tuple[Container, ...]:
    """Return a pod's containers as HAMi counts them: init containers first."""
    return (*pod.pod.spec.init_containers, *pod.pod.spec.containers)


def ends_before_the_others(pod: PodInfo, index: int) -> bool:
    """Return whether a container (``containers_by_index``) is an init container, no sidecar."""
    init_containers = pod.pod.spec.init_containers
    return index < len(init_containers) and init_containers[index].restart_policy != "Always"


def share_of_container(container: Container) -> Share | None:
    """Return the request of a container in HAMi's or Volcano's names, None if it has none."""
    amounts = _amounts(container)
    return _vgpu_share(
        *(amounts.get(f"volcano.sh/vgpu-{name}", 0) for name in _VOLCANO)
    ) or _vgpu_share(*(amounts.get(name, 0) for name in ("nvidia.com/gpu", *_HAMI)))


def whole_gpus(container: Container) -> Share | None:
    """Return the request of a container by ``nvidia.com/gpu`` alone."""
    count = _amounts(container).get("nvidia.com/gpu", 0)
    return _whole(count) if count else None


def _volcano_shares(pod: PodInfo) -> tuple[Share, ...]:
    # Its agent takes the position in the annotation for one among the containers.
    if any(share_of_container(one) for one in pod.pod.spec.init_containers):
        raise InvalidRequest("init containers cannot have volcano.sh/vgpu-number")
    shares = (share_of_container(one) for one in pod.pod.spec.containers)
    return tuple(share for share in shares if share is not None)


def _hami_shares(pod: PodInfo) -> tuple[Share, ...]:
    shares: list[Share] = []
    before: list[Share] = []
    for index, container in enumerate(containers_by_index(pod)):
        share = share_of_container(container)
        if share is not None:
            (before if ends_before_the_others(pod, index) else shares).append(share)
    if before and not shares:
        # Only init containers have cards, one after another: the pod has those of the largest.
        shares = [max(before, key=lambda share: share.count)]
    for share in before:
        if not any(share.is_lent_by(other) for other in shares):
            raise InvalidRequest("an init container asks for GPUs that no container asks for")
    return tuple(shares)


def _amounts(container: Container) -> dict[str, int]:
    resources = container.resources
    given = {**resources.limits, **resources.requests}
    return amounts_of({name: quantity for name, quantity in given.items() if "/" in name})


def _vgpu_share(count: int, memory: int, cores: int, percentage: int) -> Share | None:
    if not (count or memory or cores or percentage):
        return None
    if cores > 100:
        raise InvalidRequest("cores must be at most 100 percent of a card")
    if 0 < percentage <= 100:
        return Share(max(count, 1), cores * 10, 0, percentage * 10)
    if memory:
        return Share(max(count, 1), cores * 10, memory * MIB)
    return Share(max(count, 1), cores * 10, 0, WHOLE)


def _with_constraints(pod: PodInfo, request: PodDeviceRequest) -> PodDeviceRequest:
    annotations = pod.pod.metadata.annotations
    group = annotations.get("scheduling.k8s.io/group-name", "")
    spreads = annotations.get("volcano.sh/vgpu-podgroup-policy") == "spread"

    def listed(*names: str) -> frozenset[str]:
        texts = ",".join(annotations.get(name, "") for name in names).split(",")
        return frozenset(one.strip() for one in texts if one.strip())

    def lower(*names: str) -> frozenset[str]:
        return frozenset(one.lower() for one in listed(*names))

    return replace(
        request,
        ids=listed("volcano.sh/vgpu-use-gpuuuid", "nvidia.com/use-gpuuuid"),
        not_ids=listed("volcano.sh/vgpu-nouse-gpuuuid", "nvidia.com/nouse-gpuuuid"),
        models=lower("nvidia.com/use-gputype"),
        not_models=lower("nvidia.com/nouse-gputype"),
        mode=annotations.get("volcano.sh/vgpu-mode") or annotations.get("nvidia.com/vgpu-mode", ""),
        spread_group=f"{pod.namespace}/{group}" if spreads and group else "",
    )
