"""The plugin: finds nodes with devices for a pod, scores them, and chooses the devices.

Reserve chooses the devices and remembers them; PreBind writes them into the pod's annotations,
where a node's agent, and this plugin after a restart, reads them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import Field

from proreus.addons.device_share.accounts import DeviceAccounts, valid_request
from proreus.addons.device_share.annotations import HAMI_NODE, result_annotations
from proreus.addons.device_share.devices import DEVICES, NOTHING, WHOLE
from proreus.addons.device_share.fragmentation import RecentRequests
from proreus.addons.device_share.hints import InvalidRequest
from proreus.addons.device_share.placement import (
    DeviceOrder,
    least_used_first,
    most_used_first,
    place,
)
from proreus.addons.device_share.requests import PodDeviceRequest, request_of
from proreus.addons.device_share.usage import NodeDeviceUsage
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
_LONGEST_LABEL = 63
"""Characters of a label's value; names of nodes may have more."""


class WeightedDeviceResource(ConfigModel):
    """A resource of GPUs, by Koordinator's name, and its weight."""

    name: Literal["koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio"]
    weight: Annotated[int, Field(ge=0)] = 1


class DeviceScoringStrategy(ConfigModel):
    """The order of nodes, and of the devices of a node.

    ``LeastAllocated`` spreads pods, ``MostAllocated`` is best fit, ``LeastFragmented`` leaves as
    little as possible that the pods seen lately could not use.
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
    recent_requests: int = Field(1000, ge=1)
    """The number of recent requests for ``LeastFragmented``."""

    def problems(self, path: str, gates: FeatureGates) -> Iterator[str]:
        """Check that a resource counts."""
        weights = [one.weight for one in self.scoring_strategy.resources]
        if not any(weights):
            where = field_errors.child(path, "scoringStrategy", "resources")
            yield field_errors.invalid(where, weights, "one of the weights must be > 0")


class DeviceShare(PreFilterPlugin, FilterPlugin, ScorePlugin, ReservePlugin, PreBindPlugin):
    """Places pods that ask for GPUs, parts of GPUs, or NICs next to them."""

    Args = DeviceShareArgs
    args: DeviceShareArgs
    row_local = True

    def __init__(self, args: DeviceShareArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._accounts = DeviceAccounts.of(handle)
        # Asked for each node in turn.
        self._request_of = lru_cache(maxsize=1)(valid_request)
        self._recent: RecentRequests | None = None
        self._order: DeviceOrder = least_used_first
        if args.scoring_strategy.type == "MostAllocated":
            self._order = most_used_first
        elif args.scoring_strategy.type == "LeastFragmented":
            self._recent = RecentRequests(args.recent_requests)
            self._order = self._recent.least_added_waste_first
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

    def _note_request(self, old: Pod | None, new: Pod | None) -> None:
        if self._recent is None or old is not None or new is None:
            return
        request = valid_request(PodInfo(new))
        for share in () if request is None else request.shares:
            if share.type == "gpu":
                self._recent.note(share)

    # ---- Filter --------------------------------------------------------------------------------

    def sign(self, pod: PodInfo) -> Hashable:
        """Return the request of the pod."""
        try:
            return request_of(pod) or "no device"
        except InvalidRequest as error:
            return str(error)

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
        request, inventory = self._request_of(pod), self._accounts.inventory(node)
        if request is None:
            rejects = self.args.cpu_only_pods == "Reject" and inventory.has_gpus
            return KEPT_FREE if rejects else None
        if inventory == NOTHING:
            return NO_DEVICES
        # Many combinations of devices may be tried on one node.
        state.check_budget(self.name, "Filter")
        if place(self._accounts.usage(node), request, self._order) is not None:
            return None
        # Preemption would be in vain where not even an empty node fits.
        fits_empty = place(NodeDeviceUsage(inventory), request, self._order) is not None
        return IN_USE if fits_empty else NO_DEVICES

    # ---- Score ---------------------------------------------------------------------------------

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Score a node by the strategy, or for pods without devices by whether it has GPUs."""
        request, inventory = self._request_of(pod), self._accounts.inventory(node)
        if request is None:
            avoids = self.args.cpu_only_pods != "Allow"
            return MAX_SCORE if avoids and not inventory.has_gpus else 0
        if inventory == NOTHING:
            return 0
        state.check_budget(self.name, "Score")
        usage = self._accounts.usage(node)
        grants = place(usage, request, self._order)
        if grants is None:
            return 0
        if self._recent is not None:
            return self._recent.score(usage, grants)
        usage.add(grants)
        used = self._used_percent(usage, request)
        least = self.args.scoring_strategy.type == "LeastAllocated"
        return MAX_SCORE - used if least else used

    def normalize(self, state: CycleState, pod: PodInfo, scores: IntArray) -> IntArray:
        """Give the best node 100; pods without devices have their scores already."""
        if self._request_of(pod) is None:
            return scores
        if self._recent is not None:
            return min_max_normalize(scores)
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
