"""The claim for extended resources that are backed by devices (KEP-5004).

A container may request ``example.com/gpu: 2`` on a node that has no such resource, if a DeviceClass
offers its devices under that name. The scheduler then creates a claim for the pod. Its requests
depend on which resources the node has itself, so they are computed for each set of resources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from proreus.objects.devices import DeviceClass
from proreus.objects.meta import ObjectMeta, OwnerReference
from proreus.objects.pod import Container, Pod, PodExtendedResourceRequest
from proreus.objects.quantity import parse_amount
from proreus.objects.resource_claims import (
    EXACT_COUNT,
    EXTENDED_RESOURCE_CLAIM_ANNOTATION,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
)

SPECIAL_CLAIM_NAME = "<extended-resources>"
"""Name of the claim while it exists in memory only; no real claim can have it."""


def new_extended_claim(pod: Pod) -> ResourceClaim:
    """Return the claim as it is before it is created: in memory, without requests."""
    meta = pod.metadata
    # As the claim will be in the API. The uid is ours until then: in-flight allocations are by uid.
    owner = OwnerReference(
        api_version="v1", kind="Pod", name=meta.name, uid=meta.uid, controller=True
    )
    return ResourceClaim(
        metadata=ObjectMeta(
            name=SPECIAL_CLAIM_NAME,
            namespace=meta.namespace,
            uid=f"{SPECIAL_CLAIM_NAME}/{meta.uid}",
            generate_name=f"{meta.name}-extended-resources-",
            annotations={EXTENDED_RESOURCE_CLAIM_ANNOTATION: "true"},
            owner_references=(owner,),
        )
    )


# ---- requests and mappings ---------------------------------------------------------------------


def requests_for(
    pod: Pod, resources: Iterable[str], class_of: Callable[[str], DeviceClass | None]
) -> tuple[tuple[DeviceRequest, ...], tuple[PodExtendedResourceRequest, ...]]:
    """Return the claim's requests, sorted by name, and which request serves which container.

    Containers are counted from the first init container on. Long-lived ones get requests of their
    own; an ordinary init container uses those of containers that start after it, and the largest
    uncovered rest of all init containers becomes one more request.

    Example: init container i0 requests 3 GPUs, c1 and c2 one each. Requests: c1 1, c2 1, i0 1;
    i0 is mapped to all three.
    """
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    first_regular = len(pod.spec.init_containers)
    requests: list[DeviceRequest] = []
    mappings: list[PodExtendedResourceRequest] = []
    for resource in sorted(resources):
        cls = class_of(resource)
        if cls is None:
            continue
        lasting: dict[int, int] = {}
        for index, container in enumerate(containers):
            amount = _amount(container, resource)
            if amount > 0 and (index >= first_regular or container.restart_policy == "Always"):
                lasting[index] = amount
        for index, amount in lasting.items():
            name = _request_name(index, containers[index], resource)
            requests.append(_request(name, cls, amount))
            mappings.append(_mapping(containers[index], resource, name))
        rest = _init_mappings(containers[:first_regular], containers, resource, lasting, mappings)
        if rest is not None:
            name, amount = rest
            requests.append(_request(name, cls, amount))
    return tuple(sorted(requests, key=lambda request: request.name)), tuple(mappings)


def _init_mappings(
    init_containers: tuple[Container, ...],
    containers: tuple[Container, ...],
    resource: str,
    lasting: Mapping[int, int],
    mappings: list[PodExtendedResourceRequest],
) -> tuple[str, int] | None:
    """Map ordinary init containers; return name and amount of the request for their rest."""
    # They run one after the other and before the regular containers, so they can use the same
    # devices: only the most that one of them needs in addition is requested.
    rest: tuple[str, int] | None = None
    ending: list[tuple[Container, str]] = []
    for index, container in enumerate(init_containers):
        wanted = _amount(container, resource)
        if wanted <= 0 or container.restart_policy == "Always":
            continue
        for other, amount in lasting.items():
            # Sidecars that started earlier hold their devices already.
            if other >= index and wanted > 0:
                ending.append((container, _request_name(other, containers[other], resource)))
                wanted -= amount
        if wanted > 0:
            ending.append((container, ""))
            if rest is None or wanted > rest[1]:
                rest = (_request_name(index, container, resource), wanted)
    # The rest's request has the name of the init container with the largest one, which is known
    # only now (createRequestsAndMappings upstream).
    of_rest = "" if rest is None else rest[0]
    mappings += [_mapping(container, resource, name or of_rest) for container, name in ending]
    return rest


def _amount(container: Container, resource: str) -> int:
    quantity = container.resources.requests.get(resource)
    return 0 if quantity is None else parse_amount(resource, quantity)


def _request_name(index: int, container: Container, resource: str) -> str:
    place = sorted(container.resources.requests).index(resource)
    return f"container-{index}-request-{place}"


def _request(name: str, cls: DeviceClass, count: int) -> DeviceRequest:
    exactly = ExactDeviceRequest(
        device_class_name=cls.metadata.name, allocation_mode=EXACT_COUNT, count=count
    )
    return DeviceRequest(name=name, exactly=exactly)


def _mapping(container: Container, resource: str, request: str) -> PodExtendedResourceRequest:
    return PodExtendedResourceRequest(
        container_name=container.name, resource_name=resource, request_name=request
    )
