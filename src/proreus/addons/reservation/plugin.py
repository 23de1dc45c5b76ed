"""The plugin: lets owners of a reservation pass over its pod in Filter, and take from it.

Worked example: a reservation of 4 CPUs is a provided pod on a node of 4 CPUs. An owner of 1 CPU
fits there, because Filter looks at the node without that pod; Reserve makes it one of 3 CPUs.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any

import msgspec
import numpy as np

from proreus.addons.pod_amounts import quantities
from proreus.addons.reservation.book import ReservationBook
from proreus.addons.reservation.held import HeldReservation
from proreus.addons.reservation.matching import RESERVATION_IGNORED, ReservationDemand
from proreus.addons.reservation.objects import (
    AVAILABLE,
    FAILED,
    PENDING,
    RESERVATION_ALLOCATED,
    RESERVATIONS,
    SUCCEEDED,
    ReservationObject,
)
from proreus.base.clock import rfc3339
from proreus.framework import (
    MAX_SCORE,
    ApiError,
    BackgroundPlugin,
    ClusterEvent,
    CycleState,
    Handle,
    IntArray,
    NodeTable,
    NotFound,
    PluginArgs,
    PodInfo,
    PodSourcePlugin,
    PostBindPlugin,
    PreBindPlugin,
    PreFilterPlugin,
    PreScorePlugin,
    ReservePlugin,
    ScorePlugin,
    Status,
    events,
    is_provided,
    logger,
)
from proreus.objects import POD_SCHEDULED, PODS, Pod, PodStatus

log = logger(__name__)

_EXPIRY_SECONDS = 5.0
"""The time between two checks for expired reservations."""


class ReservationArgs(PluginArgs):
    """There are no arguments."""

    # Arguments of Koordinator.
    arguments_without_effect = {
        "enablePreemption": "a reservation preempts where DefaultPreemption is enabled",
        "minCandidateNodesPercentage": "that of DefaultPreemption counts",
        "minCandidateNodesAbsolute": "that of DefaultPreemption counts",
        "controllerWorkers": "`proreus controller` writes the statuses of Reservations",
        "gcDurationSeconds": "Reservations that are over are left to whoever made them",
    }
    points_without_effect = frozenset({"filter", "postFilter", "bind"})


class Reservation(
    PreFilterPlugin,
    PreScorePlugin,
    ScorePlugin,
    ReservePlugin,
    PreBindPlugin,
    PostBindPlugin,
    BackgroundPlugin,
    PodSourcePlugin,
):
    """Holds room on nodes, and gives it to the pods that it is for."""

    Args = ReservationArgs
    args: ReservationArgs

    def __init__(self, args: ReservationArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._book = ReservationBook.of(handle, self)
        self._last_gone: tuple[Pod | None, list[HeldReservation]] = (None, [])
        """The pod that ended last, and the reservations on its node."""

    def events_to_register(self) -> Iterable[ClusterEvent]:
        """Register reservations, and deleted pods that may give back their amounts."""
        changed = events.ADD | events.UPDATE
        return (
            ClusterEvent(RESERVATIONS.id, changed, hint=self._has_room_now),
            ClusterEvent(events.ASSIGNED_POD, events.DELETE, hint=self._may_give_back),
        )

    def _has_room_now(
        self, pod: PodInfo, old: ReservationObject | None, new: ReservationObject
    ) -> bool:
        if old is not None and _what_owners_see(old) == _what_owners_see(new):
            return False
        held = self._book.find(new)
        return held is not None and bool(held.node_name) and self._may_take(pod, (held,))

    def _may_give_back(self, pod: PodInfo, old: Pod, new: None) -> bool:
        # Called for many waiting pods after the end of one.
        if self._last_gone[0] is not old:
            self._last_gone = old, self._book.available_on(old.spec.node_name)
        return self._may_take(pod, self._last_gone[1])

    def _may_take(self, pod: PodInfo, reservations: Sequence[HeldReservation]) -> bool:
        if pod.labels.get(RESERVATION_IGNORED) == "true":
            return bool(reservations)
        matching = [one for one in reservations if one.matcher.matches(pod.pod)]
        # Most pods are no owners: their annotations need not be read.
        demand = ReservationDemand(pod.pod) if matching else None
        return demand is not None and any(self._book.is_for(one, pod, demand) for one in matching)

    # ---- owners --------------------------------------------------------------------------------

    def pre_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable
    ) -> Status | frozenset[str] | None:
        """Find the reservations that the pod may take from, and let Filter pass over them."""
        if pod.labels.get(RESERVATION_IGNORED) == "true":
            state.replaceable_pods = _by_node(self._book.available)
            return None
        if is_provided(pod.pod):
            return None
        demand = ReservationDemand(pod.pod)
        if not demand.is_valid:
            return Status.unresolvable("an annotation about reservations cannot be read")
        usable = self._book.usable(pod, demand)
        if usable:
            state.write(self.name, usable)
            state.replaceable_pods = _by_node(usable.values())
        if demand.affinity is None and not demand.exact:
            return None
        return frozenset(usable) if usable else Status.unresolvable("no reservation matches")

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        """Skip pods that may take from no reservation: they score nodes as if there were none."""
        return None if state.get(self.name) else Status.skip()

    def score_all(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> IntArray | int:
        """Score nodes by their reservation: 100 for the lowest order, else how well it fits."""
        usable: Mapping[str, HeldReservation] | None = state.get(self.name)
        if not usable:
            return 0
        scores: IntArray = np.zeros(len(nodes), dtype=np.int64)
        first = min(held.reservation.order for held in usable.values())
        for name, held in usable.items():
            row = nodes.rows.get(name)
            if row is None:
                continue
            if isfinite(first) and held.reservation.order == first:
                scores[row] = MAX_SCORE
            else:
                # Between a node without one and the one of the lowest order.
                scores[row] = MAX_SCORE // 2 + int(49 * held.share(pod.requests.amounts))
        return scores

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Take from the reservation on the node, so that it holds less from now on."""
        usable: Mapping[str, HeldReservation] | None = state.get(self.name)
        held = None if usable is None else usable.get(node_name)
        if not self._book.take("" if held is None else held.uid, pod, node_name):
            assert held is not None
            return Status.unschedulable(f"reservation {held.name} was taken by another pod")
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Give back the amounts of the pod."""
        self._book.release(pod)

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Return Skip if the pod takes from no reservation, and never did."""
        taken = self._book.reservation_taken_by(pod.uid)
        if taken is None and RESERVATION_ALLOCATED not in pod.pod.metadata.annotations:
            return Status.skip()
        return None

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Note the reservation in the pod before it is bound: a restart finds it there."""
        taken = self._book.reservation_taken_by(pod.uid)
        value = None
        if taken is not None:
            meta = taken.reservation.metadata
            value = json.dumps({"name": meta.name, "uid": meta.uid})
        patch = {"metadata": {"annotations": {RESERVATION_ALLOCATED: value}}}
        try:
            await self.handle.api.patch(PODS, pod.namespace, pod.name, patch)
        except ApiError as error:
            return Status.error(f"cannot note the reservation of pod {pod.key}: {error}")
        return None

    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Report the owners of the reservation; one that is allocated once has succeeded."""
        taken = self._book.reservation_taken_by(pod.uid)
        if taken is None:
            return
        self.handle.spawn(self._report(taken, _owners_status(taken)))

    # ---- the pods that hold room ---------------------------------------------------------------

    def provided_for(self, pod: PodInfo) -> Mapping[str, PodInfo]:
        """Return the pods of the reservations that a pod may take from, by node."""
        if pod.labels.get(RESERVATION_IGNORED) == "true" or is_provided(pod.pod):
            return {}
        demand = ReservationDemand(pod.pod)
        usable = self._book.usable(pod, demand) if demand.is_valid else {}
        return {name: held.pod for name, held in usable.items()}

    async def bind_provided_pod(self, pod: Pod, node_name: str) -> None:
        """Write the node of a reservation to its status, and hold the room there."""
        held = self._book.find(pod)
        if held is None:
            raise NotFound(404, "NotFound", f"reservation of {pod.metadata.name} is gone")
        status = {
            "phase": AVAILABLE,
            "nodeName": node_name,
            "allocatable": quantities(held.reserved),
            "conditions": [
                self._condition("Scheduled", True, "Scheduled"),
                self._condition("Ready", True, AVAILABLE),
            ],
        }
        await self._patch(held, status)
        self._book.scheduled(held, node_name)

    async def patch_provided_pod_status(self, pod: Pod, patch: dict[str, Any]) -> None:
        """Write to a reservation why it has no node."""
        held = self._book.find(pod)
        if held is None:
            return
        patched = {key: value for key, value in patch["status"].items() if value is not None}
        status = msgspec.convert({**msgspec.to_builtins(pod.status), **patched}, PodStatus)
        self._book.note_status(held, status)
        for condition in patch["status"].get("conditions", ()):
            if condition["type"] != POD_SCHEDULED:
                continue
            reason, message = condition.get("reason", ""), condition.get("message", "")
            scheduled = self._condition("Scheduled", False, reason, message)
            await self._patch(held, {"phase": PENDING, "conditions": [scheduled]})

    async def delete_provided_pod(self, pod: Pod) -> None:
        """Fail a reservation, since a pod of higher priority needs its room."""
        held = self._book.find(pod)
        if held is not None:
            await self._patch(held, self._failed_status("Preempted"))
            self._book.drop(held.uid)

    async def run_in_background(self) -> None:
        """Fail expired reservations."""
        while True:
            for held in list(self._book.expired()):
                await self._report(held, self._failed_status("Expired"))
            # A scheduler that ended right after a binding has not reported it.
            for held in self._book.succeeded():
                await self._report(held, _owners_status(held))
            await asyncio.sleep(_EXPIRY_SECONDS)

    # ---- status --------------------------------------------------------------------------------

    def _failed_status(self, reason: str) -> dict[str, Any]:
        return {"phase": FAILED, "conditions": [self._condition("Ready", False, reason)]}

    async def _report(self, held: HeldReservation, status: dict[str, Any]) -> None:
        try:
            await self._patch(held, status)
        except ApiError as error:
            log.warning("Cannot write status of a reservation", reservation=held.name, err=error)

    async def _patch(self, held: HeldReservation, status: dict[str, Any]) -> None:
        await self.handle.api.patch(RESERVATIONS, "", held.name, {"status": status}, "status")

    def _condition(
        self, type_: str, is_true: bool, reason: str, message: str = ""
    ) -> dict[str, Any]:
        now = rfc3339(self.handle.clock.now())
        return {
            "type": type_,
            "status": str(is_true),
            "reason": reason,
            "message": message,
            "lastTransitionTime": now,
            "lastProbeTime": now,
        }


def _what_owners_see(reservation: ReservationObject) -> tuple[Any, ...]:
    """Return the fields that decide who may take from a reservation, and where."""
    return reservation.spec, reservation.metadata.labels, reservation.status.node_name


def _by_node(reservations: Iterable[HeldReservation]) -> dict[str, list[PodInfo]]:
    found: dict[str, list[PodInfo]] = {}
    for held in reservations:
        found.setdefault(held.node_name, []).append(held.pod)
    return found


def _owners_status(held: HeldReservation) -> dict[str, Any]:
    """Return the status with owners and their amounts; a reservation for one pod has succeeded."""
    owners = []
    for uid, owner in held.owners_here.items():
        namespace, _, name = owner.key.partition("/")
        owners.append({"namespace": namespace, "name": name, "uid": uid})
    allocated = {name: min(held.taken(name), amount) for name, amount in held.reserved.items()}
    status: dict[str, Any] = {"allocated": quantities(allocated), "currentOwners": owners}
    if held.reservation.once:
        status["phase"] = SUCCEEDED
    return status
