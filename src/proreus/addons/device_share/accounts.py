"""The devices of each pod on its node.

They are derived from the pods of a node each time the node changes: the choice of Reserve, or the
annotations of a bound pod when it was first seen (``addons.pod_charges``). So they are right in dry
runs of preemption, for pods of other schedulers, and after a restart. A pod without either, such as
a nominated one, has the devices that best fit gives it.

Annotations name devices, and a pod's owner can change them. They count if they name as many devices
of each kind as the pod requests, and if each is there and has that much left; else the pod has
those of best fit, too. Where it fits on none, some become over-full: what it requests is given to
nobody else.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from proreus.addons.device_share.annotations import InvalidClaim, claimed_devices
from proreus.addons.device_share.devices import (
    DEVICES,
    WHOLE,
    DeviceObject,
    Inventory,
    inventory_of,
)
from proreus.addons.device_share.hints import InvalidRequest
from proreus.addons.device_share.placement import most_used_first, place
from proreus.addons.device_share.requests import PodDeviceRequest, Share, request_of
from proreus.addons.device_share.usage import DeviceState, DeviceUsage, Grant, NodeDeviceUsage
from proreus.addons.pod_charges import PodCharges, bound_at, of_cluster
from proreus.framework import Handle, NodeInfo, PodInfo, is_provided
from proreus.objects import NODES, PODS, Node, Pod


@dataclass(slots=True)
class DeviceCharge:
    """The request of a pod when it got its node, and its devices, () if these are not known.

    ``claimant``: the pod, as long as its annotations are to be checked; ``checked_with``: the
    devices of its node when they were, if one of those it claims was missing.
    """

    request: PodDeviceRequest
    grants: tuple[Grant, ...] = ()
    claimant: PodInfo | None = None
    checked_with: Inventory | None = None

    def is_to_check(self, inventory: Inventory) -> bool:
        """Return whether the annotations have not been checked with these devices."""
        return self.claimant is not None and self.checked_with is not inventory


class _KnownState(NamedTuple):
    """The use of a node's devices, and what it was computed from."""

    inventory: Inventory
    changes: int
    pods: tuple[PodInfo, ...]
    state: DeviceState


