"""The plugin: finds nodes with devices for a pod, scores them, and chooses the devices.

Reserve chooses the devices and remembers them; PreBind writes them into the pod's annotations,
where a node's agent, and this plugin after a restart, reads them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from pydantic import Field

from proreus.addons.device_share.accounts import DeviceAccounts, valid_request
from proreus.addons.device_share.annotations import HAMI_NODE, result_annotations
from proreus.addons.device_share.devices import DEVICES, WHOLE
from proreus.addons.device_share.fragmentation import RecentGpuPods, cpu_and_memory
from proreus.addons.device_share.hints import InvalidRequest
from proreus.addons.device_share.placement import (
    DeviceOrder,
    least_used_first,
    most_used_first,
    place,
)
from proreus.addons.device_share.requests import PodDeviceRequest, request_of
from proreus.addons.device_share.usage import (
    DeviceState,
    Grant,
    NodeDeviceUsage,
    free_gpus,
)
from proreus.addons.min_max import min_max_normalize
from proreus.framework import (
    MAX_SCORE,
    ApiError,
    ClusterEvent,
    ConfigModel,
    CycleState,
    FeatureGates,
    FilterPlugin,
    Handle,
    IntArray,
    NodeInfo,
    NodeTable,
    PluginArgs,
    PodInfo,
    PreBindPlugin,
    PreFilterPlugin,
    ReservePlugin,
    ScorePlugin,
    Status,
    events,
    field_errors,
    is_provided,
)
from proreus.objects import PODS, Pod

NO_DEVICES = Status.unresolvable("node(s) had too few devices")
IN_USE = Status.unschedulable("Insufficient free devices")
KEPT_FREE = Status.unresolvable("node(s) are kept for GPU pods")
_LEAST = np.iinfo(np.int64).min
_MOST_REQUESTS = 1024
"""The number of different requests of which the placements are kept."""
_LONGEST_LABEL = 63
"""Characters of a label's value; names of nodes may have more."""


class WeightedDeviceResource(ConfigModel):
    """A resource of GPUs, by Koordinator's name, and its weight."""

    name: Literal["koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio"]
    weight: Annotated[int, Field(ge=0)] = 1


class DeviceScoringStrategy(ConfigModel):
    """The order of nodes, and of the devices of a node.

    ``LeastAllocated`` spreads pods, ``MostAllocated`` is best fit, ``LeastFragmented`` leaves as
    much as possible that the pods seen lately could use.
    """

    type: Literal["LeastAllocated", "MostAllocated", "LeastFragmented"] = "LeastAllocated"
    resources: tuple[WeightedDeviceResource, ...] = (
        WeightedDeviceResource(name="koordinator.sh/gpu-core"),
        WeightedDeviceResource(name="koordinator.sh/gpu-memory-ratio"),
    )

    def weight(self, name: str) -> int:
        """Return the weight of a resource, 0 if it is not listed."""
        return sum(one.weight for one in self.resources if one.name == name)


class DeviceShareArgs(PluginArgs):
    """``cpu_only_pods``: whether pods that ask for no device avoid nodes with GPUs (Score), are
    rejected there (Filter), or go anywhere."""

    # Arguments of Koordinator.
    arguments_without_effect = {
        "allocator": "there is one allocator",
        "disableDeviceNUMATopologyAlignment": "devices are not aligned with CPUs",
        "gpuSharedResourceTemplatesConfig": "GPUs are shared by what pods request",
        "gpuShareUnsupportedModels": "GPUs of all models are shared",
    }

    scoring_strategy: DeviceScoringStrategy = DeviceScoringStrategy()
    cpu_only_pods: Literal["Avoid", "Reject", "Allow"] = "Avoid"
    recent_requests: int = Field(1024, ge=1)
    """The number of recent pods with GPUs for ``LeastFragmented``."""

    def problems(self, path: str, gates: FeatureGates) -> Iterator[str]:
        """Check that a resource counts."""
        weights = [one.weight for one in self.scoring_strategy.resources]
        if not any(weights):
            where = field_errors.child(path, "scoringStrategy", "resources")
            yield field_errors.invalid(where, weights, "one of the weights must be > 0")


class DevicePlacement(NamedTuple):
    """The use of a node's devices once a pod has been placed there.

    ``used``: percent of the node's devices of that type, by the weights of the strategy. ``left``:
    free thousandths of each GPU, the least first.
    """

    used: int
    left: tuple[int, ...]


