"""What DynamicResources remembers of one pod between its extension points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from proreus.objects.pod import PodExtendedResourceRequest
from proreus.objects.resource_claims import (
    AllocationResult,
    DeviceRequest,
    ResourceClaim,
    ResourceClaimConsumerReference,
)
from proreus.objects.selectors import ParsedNodeSelector
from proreus.plugins.dynamic_resources.dra_manager import AllocationCache
from proreus.plugins.dynamic_resources.node_allocatable import Statuses


@dataclass(slots=True)
class ClaimsToAllocate:
    """What is to be allocated on nodes that leave the same resources to devices."""

    resources: tuple[str, ...]
    claims: tuple[ResourceClaim, ...]
    requests: tuple[DeviceRequest, ...]
    mappings: tuple[PodExtendedResourceRequest, ...]
    allocation_cache: AllocationCache | None


@dataclass(slots=True)
class StateData:
    """What PreFilter found out about a pod, and what Reserve and PreBind did.

    ``claims``: the pod's own. ``available_on_nodes``: the parsed node selector of each that is
    allocated (None: usable everywhere), by position. ``not_ready``: positions of allocated claims
    whose devices failed to become ready. ``shared``: positions of claims that another pod of the
    same group is about to get, in ``available_on_nodes`` too. ``dra_backed``: resources that
    devices may stand for. ``group_consumers``: the claims, by name, that are reserved for the pod's
    group instead of for it.
    """

    claims: tuple[ResourceClaim, ...] = ()
    available_on_nodes: dict[int, ParsedNodeSelector | None] = field(default_factory=dict)
    not_ready: frozenset[int] = frozenset()
    shared_in_group: frozenset[int] = frozenset()
    group_consumers: Mapping[str, ResourceClaimConsumerReference] = field(default_factory=dict)
    dra_backed: tuple[str, ...] = ()
    extended: ResourceClaim | None = None
    """The claim for extended resources; without a resourceVersion while it is in memory only."""
    claims_by_resources: dict[tuple[str, ...], ClaimsToAllocate] = field(default_factory=dict)
    score: int = 0
    """What allocated claims contribute to the score of every node."""
    chosen: ClaimsToAllocate | None = None
    """What Reserve found for the node."""
    reserved: tuple[tuple[ResourceClaim, AllocationResult], ...] = ()
    statuses: Statuses = ()
    """What the devices take of the node."""
    statuses_written: bool = False
    """Whether the pod's status has been made to say so."""
    written: list[ResourceClaim] = field(default_factory=list)
    created: ResourceClaim | None = None

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do for the pod."""
        return not self.claims and self.extended is None

    def unallocated_claims(self) -> tuple[ResourceClaim, ...]:
        """Return the pod's own claims that need an allocation."""
        return tuple(
            c for place, c in enumerate(self.claims) if place not in self.available_on_nodes
        )
