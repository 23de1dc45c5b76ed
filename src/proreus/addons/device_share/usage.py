"""The use of each device of a node, and whether a share fits.

A GPU has seven compute slices and eight memory slices. A MIG instance takes neighbouring memory
slices, and may begin at certain ones only (``nvidia-smi mig -lgipp``). On an A100 with 40 GB,
1g.5gb takes one slice, 2g.10gb two, 3g.20gb four, which begin at 0 or 4.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from weakref import WeakValueDictionary

from proreus.addons.device_share.devices import WHOLE, Inventory, NodeDevice
from proreus.addons.device_share.requests import PodDeviceRequest, Share

COMPUTE_SLICES, MEMORY_SLICES = 7, 8
_SIZES = {1: 1, 2: 2, 3: 4, 4: 4, 7: 8}
"""Memory slices by compute slices, if the profile's gigabytes do not ask for more."""
_STARTS = {1: (0, 1, 2, 3, 4, 5, 6), 2: (0, 2, 4), 4: (0, 4), 8: (0,)}
_PROFILE = re.compile(r"(\d)g\.(\d{1,4})gb", re.ASCII)
_GIB = 2**30
_COMMON = ((1, 1), (1, 2), (2, 2), (3, 4), (4, 4), (7, 8))
"""Compute and memory slices of the usual profiles."""


@dataclass(frozen=True, slots=True)
class Grant:
    """The part of a device that a pod got; ``id`` names the device if ``minor`` is -1.

    ``milli`` of compute; memory in bytes, and in thousandths where these are not known (0).
    ``start``: where a MIG instance begins, in memory slices.
    """

    type: str
    minor: int
    milli: int = 0
    memory: int = 0
    memory_milli: int = 0
    id: str = ""
    profile: str = ""
    start: int = 0

    def __str__(self) -> str:
        return f"{self.type} {self.id[:64] if self.minor < 0 else self.minor}"


