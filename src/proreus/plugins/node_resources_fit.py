"""NodeResourcesFit: filter nodes by free resources, and score them by the configured strategy.

Filter compares requests, pod-level ones and overhead included, with what is allocatable and not
requested. Score adds defaults for missing requests. Until 1.37 it reads no pod-level ones, as
kube-scheduler's does.

Worked example: a node with 4 CPUs allocatable, 3 requested. A pod with 2 CPUs is Unschedulable
("Insufficient cpu"): preemption may help. A pod with 5 CPUs is UnschedulableAndUnresolvable.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from functools import lru_cache

from proreus.base.errors import ConfigError
from proreus.base.kubernetes_version import Change
from proreus.framework.cycle_state import CycleState
from proreus.framework.events import (
    ADD,
    DELETE,
    DEVICE_CLASS,
    NODE,
    UPDATE,
    UPDATE_NODE_ALLOCATABLE,
    UPDATE_POD_SCALE_DOWN,
    UPDATE_POD_SCALE_UP,
    ClusterEvent,
)
from proreus.framework.handle import Handle
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import FilterPlugin, PreFilterPlugin, PreScorePlugin, ScorePlugin
from proreus.framework.pod_events import pod_registrations
from proreus.framework.pod_group import PodGroupAssignments, PodGroupInfo
from proreus.framework.pod_group_plugin import PlacementScorePlugin
from proreus.framework.pod_info import PodInfo, PodRequests
from proreus.framework.status import Status
from proreus.framework.verdicts import BoolArray, IntArray, Verdicts
from proreus.objects.devices import DEVICE_CLASS_RESOURCE_PREFIX, DeviceClass
from proreus.objects.node import Node
from proreus.objects.pod import Pod
from proreus.objects.quantity import amounts_of
from proreus.objects.requests import PodResourcesOptions, is_pod_resize_deferred
from proreus.objects.resource_names import is_extended_resource
from proreus.plugins.dynamic_resources.scored_devices import ScoredDevices
from proreus.plugins.extended_resources import ExtendedResourceClasses, may_be_dra_backed
from proreus.plugins.insufficient_resources import (
    BASE_RESOURCES,
    Needs,
    needs_of,
    reject_rows,
    rejection,
)
from proreus.plugins.node_resources_fit_args import NodeResourcesFitArgs, ScoringStrategy
from proreus.plugins.resource_scoring import (
    LeastAllocated,
    MostAllocated,
    RequestedToCapacityRatio,
    ResourceScorer,
    ScoredRequest,
    loads_of,
    placement_loads,
    score_rows,
    scored_requests_of,
)

# Shapes are configured with scores from 0 to 10.
_SCALE_OF_SHAPE = 10


class NodeResourcesFit(
    PreFilterPlugin, FilterPlugin, PreScorePlugin, ScorePlugin, PlacementScorePlugin
):
    """Rejects nodes without the free resources, and scores by the use that would result."""

    Args = NodeResourcesFitArgs
    row_local = True

    def __init__(self, args: NodeResourcesFitArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        problems = tuple(args.problems("", handle.feature_gates))
        if problems:
            raise ConfigError(*problems)
        self._ignored = frozenset(args.ignored_resources)
        self._ignored_groups = frozenset(args.ignored_resource_groups)
        self._resources = args.scoring_strategy.resources
        self._exact = handle.feature_gates.includes(Change.EXACT_PERCENTAGES)
        self._scorer = resource_scorer_of(args.scoring_strategy, self._exact)
        self._resources_options = PodResourcesOptions.of(handle.feature_gates)
        self._deferred_resizes = handle.feature_gates.enabled(
            "InPlacePodVerticalScalingSchedulerPreemption"
        )
        # Kept for the requests of the last pod: as a rule the next one has the same.
        self._needs = lru_cache(maxsize=1)(self._needs_of)
        self._scored_requests = lru_cache(maxsize=1)(self._scored_requests_of)
        self._device_classes = (
            ExtendedResourceClasses.watching(handle)
            if handle.feature_gates.enabled("DRAExtendedResource")
            else ExtendedResourceClasses()
        )
        self._scored_devices = ScoredDevices.of(handle, [r.name for r in self._resources])

    def sign(self, pod: PodInfo) -> Hashable | None:
        """Sign the requests; with pod-level ones also those of the containers, for Score.

        None if devices affect the score: they change without a change of the node.
        """
        requests = pod.requests
        if self._scored_devices is not None and self._scored_devices.affects_score(
            requests.amounts
        ):
            return None
        # The lack of such a pod on its node depends on the amounts that it counts with there.
        if self._deferred_resizes and is_pod_resize_deferred(pod.pod):
            return None
        if pod.pod.spec.resources is None and pod.resized is requests:
            return requests.key
        return requests.key, tuple(sorted(pod.resized.scoring.items()))

    def invalidation_key(self, nodes: NodeTable) -> Hashable:
        """Return the version of the device classes that results depend on."""
        return self._device_classes.version

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> None:
        """Never skip: even a pod without requests counts towards the number of pods."""

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        """Never skip."""
        return None

    # ---- filter --------------------------------------------------------------------------------

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Filter one node."""
        needs = self._needs(pod.requests)
        dra_backed_resources = self._dra_backed_resources(pod.requests)
        if dra_backed_resources:
            needs = {
                r: a
                for r, a in needs.items()
                if node.allocatable.get(r, 0) > 0 or r not in dra_backed_resources
            }
        counted = node.pods.get(pod.uid) if self._is_deferred_resize(pod) else None
        too_many_pods = len(node.pods) >= node.allowed_pod_number
        return rejection(needs, too_many_pods, node, counted)

    def filter_all(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable, verdicts: Verdicts
    ) -> None:
        """Filter all nodes, resource by resource."""
        # A resource that no node has is insufficient on every node, and gets no column: a pod may
        # request thousands of these.
        needs = self._needs(pod.requests)
        dra_backed_resources = self._dra_backed_resources(pod.requests)
        allocatable = nodes.allocatable
        nowhere = {r for r, amount in needs.items() if r not in allocatable and amount > 0}
        too_many_pods: BoolArray = nodes.pod_count >= nodes.allowed_pods
        failing = too_many_pods.copy()
        short: dict[str, BoolArray] = {}
        for resource in [r for r in needs if r not in nowhere] if nowhere else needs:
            lacks = allocatable[resource] - nodes.requested[resource] < needs[resource]
            if resource in dra_backed_resources:
                lacks &= allocatable[resource] > 0
            short[resource] = lacks
            failing |= lacks
        nowhere.difference_update(dra_backed_resources)
        if nowhere:
            failing[:] = True
        if not failing.any():
            return
        if self._is_deferred_resize(pod):
            own = nodes.rows.get(pod.pod.spec.node_name)
            if own is not None and failing[own]:
                failing[own] = False
                status = self.filter(state, pod, nodes[own])
                if status is not None:
                    verdicts.reject_row(own, status)
            if not failing.any():
                return
        reject_rows(verdicts, failing, needs, short, allocatable, nowhere, too_many_pods)

    def _is_deferred_resize(self, pod: PodInfo) -> bool:
        """Return whether the pod is on its node, and waits for preemption to be resized there."""
        return self._deferred_resizes and is_pod_resize_deferred(pod.pod)

    def _needs_of(self, requests: PodRequests) -> Needs:
        """Return the requests that are not ignored by configuration."""
        needs = needs_of(requests.amounts)
        if self._ignored or self._ignored_groups:
            needs = {r: amount for r, amount in needs.items() if not self._ignores(r)}
        return needs

    def _dra_backed_resources(self, requests: PodRequests) -> tuple[str, ...]:
        """Return the resources that DynamicResources allocates on nodes without their own."""
        dra_backed = self._device_classes.dra_backed(requests.amounts)
        return tuple(filter(may_be_dra_backed, dra_backed)) if dra_backed else ()

    def _ignores(self, resource: str) -> bool:
        # Only extended resources can be ignored, whatever the arguments name.
        return is_extended_resource(resource) and (
            resource in self._ignored or resource.partition("/")[0] in self._ignored_groups
        )

    # ---- score ---------------------------------------------------------------------------------

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Score one node."""
        return self._scorer.score(
            loads_of(self._scored_requests(pod.resized), node, self._scored_devices)
        )

    def score_all(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> IntArray:
        """Score all nodes."""
        return score_rows(
            self._scored_requests(pod.resized),
            nodes,
            self._scorer.score_all,
            self._scored_devices,
            self._scorer.score,
        )

    def _scored_requests_of(self, requests: PodRequests) -> tuple[ScoredRequest, ...]:
        return scored_requests_of(self._resources, requests.scoring, defaults=True)

    def score_placement(
        self, state: CycleState, group: PodGroupInfo, assignments: PodGroupAssignments
    ) -> int:
        """Score a placement by the use of its nodes together."""
        # kube-scheduler packs PodGroups, whatever the strategy for single pods is.
        names, nodes = assignments.placement.node_names, self.handle.nodes
        part = nodes if names is None else nodes.take(nodes.rows_of(names))
        pods = [placed.pod for placed in assignments.pods]
        return MostAllocated(self._exact).score(placement_loads(self._resources, pods, part))

    # ---- events --------------------------------------------------------------------------------

    def events_to_register(self) -> Iterable[ClusterEvent]:
        """Register deleted and scaled-down pods, nodes with more resources, and DeviceClasses."""
        events = [
            *pod_registrations(
                self.handle.feature_gates,
                assigned=DELETE | UPDATE_POD_SCALE_DOWN,
                target=UPDATE_POD_SCALE_DOWN,
                hint=self._is_schedulable_after_pod_event,
            ),
            ClusterEvent(
                NODE, ADD | UPDATE_NODE_ALLOCATABLE, self._is_schedulable_after_node_change
            ),
        ]
        if self.handle.feature_gates.enabled("DRAExtendedResource"):
            events.append(
                ClusterEvent(DEVICE_CLASS, ADD | UPDATE, _is_schedulable_after_device_class_event)
            )
        if self._deferred_resizes:
            scale_ups = pod_registrations(
                self.handle.feature_gates,
                assigned=UPDATE_POD_SCALE_UP,
                target=UPDATE_POD_SCALE_UP,
                hint=_is_schedulable_after_pod_scale_up,
            )
            events.extend(scale_ups)
        return events

    def _is_schedulable_after_pod_event(self, pod: PodInfo, old: Pod, new: Pod | None) -> bool:
        if new is not None and new.metadata.uid == pod.uid:
            return True
        if self._is_deferred_resize(pod):
            changed = old if new is None else new
            if changed.spec.node_name != pod.pod.spec.node_name:
                return False
        # A pod without a node, or nomination, held no resources.
        if new is None:
            return bool(old.spec.node_name or old.status.nominated_node_name)
        if not new.spec.node_name:
            return False
        before = PodInfo(old, self._resources_options).accounted_requests.amounts
        after = PodInfo(new, self._resources_options).accounted_requests.amounts
        return any(before.get(r, 0) > after.get(r, 0) for r in needs_of(pod.requests.amounts))

    def _is_schedulable_after_node_change(self, pod: PodInfo, old: Node | None, new: Node) -> bool:
        if self._is_deferred_resize(pod) and new.metadata.name != pod.pod.spec.node_name:
            return False
        if old is None:
            return not self._exceeded(pod, new)
        if exceeded := self._exceeded(pod, new):
            # A nomination keeps a pod from preempting on another node.
            return (
                pod.pod.status.nominated_node_name == new.metadata.name
                and pod.pod.spec.scheduling_group is None
                # Other resources may be gone for a moment, while a device plugin starts again.
                and not exceeded.isdisjoint(BASE_RESOURCES)
                and not self._exceeded(pod, old)
            )
        after, before = amounts_of(new.status.allocatable), amounts_of(old.status.allocatable)
        if any(after.get(r, 0) <= 0 for r in self._dra_backed_resources(pod.requests)):
            return True
        needs = needs_of(pod.requests.amounts)
        return any(after.get(r, 0) > before.get(r, 0) for r in ("pods", *needs))

    def _exceeded(self, pod: PodInfo, node: Node) -> set[str]:
        """Return the resources of which a pod requests more than a node has for all pods."""
        # Resources that are ignored count here, as in kube-scheduler: extenders may manage them.
        needs, allocatable = needs_of(pod.requests.amounts), amounts_of(node.status.allocatable)
        exceeded = {r for r, need in {"pods": 1, **needs}.items() if allocatable.get(r, 0) < need}
        devices = self._dra_backed_resources(pod.requests)
        return {r for r in exceeded if r not in devices or allocatable.get(r, 0) > 0}


def resource_scorer_of(configured: ScoringStrategy, exact: bool) -> ResourceScorer:
    """Return the configured strategy."""
    match configured.type:
        case "MostAllocated":
            return MostAllocated(exact)
        case "RequestedToCapacityRatio":
            ratio = configured.requested_to_capacity_ratio
            assert ratio is not None, "the arguments have been checked"
            points = [(p.utilization, p.score * _SCALE_OF_SHAPE) for p in ratio.shape]
            return RequestedToCapacityRatio(points, exact)
    return LeastAllocated(exact)


def _is_schedulable_after_pod_scale_up(pod: PodInfo, old: Pod | None, new: Pod) -> bool:
    """Return whether a deferred resize may lack room on its node now, and has to preempt."""
    return is_pod_resize_deferred(pod.pod) and new.spec.node_name == pod.pod.spec.node_name


def _is_schedulable_after_device_class_event(
    pod: PodInfo, old: DeviceClass | None, new: DeviceClass
) -> bool:
    """Return whether a class has begun to provide a resource that the pod requests."""
    amounts, name = pod.requests.amounts, new.spec.extended_resource_name
    if old is not None and old.spec.extended_resource_name == name:
        return False
    if old is None and DEVICE_CLASS_RESOURCE_PREFIX + new.metadata.name in amounts:
        return True
    return bool(name) and name in amounts
