"""The content of claims: their pods, their reservations, their requests.

Nothing here writes a claim or looks at devices. Error texts are kube-scheduler's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from proreus.base.errors import ProreusError
from proreus.objects.meta import controller_of, key_of
from proreus.objects.pod import Pod, PodResourceClaim
from proreus.objects.resource_claims import (
    EXTENDED_RESOURCE_CLAIM_ANNOTATION,
    AllocationResult,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimConsumerReference,
)
from proreus.objects.scheduling import PodGroup

_GROUP_API = "scheduling.k8s.io"

AnyRequest = ExactDeviceRequest | DeviceSubRequest
GetClaim = Callable[[str], ResourceClaim | None]


BEST_PRIORITY = 8
"""Points for the first alternative of a request; each further one is worth one less (KEP-4816)."""


class ClaimError(ProreusError):
    """A claim of the pod cannot be used now; its text is the reason that the pod gets."""


def claims_of(
    pod: Pod, get_claim: GetClaim, workload_claims: bool = False
) -> tuple[ResourceClaim, ...]:
    """Return the pod's claims in the order of its entries; raises ``ClaimError``.

    ``get_claim`` looks up by ``namespace/name``. ``workload_claims``: a claim may belong to the
    pod's PodGroup (gate DRAWorkloadResourceClaims). An entry that has no claim on purpose (its
    status has no name) is skipped.
    """
    namespace = pod.metadata.namespace
    found = []
    for entry in pod.spec.resource_claims:
        name = claim_name(pod, entry)
        if name is None:
            continue
        key = f"{namespace}/{name}"
        claim = get_claim(key)
        if claim is None:
            raise ClaimError(f'could not find ResourceClaim "{key}"')
        if claim.metadata.deletion_timestamp is not None:
            raise ClaimError(f'resourceclaim "{name}" is being deleted')
        # Claims that the pod names itself may belong to anybody. One made from a template has a
        # predictable name, and an older pod of the same name may have left its claim behind.
        if entry.resource_claim_name is None:
            _check_owner(pod, claim, workload_claims)
        found.append(claim)
    return tuple(found)


def claim_name(pod: Pod, entry: PodResourceClaim) -> str | None:
    """Return the name of an entry's claim; None where there is none on purpose.

    Raises ``ClaimError`` while the resource claim controller has not created the claim.
    """
    if entry.resource_claim_name is not None:
        return entry.resource_claim_name
    key = f'pod "{key_of(pod)}"'
    if entry.resource_claim_template_name is None:
        raise ClaimError(
            f'{key}, spec.resourceClaim "{entry.name}": none of the supported fields are set'
        )
    for status in pod.status.resource_claim_statuses:
        if status.name == entry.name:
            return status.resource_claim_name
    raise ClaimError(f"{key}: ResourceClaim not created yet")


def is_claim_of(pod: Pod, claim: ResourceClaim) -> bool:
    """Return whether a claim was created for this very pod, by uid."""
    owner = controller_of(claim.metadata)
    return owner is not None and owner.uid == pod.metadata.uid


def is_extended_resource_claim(claim: ResourceClaim) -> bool:
    """Return whether a claim was created for a pod's extended resources (KEP-5004)."""
    return claim.metadata.annotations.get(EXTENDED_RESOURCE_CLAIM_ANNOTATION) == "true"


def _check_owner(pod: Pod, claim: ResourceClaim, workload_claims: bool) -> None:
    if is_claim_of(pod, claim):
        return
    group = pod.spec.scheduling_group if workload_claims else None
    message = f"ResourceClaim {key_of(claim)} was not created for Pod {key_of(pod)}"
    if group is None:
        raise ClaimError(f"{message} (Pod is not owner)")
    owner = controller_of(claim.metadata)
    if (
        owner is None
        or owner.kind != "PodGroup"
        or owner.api_version.rpartition("/")[0] != _GROUP_API
        or owner.name != group.pod_group_name
    ):
        raise ClaimError(
            f"{message} (neither Pod nor PodGroup {group.pod_group_name} is the owner)"
        )


