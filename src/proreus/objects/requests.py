"""Effective resource requests of a pod, after resourcehelper.PodRequests.

Sums are exact (nano-units) and converted once per pod, rounded up.
Source: KEP-753 (sidecars), KEP-1287 (in-place resize), KEP-2837 (pod-level resources).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from proreus.base.int64 import MAX_INT64
from proreus.base.kubernetes_version import Change
from proreus.objects.pod import Container, ContainerStatus, Pod, ResourceList, condition_of
from proreus.objects.quantity import NANO, milli_value, parse_quantity, value_of, whole_value
from proreus.objects.resource_names import is_pod_level_resource, is_tracked_resource

if TYPE_CHECKING:
    from proreus.base.feature_gates import FeatureGates

NON_ZERO_DEFAULTS: Mapping[str, int] = {
    "cpu": parse_quantity("100m"),
    "memory": parse_quantity("200Mi"),
}
"""The request, in nano-units, that scoring assumes for a container without one."""

Nano = dict[str, int]
RequestsOf = Callable[[Container], Nano]


class PodResourcesOptions(NamedTuple):
    """The parts of a pod's requests that count, by feature gates.

    ``pod_level``: ``spec.resources`` (PodLevelResources). ``devices``: what devices take of the
    node's cpu, memory and the like, as the pod's status has it (DRANodeAllocatableResources).
    ``resized_by_sum``: the larger of the pod's sums, instead of the sum of each container's larger
    (``Change.RESIZED_REQUESTS_BY_SUM``). ``pod_level_resize``: pod-level resources in the status
    (InPlacePodLevelResourcesVerticalScaling). ``scores_as_filtered``: NodeResourcesFit scores by
    the same parts as its Filter (``Change.FIT_SCORES_POD_LEVEL``). ``overhead_by_container``: see
    ``Change.OVERHEAD_BY_CONTAINER``.
    """

    pod_level: bool = True
    devices: bool = False
    resized_by_sum: bool = False
    pod_level_resize: bool = True
    scores_as_filtered: bool = False
    overhead_by_container: bool = False

    @classmethod
    def of(cls, gates: FeatureGates) -> PodResourcesOptions:
        """Return the options that the feature gates select."""
        return cls(
            gates.enabled("PodLevelResources"),
            gates.enabled("DRANodeAllocatableResources"),
            gates.includes(Change.RESIZED_REQUESTS_BY_SUM),
            gates.enabled("InPlacePodLevelResourcesVerticalScaling"),
            gates.includes(Change.FIT_SCORES_POD_LEVEL),
            gates.includes(Change.OVERHEAD_BY_CONTAINER),
        )


class DeviceResources(NamedTuple):
    """The amounts that a pod's devices take of its node, in nano-units.

    ``fixed``: for the pod's whole life; ``by_container``: with each container.
    """

    fixed: Nano
    by_container: Mapping[str, Nano]


NO_DEVICES = DeviceResources({}, {})

DEFAULT_RESOURCES_OPTIONS = PodResourcesOptions()


def pod_requests(
    pod: Pod,
    options: PodResourcesOptions = DEFAULT_RESOURCES_OPTIONS,
    *,
    use_status: bool = False,
    non_missing: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """Return the effective request of a pod by tracked resource: milli-CPU, else whole units.

    ``use_status``: a pod that is being resized counts with the larger of its requested and its
    actual resources. ``non_missing``: amounts (nano-units) for containers without a request.
    """
    total = _pod_requests_nano(pod, options, use_status, non_missing or {})
    amounts = {name: -(-nano // NANO) for name, nano in total.items() if is_tracked_resource(name)}
    if amounts and (max(amounts.values()) > MAX_INT64 or min(amounts.values()) < -MAX_INT64):
        amounts = {name: whole_value(total[name]) for name in amounts}
    if "cpu" in amounts:
        amounts["cpu"] = milli_value(total["cpu"])
    return amounts


def non_zero_requests(
    pod: Pod,
    options: PodResourcesOptions = DEFAULT_RESOURCES_OPTIONS,
    *,
    use_status: bool = False,
) -> tuple[int, int]:
    """Return (milli-CPU, bytes of memory), with defaults for absent requests."""
    missing: Mapping[str, int] = NON_ZERO_DEFAULTS
    requested = _requested_cpu_and_memory
    if options.pod_level and has_pod_level_requests(pod):
        # With pod-level requests, defaults apply only to resources that the pod level does not set.
        named = _pod_requests_nano(pod, options, use_status, {}, requested)
        missing = {name: nano for name, nano in NON_ZERO_DEFAULTS.items() if name not in named}
    total = _pod_requests_nano(pod, options, use_status, missing, requested)
    return value_of("cpu", total.get("cpu", 0)), value_of("memory", total.get("memory", 0))


def has_pod_level_requests(pod: Pod) -> bool:
    """Return whether a pod has a valid pod-level request."""
    resources = pod.spec.resources
    return resources is not None and any(map(is_pod_level_resource, resources.requests))


def may_count_with_status(pod: Pod, *, resized_by_sum: bool) -> bool:
    """Return whether a pod's status may change its request (``use_status``): most have no effect.

    ``resized_by_sum``: see ``pod_requests``; an infeasible resize counts then without any status of
    a container as well.
    """
    status = pod.status
    return (
        status.resources is not None
        or any(
            entry.resources is not None or entry.allocated_resources
            for entry in (*status.container_statuses, *status.init_container_statuses)
        )
        or (resized_by_sum and _resize_is_infeasible(pod))
    )


def _pod_requests_nano(
    pod: Pod,
    options: PodResourcesOptions,
    use_status: bool,
    missing: Mapping[str, int],
    requested: RequestsOf | None = None,
) -> Nano:
    """Return the sum. ``requested`` returns the amounts of a container that is not resized."""
    taken = NO_DEVICES
    if options.devices:
        taken = resources_of_devices(pod, by_container=options.overhead_by_container)
    if use_status and options.resized_by_sum:
        total = _largest_sum(pod, missing, taken, pod_level=options.pod_level_resize)
    else:
        requests_of = _larger_of_each(pod) if use_status else requested or _requested
        total = _sum(pod, requests_of, missing, taken)
    if options.pod_level and has_pod_level_requests(pod):
        _replace_by_pod_level(pod, total, options, use_status)
    if pod.spec.overhead:
        _add(total, _parsed(pod.spec.overhead))
    return total


# ---- over containers ---------------------------------------------------------------------------


def _sum(
    pod: Pod,
    requests_of: RequestsOf,
    missing: Mapping[str, int],
    taken: DeviceResources = NO_DEVICES,
) -> Nano:
    """Return the sum of the containers, and at least the peak of the init containers.

    ``requests_of``: what each container takes; ``missing``: where it takes nothing of a resource.
    """

    def requests(container: Container) -> Nano:
        found = requests_of(container)
        for name, nano in missing.items():
            found.setdefault(name, nano)
        _add(found, taken.by_container.get(container.name, {}))
        return found

    total: Nano = {}
    for container in pod.spec.containers:
        _add(total, requests(container))
    sidecars: Nano = {}
    peak: Nano = {}
    for container in pod.spec.init_containers:
        found = requests(container)
        if container.restart_policy == "Always":
            # A sidecar goes on: it adds to the containers, and to the init containers behind it.
            _add(total, found)
            _add(sidecars, found)
            found = {name: sidecars[name] for name in found}
        else:
            found = {name: nano + sidecars.get(name, 0) for name, nano in found.items()}
        # The peak has the sidecars' other resources since the last sidecar that requests them.
        _max(peak, found)
    _max(total, peak)
    _add(total, taken.fixed)
    return total


def requests_of_containers(pod: Pod, taken: DeviceResources = NO_DEVICES) -> Nano:
    """Return the containers' requests together in nano-units (``AggregateContainerRequests``)."""
    return _sum(pod, _requested, {}, taken)


