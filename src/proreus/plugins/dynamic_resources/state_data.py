"""The state of DynamicResources in the ``CycleState`` of a pod (``stateData`` upstream)."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from proreus.objects.pod import PodExtendedResourceRequest
from proreus.objects.resource_claims import (
    AllocationResult,
    DeviceRequest,
    ResourceClaim,
    ResourceClaimConsumerReference,
)
from proreus.objects.selectors import ParsedNodeSelector
from proreus.plugins.dynamic_resources.devices.node_allocatable import Statuses
from proreus.plugins.dynamic_resources.dra_manager import AllocationCache

PLUGIN = "DynamicResources"
"""The key of a pod's ``StateData`` in its cycle state."""


class ClaimsToAllocate(Struct):
    """The claims to allocate on nodes that lack the same extended resources.

    ``resources``: those that devices must provide there. ``claims``: the pod's unallocated ones,
    and last the one for ``resources`` with its ``requests``; ``mappings``: which container uses
    which. ``allocation_cache``: None if there is nothing to allocate.
    """

    resources: tuple[str, ...]
    claims: tuple[ResourceClaim, ...]
    requests: tuple[DeviceRequest, ...]
    mappings: tuple[PodExtendedResourceRequest, ...]
    allocation_cache: AllocationCache | None


class StateData(Struct):
    """The findings of PreFilter about a pod, and the work of Reserve and PreBind.

    ``claims``: the pod's own. ``available_on_nodes``: by position of each allocated claim, its
    parsed node selector (None if it is usable on all). ``not_ready``: positions of allocated claims
    whose devices failed to become ready. ``shared_in_group``: positions of claims whose allocation
    another pod of the group has in flight; also in ``available_on_nodes``. ``dra_backed``: extended
    resources that devices may provide. ``group_consumers``: by name of the claim, the pod's group,
    for claims that are reserved for it instead of for the pod.
    """

    claims: tuple[ResourceClaim, ...] = ()
    available_on_nodes: dict[int, ParsedNodeSelector | None] = field(default_factory=dict)
    not_ready: frozenset[int] = frozenset()
    skipping: frozenset[int] = frozenset()
    """Positions of allocated claims for which the node leaves out operations."""
    shared_in_group: frozenset[int] = frozenset()
    group_consumers: Mapping[str, ResourceClaimConsumerReference] = field(default_factory=dict)
    dra_backed: tuple[str, ...] = ()
    extended: ResourceClaim | None = None
    """The claim for extended resources; without a resourceVersion while it is in memory only."""
    claims_by_resources: dict[tuple[str, ...], ClaimsToAllocate] = field(default_factory=dict)
    filtered: bool = False
    """Whether Filter has run, without which no score is given."""
    score: int = 0
    """The points of allocated claims, the same on every node."""
    chosen: ClaimsToAllocate | None = None
    """The claims that Reserve allocated for the node."""
    reserved: tuple[tuple[ResourceClaim, AllocationResult], ...] = ()
    """Claims that Reserve put in flight, and their allocations."""
    statuses: Statuses = ()
    """The node's cpu, memory and huge pages that the devices consume."""
    statuses_written: bool = False
    """Whether PreBind has begun to write ``statuses`` to the pod."""
    written: list[ResourceClaim] = field(default_factory=list)
    """The claims that PreBind has written, as the apiserver returned them."""
    created: ResourceClaim | None = None
    """The claim for extended resources that PreBind has created."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do for the pod."""
        return not self.claims and self.extended is None

    def unallocated_claims(self) -> tuple[ResourceClaim, ...]:
        """Return the pod's own claims that need an allocation."""
        return tuple(
            c for place, c in enumerate(self.claims) if place not in self.available_on_nodes
        )
