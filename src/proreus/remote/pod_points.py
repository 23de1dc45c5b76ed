"""The points that are asked once a pod has its node: Reserve, Permit, PreBind, PostBind."""

from __future__ import annotations

import asyncio

import msgspec

from proreus.errors import ProreusError
from proreus.framework.cycle_state import CycleState
from proreus.framework.plugin import PermitPlugin, PostBindPlugin, PreBindPlugin, ReservePlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Code, Status
from proreus.logs import logger
from proreus.remote import wire
from proreus.remote.plugin import REJECTIONS, Notes, RemotePlugin
from proreus.remote.pod_fields import IDENTITY, pod_json
from proreus.remote.wire import BadAnswer

log = logger(__name__)

WAITING_SECONDS = 0.25
"""How often a plugin is asked about the pods that it holds in Permit."""


class RemoteReserve(RemotePlugin, ReservePlugin):
    """``POST /v1/reserve``, ``POST /v1/unreserve``."""

    async def fetch_reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Ask, and note the answer."""
        notes = self.notes(state, pod)
        # Even where no answer comes it may have happened.
        notes.reserved = "reserve" in notes.points
        return await self.unless_left_out(
            notes, "reserve", self._ask_reserve(notes, pod, node_name)
        )

    async def _ask_reserve(self, notes: Notes, pod: PodInfo, node_name: str) -> None:
        endpoint = self.endpoint
        # What was undone for an earlier attempt must not undo this one.
        await endpoint.everything_told()
        answer = await endpoint.ask(
            "/v1/reserve",
            lambda: self.about(notes, pod, node_name),
            wire.VerdictAnswer,
            self.handle.nodes,
        )
        assert answer is not None
        notes.reserve = _verdict(answer, Code.SUCCESS, *REJECTIONS, Code.ERROR)

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Answer with what was fetched."""
        return self.notes(state, pod).reserve

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Tell, where it may have reserved."""
        notes = self.notes(state, pod)
        if notes.reserved:
            notes.reserved, notes.reserve = False, None
            self.endpoint.tell("/v1/unreserve", self.about(notes, pod, node_name))


class RemotePermit(RemotePlugin, PermitPlugin):
    """``POST /v1/permit``, and ``POST /v1/waiting`` while it holds pods."""

    async def fetch_permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Ask, and note the answer."""
        notes = self.notes(state, pod)
        return await self.unless_left_out(notes, "permit", self._ask_permit(notes, pod, node_name))

    async def _ask_permit(self, notes: Notes, pod: PodInfo, node_name: str) -> None:
        answer = await self.endpoint.ask(
            "/v1/permit",
            lambda: self.about(notes, pod, node_name),
            wire.VerdictAnswer,
            self.handle.nodes,
        )
        assert answer is not None
        notes.permit = _verdict(answer, Code.SUCCESS, Code.WAIT, *REJECTIONS, Code.ERROR)

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Answer with what was fetched."""
        notes = self.notes(state, pod)
        status, notes.permit = notes.permit, None
        return status

    async def run_in_background(self) -> None:
        """Beside the rest, ask what becomes of the pods that the plugin holds."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(super().run_in_background())
            tasks.create_task(self._ask_about_waiting())

    async def _ask_about_waiting(self) -> None:
        while True:
            await asyncio.sleep(WAITING_SECONDS)
            held = {
                waiting.pod.uid: waiting
                for waiting in self.handle.waiting_pods()
                if waiting.pod.pod.spec.scheduler_name == self.handle.profile_name
                and self.name in waiting.pending_plugins()
            }
            if not held or self.endpoint.is_open:
                continue
            pods = [msgspec.Raw(pod_json(waiting.pod, IDENTITY)) for waiting in held.values()]
            question = {"profile": self.handle.profile_name, "pods": pods}
            seconds = self.endpoint.descriptor.timeout_seconds
            try:
                answer = await self.endpoint.ask_beside(
                    "/v1/waiting", question, wire.WaitingAnswer, seconds
                )
            except ProreusError as error:
                log.v(2).info("Not told of waiting pods", plugin=self.name, err=error)
                continue
            for uid in answer.allowed:
                if uid in held:
                    held[uid].allow(self.name)
            for one in answer.rejected:
                if one.uid in held:
                    held[one.uid].reject(self.name, one.reason)


class RemotePreBind(RemotePlugin, PreBindPlugin):
    """``POST /v1/pre-bind``: the one point that may take its time."""

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Tell whether the plugin takes part."""
        return None if "preBind" in self.notes(state, pod).points else Status.skip()

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Ask and wait."""
        notes = self.notes(state, pod)
        return await self.unless_left_out(
            notes, "preBind", self._ask_pre_bind(notes, pod, node_name)
        )

    async def _ask_pre_bind(self, notes: Notes, pod: PodInfo, node_name: str) -> Status | None:
        seconds = self.endpoint.descriptor.pre_bind_timeout_seconds
        answer = await self.endpoint.ask_beside(
            "/v1/pre-bind", self.about(notes, pod, node_name), wire.VerdictAnswer, seconds
        )
        return _verdict(answer, Code.SUCCESS, *REJECTIONS, Code.ERROR)


class RemotePostBind(RemotePlugin, PostBindPlugin):
    """``POST /v1/post-bind``: told, not asked."""

    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Tell."""
        notes = self.notes(state, pod)
        if "postBind" in notes.points:
            self.endpoint.tell("/v1/post-bind", self.about(notes, pod, node_name))


def _verdict(answer: wire.VerdictAnswer, *allowed: Code) -> Status | None:
    """Return the status of an answer; raises ``BadAnswer``, also for an Error."""
    status = wire.status_of("status", answer.status, *allowed)
    if status is not None and status.code == Code.ERROR:
        raise BadAnswer(status.message)
    return status
