"""ReserveAndNotify: pods that need a licence get one from a licence server before they are bound.

Reserve rejects a pod at once while the server is known to have no seat. PreBind requests a seat
and waits for the response. The server is notified of PostBind and of the end of a pod in the
background, in order, with retries. Its HTTP API:

    PUT    <url>/seats/<product>/<pod's uid>   2xx: granted   409: no seat is free
    POST   <url>/bound                         {"pod", "node", "product"}
    DELETE <url>/seats/<product>/<pod's uid>   given back, whether it was granted or not
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import quote

import aiohttp
from pydantic import Field

from proreus.framework import (
    BackgroundPlugin,
    ClusterEvent,
    CycleState,
    Handle,
    PluginArgs,
    PodInfo,
    PostBindPlugin,
    PreBindPlugin,
    ReservePlugin,
    Seconds,
    Status,
    events,
    logger,
    plugin_event,
)
from proreus.objects import PODS, ObjectMeta, Pod

log = logger("plugins.ReserveAndNotify")

SEAT_GIVEN_BACK = plugin_event("SeatGivenBack")


class Message(NamedTuple):
    """A notification to be sent to the server in the background."""

    method: str
    path: str
    body: dict[str, str] | None = None
    product: str = ""


class ReserveAndNotify(ReservePlugin, PreBindPlugin, PostBindPlugin, BackgroundPlugin):
    """The server keeps the records; the plugin only caches that a product is sold out."""

    class Args(PluginArgs):
        """Where the server is, and which pods need a licence."""

        url: str = Field(pattern="^https?://", description="Of the licence server.")
        label: str = Field("example.com/licence", description="Label of pods: the product.")
        timeout_seconds: Seconds = Field(2.0, gt=0, description="For each request.")
        believe_seconds: Seconds = Field(30.0, ge=0, description='How long "no seat" is assumed.')
        tries: int = Field(
            5, ge=1, description="How often a notification is sent, 1 s, 2 s, … apart."
        )

    args: Args

    def __init__(self, args: Args, handle: Handle) -> None:
        super().__init__(args, handle)
        self._session: aiohttp.ClientSession | None = None
        self._outbox: asyncio.Queue[Message] = asyncio.Queue()
        self._sold_out: dict[str, float] = {}
        """Until when a product is assumed to have no seat, in seconds since the epoch."""
        handle.on_change(PODS, self._on_pod)

    # ---- before binding ------------------------------------------------------------------

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        product = self._product(pod.pod.metadata)
        sold_out = self.handle.clock.monotonic() < self._sold_out.get(product, 0.0)
        return _no_seat(product) if sold_out else None

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        return None if self._product(pod.pod.metadata) else Status.skip()

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        product = self._product(pod.pod.metadata)
        state.write(self.name, product)  # from here on there may be a seat to give back
        try:
            code = await self._send(Message("PUT", _seat(product, pod.uid)))
        except (aiohttp.ClientError, TimeoutError) as error:
            # An Error, not a rejection: the pod is tried again after its back-off.
            return Status.error(f"licence server: {type(error).__name__} {error}".rstrip())
        if code == HTTPStatus.CONFLICT:
            state.write(self.name, "")
            self._sold_out[product] = self.handle.clock.monotonic() + self.args.believe_seconds
            return _no_seat(product)
        return None if code < 300 else Status.error(f"licence server: status {code}")

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        if product := state.get(self.name):
            self._give_back(product, pod.uid)

    # ---- afterwards ----------------------------------------------------------------------------

    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        if product := state.get(self.name):
            body = {"pod": pod.key, "node": node_name, "product": product}
            self._outbox.put_nowait(Message("POST", "/bound", body))

    def _on_pod(self, old: Pod | None, new: Pod | None) -> None:
        """Give back the seat of a pod that is gone, or has finished."""
        if old is None or new is not None or not old.spec.node_name:
            return
        if product := self._product(old.metadata):
            self._give_back(product, old.metadata.uid)

    def _give_back(self, product: str, uid: str) -> None:
        self._outbox.put_nowait(Message("DELETE", _seat(product, uid), product=product))

    async def run_in_background(self) -> None:
        timeout = aiohttp.ClientTimeout(self.args.timeout_seconds)
        async with aiohttp.ClientSession(timeout=timeout) as self._session:
            undelivered: list[Message] = []
            try:
                while True:
                    undelivered = [await self._outbox.get()]
                    await self._deliver(undelivered[0])
                    undelivered.clear()
            finally:  # at the end each notification that is left is sent once, without retries
                while not self._outbox.empty():
                    undelivered.append(self._outbox.get_nowait())
                for message in undelivered:
                    with suppress(aiohttp.ClientError, TimeoutError):
                        await self._send(message)

    async def _deliver(self, message: Message) -> None:
        for attempt in range(1, self.args.tries + 1):
            try:
                code: Any = await self._send(message)
            except (aiohttp.ClientError, TimeoutError) as error:
                code = repr(error)
            if isinstance(code, int) and code < 500:
                break
            log.warning(
                "Licence server was not notified", what=message, error=code, attempt=attempt
            )
            await asyncio.sleep(attempt)
        if message.method == "DELETE":
            self._sold_out.pop(message.product, None)
            self.handle.announce(SEAT_GIVEN_BACK, None, message.product)

    async def _send(self, message: Message) -> int:
        assert self._session is not None, "background work begins before the first binding"
        url = self.args.url.rstrip("/") + message.path
        async with self._session.request(message.method, url, json=message.body) as response:
            return response.status

    # ---- events that wake pods ------------------------------------------------------------------

    def events_to_register(self) -> Iterable[ClusterEvent]:
        return (
            plugin_event("SeatGivenBack", self._is_of_its_product),
            ClusterEvent(events.TARGET_POD, events.UPDATE_POD_LABEL, self._is_relabelled),
        )

    def _is_relabelled(self, pod: PodInfo, old: Pod, new: Pod) -> bool:
        changed = self._product(old.metadata) != self._product(new.metadata)
        return changed and new.metadata.uid == pod.uid

    def _is_of_its_product(self, pod: PodInfo, old: None, new: str) -> bool:
        return self._product(pod.pod.metadata) == new

    def _product(self, meta: ObjectMeta) -> str:
        return meta.labels.get(self.args.label, "")


def _seat(product: str, uid: str) -> str:
    return f"/seats/{quote(product, safe='')}/{quote(uid, safe='')}"


def _no_seat(product: str) -> Status:
    return Status.unschedulable(f"no licence for {product} is free")
