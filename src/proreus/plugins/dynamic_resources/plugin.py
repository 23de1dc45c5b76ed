"""The extension points of DynamicResources, in the order in which a pod meets them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from proreus.config.plugin_args import DynamicResourcesArgs
from proreus.framework.assume_cache import AssumeCache
from proreus.framework.cycle_state import CycleState
from proreus.framework.events import ClusterEvent
from proreus.framework.handle import Handle
from proreus.framework.node_table import NodeTable
from proreus.framework.nominating import PostFilterResult
from proreus.framework.plugin import (
    FilterPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    ReservePlugin,
    ScorePlugin,
)
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.framework.verdicts import IntArray, Verdicts
from proreus.objects.devices import RESOURCE_CLAIMS, ResourceClaim
from proreus.objects.pod import Pod
from proreus.plugins.dynamic_resources.claims import ClaimError, claims_of
from proreus.plugins.dynamic_resources.hints import events


@dataclass(slots=True)
class Notes:
    """What PreFilter found out about a pod."""

    claims: tuple[ResourceClaim, ...] = field(default=())


class DynamicResources(
    PreEnqueuePlugin,
    PreFilterPlugin,
    FilterPlugin,
    PostFilterPlugin,
    ScorePlugin,
    ReservePlugin,
    PreBindPlugin,
):
    """Finds, keeps and gives devices for the ResourceClaims of pods.

    Pods without claims cost it nothing: its Filter is skipped and its score is 0 everywhere.
    """

    Args = DynamicResourcesArgs
    row_local = True
    allow_parallel = True

    args: DynamicResourcesArgs

    def __init__(self, args: DynamicResourcesArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._claims = AssumeCache(handle, RESOURCE_CLAIMS)

    def _claims_of(self, pod: Pod) -> tuple[ResourceClaim, ...]:
        return claims_of(pod, self._claims.get)

    def events_to_register(self) -> Iterable[ClusterEvent]:
        """Return what may help: see ``hints``."""
        return events(self._claims_of)

    def sign(self, pod: PodInfo) -> Hashable | None:
        """Pods without claims all look the same; devices of claims are looked for anew."""
        return None if pod.pod.spec.resource_claims else ()

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        """Keep the pod out until all its claims are there."""
        if not pod.pod.spec.resource_claims:
            return None
        try:
            self._claims_of(pod.pod)
        except ClaimError as error:
            return Status.unresolvable(str(error))
        return None

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        """Look at the pod's claims; Skip where there are none."""
        notes = Notes()
        state.write(self.name, notes)
        if not pod.pod.spec.resource_claims:
            return Status.skip()
        try:
            notes.claims = self._claims_of(pod.pod)
        except ClaimError as error:
            return Status.unresolvable(str(error))
        return None if notes.claims else Status.skip()

    def filter_all(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable, verdicts: Verdicts
    ) -> None:
        """Reject nodes whose devices cannot satisfy the claims."""

    async def post_filter(
        self, state: CycleState, pod: PodInfo, verdicts: Verdicts
    ) -> PostFilterResult:
        """Give up an allocation that turned out to be of no use."""
        notes: Notes | None = state.get(self.name)
        if notes is None:
            return PostFilterResult(Status.error("not found"))
        if not notes.claims:
            return PostFilterResult(Status.unschedulable("no new claims to deallocate"))
        return PostFilterResult(Status.unschedulable("still not schedulable"))

    def score_all(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> IntArray | int:
        """Prefer nodes that can give what stands first in lists of alternatives."""
        return 0

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Skip pods without claims."""
        notes: Notes | None = state.get(self.name)
        return None if notes is not None and notes.claims else Status.skip()

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Write allocations and reservations."""
        return None
