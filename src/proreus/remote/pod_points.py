"""The extension points after a node is selected: Reserve, Permit, PreBind, PostBind."""

from __future__ import annotations

import asyncio

import msgspec

from proreus.base.errors import ProreusError
from proreus.base.logs import logger
from proreus.framework.cycle_state import CycleState
from proreus.framework.plugin import PermitPlugin, PostBindPlugin, PreBindPlugin, ReservePlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Code, Status
from proreus.remote import wire
from proreus.remote.plugin import REJECTIONS, RemotePlugin, RemoteStateData, at_point
from proreus.remote.pod_fields import IDENTITY, pod_json

log = logger(__name__)

WAITING_POLL_SECONDS = 0.25
"""The interval of requests about the pods that a plugin holds in Permit."""


class RemoteReserve(RemotePlugin, ReservePlugin):
    """``POST /v1/reserve``, ``POST /v1/unreserve``."""

    @at_point("reserve")
    async def fetch_reserve(
        self, state_data: RemoteStateData, pod: PodInfo, node_name: str
    ) -> Status | None:
        """Make the request and keep the response."""
        # A request without a response may have been processed: it has to be undone, too.
        state_data.reserved = True
        # A queued Unreserve of an earlier attempt must not arrive after this request and undo it.
        await self.endpoint.flush()
        response = await self.call_about_node("/v1/reserve", state_data, pod, node_name)
        state_data.reserve = wire.verdict_of(response, Code.SUCCESS, *REJECTIONS, Code.ERROR)
        return None

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Return the fetched result."""
        return self.state_data(state, pod).reserve

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Queue an Unreserve message if the process may have reserved."""
        state_data = self.state_data(state, pod)
        if state_data.reserved:
            state_data.reserved, state_data.reserve = False, None
            self.endpoint.notify("/v1/unreserve", self.pod_on_node_body(state_data, pod, node_name))


class RemotePermit(RemotePlugin, PermitPlugin):
    """``POST /v1/permit``, and ``POST /v1/waiting`` while it holds pods."""

    @at_point("permit")
    async def fetch_permit(
        self, state_data: RemoteStateData, pod: PodInfo, node_name: str
    ) -> Status | None:
        """Make the request and keep the response."""
        response = await self.call_about_node("/v1/permit", state_data, pod, node_name)
        allowed = (Code.SUCCESS, Code.WAIT, *REJECTIONS, Code.ERROR)
        state_data.permit = wire.verdict_of(response, *allowed)
        return None

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Return the fetched result."""
        state_data = self.state_data(state, pod)
        status, state_data.permit = state_data.permit, None
        return status

    async def run_in_background(self) -> None:
        """In addition to the base class's work, poll for decisions on waiting pods."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(super().run_in_background())
            tasks.create_task(self._call_waiting())

    async def _call_waiting(self) -> None:
        while True:
            await asyncio.sleep(WAITING_POLL_SECONDS)
            held = {
                waiting.pod.uid: waiting
                for waiting in self.handle.waiting_pods()
                if waiting.pod.pod.spec.scheduler_name == self.handle.profile_name
                and self.name in waiting.pending_plugins()
            }
            if not held or self.endpoint.is_open:
                continue
            pods = [msgspec.Raw(pod_json(waiting.pod, IDENTITY)) for waiting in held.values()]
            request_body = {"profile": self.handle.profile_name, "pods": pods}
            seconds = self.endpoint.descriptor.timeout_seconds
            try:
                response = await self.endpoint.call_unsynced(
                    "/v1/waiting", request_body, wire.WaitingResponse, seconds
                )
            except ProreusError as error:
                log.v(2).info("No response about waiting pods", plugin=self.name, err=error)
                continue
            for uid in response.allowed:
                if uid in held:
                    held[uid].allow(self.name)
            for one in response.rejected:
                if one.uid in held:
                    held[one.uid].reject(self.name, one.reason)


class RemotePreBind(RemotePlugin, PreBindPlugin):
    """``POST /v1/pre-bind``: has a time-out of its own, up to ten minutes."""

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Skip unless the plugin takes part."""
        return None if "preBind" in self.state_data(state, pod).points else Status.skip()

    @at_point("preBind")
    async def pre_bind(
        self, state_data: RemoteStateData, pod: PodInfo, node_name: str
    ) -> Status | None:
        """Make the request and return its result."""
        seconds = self.endpoint.descriptor.pre_bind_timeout_seconds
        response = await self.endpoint.call_unsynced(
            "/v1/pre-bind",
            self.pod_on_node_body(state_data, pod, node_name),
            wire.VerdictResponse,
            seconds,
        )
        return wire.verdict_of(response, Code.SUCCESS, *REJECTIONS, Code.ERROR)


class RemotePostBind(RemotePlugin, PostBindPlugin):
    """``POST /v1/post-bind``: a message without a result."""

    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Queue a PostBind message."""
        state_data = self.state_data(state, pod)
        if "postBind" in state_data.points:
            self.endpoint.notify("/v1/post-bind", self.pod_on_node_body(state_data, pod, node_name))
