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
from proreus.plugins.dynamic_resources.manager import Outlook
from proreus.plugins.dynamic_resources.node_allocatable import Statuses


@dataclass(slots=True)
class Variant:
    """What is to be allocated on nodes that leave the same resources to devices."""

    resources: tuple[str, ...]
    claims: tuple[ResourceClaim, ...]
    requests: tuple[DeviceRequest, ...]
    mappings: tuple[PodExtendedResourceRequest, ...]
    invalidation_key: Outlook | None


@dataclass(slots=True)
class Notes:
    """What PreFilter found out about a pod, and what Reserve and PreBind did.

    ``claims``: the pod's own. ``usable``: the parsed node selector of each that is allocated
    (None: usable everywhere), by position. ``unusable``: positions of allocated claims whose
    devices failed to become ready. ``shared``: positions of claims that another pod of the same
    group is about to get, in ``usable`` too. ``backed``: resources that devices may stand for.
    ``of_group``: the claims, by name, that are reserved for the pod's group instead of for it.
    """

    claims: tuple[ResourceClaim, ...] = ()
    usable: dict[int, ParsedNodeSelector | None] = field(default_factory=dict)
    unusable: frozenset[int] = frozenset()
    shared: frozenset[int] = frozenset()
    of_group: Mapping[str, ResourceClaimConsumerReference] = field(default_factory=dict)
    backed: tuple[str, ...] = ()
    extended: ResourceClaim | None = None
    """The claim for extended resources; without a resourceVersion while it is in memory only."""
    variants: dict[tuple[str, ...], Variant] = field(default_factory=dict)
    score: int = 0
    """What allocated claims contribute to the score of every node."""
    chosen: Variant | None = None
    """What Reserve found for the node."""
    reserved: tuple[tuple[ResourceClaim, AllocationResult], ...] = ()
    statuses: Statuses = ()
    """What the devices take of the node."""
    told: bool = False
    """Whether the pod's status has been made to say so."""
    written: list[ResourceClaim] = field(default_factory=list)
    created: ResourceClaim | None = None

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do for the pod."""
        return not self.claims and self.extended is None

    def waiting(self) -> tuple[ResourceClaim, ...]:
        """Return the pod's own claims that need an allocation."""
        return tuple(c for place, c in enumerate(self.claims) if place not in self.usable)