class DeviceDemand(NamedTuple):
    """The request of a pod, and its placements by the use of a node's devices.

    Nodes are many, but few differ in their devices and the use of them.
    """

    request: PodDeviceRequest
    placements: WeakKeyDictionary[DeviceState, DevicePlacement | None]


class DeviceShare(PreFilterPlugin, FilterPlugin, ScorePlugin, ReservePlugin, PreBindPlugin):
    """Places pods that ask for GPUs, parts of GPUs, or NICs next to them."""

    Args = DeviceShareArgs
    args: DeviceShareArgs
    row_local = True

    def __init__(self, args: DeviceShareArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._accounts = DeviceAccounts.of(handle)
        # Asked for each node in turn.
        self._demand_of = lru_cache(maxsize=1)(self._new_demand)
        self._placements_of = lru_cache(maxsize=_MOST_REQUESTS)(_new_placements)
        self._recent: RecentGpuPods | None = None
        self._avoids = args.cpu_only_pods != "Allow"
        spreads = args.scoring_strategy.type == "LeastAllocated"
        self._order: DeviceOrder = least_used_first if spreads else most_used_first
        if args.scoring_strategy.type == "LeastFragmented":
            self._recent = RecentGpuPods(args.recent_requests)
            handle.on_change(PODS, self._note_request)

    def events_to_register(self) -> Iterable[ClusterEvent]:
        """Register deleted pods that had devices, nodes, and Device objects."""
        nodes = events.ADD | events.UPDATE_NODE_ALLOCATABLE | events.UPDATE_NODE_LABEL
        return (
            ClusterEvent(events.ASSIGNED_POD, events.DELETE, hint=self._accounts.had_devices),
            ClusterEvent(events.NODE, nodes | events.UPDATE_NODE_ANNOTATION),
            # Without one, its node is as its allocatable says.
            ClusterEvent(DEVICES.id, events.ALL),
        )

    def _new_demand(self, pod: PodInfo) -> DeviceDemand | None:
        request = valid_request(pod)
        return None if request is None else DeviceDemand(request, self._placements_of(request))

    def _note_request(self, old: Pod | None, new: Pod | None) -> None:
        if self._recent is None or old is not None or new is None:
            return
        pod = PodInfo(new)
        request = valid_request(pod)
        if request is not None:
            self._recent.note(pod, request)

    # ---- Filter --------------------------------------------------------------------------------

    def sign(self, pod: PodInfo) -> Hashable:
        """Return the request of the pod, for ``LeastFragmented`` with its CPU and memory."""
        try:
            request = request_of(pod) or "no device"
        except InvalidRequest as error:
            return str(error)
        return request if self._recent is None else (request, *cpu_and_memory(pod))

    def invalidation_key(self, nodes: NodeTable) -> Hashable:
        """Return the generation of recent requests, on which ``LeastFragmented`` depends."""
        return None if self._recent is None else self._recent.generation

    def pre_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable
    ) -> Status | frozenset[str] | None:
        """Reject requests that no node could grant; skip Filter for pods that ask for no device."""
        try:
            request = request_of(pod)
        except InvalidRequest as error:
            return Status.unresolvable(f"invalid device request: {error}")
        if request is None and self.args.cpu_only_pods != "Reject":
            return Status.skip()
        return None

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Reject a node that lacks the devices."""
        demand, devices = self._demand_of(pod), self._accounts.state(node)
        inventory = devices.usage.inventory
        if demand is None:
            rejects = self.args.cpu_only_pods == "Reject" and inventory.has_gpus
            return KEPT_FREE if rejects else None
        if not inventory.devices and not inventory.fixed_profiles:
            return NO_DEVICES
        # Many combinations of devices may be tried on one node.
        state.check_budget(self.name, "Filter")
        if self._placement(devices, demand) is not None:
            return None
        # Preemption would be in vain where not even an empty node fits.
        empty = DeviceState.of(NodeDeviceUsage(inventory))
        return NO_DEVICES if self._placement(empty, demand) is None else IN_USE

    def _placement(self, devices: DeviceState, demand: DeviceDemand) -> DevicePlacement | None:
        """Return where a pod's devices are on a node, None if they do not fit."""
        try:
            return demand.placements[devices]
        except KeyError:
            grants = place(devices.usage, demand.request, self._order)
            found = None if grants is None else self._placement_of(devices.usage, demand, grants)
            demand.placements[devices] = found
            return found

    def _placement_of(
        self, usage: NodeDeviceUsage, demand: DeviceDemand, grants: Sequence[Grant]
    ) -> DevicePlacement:
        usage.add(grants)
        used, left = self._used_percent(usage, demand.request), free_gpus(usage)
        usage.add(grants, sign=-1)
        return DevicePlacement(used, left)

    # ---- Score ---------------------------------------------------------------------------------

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Score a node by the strategy, or for pods without devices by whether it has GPUs."""
        demand, devices = self._demand_of(pod), self._accounts.state(node)
        inventory = devices.usage.inventory
        if demand is None and self._recent is None:
            return MAX_SCORE if self._avoids and not inventory.has_gpus else 0
        state.check_budget(self.name, "Score")
        placement = None if demand is None else self._placement(devices, demand)
        if self._recent is not None:
            left = devices.free if placement is None else placement.left
            avoided = demand is None and self._avoids and inventory.has_gpus
            return self._recent.score(node, inventory, pod, devices.free, left) - avoided
        if placement is None:
            return 0
        least = self.args.scoring_strategy.type == "LeastAllocated"
        return MAX_SCORE - placement.used if least else placement.used

    def normalize(self, state: CycleState, pod: PodInfo, scores: IntArray) -> IntArray:
        """Give the best node 100; pods without devices may have their scores already."""
        if self._recent is not None:
            # Of nodes that differ by less than a hundredth of the range, the best one wins, too.
            lower = np.minimum(min_max_normalize(scores), MAX_SCORE - 1)
            return np.where(scores == scores.max(initial=_LEAST), MAX_SCORE, lower)
        if self._demand_of(pod) is None:
            return scores
        most = int(scores.max(initial=0))
        return scores * MAX_SCORE // most if most else scores

    def _used_percent(self, usage: NodeDeviceUsage, request: PodDeviceRequest) -> int:
        type_ = request.shares[0].type
        devices = list(usage.of_type(type_))
        if not devices:
            return 0
        strategy = self.args.scoring_strategy
        core_weight = strategy.weight("koordinator.sh/gpu-core")
        memory_weight = strategy.weight("koordinator.sh/gpu-memory-ratio")
        core = sum(one.used_core_milli for one in devices)
        memory = sum(one.used_memory_milli for one in devices)
        weighted = core * core_weight + memory * memory_weight
        return MAX_SCORE * weighted // (WHOLE * len(devices) * (core_weight + memory_weight))

    # ---- the pod's devices ---------------------------------------------------------------------

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Choose the pod's devices."""
        request = valid_request(pod)
        if request is None:
            self._accounts.reserve(pod, node_name, None, ())
            return None
        node = self.handle.nodes[self.handle.nodes.rows[node_name]]
        replaceable = (one.uid for one in state.replaceable_pods.get(node_name, ()))
        usage = self._accounts.usage(node, without={pod.uid, *replaceable})
        grants = place(usage, request, self._order)
        if grants is None:
            return IN_USE
        if is_provided(pod.pod):
            return None
        self._accounts.reserve(pod, node_name, request, grants)
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Give them back."""
        self._accounts.unreserve(pod, node_name)

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Skip pods without devices of their own."""
        charge = self._accounts.charge(pod.uid)
        return None if charge is not None and charge.grants else Status.skip()

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Write the pod's devices into its annotations."""
        charge, row = self._accounts.charge(pod.uid), self.handle.nodes.rows.get(node_name)
        if charge is None or row is None:
            return Status.error(f"the devices of pod {pod.key} on {node_name} are gone")
        inventory = self._accounts.inventory(self.handle.nodes[row])
        now = self.handle.clock.now()
        written = result_annotations(pod, charge.request, charge.grants, node_name, inventory, now)
        metadata: dict[str, Any] = {"uid": pod.uid, "annotations": written}
        if HAMI_NODE in written and len(node_name) <= _LONGEST_LABEL:
            # HAMi's monitor selects the pods of a node by this label.
            metadata["labels"] = {HAMI_NODE: node_name}
        patch = {"metadata": metadata}
        try:
            await self.handle.api.patch(PODS, pod.namespace, pod.name, patch)
        except ApiError as error:
            return Status.error(f"writing the devices of pod {pod.key}: {error}")
        return None


def _new_placements(
    request: PodDeviceRequest,
) -> WeakKeyDictionary[DeviceState, DevicePlacement | None]:
    return WeakKeyDictionary()
