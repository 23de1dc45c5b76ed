"""A plugin in a process of its own as a profile sees it: what all its extension points share.

Answers are fetched before the cycle asks for them (``FetchingPlugin``) and kept by row
(``row_results``).
"""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Iterable
from typing import Any, ClassVar

import msgspec
from pydantic import ConfigDict

from proreus.config.types import PluginArgs
from proreus.errors import ProreusError
from proreus.framework.cycle_state import CycleState
from proreus.framework.events import ALL_EVENTS, ClusterEvent, plugin_event
from proreus.framework.handle import Handle
from proreus.framework.plugin import BackgroundPlugin, FetchingPlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Code, Status
from proreus.logs import logger
from proreus.remote.endpoint import Endpoint
from proreus.remote.pod_fields import IDENTITY, pod_json
from proreus.remote.row_results import RowResults, RowResultsCache

log = logger(__name__)

REJECTIONS = (Code.UNSCHEDULABLE, Code.UNRESOLVABLE, Code.PENDING)


class RemoteArgs(PluginArgs):
    """Any arguments: the process itself says which it takes."""

    model_config = ConfigDict(extra="allow")

    def plain(self) -> dict[str, Any]:
        """Return them as they were written."""
        return dict(self.model_extra or {})


class RemoteStateData:
    """What is known of the plugin in one attempt.

    ``points``: those at which it takes part; none any more once it is left out.
    """

    def __init__(self, pod: msgspec.Raw, row_results: RowResults, points: Collection[str]) -> None:
        self.pod = pod
        self.row_results = row_results
        self.points = points
        self.reserved = False
        self.pre_filter: Status | frozenset[str] | None = None
        self.reserve: Status | None = None
        self.permit: Status | None = None


class RemotePlugin(FetchingPlugin, BackgroundPlugin):
    """What all points have in common: the notes of an attempt, and what a failure leads to."""

    Args = RemoteArgs

    endpoint: ClassVar[Endpoint]
    """Set by ``plugin_class``."""

    row_local = True
    looks_at_pods = False
    """What is asked in trials is answered from ``RowResults``, by row, whatever pods are there."""

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self._plain_args = args.plain() if isinstance(args, RemoteArgs) else {}
        self._row_results_cache = RowResultsCache()
        self._event = plugin_event(f"{self.name}Changed")

    def events_to_register(self) -> Iterable[ClusterEvent]:
        """Return what the descriptor names, and the plugin's own news; of a slot everything.

        What is registered stays, and a slot's next process may want to hear of other things.
        """
        endpoint = self.endpoint
        wanted = ALL_EVENTS if endpoint.is_slot else endpoint.descriptor.cluster_events()
        return (*wanted, self._event)

    async def run_in_background(self) -> None:
        """Look after the process, and wake pods that it rejected when that may hold no more."""
        endpoint = self.endpoint
        endpoint.on_change.add(self._announce)
        try:
            await endpoint.watch()
        finally:
            endpoint.on_change.discard(self._announce)
            self._row_results_cache.clear()

    def _announce(self) -> None:
        self.handle.announce(self._event)

    # ---- one attempt ---------------------------------------------------------------------------

    def state_data(self, state: CycleState, pod: PodInfo) -> RemoteStateData:
        """Return the notes of this attempt, new ones at its first point."""
        state_data = state.get(self.name)
        if isinstance(state_data, RemoteStateData):
            return state_data
        endpoint, descriptor = self.endpoint, self.endpoint.descriptor
        endpoint.set_args(self.handle.profile_name, self._plain_args)
        text = pod_json(pod, descriptor.pod_fields)
        if descriptor.row_local:
            row_results = self._row_results_cache.of(text, self.name, len(self.handle.nodes))
        else:
            row_results = RowResults(self.name)
        state_data = RemoteStateData(msgspec.Raw(text), row_results, descriptor.points)
        state.write(self.name, state_data)
        return state_data

    async def run_point(
        self, state_data: RemoteStateData, point: str, work: Coroutine[Any, Any, Status | None]
    ) -> Status | None:
        """Do a point's work; an Error where it fails, unless pods go on without the plugin."""
        if point not in state_data.points:
            work.close()
            return None
        try:
            return await work
        except ProreusError as error:
            if not self.endpoint.descriptor.ignorable:
                return Status.error(str(error))
            state_data.points = ()
            log.v(2).info("Going on without a plugin", plugin=self.name, err=error)
            return None

    def request_body(self, state_data: RemoteStateData, **more: Any) -> dict[str, Any]:
        """Return what every question about a pod says."""
        return {"profile": self.handle.profile_name, "pod": state_data.pod, **more}

    def pod_on_node_body(
        self, state_data: RemoteStateData, pod: PodInfo, node_name: str
    ) -> dict[str, Any]:
        """Return a question about a pod on a node; whose pod it is, is always told."""
        identity = msgspec.Raw(pod_json(pod, IDENTITY))
        return self.request_body(state_data, identity=identity, node=node_name)
