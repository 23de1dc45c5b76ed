"""Computes the part of the free GPUs that the pods seen lately could not use.

For each request seen lately, what is free on a node is wasted as far as it is on GPUs that cannot
have the request, and all of it is wasted if too few of its GPUs can. The mean over the requests is
the fragmentation of the node (Q. Weng et al., "Beware of Fragmentation", USENIX ATC 2023). A pod
goes where it adds least. Each request counts as much as the GPUs it asks for: otherwise the many
small ones would spoil the empty nodes that the few large ones need.

Worked example: requests for a whole GPU and for 0.5 count the same. On a GPU with 500 milli free
the whole ones find 500 wasted, the others nothing: 250. With 300 free nobody fits: 300.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

from proreus.addons.device_share.devices import MOST_DEVICES, WHOLE
from proreus.addons.device_share.placement import most_used_first
from proreus.addons.device_share.requests import Share
from proreus.addons.device_share.usage import DeviceUsage, Grant, NodeDeviceUsage

_MOST_KINDS = 24
"""The number of different requests that count, the most frequent ones."""
_REFRESH = 64
"""The number of requests after which frequencies are counted anew."""
_WHOLE_GPU = Share(1, WHOLE, 0, WHOLE)


class RecentRequests:
    """The last ``size`` requests for GPUs. ``generation`` changes when their frequencies do.

    ``kinds``: requests and weights that count before any is seen, by default one whole GPU.
    """

    def __init__(self, size: int, kinds: Sequence[tuple[Share, int]] = ((_WHOLE_GPU, 1),)) -> None:
        self._shares: deque[Share] = deque(maxlen=size)
        self._since = 0
        self._kinds = list(kinds)
        self._total = sum(count for _, count in kinds)
        self._unfit: dict[tuple[object, ...], tuple[int, ...]] = {}
        self.generation = 0

    def note(self, share: Share) -> None:
        """Count a request."""
        self._shares.append(share)
        self._since += 1
        # At first after each doubling, so that the first few requests count at once.
        if self._since >= min(_REFRESH, max(len(self._shares) // 2, 1)):
            self._since = 0
            common = Counter(self._shares).most_common(_MOST_KINDS)
            self._kinds = [(share, count * _demand(share)) for share, count in common]
            self._total = sum(count for _, count in self._kinds)
            self._unfit.clear()
            self.generation += 1

    def fragmentation(self, usage: NodeDeviceUsage) -> float:
        """Return the expected waste on a node, in thousandths of a GPU."""
        gpus = list(usage.of_type("gpu"))
        free = [WHOLE - one.used_milli for one in gpus]
        unfit = [self._unfit_kinds(one) for one in gpus]
        everything, total = sum(free), 0
        for kind, (share, count) in enumerate(self._kinds):
            wasted = fitting = 0
            for amount, of_gpu in zip(free, unfit, strict=True):
                if of_gpu[kind]:
                    wasted += amount
                else:
                    fitting += 1
            enough = fitting >= share.count or (share.profile and fitting)
            total += count * (wasted if enough else everything)
        return total / self._total

    def score(self, usage: NodeDeviceUsage, grants: Sequence[Grant]) -> int:
        """Return the score of a node if a pod gets these devices, before ``normalize``."""
        before = self.fragmentation(usage)
        usage.add(grants)
        added = self.fragmentation(usage) - before
        usage.add(grants, sign=-1)
        return -round(added)

    def least_added_waste_first(self, usage: DeviceUsage, share: Share) -> Any:
        """Order the devices of a node (``placement.DeviceOrder``)."""
        if share.type != "gpu":
            return most_used_first(usage, share)
        return round(self._added_waste(usage, share), 6), *most_used_first(usage, share)

    def _wasted(self, one: DeviceUsage) -> float:
        """Return the expected waste on one GPU, as if it were alone."""
        free = WHOLE - one.used_milli
        unfit = self._unfit_kinds(one)
        kinds = zip(self._kinds, unfit, strict=True)
        return free * sum(count for (_, count), no in kinds if no) / self._total

    def _unfit_kinds(self, one: DeviceUsage) -> tuple[int, ...]:
        """Return for each kind of request whether a GPU cannot have it."""
        key = (*one.state, one.device.mig, one.device.max_users, one.instances)
        found = self._unfit.get(key)
        if found is None:
            if len(self._unfit) > 10_000:
                self._unfit.clear()
            found = tuple(int(not one.fits(share)) for share, _ in self._kinds)
            self._unfit[key] = found
        return found

    def _added_waste(self, one: DeviceUsage, share: Share) -> float:
        """Return by how much the waste on a GPU grows if it gets a share that fits."""
        before = self._wasted(one)
        grant = one.grant_for(share)
        one.add(grant)
        after = self._wasted(one)
        one.add(grant, sign=-1)
        return after - before


def _demand(share: Share) -> int:
    """Return the demand in thousandths of a GPU: half a GPU if it depends on the device.

    Of at most as many as a node may have: one pod that asks for more would outweigh all others.
    """
    return min(share.count, MOST_DEVICES) * (max(share.milli, share.memory_milli) or WHOLE // 2)