def with_allocation(claim: ResourceClaim, allocation: AllocationResult) -> ResourceClaim:
    """Return the claim as it is once the allocation is written."""
    status = msgspec.structs.replace(claim.status, allocation=allocation)
    return msgspec.structs.replace(claim, status=status)


# ---- reservations ------------------------------------------------------------------------------


def is_reserved_for(claim: ResourceClaim, uid: str) -> bool:
    """Return whether a claim is reserved for the consumer of this uid."""
    return any(consumer.uid == uid for consumer in claim.status.reserved_for)


def pod_reference(pod: Pod) -> ResourceClaimConsumerReference:
    """Return the entry for a pod in ``reservedFor`` of a claim."""
    meta = pod.metadata
    return ResourceClaimConsumerReference(resource="pods", name=meta.name, uid=meta.uid)


def pod_group_reference(group: PodGroup) -> ResourceClaimConsumerReference:
    """Return the entry for a PodGroup in ``reservedFor`` of a claim that its pods share."""
    meta = group.metadata
    return ResourceClaimConsumerReference(
        api_group=_GROUP_API, resource="podgroups", name=meta.name, uid=meta.uid
    )


def is_reserved_for_pod(claim: ResourceClaim, pod: Pod, workload_claims: bool) -> bool:
    """Return whether a claim is reserved for a pod, or for its group."""
    group = pod.spec.scheduling_group if workload_claims else None
    # A pod names its group without a uid, so a group is compared by name.
    return any(
        consumer.uid == pod.metadata.uid
        or (
            group is not None
            and consumer.api_group == _GROUP_API
            and consumer.resource == "podgroups"
            and consumer.name == group.pod_group_name
        )
        for consumer in claim.status.reserved_for
    )


# ---- requests ----------------------------------------------------------------------------------


def check_requests(
    claim: ResourceClaim, class_exists: Callable[[str], bool], prioritized_list: bool
) -> None:
    """Check that every request is of a known type and its class exists; raises ``ClaimError``.

    ``ValueError`` for a request without a class: PreFilter returns an Error for it upstream.
    """
    # Checked in PreFilter already, although the search checks it again: the pod then waits for a
    # DeviceClass instead of failing with an Error on each node.
    key = key_of(claim)
    for request in claim.spec.devices.requests:
        if request.exactly is None and not request.first_available:
            raise ClaimError(f"resource claim {key}, request {request.name}: unknown request type")
        # Of a request with both, which an API server refuses, PreFilter looks at `exactly` alone.
        if request.exactly is None and not prioritized_list:
            raise ClaimError(
                f"resource claim {key}, request {request.name}: has subrequests, but the "
                "DRAPrioritizedList feature is disabled"
            )
        for name, wanted in alternatives(request.name, request.exactly, request.first_available):
            if not wanted.device_class_name:
                raise ValueError(f"request {name}: unsupported request type")
            if not class_exists(wanted.device_class_name):
                raise ClaimError(
                    f"request {name}: device class {wanted.device_class_name} does not exist"
                )


def alternatives(
    name: str, exactly: ExactDeviceRequest | None, subrequests: tuple[DeviceSubRequest, ...]
) -> Iterator[tuple[str, AnyRequest]]:
    """Yield the alternatives of a request, by their name in results: ``r`` or ``r/sub``."""
    if exactly is not None:
        yield name, exactly
    else:
        for sub in subrequests:
            yield f"{name}/{sub.name}", sub


def allocated_score(claim: ResourceClaim) -> int:
    """Return the points of an allocated claim, the same on every node (KEP-4816)."""
    allocation = claim.status.allocation
    if allocation is None:
        return 0
    # The status does not say which alternative was taken; names of results do.
    chosen = {result.request for result in allocation.devices.results}
    score = 0
    for request in claim.spec.devices.requests:
        if request.exactly is not None:
            continue
        for place, sub in enumerate(request.first_available):
            if f"{request.name}/{sub.name}" in chosen:
                score += BEST_PRIORITY - place
                break
    return score