def limits_of_containers(pod: Pod, taken: DeviceResources = NO_DEVICES) -> Nano:
    """Return the containers' limits together in nano-units (``AggregateContainerLimits``)."""
    return _sum(pod, lambda container: _parsed(container.resources.limits), {}, taken)


def resources_of_devices(pod: Pod, *, by_container: bool) -> DeviceResources:
    """Return the amounts that a pod's devices take of its node, by its status.

    Without ``by_container`` each use of a claim by a container adds its overhead to ``fixed``.
    """
    taken = DeviceResources({}, {})
    containers: dict[str, Nano] = {}
    for claim in pod.status.node_allocatable_resource_claim_statuses:
        _add(taken.fixed, _parsed(claim.resources))
        for mapped in claim.mapping:
            _add(taken.fixed, {mapped.name: parse_quantity(mapped.quantity or 0)})
        for overhead in claim.overhead:
            _add(taken.fixed, {overhead.name: parse_quantity(overhead.per_pod or 0)})
            nano = parse_quantity(overhead.per_container or 0)
            for name in claim.containers if nano else ():
                whose = containers.setdefault(name, {}) if by_container else taken.fixed
                _add(whose, {overhead.name: nano})
    return taken._replace(by_container=containers)


def resources_of_devices_in(pod: Pod, container: str) -> Nano:
    """Return the amounts that one container's devices take, in nano-units; 1.37's form only.

    Each container may use the overhead of the whole pod (``GetContainerDRAAllocations``).
    """
    total: Nano = {}
    for claim in pod.status.node_allocatable_resource_claim_statuses:
        if container in claim.containers:
            for mapped in claim.mapping:
                _add(total, {mapped.name: parse_quantity(mapped.quantity or 0)})
            for overhead in claim.overhead:
                for amount in (overhead.per_pod, overhead.per_container):
                    _add(total, {overhead.name: parse_quantity(amount or 0)})
    return total


