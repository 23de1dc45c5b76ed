"""Chooses the devices of a node for a pod.

The GPUs of a pod are taken from the closest domain that has enough: under one PCIe switch, in one
NUMA node, anywhere; of several such domains from the one with the fewest left. NICs come from next
to the GPUs. Among equal devices the order of the scoring strategy decides.

Worked example: four GPUs under each of two PCIe switches, of which the first has one in use. A pod
that asks for three gets those of the first switch: a pod that asks for four still fits afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from proreus.addons.device_share.hints import Hints
from proreus.addons.device_share.requests import PodDeviceRequest, Share
from proreus.addons.device_share.usage import DeviceUsage, Grant, NodeDeviceUsage

DeviceOrder = Callable[[DeviceUsage, Share], Any]
"""Returns a sort key: the best device for a share has the smallest."""

_MOST_ATTEMPTS = 64


def most_used_first(usage: DeviceUsage, share: Share) -> Any:
    """Order devices for best fit."""
    return -usage.used_milli, usage.device.minor


def least_used_first(usage: DeviceUsage, share: Share) -> Any:
    """Order devices for the most room each."""
    return usage.used_milli, usage.device.minor


def place(
    usage: NodeDeviceUsage, request: PodDeviceRequest, order: DeviceOrder
) -> list[Grant] | None:
    """Return the devices for a request, None if it does not fit; ``usage`` is as before."""
    gpus = [share for share in request.shares if share.type == "gpu"]
    others = [share for share in request.shares if share.type != "gpu"]
    return _place_gpus(usage, request, gpus, others, order, [])


def _place_gpus(
    usage: NodeDeviceUsage,
    request: PodDeviceRequest,
    shares: Sequence[Share],
    others: Sequence[Share],
    order: DeviceOrder,
    before: list[Grant],
) -> list[Grant] | None:
    """Place the first share and then the rest; where the rest does not fit, try otherwise."""
    if not shares:
        nics = _place_others(usage, request, others, order, before)
        return None if nics is None else before + nics
    share = shares[0]
    if share.profile in usage.inventory.fixed_profiles:
        return _place_gpus(usage, request, shares[1:], others, order, before)
    # Devices in the same state make no difference to the rest: the number of attempts is bounded.
    for devices in islice(_sets_of_gpus(usage, request, share, others, order), _MOST_ATTEMPTS):
        grants: list[Grant] = []
        for device in devices:
            # One by one: the next MIG instance may be on the same GPU.
            grants.append(device.grant_for(share))
            device.add(grants[-1])
        found = _place_gpus(usage, request, shares[1:], others, order, before + grants)
        usage.add(grants, sign=-1)
        if found is not None:
            return found
    return None


def _sets_of_gpus(
    usage: NodeDeviceUsage,
    request: PodDeviceRequest,
    share: Share,
    others: Sequence[Share],
    order: DeviceOrder,
) -> Iterator[list[DeviceUsage]]:
    """Yield sets of GPUs for a share, the best one first."""
    fitting = usage.fitting(request, share)
    if request.hints.same_pcie:
        fitting = [one for one in fitting if _has_nics(usage, request, others, one.device.pcie)]
    fitting.sort(key=lambda one: order(one, share))
    count = share.count
    if share.profile:
        # Instances need no GPUs of their own.
        instances = _instances(usage, fitting, share)
        if len(instances) == count:
            yield instances
        return
    if len(fitting) < count:
        return
    hints = request.hints
    if share.is_whole and (count > 1 or hints.partition):
        yield from _partitions(usage, fitting, count, hints)
        if hints.partition or (count > 1 and usage.inventory.honors_partitions):
            return
    if hints.scope:
        domain_of = _DOMAINS[hints.scope]
        known = [one for one in fitting if _is_known(one, hints.scope)]
        domains = [one for one in _domains(known, domain_of) if len(one) >= count]
        yield from (domain[:count] for domain in sorted(domains, key=len))
        return
    if count == 1:
        yield from ([one] for one in fitting)
        return
    for domain_of in (_pcie_of, _numa_of):
        domains = [one for one in _domains(fitting, domain_of) if len(one) >= count]
        for domain in sorted(domains, key=len):
            yield domain[:count]
    # As few domains as possible, so the ones with most first.
    largest = sorted(_domains(fitting, _numa_of), key=len, reverse=True)
    yield [one for domain in largest for one in domain][:count]


def _instances(
    usage: NodeDeviceUsage, fitting: list[DeviceUsage], share: Share
) -> list[DeviceUsage]:
    """Return a GPU for each instance, the same one several times as long as it has room."""
    found: list[DeviceUsage] = []
    grants: list[Grant] = []
    for one in fitting:
        while len(found) < share.count and one.fits(share):
            grant = one.grant_for(share)
            usage.add([grant])
            grants.append(grant)
            found.append(one)
    usage.add(grants, sign=-1)
    return found


def _pcie_of(one: DeviceUsage) -> Hashable:
    return one.device.numa, one.device.pcie


def _numa_of(one: DeviceUsage) -> Hashable:
    return one.device.numa


def _is_known(one: DeviceUsage, scope: str) -> bool:
    device = one.device
    return bool(device.pcie) if scope == "PCIe" else device.numa >= 0 or scope != "NUMANode"


_DOMAINS: Mapping[str, Callable[[DeviceUsage], Hashable]] = {
    "Device": lambda one: one.device.minor,
    "PCIe": _pcie_of,
    "NUMANode": _numa_of,
    "Node": lambda one: None,
}


def _domains(
    devices: Sequence[DeviceUsage], domain_of: Callable[[DeviceUsage], Hashable]
) -> list[list[DeviceUsage]]:
    domains: dict[Hashable, list[DeviceUsage]] = {}
    for one in devices:
        domains.setdefault(domain_of(one), []).append(one)
    return list(domains.values())


def _partitions(
    usage: NodeDeviceUsage, fitting: Sequence[DeviceUsage], count: int, hints: Hints
) -> Iterator[list[DeviceUsage]]:
    """Yield listed partitions, the best first; of equal ones the one that spoils fewest others."""
    free = {one.device.minor: one for one in fitting}
    listed = [one for one in usage.inventory.partitions if len(one.minors) == count]
    if hints.partition == "Restricted":
        best = max((one.score for one in listed), default=0)
        listed = [one for one in listed if one.score == best]
    whole = [one for one in usage.inventory.partitions if one.minors <= free.keys()]
    suitable = [
        one for one in listed if one.minors <= free.keys() and one.bandwidth >= hints.bandwidth
    ]
    suitable.sort(
        key=lambda one: (
            -one.score,
            -one.bandwidth,
            sum(bool(one.minors & other.minors) for other in whole),
        )
    )
    return ([free[minor] for minor in sorted(one.minors)] for one in suitable)


# ---- NICs and other devices ----------------------------------------------------------------------


def _has_nics(
    usage: NodeDeviceUsage, request: PodDeviceRequest, shares: Sequence[Share], pcie: str
) -> bool:
    joint = [share for share in shares if share.type in request.hints.joint_types]
    return bool(pcie) and all(
        any(one.device.pcie == pcie for one in usage.fitting(request, share)) for share in joint
    )


def _place_others(
    usage: NodeDeviceUsage,
    request: PodDeviceRequest,
    shares: Sequence[Share],
    order: DeviceOrder,
    gpus: Sequence[Grant],
) -> list[Grant] | None:
    places = [usage.by_key[one.type, one.minor].device for one in gpus]
    switches = {one.pcie for one in places if one.pcie}
    numa_nodes = {one.numa for one in places if one.numa >= 0}
    found: list[Grant] = []
    for share in shares:
        fitting = usage.fitting(request, share)
        fitting.sort(
            key=lambda one: (
                one.device.pcie not in switches,
                one.device.numa not in numa_nodes,
                order(one, share),
            )
        )
        if gpus and request.hints.same_pcie and share.type in request.hints.joint_types:
            chosen = _one_a_switch(fitting, switches, share.count)
        else:
            chosen = fitting[: share.count] if len(fitting) >= share.count else None
        if chosen is None:
            return None
        found += [device.grant_for(share) for device in chosen]
    return found


def _one_a_switch(
    fitting: Sequence[DeviceUsage], switches: set[str], count: int
) -> list[DeviceUsage] | None:
    """Return a NIC under each switch, and more of them if ``count`` is higher."""
    near = [one for one in fitting if one.device.pcie in switches]
    first = {one.device.pcie: one for one in reversed(near)}
    if first.keys() != switches:
        return None
    chosen = list(first.values())
    chosen += [one for one in near if one not in chosen][: max(count - len(chosen), 0)]
    return chosen if len(chosen) >= count else None
