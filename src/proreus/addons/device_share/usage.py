"""What is used of each device of a node, and whether a share fits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from proreus.addons.device_share import mig
from proreus.addons.device_share.devices import WHOLE, Inventory, NodeDevice
from proreus.addons.device_share.requests import PodDeviceRequest, Share


@dataclass(frozen=True, slots=True)
class Grant:
    """What a pod got of a device, which its ``id`` names if ``minor`` is -1.

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


@dataclass(slots=True)
class DeviceUsage:
    """What is used of a device. ``slices``: of its eight memory slices, a bit for each taken."""

    device: NodeDevice
    milli: int = 0
    memory: int = 0
    users: int = 0
    instances: int = 0
    slices: int = 0
    compute_slices: int = 0
    groups: set[str] = field(default_factory=set)

    @property
    def is_idle(self) -> bool:
        """Whether nobody uses it."""
        return not self.users

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
        return min(WHOLE * self.slices.bit_count() // mig.MEMORY_SLICES, WHOLE)

    @property
    def state(self) -> tuple[int, ...]:
        """What decides which shares fit: devices in the same state are as good as each other."""
        return (self.device.memory_capacity, self.milli, self.memory, self.users, self.slices)

    def fits(self, share: Share) -> bool:
        """Return whether the device can have one more user with this share."""
        device = self.device
        if share.profile:
            free_for_mig = device.mig and (self.is_idle or self.instances)
            taken = self.slices, self.compute_slices
            return bool(free_for_mig) and mig.start_of(share.profile, device, *taken) is not None
        if self.instances or (device.max_users and self.users >= device.max_users):
            return False
        if share.is_whole:
            return self.is_idle and share.memory_of(device) <= device.memory_capacity
        # A card whose compute is all given away takes nobody, not even without a share of compute.
        return (
            self.milli + share.milli <= WHOLE
            and self.milli < WHOLE
            and self.memory + share.memory_of(device) <= device.memory_capacity
        )

    def fits_at(self, share: Share, start: int) -> bool:
        """Return whether the device can have a MIG instance that begins there."""
        taken = self.slices, self.compute_slices
        return self.fits(share) and start in mig.free_starts(share.profile, self.device, *taken)

    def grant_for(self, share: Share, start: int | None = None) -> Grant:
        """Return what a share that fits gets of the device.

        ``start``: where a MIG instance begins, None for the best place.
        """
        device = self.device
        if share.profile:
            if start is None:
                start = mig.start_of(share.profile, device, self.slices, self.compute_slices)
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
            compute, size = mig.size_of(grant.profile, self.device)
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
    """The devices of a node with what is used of each."""

    def __init__(self, inventory: Inventory) -> None:
        self.inventory = inventory
        self.by_key = {(one.type, one.minor): DeviceUsage(one) for one in inventory.devices}
        self._by_id = {one.device.id: one for one in self.by_key.values() if one.device.id}

    def of_type(self, type_: str) -> Iterator[DeviceUsage]:
        """Yield the devices of a type."""
        return (one for one in self.by_key.values() if one.device.type == type_)

    def add(self, grants: Iterable[Grant], group: str = "", sign: int = 1) -> None:
        """Count grants; those of devices that are gone do not count."""
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