def _requested(container: Container) -> Nano:
    return _parsed(container.resources.requests)


def _requested_cpu_and_memory(container: Container) -> Nano:
    requests = container.resources.requests
    return {name: parse_quantity(requests[name]) for name in NON_ZERO_DEFAULTS if name in requests}


def _largest_sum(
    pod: Pod, missing: Mapping[str, int], taken: DeviceResources, *, pod_level: bool
) -> Nano:
    """Return the largest of the requested, allocated and actuated amounts (kube-scheduler 1.37).

    ``taken``: what the pod's devices take. A kubelet includes it in what it says of the pod as a
    whole, and in what is actuated.
    """
    statuses = {
        entry.name: entry
        for entry in (*pod.status.init_container_statuses, *pod.status.container_statuses)
        if entry.resources is not None or entry.allocated_resources
    }
    infeasible = _resize_is_infeasible(pod)

    def unless_infeasible(container: Container) -> Nano:
        return {} if infeasible else _requested(container)

    def allocated(container: Container) -> Nano:
        status = statuses.get(container.name)
        if status is None or not status.allocated_resources:
            return unless_infeasible(container)
        return _parsed(status.allocated_resources)

    def actuated(container: Container) -> Nano:
        status = statuses.get(container.name)
        if status is None or status.resources is None or not status.resources.requests:
            return allocated(container)
        return _parsed(status.resources.requests)

    # The pod as a whole may say both itself.
    status = pod.status
    whole = status.resources.requests if pod_level and status.resources is not None else None
    if whole and status.allocated_resources:
        total = _parsed(status.allocated_resources)
        _max(total, _parsed(whole))
    else:
        total = _sum(pod, allocated, missing, taken)
        _max(total, _sum(pod, actuated, missing))
    if not infeasible:
        _max(total, _sum(pod, _requested, missing, taken))
    return total


def _larger_of_each(pod: Pod) -> RequestsOf:
    """Return the larger of request and status of a container (kube-scheduler 1.36)."""
    statuses = _statuses_by_name(pod)
    infeasible = bool(statuses) and _resize_is_infeasible(pod)
    main = {container.name for container in pod.spec.containers}

    def requests(container: Container) -> Nano:
        # Not for init containers that end.
        status = statuses.get(container.name)
        restarts = container.restart_policy == "Always" or container.name in main
        if status is None or status.resources is None or not restarts:
            return _requested(container)
        actuated, allocated = status.resources.requests, status.allocated_resources
        return _held(_requested(container), actuated, allocated, infeasible)

    return requests


def _held(
    requested: Nano, actuated: ResourceList, allocated: ResourceList, infeasible: bool
) -> Nano:
    """Return the amounts of a resized container or pod; an infeasible resize is ignored."""
    held = {} if infeasible else dict(requested)
    _max(held, _parsed(actuated))
    _max(held, _parsed(allocated))
    return held


def _replace_by_pod_level(
    pod: Pod, total: Nano, options: PodResourcesOptions, use_status: bool
) -> None:
    resources, status = pod.spec.resources, pod.status
    assert resources is not None
    requested = {n: v for n, v in _parsed(resources.requests).items() if is_pod_level_resource(n)}
    if use_status and options.pod_level_resize and status.resources is not None:
        infeasible = _resize_is_infeasible(pod)
        held = _held(requested, status.resources.requests, status.allocated_resources, infeasible)
        # Up to 1.36 only resources that the spec names.
        names = filter(is_pod_level_resource, held) if options.resized_by_sum else requested
        requested = {name: held.get(name, 0) for name in names}
    total.update(requested)


def _statuses_by_name(pod: Pod) -> dict[str, ContainerStatus]:
    status = pod.status
    return {
        entry.name: entry
        for entry in (*status.container_statuses, *status.init_container_statuses)
        if entry.resources is not None
    }


def _resize_is_infeasible(pod: Pod) -> bool:
    condition = condition_of(pod, "PodResizePending")
    return condition is not None and condition.reason == "Infeasible"


def is_pod_resize_deferred(pod: Pod) -> bool:
    """Return whether the kubelet waits for room on the node to resize the pod (KEP-1287)."""
    condition = condition_of(pod, "PodResizePending")
    return condition is not None and condition.reason == "Deferred"


def _parsed(resources: ResourceList) -> Nano:
    return {name: parse_quantity(amount) for name, amount in resources.items()}


def _add(total: Nano, more: Nano) -> None:
    for name, nano in more.items():
        total[name] = total.get(name, 0) + nano


def _max(total: Nano, other: Nano) -> None:
    for name, nano in other.items():
        if name not in total or nano > total[name]:
            total[name] = nano
