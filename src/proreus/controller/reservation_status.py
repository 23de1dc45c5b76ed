"""The status of Koordinator's Reservations: their owners, and their end.

The add-on Reservation gives a reservation its node, and writes the same as here when it binds an
owner. Changes without it are written here: owners that are gone again, reservations that expire
while no scheduler runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from proreus.addons.pod_amounts import quantities
from proreus.addons.reservation.book import reservation_of
from proreus.addons.reservation.held import HeldReservation, Owner
from proreus.addons.reservation.objects import (
    AVAILABLE,
    FAILED,
    RESERVATIONS,
    SUCCEEDED,
    ReservationObject,
)
from proreus.base.clock import rfc3339
from proreus.controller.amounts import is_assigned, requested
from proreus.controller.status_reconciler import StatusReconciler, WithStatus
from proreus.framework import PodInfo
from proreus.objects import ObjectMeta, Pod
from proreus.objects.quantity import amounts_of


class ReservationStatuses(StatusReconciler[ReservationObject]):
    """Writes the owners of reservations, and fails expired reservations."""

    def __init__(self) -> None:
        super().__init__(RESERVATIONS, reservation_of)
        self._keys: dict[str, str] = {}
        """The key of a reservation, by its uid."""
        self._first: dict[str, ObjectMeta] = {}
        """The annotations of each pod when it was first seen with a node, by uid: these count."""

    def put(self, key: str, obj: WithStatus[ReservationObject]) -> Iterable[str]:
        """Note a reservation that is new or has changed."""
        self.remove(key)
        self._keys[obj.obj.metadata.uid] = key
        return super().put(key, obj)

    def remove(self, key: str) -> Iterable[str]:
        """Note that a reservation is gone."""
        if (seen := self.objects.get(key)) is not None:
            del self._keys[seen.obj.metadata.uid]
        return super().remove(key)

    def put_pod(self, pod: Pod) -> Iterable[str]:
        """Note a pod that is new or has changed."""
        meta = pod.metadata
        if pod.spec.node_name:
            meta = self._first.setdefault(meta.uid, meta)
        return super().put_pod(replace(pod, metadata=meta))

    def remove_pod(self, pod: Pod) -> Iterable[str]:
        """Note that a pod is gone."""
        self._first.pop(pod.metadata.uid, None)
        return super().remove_pod(pod)

    def keys_that_count(self, names: Collection[str]) -> Collection[str]:
        """Return the reservations with these uids."""
        return [self._keys[uid] for uid in names if uid in self._keys]

    def status(self, key: str, now: float) -> dict[str, Any]:
        """Return phase, owners and the amounts that they have taken; nothing for a finished
        reservation.
        """
        seen = self.objects[key]
        reservation, present = seen.obj, seen.status
        if reservation.is_over:
            return {}
        owners = self._owners_of(reservation)
        if reservation.once and owners and reservation.status.phase == AVAILABLE:
            return {"phase": SUCCEEDED, **_of_owners(owners, present)}
        if reservation.ends_at <= now:
            return {"phase": FAILED, "conditions": _expired(present, now)}
        if reservation.status.phase != AVAILABLE:
            return {}
        return _of_owners([pod for pod in owners if is_assigned(pod)], present)

    def _owners_of(self, reservation: ReservationObject) -> list[Pod]:
        """Return the pods that have taken from a reservation, finished ones too.

        The scheduler's rule decides: a pod that only says so has taken nothing.
        """
        pods: dict[str, Pod] = {}
        claims: dict[str, Owner] = {}
        for pod in self.pods.of(reservation.metadata.uid):
            if pod.spec.node_name:
                info = PodInfo(pod)
                pods[info.uid] = pod
                claims[info.uid] = Owner(info.key, pod.spec.node_name, info.requests.amounts, pod)
        return [pods[uid] for uid in HeldReservation(reservation, claims, None).owners_here]


def _of_owners(owners: list[Pod], present: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that differ in more than their order or spelling."""
    metas = sorted((pod.metadata for pod in owners), key=lambda meta: (meta.namespace, meta.name))
    found = [{"namespace": one.namespace, "name": one.name, "uid": one.uid} for one in metas]
    status: dict[str, Any] = {}
    written = present.get("currentOwners") or []
    if {one["uid"] for one in found} != {one.get("uid") for one in written}:
        status["currentOwners"] = found
    taken = requested(owners)
    reserved = amounts_of(present.get("allocatable") or {})
    allocated = {name: min(taken.get(name, 0), amount) for name, amount in reserved.items()}
    if allocated != dict.fromkeys(reserved, 0) | amounts_of(present.get("allocated") or {}):
        status["allocated"] = quantities(allocated)
    return status


def _expired(present: Mapping[str, Any], now: float) -> list[dict[str, Any]]:
    """Return the conditions of a reservation that is not ready any more."""
    stamp = rfc3339(now)
    others = [one for one in present.get("conditions") or [] if one.get("type") != "Ready"]
    return [
        *others,
        {
            "type": "Ready",
            "status": "False",
            "reason": "Expired",
            "message": "",
            "lastTransitionTime": stamp,
            "lastProbeTime": stamp,
        },
    ]
