"""The devices of pods for which no Reserve of ours chose them.

Annotations name devices, and a pod's owner can change them. They count if they name as many devices
of each kind as the pod requests, and if each is there and has that much left. A pod whose
annotations do not count has the devices that best fit gives it. Where it fits on none, some become
over-full: what it requests is given to nobody else.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator

from proreus.addons.device_share.annotations import ClaimedDevice, InvalidClaim
from proreus.addons.device_share.devices import WHOLE
from proreus.addons.device_share.placement import most_used_first, place
from proreus.addons.device_share.requests import PodDeviceRequest, Share
from proreus.addons.device_share.usage import DeviceUsage, Grant, NodeDeviceUsage


class MissingDevice(InvalidClaim):
    """A claim to a device that the node has not, or not in health: it may have it later."""


def checked(
    claimed: Iterable[ClaimedDevice], request: PodDeviceRequest, usage: NodeDeviceUsage
) -> tuple[Grant, ...]:
    """Return the devices that are claimed, each with as much as the pod requests.

    ``usage``: by other pods; it is as before afterwards. Raises ``InvalidClaim``,
    ``MissingDevice`` if it may be right for other devices of the node.
    """
    left: defaultdict[tuple[str, str], deque[ClaimedDevice]] = defaultdict(deque)
    for device in claimed:
        left[device.type, device.profile].append(device)
    grants: list[Grant] = []
    try:
        for share in _shares_on_devices(request, usage):
            _take(share, left[share.type, share.profile], usage, grants)
    finally:
        usage.add(grants, sign=-1)
    if any(left.values()):
        raise InvalidClaim("its annotation names more devices than the pod requests")
    return tuple(grants)


def _take(
    share: Share, claimed: deque[ClaimedDevice], usage: NodeDeviceUsage, grants: list[Grant]
) -> None:
    """Count the devices of a share, and add them to ``grants``."""
    taken: list[DeviceUsage] = []
    # The first device that is missing ends it, whatever number an annotation asks for.
    while len(taken) < share.count:
        if not claimed:
            raise InvalidClaim("its annotation names fewer devices than the pod requests")
        one = claimed.popleft()
        device = usage.find(one.type, one.minor, one.id)
        if device is None or device.device.type != share.type:
            raise MissingDevice(f"the node has no healthy {one}")
        if share.profile:
            free = device.fits_at(share, one.start)
        else:
            free = device.fits(share) and device not in taken
        if not free:
            raise InvalidClaim(f"too little of {one} is left")
        grants.append(device.grant_for(share, one.start))
        device.add(grants[-1])
        taken.append(device)


def anywhere(request: PodDeviceRequest, usage: NodeDeviceUsage) -> Iterable[Grant]:
    """Return the devices to charge a pod with if its own are not known."""
    grants = place(usage, request, most_used_first)
    return tuple(_least_used(request, usage)) if grants is None else grants


def _least_used(request: PodDeviceRequest, usage: NodeDeviceUsage) -> Iterator[Grant]:
    """Yield the devices that are over-full least, for a request that does not fit."""
    for share in _shares_on_devices(request, usage):
        devices = sorted(usage.of_type(share.type), key=lambda one: one.used_milli)
        for one in devices[: share.count]:
            device = one.device
            milli, memory = share.milli, share.memory_of(device)
            if share.profile:
                # The slices are not known: all of it.
                milli, memory = WHOLE, device.memory_capacity
            portion = WHOLE * memory // device.memory_capacity
            in_bytes = memory if device.memory else 0
            yield Grant(device.type, device.minor, milli, in_bytes, portion, device.id)


def _shares_on_devices(request: PodDeviceRequest, usage: NodeDeviceUsage) -> list[Share]:
    fixed = usage.inventory.fixed_profiles
    return [share for share in request.shares if share.profile not in fixed]
