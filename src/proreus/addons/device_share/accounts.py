"""What every pod has of the devices of its node.

It is derived from the pods of a node each time the node changes: what Reserve chose, or what a
bound pod's annotations say. So it is right in dry runs of preemption, for pods of other schedulers,
and after a restart. A pod without either, such as a nominated one, has the devices that best fit
gives it.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary, ref

from proreus.addons.device_share.annotations import allocation_of
from proreus.addons.device_share.devices import DEVICES, DeviceObject, Inventory, inventory_of
from proreus.addons.device_share.hints import InvalidRequest
from proreus.addons.device_share.placement import most_used_first, place
from proreus.addons.device_share.requests import PodDeviceRequest, request_of
from proreus.addons.device_share.usage import Allocation, NodeDeviceUsage
from proreus.framework import Handle, NodeInfo, NodeTable, PodInfo
from proreus.objects import NODES, PODS, Node, Pod


class DeviceAccounts:
    """The devices of all nodes and who has them; one for all profiles of a scheduler."""

    def __init__(self, handle: Handle) -> None:
        self._invalidate = handle.invalidate_results
        self._allocations: dict[str, Allocation] = {}
        """By UID, of pods that Reserve has placed or that are bound with annotations."""
        self._inventories: dict[str, tuple[Node | None, DeviceObject | None, Inventory]] = {}
        self.objects = handle.store(DEVICES)
        """Device objects by node."""
        handle.on_change(DEVICES, self._object_changed)
        handle.on_change(PODS, self._pod_changed)
        handle.on_change(NODES, self._node_changed)

    @staticmethod
    def of(handle: Handle) -> DeviceAccounts:
        """Return the accounts that belong to a handle's nodes, creating them if there are none."""
        # By table of nodes: profiles, and the plugins of the next configuration, have the same one.
        known = _accounts.get(handle.nodes)
        accounts = None if known is None else known()
        if accounts is None:
            accounts = DeviceAccounts(handle.shared)
            _accounts[handle.nodes] = ref(accounts)
        return accounts

    def _object_changed(self, old: DeviceObject | None, new: DeviceObject | None) -> None:
        found = new or old
        assert found is not None
        self._invalidate(found.metadata.name)

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        if new is None and old is not None:
            self._inventories.pop(old.metadata.name, None)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if new is None:
            assert old is not None
            self._allocations.pop(old.metadata.uid, None)
            return
        node_name, meta = new.spec.node_name, new.metadata
        # Of a pod without a node the annotations are those of an attempt that failed.
        if not node_name or not meta.annotations:
            return
        if old is not None and old.spec.node_name and old.metadata.annotations == meta.annotations:
            return
        found = allocation_of(meta.annotations, node_name, valid_request(PodInfo(new)))
        if found is not None and found != self._allocations.get(meta.uid):
            self._allocations[meta.uid] = found
            self._invalidate(node_name)

    def allocation(self, uid: str) -> Allocation | None:
        """Return what a pod has, None if nothing is known."""
        return self._allocations.get(uid)

    def put(self, uid: str, allocation: Allocation) -> None:
        """Take over what Reserve chose."""
        self._allocations[uid] = allocation
        self._invalidate(allocation.node_name)

    def remove(self, uid: str) -> None:
        """Take back what Reserve chose."""
        allocation = self._allocations.pop(uid, None)
        if allocation is not None:
            self._invalidate(allocation.node_name)

    def inventory(self, node: NodeInfo) -> Inventory:
        """Return the devices of a node."""
        found = self.objects.get(node.name)
        known = self._inventories.get(node.name)
        if known is not None and known[0] is node.node and known[1] is found:
            return known[2]
        inventory = inventory_of(node, found)
        self._inventories[node.name] = (node.node, found, inventory)
        return inventory

    def usage(self, node: NodeInfo, without: str = "") -> NodeDeviceUsage:
        """Return what the pods of a node use of its devices; ``without``: a UID that does not."""
        usage = NodeDeviceUsage(self.inventory(node))
        if not usage.by_key:
            return usage
        unknown: list[PodDeviceRequest] = []
        for uid, pod in node.pods.items():
            if uid == without:
                continue
            allocation = self._allocations.get(uid)
            if allocation is not None and allocation.node_name == node.name:
                usage.add(allocation.grants, allocation.spread_group)
            elif (request := valid_request(pod)) is not None:
                unknown.append(request)
        for request in unknown:
            usage.add(place(usage, request, most_used_first) or (), request.spread_group)
        return usage


def valid_request(pod: PodInfo) -> PodDeviceRequest | None:
    """Return what a pod asks for; None if that is nothing, or invalid."""
    try:
        return request_of(pod)
    except InvalidRequest:
        return None


# They refer to the handle, and so to the table: what holds them is the plugins, and the handlers.
_accounts: WeakKeyDictionary[NodeTable, ref[DeviceAccounts]] = WeakKeyDictionary()
