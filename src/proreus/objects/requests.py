"""Effective resource requests of a pod, after resourcehelper.PodRequests.

Sums are exact (nano-units) and converted once per pod, rounded up.
Source: KEP-753 (sidecars), KEP-1287 (in-place resize), KEP-2837 (pod-level resources).
"""

from collections.abc import Mapping
from functools import lru_cache

from proreus.bounded_cache import cleared_with_age
from proreus.objects.pod import Container, ContainerStatus, Pod, ResourceList, condition_of
from proreus.objects.quantity import parse_quantity, value_of
from proreus.objects.selectors import is_qualified_name

NON_ZERO_DEFAULTS: Mapping[str, int] = {
    "cpu": parse_quantity("100m"),
    "memory": parse_quantity("200Mi"),
}
"""The request, in nano-units, that scoring assumes for a container without one."""

Nano = dict[str, int]


@cleared_with_age
@lru_cache(maxsize=4096)
def is_native_resource(name: str) -> bool:
    """Return whether a resource is defined by Kubernetes itself."""
    return "/" not in name or "kubernetes.io/" in name


@cleared_with_age
@lru_cache(maxsize=4096)
def is_extended_resource(name: str) -> bool:
    """Return whether a resource is an extended one (``example.com/gpu``)."""
    if is_native_resource(name) or name.startswith("requests."):
        return False
    return is_qualified_name(f"requests.{name}")


@cleared_with_age
@lru_cache(maxsize=4096)
def is_scalar_resource(name: str) -> bool:
    """Return whether a resource is tracked in addition to cpu, memory and ephemeral-storage."""
    return (
        is_extended_resource(name)
        or name.startswith(("hugepages-", "attachable-volumes-"))
        or "kubernetes.io/" in name
    )


@cleared_with_age
@lru_cache(maxsize=4096)
def is_tracked_resource(name: str) -> bool:
    """Return whether a scheduler tracks a resource; others are ignored."""
    return name in ("cpu", "memory", "ephemeral-storage") or is_scalar_resource(name)


def is_pod_level_resource(name: str) -> bool:
    """Return whether a pod's ``spec.resources`` may set a resource."""
    return name in ("cpu", "memory") or name.startswith("hugepages-")


def pod_requests(
    pod: Pod,
    *,
    use_status: bool = False,
    non_missing: Mapping[str, int] | None = None,
    pod_level: bool = True,
    devices: bool = False,
) -> dict[str, int]:
    """Return the effective request of a pod by tracked resource: milli-CPU, else whole units.

    ``use_status``: a pod that is being resized counts with the larger of its requested and its
    actual resources. ``non_missing``: amounts (nano-units) for containers without a request.
    ``pod_level``: ``spec.resources`` counts (gate PodLevelResources). ``devices``: the node
    resources of allocated devices count (gate DRANodeAllocatableResources).
    """
    total = _pod_requests_nano(pod, use_status, non_missing or {}, pod_level, devices)
    return {name: value_of(name, nano) for name, nano in total.items() if is_tracked_resource(name)}


def non_zero_requests(
    pod: Pod, *, use_status: bool = False, pod_level: bool = True, devices: bool = False
) -> tuple[int, int]:
    """Return (milli-CPU, bytes of memory), with defaults for absent requests."""
    missing: Mapping[str, int] = NON_ZERO_DEFAULTS
    if pod_level and has_pod_level_requests(pod):
        # With pod-level requests, defaults apply only to resources that the pod level does not set.
        named = _pod_requests_nano(pod, use_status, {}, pod_level, devices)
        missing = {name: nano for name, nano in NON_ZERO_DEFAULTS.items() if name not in named}
    total = _pod_requests_nano(pod, use_status, missing, pod_level, devices)
    return value_of("cpu", total.get("cpu", 0)), value_of("memory", total.get("memory", 0))


def has_pod_level_requests(pod: Pod) -> bool:
    """Return whether a pod has a valid pod-level request."""
    resources = pod.spec.resources
    return resources is not None and any(map(is_pod_level_resource, resources.requests))


def _pod_requests_nano(
    pod: Pod, use_status: bool, missing: Mapping[str, int], pod_level: bool, devices: bool
) -> Nano:
    spec = pod.spec
    statuses = _statuses_by_name(pod) if use_status else {}
    infeasible = bool(statuses) and _resize_is_infeasible(pod)
    total: Nano = {}
    for container in spec.containers:
        _add(
            total, _container_requests(container, statuses.get(container.name), infeasible, missing)
        )
    if spec.init_containers:
        _max(total, _init_containers_peak(pod, total, statuses, infeasible, missing))
    if devices:
        for claim in pod.status.node_allocatable_resource_claim_statuses:
            _add(total, _parsed(claim.resources))
    if pod_level and has_pod_level_requests(pod):
        _replace_by_pod_level(pod, total, use_status)
    if spec.overhead:
        _add(total, _parsed(spec.overhead))
    return total


def _init_containers_peak(
    pod: Pod,
    total: Nano,
    statuses: Mapping[str, ContainerStatus],
    infeasible: bool,
    missing: Mapping[str, int],
) -> Nano:
    """Return the peak request of the init containers; sidecars are also added to ``total``."""
    sidecars: Nano = {}
    peak: Nano = {}
    for container in pod.spec.init_containers:
        sidecar = container.restart_policy == "Always"
        status = statuses.get(container.name) if sidecar else None
        requests = _container_requests(container, status, infeasible, missing)
        if sidecar:
            _add(total, requests)
            _add(sidecars, requests)
            requests = dict(sidecars)
        else:
            requests = dict(requests)
            _add(requests, sidecars)
        _max(peak, requests)
    return peak


def _container_requests(
    container: Container,
    status: ContainerStatus | None,
    infeasible: bool,
    missing: Mapping[str, int],
) -> Nano:
    requests = _parsed(container.resources.requests)
    if status is not None and status.resources is not None:
        requests = _held(
            requests, status.resources.requests, status.allocated_resources, infeasible
        )
    for name, nano in missing.items():
        requests.setdefault(name, nano)
    return requests


def _held(
    requested: Nano, actuated: ResourceList, allocated: ResourceList, infeasible: bool
) -> Nano:
    """Return what a resized container or pod counts with; an infeasible resize is ignored."""
    held = {} if infeasible else dict(requested)
    _max(held, _parsed(actuated))
    _max(held, _parsed(allocated))
    return held


def _replace_by_pod_level(pod: Pod, total: Nano, use_status: bool) -> None:
    resources, status = pod.spec.resources, pod.status
    assert resources is not None
    requested = {n: v for n, v in _parsed(resources.requests).items() if is_pod_level_resource(n)}
    if use_status and status.resources is not None:
        infeasible = _resize_is_infeasible(pod)
        held = _held(requested, status.resources.requests, status.allocated_resources, infeasible)
        requested = {name: held.get(name, 0) for name in requested}
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


def _parsed(resources: ResourceList) -> Nano:
    return {name: parse_quantity(amount) for name, amount in resources.items()}


def _add(total: Nano, more: Nano) -> None:
    for name, nano in more.items():
        total[name] = total.get(name, 0) + nano


def _max(total: Nano, other: Nano) -> None:
    for name, nano in other.items():
        if name not in total or nano > total[name]:
            total[name] = nano
