"""The base class of remote plugins, shared by all their extension points.

Results are fetched before the cycle calls an extension point (``FetchingPlugin``) and cached by row
(``row_results``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterable
from functools import wraps
from typing import Any, ClassVar, Concatenate, ParamSpec, TypeVar

import msgspec
from pydantic import ConfigDict

from proreus.base.errors import ProreusError
from proreus.base.logs import logger
from proreus.config.fields import PluginArgs
from proreus.framework.cycle_state import CycleState
from proreus.framework.events import ALL_EVENTS, ClusterEvent, plugin_event
from proreus.framework.handle import Handle
from proreus.framework.plugin import BackgroundPlugin, FetchingPlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Code, Status
from proreus.remote.endpoint import Endpoint
from proreus.remote.pod_fields import IDENTITY, pod_json
from proreus.remote.row_results import RowResults, RowResultsCache
from proreus.remote.wire import VerdictResponse

log = logger(__name__)

P = ParamSpec("P")
R = TypeVar("R", bound="RemotePlugin")
_Result = Coroutine[Any, Any, Status | None]

REJECTIONS = (Code.UNSCHEDULABLE, Code.UNRESOLVABLE, Code.PENDING)


class RemoteArgs(PluginArgs):
    """Any arguments; the process itself validates them."""

    model_config = ConfigDict(extra="allow")

    def plain(self) -> dict[str, Any]:
        """Return the arguments as plain data."""
        return dict(self.model_extra or {})


class RemoteStateData:
    """The plugin's cycle state: the fetched results of one attempt.

    ``points``: the extension points at which the plugin takes part; none once a request failed and
    the pod is scheduled without the plugin.
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
    """Cycle state, requests and error handling of all extension points."""

    Args = RemoteArgs

    endpoint: ClassVar[Endpoint]
    """Set by ``plugin_class``."""

    row_local = True
    looks_at_pods = False
    """Dry runs use the results in ``RowResults`` by row, since these do not depend on the node's
    pods.
    """

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self._plain_args = args.plain() if isinstance(args, RemoteArgs) else {}
        self._row_results_cache = RowResultsCache()
        self._event = plugin_event(f"{self.name}Changed")

    def events_to_register(self) -> Iterable[ClusterEvent]:
        """Return the descriptor's events and the plugin's own; for a slot, all events.

        Registrations are permanent, and the next process in a slot may need other events.
        """
        endpoint = self.endpoint
        wanted = ALL_EVENTS if endpoint.is_slot else endpoint.descriptor.cluster_events()
        return (*wanted, self._event)

    async def run_in_background(self) -> None:
        """Watch the process; requeue pods that it rejected when its results may have changed."""
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
        """Return the cycle state of this attempt, made at its first extension point."""
        state_data = state.get(self.name)
        if isinstance(state_data, RemoteStateData):
            return state_data
        endpoint, descriptor = self.endpoint, self.endpoint.descriptor
        endpoint.sync.set_args(self.handle.profile_name, self._plain_args)
        text = pod_json(pod, descriptor.pod_fields)
        endpoint.trial_requests.add_pod(self.handle.profile_name, text)
        if descriptor.row_local:
            row_results = self._row_results_cache.of(text, self.name, len(self.handle.nodes))
        else:
            row_results = RowResults(self.name)
        state_data = RemoteStateData(msgspec.Raw(text), row_results, descriptor.points)
        state.write(self.name, state_data)
        return state_data

    def request_body(self, state_data: RemoteStateData, **more: Any) -> dict[str, Any]:
        """Return the body of a request about a pod, with ``more`` fields."""
        return {"profile": self.handle.profile_name, "pod": state_data.pod, **more}

    def pod_on_node_body(
        self, state_data: RemoteStateData, pod: PodInfo, node_name: str
    ) -> dict[str, Any]:
        """Return the body of a request about a pod on a node; it always has the pod's identity."""
        identity = msgspec.Raw(pod_json(pod, IDENTITY))
        return self.request_body(state_data, identity=identity, node=node_name)

    async def call_about_node(
        self, path: str, state_data: RemoteStateData, pod: PodInfo, node_name: str
    ) -> VerdictResponse:
        """Send a request about a pod on a node; raises as ``Endpoint.call`` does."""
        response = await self.endpoint.call(
            path,
            lambda: self.pod_on_node_body(state_data, pod, node_name),
            VerdictResponse,
            self.handle.nodes,
        )
        assert response is not None
        return response


def at_point(
    point: str,
) -> Callable[
    [Callable[Concatenate[R, RemoteStateData, PodInfo, P], _Result]],
    Callable[Concatenate[R, CycleState, PodInfo, P], _Result],
]:
    """Let a method make the requests of an extension point, if the plugin takes part in it.

    If they fail, it returns Error, unless the plugin is ignorable.
    """

    def decorate(
        request: Callable[Concatenate[R, RemoteStateData, PodInfo, P], _Result],
    ) -> Callable[Concatenate[R, CycleState, PodInfo, P], _Result]:
        @wraps(request)
        async def run(
            self: R, state: CycleState, pod: PodInfo, /, *args: P.args, **kwargs: P.kwargs
        ) -> Status | None:
            state_data = self.state_data(state, pod)
            if point not in state_data.points:
                return None
            try:
                return await request(self, state_data, pod, *args, **kwargs)
            except ProreusError as error:
                if not self.endpoint.descriptor.ignorable:
                    return Status.error(str(error))
                state_data.points = ()
                log.v(2).info("Continuing without a plugin", plugin=self.name, err=error)
                return None

        return run

    return decorate
