"""The extension points of VolumeBinding, in the order of an attempt.

Worked example: a pod with an unbound claim of a WaitForFirstConsumer class. Filter accepts nodes
that can access a matching volume, or where one can be provisioned. Reserve assumes the volume of
the selected node for the claim, PreBind patches its claimRef and waits until the volume controller
has bound the claim. If anything fails in between, Unreserve restores what was not written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Self

from msgspec import Struct

from proreus.base.errors import ApiError
from proreus.base.feature_gates import FeatureGates
from proreus.config.field_errors import child, invalid
from proreus.config.fields import Int64, PluginArgs
from proreus.framework.cycle_state import CycleState
from proreus.framework.events import ClusterEvent
from proreus.framework.handle import Handle
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import (
    FilterPlugin,
    PreBindPlugin,
    PreFilterPlugin,
    PreScorePlugin,
    ReservePlugin,
    ScorePlugin,
)
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.framework.verdicts import IntArray, Verdicts
from proreus.plugins.resource_scoring import broken_linear
from proreus.plugins.resource_scoring_args import (
    MAX_CUSTOM_SCORE,
    MAX_UTILIZATION,
    UtilizationShapePoint,
    shape_problems,
)
from proreus.plugins.volume_binding.assumed_volumes import AssumedVolumes, VolumeBinder
from proreus.plugins.volume_binding.claims import (
    ClaimsUnusable,
    StorageError,
    check_claims,
    get_pod_volume_claims,
    has_claims,
)
from proreus.plugins.volume_binding.hints import VOLUMES_RESTORED, events
from proreus.plugins.volume_binding.pod_volumes import PodVolumeFinder
from proreus.plugins.volume_binding.scoring import score_nodes, volume_score
from proreus.plugins.volume_binding.storage import Storage

REASON_IMMEDIATE = "pod has unbound immediate PersistentVolumeClaims"

# Shapes are configured with scores from 0 to 10.
_SCALE_OF_SHAPE = 10


class _StateData(Struct):
    """``pod_volume_finder``: None for a pod without claims. ``filtered``: Filter has run, without
    which no score is given. ``assumed``: None if PreBind has nothing to write."""

    pod_volume_finder: PodVolumeFinder | None = None
    filtered: bool = False
    assumed: AssumedVolumes | None = None


_NO_CLAIMS = _StateData()


class VolumeBindingArgs(PluginArgs):
    """The time that PreBind waits for volumes, and the scoring of storage capacity."""

    go_type = "v1.VolumeBindingArgs"

    bind_timeout_seconds: Int64 = 600
    shape: tuple[UtilizationShapePoint, ...] | None = None

    def with_defaults(self, gates: FeatureGates) -> Self:
        """Prefer nodes whose storage the pod uses least, if StorageCapacityScoring is enabled."""
        if self.shape or not gates.enabled("StorageCapacityScoring"):
            return self
        shape = (
            UtilizationShapePoint(utilization=0, score=MAX_CUSTOM_SCORE),
            UtilizationShapePoint(utilization=MAX_UTILIZATION, score=0),
        )
        return self.model_copy(update={"shape": shape})

    def problems(self, path: str, gates: FeatureGates) -> Iterator[str]:
        """Check the timeout, and the shape, which is an error while its gate is disabled."""
        if self.bind_timeout_seconds < 0:
            yield invalid(
                child(path, "bindTimeoutSeconds"),
                self.bind_timeout_seconds,
                "invalid BindTimeoutSeconds, should not be a negative value",
            )
        where = child(path, "shape")
        if gates.enabled("StorageCapacityScoring"):
            yield from shape_problems(self.shape or (), where)
        elif self.shape is not None:
            points = [{"Utilization": p.utilization, "Score": p.score} for p in self.shape]
            yield invalid(
                where,
                points,
                "unexpected field `shape`, remove it or turn on the feature gate "
                "StorageCapacityScoring",
            )


class VolumeBinding(
    PreFilterPlugin, FilterPlugin, PreScorePlugin, ScorePlugin, ReservePlugin, PreBindPlugin
):
    """Finds nodes where the pod's volumes are accessible or can be provisioned, and binds them.

    Filter depends on one node only, but also on volumes and claims. Hence results are shared only
    by pods without volumes, which it skips.
    """

    Args = VolumeBindingArgs
    row_local = True
    looks_at_pods = False
    allow_parallel = True

    args: VolumeBindingArgs

    def __init__(self, args: VolumeBindingArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._storage = Storage.of(handle)
        self._volume_binder = VolumeBinder(handle, self._storage)
        self._scores = handle.feature_gates.enabled("StorageCapacityScoring")
        self._shape = [
            (point.utilization, point.score * _SCALE_OF_SHAPE) for point in args.shape or ()
        ]

    def events_to_register(self) -> Iterable[ClusterEvent]:
        """Register events of storage and nodes; see ``hints``."""
        return events(self._storage)

    def sign(self, pod: PodInfo) -> tuple[()] | None:
        """Sign pods without volumes only; those of others may change between attempts."""
        return None if pod.pod.spec.volumes else ()

    # ---- filter and score ----------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        """Check the pod's claims; skip a pod without any."""
        if not has_claims(pod.pod):
            return Status.skip()
        try:
            check_claims(pod.pod, self._storage)
            claims = get_pod_volume_claims(pod.pod, self._storage)
        except ClaimsUnusable as error:
            return Status.unresolvable(str(error))
        except StorageError as error:
            return Status.error(str(error))
        # The volume controller binds these; its update of the claim requeues the pod.
        if claims.immediate:
            return Status.unresolvable(REASON_IMMEDIATE)
        state.write(self.name, _StateData(PodVolumeFinder(claims, self._storage)))
        return None

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Filter one node."""
        pod_volume_finder = self._finder_of_filter(state)
        result = None if pod_volume_finder is None else pod_volume_finder.find_pod_volumes(node)
        return result if isinstance(result, Status) else None

    def filter_all(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable, verdicts: Verdicts
    ) -> None:
        """Filter all nodes."""
        pod_volume_finder = self._finder_of_filter(state)
        if pod_volume_finder is not None:
            pod_volume_finder.filter_all(nodes, verdicts)

    def _finder_of_filter(self, state: CycleState) -> PodVolumeFinder | None:
        state_data = self._state_data(state)
        if state_data.pod_volume_finder is not None:
            state_data.filtered = True
        return state_data.pod_volume_finder

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        """Skip, unless capacity is scored; kube-scheduler does not skip pods without claims."""
        if not self._scores:
            return Status.skip()
        return None

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Score one node by the use of its storage with the pod."""
        pod_volume_finder = self._finder_of_score(state)
        result = None if pod_volume_finder is None else pod_volume_finder.find_pod_volumes(node)
        if result is None or isinstance(result, Status):
            return 0
        return volume_score(result, self._rate)

    def score_all(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> IntArray | int:
        """Score all nodes: 0 at no cost where no volume of a known capacity is to be bound."""
        pod_volume_finder = self._finder_of_score(state)
        return 0 if pod_volume_finder is None else score_nodes(pod_volume_finder, nodes, self._rate)

    def _finder_of_score(self, state: CycleState) -> PodVolumeFinder | None:
        # kube-scheduler scores the volumes that Filter found, and a configuration may leave it out.
        state_data = self._state_data(state)
        return state_data.pod_volume_finder if state_data.filtered else None

    def _rate(self, percent: int) -> int:
        return broken_linear(self._shape, percent)

    def _state_data(self, state: CycleState) -> _StateData:
        state_data = state.get(self.name)
        return state_data if isinstance(state_data, _StateData) else _NO_CLAIMS

    # ---- assume and bind -----------------------------------------------------------------------

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Assume the volumes that the pod gets on the node."""
        state_data = self._state_data(state)
        pod_volume_finder = state_data.pod_volume_finder
        if pod_volume_finder is None or not pod_volume_finder.claims.delayed:
            return None
        nodes = self.handle.nodes
        # Computed again for this one node: Filter over columns keeps no volumes by node.
        volumes = pod_volume_finder.find_pod_volumes(nodes[nodes.rows[node_name]])
        if isinstance(volumes, Status):
            return volumes
        try:
            state_data.assumed = self._volume_binder.assume_pod_volumes(node_name, volumes)
        except StorageError as error:
            return Status.error(str(error))
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Restore the assumed volumes and claims."""
        state_data = self._state_data(state)
        if state_data.assumed is not None:
            self._volume_binder.revert_assumed_pod_volumes(state_data.assumed)
            self.handle.announce(VOLUMES_RESTORED, state_data.assumed)
            state_data.assumed = None

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Skip if all volumes are bound already."""
        return Status.skip() if self._state_data(state).assumed is None else None

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Write the assumed objects and wait until every claim is bound."""
        assumed = self._state_data(state).assumed
        if assumed is None:
            return None
        try:
            await self._volume_binder.bind_pod_volumes(assumed)
        except ApiError as error:
            return Status.error(str(error))
        try:
            timeout_seconds = float(self.args.bind_timeout_seconds)
            await self._volume_binder.wait_until_bound(assumed, pod, timeout_seconds)
        except StorageError as error:
            return Status.error(f"binding volumes: {error}")
        return None