@dataclass(slots=True)
class DeviceUsage:
    """The use of a device. ``slices``: a bit for each taken one of its eight memory slices."""

    device: NodeDevice
    milli: int = 0
    memory: int = 0
    users: int = 0
    instances: int = 0
    slices: int = 0
    compute_slices: int = 0
    groups: set[str] = field(default_factory=set)

    @property
    def used_milli(self) -> int:
        """The used portion, of compute or of memory, whichever is larger."""
        return max(self.used_core_milli, self.used_memory_milli)

    @property
    def used_core_milli(self) -> int:
        """The used portion of compute; of memory slices where there are MIG instances."""
        # At most all of it: another scheduler may have given away more than there is.
        return self._used_slices_milli if self.instances else min(self.milli, WHOLE)

    @property
    def used_memory_milli(self) -> int:
        """The used portion of memory."""
        if self.instances:
            return self._used_slices_milli
        return min(WHOLE * self.memory // self.device.memory_capacity, WHOLE)

    @property
    def _used_slices_milli(self) -> int:
        return min(WHOLE * self.slices.bit_count() // MEMORY_SLICES, WHOLE)

    @property
    def state(self) -> tuple[int, ...]:
        """The values that decide whether a share fits; devices with equal ones are alike."""
        return (self.device.memory_capacity, self.milli, self.memory, self.users, self.slices)

    def fits(self, share: Share) -> bool:
        """Return whether the device can have one more user with this share."""
        device = self.device
        if share.profile:
            free_for_mig = device.mig and (not self.users or self.instances)
            taken = self.slices, self.compute_slices
            return bool(free_for_mig) and start_of(share.profile, device, *taken) is not None
        if self.instances or (device.max_users and self.users >= device.max_users):
            return False
        if share.is_whole:
            return not self.users and share.memory_of(device) <= device.memory_capacity
        # A card whose compute is all given away takes nobody, not even without a share of compute.
        return (
            self.milli + share.milli <= WHOLE
            and self.milli < WHOLE
            and self.memory + share.memory_of(device) <= device.memory_capacity
        )

    def fits_at(self, share: Share, start: int) -> bool:
        """Return whether the device can have a MIG instance that begins there."""
        size = size_of(share.profile, self.device)
        return self.fits(share) and start in _free_starts(*size, self.slices, self.compute_slices)

    def grant_for(self, share: Share, start: int | None = None) -> Grant:
        """Return the grant of the device for a share that fits.

        ``start``: where a MIG instance begins, None for the best place.
        """
        device = self.device
        if share.profile:
            if start is None:
                start = start_of(share.profile, device, self.slices, self.compute_slices)
            assert start is not None
            return Grant("gpu", device.minor, id=device.id, profile=share.profile, start=start)
        memory = share.memory_of(device)
        milli = share.memory_milli or WHOLE * memory // device.memory_capacity
        in_bytes = memory if device.memory else 0
        return Grant(device.type, device.minor, share.milli, in_bytes, milli, device.id)

    def add(self, grant: Grant, group: str = "", sign: int = 1) -> None:
        """Count a grant; ``sign`` -1 takes it back."""
        self.users += sign
        if grant.profile:
            compute, size = size_of(grant.profile, self.device)
            self.instances += sign
            self.compute_slices += sign * compute
            bits = ((1 << size) - 1) << grant.start
            self.slices = self.slices | bits if sign > 0 else self.slices & ~bits
            return
        self.milli += sign * grant.milli
        capacity = self.device.memory_capacity
        in_bytes = self.device.memory and grant.memory
        self.memory += sign * (in_bytes or capacity * grant.memory_milli // WHOLE)
        if group:
            self.groups.add(group)


class NodeDeviceUsage:
    """The devices of a node and their use."""

    def __init__(self, inventory: Inventory) -> None:
        self.inventory = inventory
        self.by_key = {(one.type, one.minor): DeviceUsage(one) for one in inventory.devices}
        self._by_id = {one.device.id: one for one in self.by_key.values() if one.device.id}

    def of_type(self, type_: str) -> Iterator[DeviceUsage]:
        """Yield the devices of a type."""
        return (one for one in self.by_key.values() if one.device.type == type_)

    def add(self, grants: Iterable[Grant], group: str = "", sign: int = 1) -> None:
        """Count grants, without the ones of devices that are gone."""
        for grant in grants:
            usage = self.find(grant.type, grant.minor, grant.id)
            if usage is not None:
                usage.add(grant, group, sign)

    def find(self, type_: str, minor: int, id_: str) -> DeviceUsage | None:
        """Return a device by its minor, or by its id where no device has that minor."""
        return self.by_key.get((type_, minor)) or self._by_id.get(id_)

    def fitting(self, request: PodDeviceRequest, share: Share) -> list[DeviceUsage]:
        """Return the devices that can have one of a share, by minor."""
        group = request.spread_group
        return [
            one
            for one in self.of_type(share.type)
            if request.allows(one.device) and group not in one.groups and one.fits(share)
        ]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class DeviceState:
    """The devices of a node and their use: one object for all nodes where these are equal.

    ``free``: thousandths of each GPU, the least first. ``usage`` must be left as it is.
    """

    usage: NodeDeviceUsage
    free: tuple[int, ...]

    @classmethod
    def of(cls, usage: NodeDeviceUsage) -> DeviceState:
        """Return the state of a node; the same object as long as an equal one is in use."""
        devices = usage.by_key.values()
        key = usage.inventory, tuple((*one.state, frozenset(one.groups)) for one in devices)
        found = _states.get(key)
        if found is None:
            found = _states[key] = cls(usage, free_gpus(usage))
        return found


_states: WeakValueDictionary[Hashable, DeviceState] = WeakValueDictionary()


def free_gpus(usage: NodeDeviceUsage) -> tuple[int, ...]:
    """Return the free thousandths of each GPU, the least first."""
    return tuple(sorted(WHOLE - one.used_milli for one in usage.of_type("gpu")))


# ---- MIG instances -------------------------------------------------------------------------------


def size_of(profile: str, device: NodeDevice) -> tuple[int, int]:
    """Return the compute and memory slices of a profile; (0, 0) if it is no profile."""
    match = _PROFILE.match(profile)
    if match is None or int(match[1]) not in _SIZES:
        return 0, 0
    compute, gigabytes = int(match[1]), int(match[2])
    size = _SIZES[compute]
    if device.memory:
        # Names round: the slice of a GPU with 79 GiB is called 10gb.
        slices = gigabytes * _GIB * MEMORY_SLICES / device.memory
        wanted = next((one for one in _STARTS if one >= slices * 0.9), MEMORY_SLICES + 1)
        size = max(size, wanted)
    return compute, size


def start_of(profile: str, device: NodeDevice, taken: int, compute_taken: int) -> int | None:
    """Return the best start of an instance of a profile, None if there is no room.

    ``taken``: a bit for each memory slice. The best place leaves the most places for others.
    """
    compute, size = size_of(profile, device)
    return _best_start(compute, size, taken, compute_taken)


def _free_starts(compute: int, size: int, taken: int, compute_taken: int) -> list[int]:
    if not compute or size > MEMORY_SLICES or compute_taken + compute > COMPUTE_SLICES:
        return []
    return [start for start in _starts(compute, size) if not taken & _mask(start, size)]


@lru_cache(maxsize=4096)
def _best_start(compute: int, size: int, taken: int, compute_taken: int) -> int | None:
    free = _free_starts(compute, size, taken, compute_taken)
    if not free:
        return None
    left = compute_taken + compute
    return max(free, key=lambda start: (_places(taken | _mask(start, size), left), start))


def _starts(compute: int, size: int) -> tuple[int, ...]:
    if compute == 4:
        return (0,)
    return (0, 2, 4, 6) if (compute, size) == (1, 2) else _STARTS[size]


def _mask(start: int, size: int) -> int:
    return ((1 << size) - 1) << start


def _places(taken: int, compute_taken: int) -> int:
    """Return at how many places instances of any profile could begin."""
    return sum(
        not taken & _mask(start, size)
        for compute, size in _COMMON
        if compute_taken + compute <= COMPUTE_SLICES
        for start in _starts(compute, size)
    )