class DeviceAccounts:
    """The devices of all nodes and their pods; one instance for all profiles of a scheduler."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._changes: Counter[str] = Counter()
        """How often the charges of a node changed."""
        self._states: dict[str, _KnownState] = {}
        self._charges = PodCharges(handle, "DeviceShare", self._claim)
        self._inventories: dict[str, tuple[Node | None, DeviceObject | None, Inventory]] = {}
        self.objects = handle.store(DEVICES)
        """Device objects by node."""
        handle.on_change(DEVICES, self._object_changed)
        handle.on_change(PODS, self._charges.pod_changed)
        handle.on_change(NODES, self._node_changed)

    @staticmethod
    def of(handle: Handle) -> DeviceAccounts:
        """Return the accounts that belong to a handle's nodes, creating them if there are none."""
        return of_cluster(handle, DeviceAccounts, lambda: DeviceAccounts(handle.shared))

    def _invalidate(self, node_name: str) -> None:
        self._changes[node_name] += 1
        self._handle.invalidate_results(node_name)

    def _object_changed(self, old: DeviceObject | None, new: DeviceObject | None) -> None:
        found = new or old
        assert found is not None
        self._invalidate(found.metadata.name)

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        if new is None and old is not None:
            for by_node in (self._inventories, self._states, self._changes):
                by_node.pop(old.metadata.name, None)

    def _claim(self, pod: Pod) -> DeviceCharge | None:
        info = PodInfo(pod)
        request = valid_request(info)
        if request is None:
            return None
        self._invalidate(pod.spec.node_name)
        return DeviceCharge(request, claimant=info)

    def charge(self, uid: str) -> DeviceCharge | None:
        """Return the charge of a pod, None without one."""
        return self._charges.get(uid)

    def had_devices(self, pod: PodInfo, old: Pod, new: None) -> bool:
        """Return whether a deleted pod was charged with devices."""
        return self._charges.latest(old.metadata.uid) is not None

    def reserve(
        self,
        pod: PodInfo,
        node_name: str,
        request: PodDeviceRequest | None,
        grants: Iterable[Grant],
    ) -> None:
        """Charge a pod with the choice of Reserve; with nothing if it has no request."""
        charge = None if request is None else DeviceCharge(request, tuple(grants))
        self._charges.reserve(pod, node_name, charge)
        if charge is not None:
            self._invalidate(node_name)

    def unreserve(self, pod: PodInfo, node_name: str) -> None:
        """Take back the choice of Reserve."""
        self._charges.unreserve(pod)
        self._invalidate(node_name)

    def inventory(self, node: NodeInfo) -> Inventory:
        """Return the devices of a node."""
        found = self.objects.get(node.name)
        known = self._inventories.get(node.name)
        if known is not None and known[0] is node.node and known[1] is found:
            return known[2]
        inventory = inventory_of(node, found)
        self._inventories[node.name] = (node.node, found, inventory)
        return inventory

    def state(self, node: NodeInfo) -> DeviceState:
        """Return the use of a node's devices, computed once as long as nothing changes."""
        basis = self.inventory(node), self._changes[node.name], tuple(node.pods.values())
        known = self._states.get(node.name)
        if known is None or known.inventory is not basis[0] or known[1:3] != basis[1:]:
            # Checking claims may change the charges.
            state = DeviceState.of(self.usage(node))
            known = _KnownState(basis[0], self._changes[node.name], basis[2], state)
            self._states[node.name] = known
        return known.state

    def usage(self, node: NodeInfo, without: Container[str] = ()) -> NodeDeviceUsage:
        """Return the use of a node's devices by its pods, without the pods of some UIDs."""
        usage = NodeDeviceUsage(self.inventory(node))
        if not usage.by_key:
            return usage
        charges = self._charges.on_node(node.name)
        if any(charge.is_to_check(usage.inventory) for charge in charges.values()):
            self._check_claims(charges, usage.inventory)
        unknown: list[PodDeviceRequest] = []
        for uid, pod in node.pods.items():
            if uid in without:
                continue
            charge = charges.get(uid)
            if charge is not None:
                if charge.grants:
                    usage.add(charge.grants, charge.request.spread_group)
                else:
                    unknown.append(charge.request)
            # A provided pod has no annotations to keep its devices in, and fewer of them with each
            # pod that takes its room: so many as it requests are kept free, and any will do.
            elif is_provided(pod.pod) or not self._charges.is_decided(pod.pod):
                request = valid_request(pod)
                if request is not None:
                    unknown.append(request)
        for request in unknown:
            usage.add(_anywhere(request, usage), request.spread_group)
        return usage

    def _check_claims(self, charges: Mapping[str, DeviceCharge], inventory: Inventory) -> None:
        """Check the annotations of pods on a node, of the first bound pod first.

        Once, because the answer must not depend on the pods that a dry run leaves on the node; and
        again when the node has other devices, for a pod that claims one that was missing. Such a
        pod may have been given it before a restart.
        """
        usage = NodeDeviceUsage(inventory)
        claims: list[tuple[PodInfo, DeviceCharge]] = []
        for charge in charges.values():
            usage.add(charge.grants, charge.request.spread_group)
            if charge.claimant is not None:
                claims.append((charge.claimant, charge))
        for pod, charge in sorted(claims, key=lambda one: (bound_at(one[0].pod), one[0].uid)):
            charge.checked_with = inventory
            try:
                claimed = claimed_devices(pod, charge.request)
                charge.grants = _checked(claimed, charge.request, usage) if claimed else ()
                charge.claimant = None
            except InvalidClaim as error:
                if not isinstance(error, MissingDevice):
                    charge.claimant = None
                self._charges.refuse(pod.pod, str(error))
            usage.add(charge.grants, charge.request.spread_group)


def valid_request(pod: PodInfo) -> PodDeviceRequest | None:
    """Return the request of a pod, None if it has none or an invalid one."""
    try:
        return request_of(pod)
    except InvalidRequest:
        return None


# ---- pods for which no Reserve of ours chose devices ---------------------------------------------


class MissingDevice(InvalidClaim):
    """A claim to a device that the node has not, or not in health: it may have it later."""


def _checked(
    claimed: Iterable[Grant], request: PodDeviceRequest, usage: NodeDeviceUsage
) -> tuple[Grant, ...]:
    """Return the devices that are claimed, each with as much as the pod requests.

    ``usage``: by other pods; it is as before afterwards. Raises ``InvalidClaim``,
    ``MissingDevice`` if it may be right for other devices of the node.
    """
    left: defaultdict[tuple[str, str], deque[Grant]] = defaultdict(deque)
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


def _take(share: Share, claimed: deque[Grant], usage: NodeDeviceUsage, grants: list[Grant]) -> None:
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


def _anywhere(request: PodDeviceRequest, usage: NodeDeviceUsage) -> Iterable[Grant]:
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
